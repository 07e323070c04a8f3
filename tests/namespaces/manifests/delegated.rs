//! The overlays `tier` and `node-agent`, and programs that are led to the tier by their in-cluster configuration.

use std::path::Path;

use super::pod::{Pod, Process};
use super::sidecar::{create_pod, create_pod_as, stands_alone, until};
use super::{ADMIN, PROBES, image, isolated, objects, programs};
use crate::cluster::Cluster;
use crate::support::NODE_NAME;
use crate::support::client::Client;

const CLIENTS: &str = "informerd-client";
const PINNED: &[(&str, &str)] =
    &[("", "namespaces"), ("", "nodes"), ("", "pods"), ("", "services"), ("discovery.k8s.io", "endpointslices")];

/// An overlay that runs, and the namespace of its clients.
pub(super) struct World {
    pub cluster: Cluster,
    overlay: &'static str,
    pub daemon: Process,
    /// Who sign the agent's certificates.
    pub signers: Vec<(Pod, Process)>,
    /// What keeps its files.
    _pod: Pod,
    pub clients: Pod,
}

pub(super) async fn the_tier_serves_unmodified_programs() {
    let world = World::start("tier").await;
    world.is_what_its_manifest_says().await;
    world.authorizes().await;
    let _service = programs::Service::start(world.cluster.dir()).await;
    programs::see_pods_come(&world.cluster, &world.clients, "client", CLIENTS, PROBES, true).await;
}

pub(super) async fn a_node_agent_serves_its_node() {
    let mut world = World::start("node-agent").await;
    world.is_what_its_manifest_says().await;
    assert_eq!(pods_cache().await["fieldSelector"], "spec.nodeName=node-1");
    world.authorizes().await;
    let account = world.clients.volume("account");
    let client = Client::tls(world.served(), &account.join("ca.crt"), &world.token());
    // What runs on the node is answered here, and what does not by the apiserver.
    let pods = format!("/api/v1/namespaces/{CLIENTS}/pods?resourceVersion=0");
    for (selector, cached) in [("&fieldSelector=spec.nodeName%3Dnode-1", true), ("", false)] {
        let before = programs::served(PROBES).await;
        assert_eq!(client.get(&format!("{pods}{selector}")).await.status, 200);
        assert_eq!(programs::served(PROBES).await > before, cached, "{selector:?}");
    }
    // A token that was made elsewhere, or is bound to no pod, is worth nothing here.
    for node in ["", "node-2"] {
        let mut args = vec!["create", "token", "client", "--namespace", CLIENTS];
        if !node.is_empty() {
            create_pod_as(&world.cluster, CLIENTS, "elsewhere", "client", node).await;
            args.extend(["--bound-object-kind=Pod", "--bound-object-name=elsewhere"]);
        }
        let stolen = world.cluster.kubectl_ok(args).await;
        for path in [format!("{pods}&fieldSelector=spec.nodeName%3Dnode-1"), "/version".to_owned()] {
            assert_eq!(client.with_token(stolen.trim()).get(&path).await.status, 401, "{node:?} {path}");
        }
    }
    let _service = programs::Service::start(world.cluster.dir()).await;
    programs::see_pods_come(&world.cluster, &world.clients, "client", CLIENTS, PROBES, false).await;

    // The choice: the pods of all nodes. As a DaemonSet does, the old pod ends before the new one comes.
    let component = objects::combination("node-agent", &["all-pods"]);
    objects::apply_directory(&world.cluster, component.path()).await;
    assert!(world.daemon.signal("TERM").await.success());
    let pod = Pod::of(&world.cluster, "daemonset", "informerd-node-agent", "informerd").await;
    world.daemon = pod.container("informerd").start_in(&image::binary().await).await;
    until(&mut world.daemon, &Client::new(PROBES), "/readyz", 200).await;
    world.is_what_its_manifest_says().await;
    assert_eq!(pods_cache().await["fieldSelector"], "");
    for name in programs::LANGUAGES {
        world.cluster.kubectl_ok(["delete", "pod", &format!("by-{name}"), "--namespace", CLIENTS, "--now"]).await;
    }
    programs::see_pods_come(&world.cluster, &world.clients, "client", CLIENTS, PROBES, true).await;
}

