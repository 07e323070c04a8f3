//! A cluster with roles of every kind, and a daemon in front of it with a delegated listener.

use std::path::{Path, PathBuf};

use http::Method;
use informerd::apiserver::client::ConfigSource;
use informerd::config::Config;
use serde_json::{Value, json};

use crate::access::faulty::Faulty;
use crate::access::rights::{account, binding, role, rule, user};
use crate::cluster::Cluster;
use crate::support::client::{Client, rv};
use crate::support::{Through, eventually, until};

/// Accounts in the namespace `a`, by name, and what they may.
pub(super) fn fixtures() -> String {
    let mut all = String::new();
    for name in ["a", "b"] {
        all += &format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n---\n");
    }
    for name in ["space", "names", "wide", "lister", "nothing"] {
        all += &format!("apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: {name}, namespace: a}}\n---\n");
    }
    let (read, metrics) = (["get", "list", "watch"], json!({ "nonResourceURLs": ["/metrics"], "verbs": ["get"] }));
    all + &role("a", "space", &[rule(&["pods", "configmaps"], &[], &read), rule(&["pods/log"], &[], &["get"])])
        + &binding("a", "space", ("Role", "space"), &[account("a", "space")])
        + &role("a", "names", &[rule(&["configmaps"], &["one"], &read)])
        + &binding("a", "names", ("Role", "names"), &[account("a", "names")])
        + &role("", "wide", &[rule(&["pods", "configmaps", "namespaces", "nopes"], &[], &read), metrics])
        + &binding("", "wide", ("ClusterRole", "wide"), &[account("a", "wide"), user("reader")])
        + &role("", "lister", &[rule(&["configmaps"], &[], &["list"])])
        + &binding("b", "lister", ("ClusterRole", "lister"), &[account("a", "lister")])
}

/// Delegated first, trusting second.
pub(super) const LISTEN: &str =
    "listen: [\"delegated+https://127.0.0.1:0\", \"http://127.0.0.1:0\"]\nlendIdentity: all\n";

pub(super) struct World {
    pub cluster: Cluster,
    pub daemon: Through,
    /// Of the daemon's listeners.
    pub ca: PathBuf,
}

fn client(url: &str, ca: &Path, token: Option<&str>) -> Client {
    let anonymous = Client::tls_anonymous(url, ca);
    token.map_or(anonymous.clone(), |token| anonymous.with_token(token))
}

impl World {
    pub(super) async fn start(yaml: &str) -> Self {
        Self::before(Cluster::start().await, yaml).await
    }

    /// With settings that a configuration may not have.
    pub(super) async fn start_changed(yaml: &str, change: fn(&mut Config)) -> Self {
        let cluster = Cluster::start().await;
        let source = ConfigSource::kubeconfig(cluster.admin());
        Self::changed(cluster, source, yaml, change).await
    }

    /// Every watch for changed rights is open, and the informers of these collections have what the apiserver has.
    pub(super) async fn warmed(yaml: &str, collections: &[&str]) -> Self {
        let world = Self::start(yaml).await;
        world.settled().await;
        world.warm(collections).await;
        world
    }

    /// Before a cluster where something has happened already.
    pub(super) async fn before(cluster: Cluster, yaml: &str) -> Self {
        let source = ConfigSource::kubeconfig(cluster.admin());
        Self::between(cluster, source, yaml).await
    }

    /// Before an apiserver whose reviews go wrong as they are told, once rights are watched.
    pub(super) async fn faulty(yaml: &str, change: fn(&mut Config)) -> (Self, Faulty) {
        let cluster = Cluster::start().await;
        let faulty = Faulty::before(&cluster).await;
        let world = Self::changed(cluster, faulty.source.clone(), yaml, change).await;
        world.settled().await;
        (world, faulty)
    }

    /// With a daemon that reaches the cluster by another way.
    pub(super) async fn between(cluster: Cluster, source: ConfigSource, yaml: &str) -> Self {
        Self::changed(cluster, source, yaml, |_| {}).await
    }

    async fn changed(cluster: Cluster, source: ConfigSource, yaml: &str, change: fn(&mut Config)) -> Self {
        cluster.apply(&fixtures()).await;
        let mut manifests = String::new();
        for (namespace, name, app) in [("a", "one", "x"), ("a", "two", "y"), ("b", "one", "x")] {
            let metadata = format!("metadata: {{name: {name}, namespace: {namespace}, labels: {{app: \"{app}\"}}}}");
            let spec = format!("spec: {{nodeName: node-{app}, containers: [{{name: main, image: image}}]}}");
            manifests += &format!("---\napiVersion: v1\nkind: ConfigMap\n{metadata}\n");
            manifests += &format!("---\napiVersion: v1\nkind: Pod\n{metadata}\n{spec}\n");
        }
        cluster.apply(&manifests).await;
        let daemon = Through::changed(source, &format!("{LISTEN}{yaml}"), change).await;
        daemon.ready().await;
        let ca = daemon.ca();
        Self { cluster, daemon, ca }
    }

    /// Every watch for changed rights is open: what is decided from now on is remembered for long.
    pub(super) async fn settled(&self) {
        let live = || self.daemon.daemon.access.metrics().watches_live.get();
        eventually("rights are watched", || live() == 4).await;
    }

    pub(super) async fn token(&self, account: &str, more: &[&str]) -> String {
        if more.is_empty() {
            return self.cluster.token("a", account).await;
        }
        let args = [&["create", "token", account, "--namespace", "a"], more].concat();
        self.cluster.kubectl_ok(args).await.trim().to_owned()
    }

    pub(super) fn direct(&self, token: Option<&str>) -> Client {
        let Cluster { info, .. } = &self.cluster;
        client(&info.server, &info.ca, token)
    }

    pub(super) fn through(&self, token: Option<&str>) -> Client {
        client(&self.daemon.url, &self.ca, token)
    }

    /// Who shows a certificate, and perhaps a token.
    pub(super) fn certified(&self, (certificate, key): &(PathBuf, PathBuf), token: Option<&str>) -> Client {
        Client::tls_certificate(&self.daemon.url, &self.ca, certificate, key, token)
    }

    /// The listener that trusts.
    pub(super) fn trusting(&self) -> Client {
        Client::new(&self.trusting_url())
    }

    pub(super) fn trusting_url(&self) -> String {
        self.daemon.listener(1)
    }

    /// Until a right that was given a moment ago has come to where it is asked for.
    pub(super) async fn allowed(&self, client: &Client, target: &str) {
        until(&format!("{target} is allowed"), async || client.get(target).await.status == 200).await;
    }

    pub(super) fn admin(&self) -> Client {
        self.direct(Some("admin-token"))
    }

    pub(super) async fn delete(&self, path: &str) {
        self.admin().write(Method::DELETE, path, &Value::Null).await;
    }

    /// A ConfigMap with nothing but a name.
    pub(super) async fn create(&self, namespace: &str, name: &str) {
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}});
        self.admin().write(Method::POST, &format!("/api/v1/namespaces/{namespace}/configmaps"), &object).await;
    }

    /// Has the informers of these collections synced to what the apiserver has now.
    pub(super) async fn warm(&self, collections: &[&str]) {
        for collection in collections {
            let now = rv(&self.admin().json(collection).await);
            self.trusting().json(&format!("{collection}?resourceVersion={now}")).await;
        }
    }

    pub(super) fn served(&self) -> u64 {
        self.daemon.daemon.reads.metrics().local()
    }
}