/// One replica of the signer, by its manifest but for the time that a certificate lasts, and for the port.
pub(super) async fn signer(cluster: &Cluster, port: u16) -> (Pod, Process) {
    let pod = Pod::placed(cluster, "deployment", "informerd-node-agent", "informerd-signer").await;
    let mut container = pod.container("informerd");
    container.env.insert("INFORMERD_PROBES".to_owned(), format!("127.0.0.1:{port}"));
    // A certificate lasts for a minute.
    container.env.insert("INFORMERD_TLS_CA_LIFETIME".to_owned(), "6m".to_owned());
    let mut signer = container.start_in(&image::binary().await).await;
    until(&mut signer, &Client::new(&format!("http://127.0.0.1:{port}")), "/readyz", 200).await;
    stands_alone(&signer);
    (pod, signer)
}

/// Programs that were not changed, with a token that the apiserver does not take.
pub(super) async fn an_audience_of_its_own_is_enough_for_informers() {
    let component = objects::combination("tier", &["audience"]);
    let world = World::with("tier", component.path(), "drop-in-audience").await;
    world.authorizes_reads().await;
    let account = world.clients.volume("account");
    let client = Client::tls(world.served(), &account.join("ca.crt"), &world.token());
    let pods = format!("/api/v1/namespaces/{CLIENTS}/pods");
    // Also what must be the newest, since nothing has to be forwarded for it.
    for path in [&pods, &format!("{pods}/one"), &format!("{pods}?limit=1"), &format!("{pods}?watch=1&timeoutSeconds=1")]
    {
        let answer = client.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    }
    // What is not cached, what is written and the API's documents are the apiserver's, to whom the token is worth nothing.
    for path in ["/version", "/api/v1"] {
        assert_eq!(client.get(path).await.status, 401, "{path}");
    }
    assert_eq!(client.request(http::Method::DELETE, &format!("{pods}/one"), &[], "").await.status, 401);
    let direct = Client::tls(&world.cluster.info.server, &world.cluster.info.ca, &world.token());
    assert_eq!(direct.get(&pods).await.status, 401);
    let apiservers = world.cluster.token(CLIENTS, "client").await;
    assert_eq!(client.with_token(&apiservers).get(&pods).await.status, 401, "a token for the apiserver");
    let _service = programs::Service::start(world.cluster.dir()).await;
    programs::see_pods_come(&world.cluster, &world.clients, "client", CLIENTS, PROBES, true).await;
}

async fn pods_cache() -> serde_json::Value {
    let caches = Client::new(ADMIN).json("/debug/caches").await;
    caches["caches"].as_array().unwrap().iter().find(|cache| cache["resource"] == "pods").unwrap().clone()
}

// === impl World ===

impl World {
    pub(super) async fn start(overlay: &'static str) -> Self {
        let example = if overlay == "tier" { "drop-in" } else { "drop-in-node" };
        Self::with(overlay, &objects::manifests().join("overlays").join(overlay), example).await
    }

    /// Of an overlay as a kustomization has it, with the clients of an example.
    async fn with(overlay: &'static str, directory: &Path, example: &str) -> Self {
        let cluster = Cluster::start().await;
        objects::create_node(&cluster, NODE_NAME, isolated::HOST_IP).await;
        objects::apply_directory(&cluster, directory).await;
        objects::apply_example(&cluster, example).await;
        let namespace = format!("informerd-{overlay}");
        let kind = if overlay == "tier" { "deployment" } else { "daemonset" };
        let pod = Pod::placed(&cluster, kind, &namespace, "informerd").await;
        let mut daemon = pod.container("informerd").start_in(&image::binary().await).await;
        let mut signers = Vec::new();
        if overlay == "node-agent" {
            until(&mut daemon, &Client::new(PROBES), "/livez", 200).await;
            assert_eq!(Client::new(PROBES).get("/readyz").await.status, 503, "nobody has signed its certificate");
            signers.push(signer(&cluster, 8004).await);
        }
        until(&mut daemon, &Client::new(PROBES), "/readyz", 200).await;
        create_pod(&cluster, CLIENTS, "one").await;
        let clients = Pod::placed(&cluster, "deployment", CLIENTS, "client").await;
        Self { cluster, overlay, daemon, signers, _pod: pod, clients }
    }

    /// Everything pinned is cached with no rights but the manifest's, and there are none that it does not need.
    async fn is_what_its_manifest_says(&self) {
        stands_alone(&self.daemon);
        let caches = Client::new(ADMIN).json("/debug/caches").await;
        let caches = caches["caches"].as_array().unwrap();
        assert_eq!(caches.len(), PINNED.len(), "{caches:#?}");
        assert!(caches.iter().all(|cache| cache["ready"] == true), "{caches:#?}");
        let name = format!("informerd-{}", self.overlay);
        let role = objects::get(&self.cluster, &["clusterrole", &name]).await;
        objects::reads_exactly(&role["rules"], PINNED);
        // It hears of changed rights, or it would say so.
        assert!(!self.daemon.log().contains("forbidden"), "{}", self.daemon.log());
        let account = format!("system:serviceaccount:{name}:informerd");
        for (verb, resource) in [
            ("list", "secrets"),
            ("get", "secrets"),
            ("list", "configmaps"),
            ("create", "pods"),
            ("delete", "pods"),
            ("update", "nodes"),
            ("impersonate", "users"),
            ("create", "serviceaccounts/token"),
            ("escalate", "clusterroles"),
        ] {
            let args = ["auth", "can-i", verb, resource, "--all-namespaces", "--as", &account];
            let answer = self.cluster.kubectl(self.cluster.admin(), args).await;
            assert_eq!(String::from_utf8_lossy(&answer.stdout).trim(), "no", "{verb} {resource}");
        }
    }

    /// A client reads what it may and nothing else, whatever is cached.
    async fn authorizes(&self) {
        self.authorizes_reads().await;
        let account = self.clients.volume("account");
        let client = Client::tls(self.served(), &account.join("ca.crt"), &self.token());
        assert_eq!(client.get(&format!("/api/v1/namespaces/{CLIENTS}/secrets")).await.status, 403);
    }

    async fn authorizes_reads(&self) {
        let account = self.clients.volume("account");
        let client = Client::tls(self.served(), &account.join("ca.crt"), &self.token());
        for (path, status) in [
            (format!("/api/v1/namespaces/{CLIENTS}/pods?resourceVersion=0"), 200),
            (format!("/api/v1/namespaces/{CLIENTS}/pods/one?resourceVersion=0"), 200),
            ("/api/v1/pods?resourceVersion=0".to_owned(), 403),
            ("/api/v1/nodes?resourceVersion=0".to_owned(), 403),
        ] {
            let answer = client.get(&path).await;
            assert_eq!(answer.status, status, "{path}: {}", answer.text());
        }
        let anonymous = Client::tls_anonymous(self.served(), &account.join("ca.crt"));
        assert_eq!(anonymous.get(&format!("/api/v1/namespaces/{CLIENTS}/pods?resourceVersion=0")).await.status, 401);
    }

    /// Where clients find it, but for the port.
    pub(super) fn served(&self) -> &'static str {
        if self.overlay == "tier" { "https://localhost:8443" } else { "https://10.0.0.7:8443" }
    }

    pub(super) fn token(&self) -> String {
        std::fs::read_to_string(self.clients.volume("account").join("token")).unwrap()
    }
}
