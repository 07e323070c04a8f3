//! A cluster, a daemon before it, and a client of each: what they answer is compared.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use http::Method;
use informerd::upstream::client::ConfigSource;
use serde_json::Value;

use super::cluster::Cluster;
use super::support::client::{Answer, Client, rv};
use super::support::{Through, until};

pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");
pub(crate) const MERGE: (&str, &str) = ("content-type", "application/merge-patch+json");
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

pub(crate) struct World {
    pub cluster: Cluster,
    pub daemon: Through,
    /// Past the daemon, as the user that it is itself.
    pub direct: Client,
    pub through: Client,
}

/// A client of the apiserver that may do everything.
pub(crate) fn admin(cluster: &Cluster) -> Client {
    Client::tls(&cluster.info.server, &cluster.info.ca, "admin-token")
}

/// The same answer: what differs between any two answers of the apiserver itself is left out.
pub(crate) fn assert_alike(what: &str, direct: &Answer, through: &Answer) {
    assert_eq!(through.status, direct.status, "{what}\n{}\n{}", direct.text(), through.text());
    assert!(through.body == direct.body, "{what}\n{}\n{}", direct.text(), through.text());
    for header in ["content-type", "content-encoding", "vary", "etag", "cache-control", "warning", "retry-after"] {
        let [direct, through] =
            [direct, through].map(|answer| answer.headers.get_all(header).iter().collect::<Vec<_>>());
        assert_eq!(through, direct, "{what}: {header}");
    }
}

impl World {
    pub(crate) async fn start(yaml: &str) -> Self {
        Self::before(Cluster::start().await, yaml).await
    }

    /// Before a cluster where something has happened already.
    pub(crate) async fn before(cluster: Cluster, yaml: &str) -> Self {
        let source = ConfigSource::kubeconfig(cluster.admin());
        Self::between(cluster, source, yaml).await
    }

    /// With a daemon that reaches the cluster by another way.
    pub(crate) async fn between(cluster: Cluster, source: ConfigSource, yaml: &str) -> Self {
        let daemon = Through::start(source, yaml).await;
        daemon.ready().await;
        let (direct, through) = (admin(&cluster), Client::new(&daemon.url));
        Self { cluster, daemon, direct, through }
    }

    /// Both have to answer alike.
    pub(crate) async fn same_of(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let direct = self.direct.request(method.clone(), path, headers, body).await;
        let through = self.through.request(method, path, headers, body).await;
        assert_alike(&format!("{path} {headers:?}"), &direct, &through);
        through
    }

    pub(crate) async fn same(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.same_of(Method::GET, path, headers, "").await
    }

    /// A write past the daemon that has to succeed.
    pub(crate) async fn write(&self, method: Method, path: &str, body: &Value) -> Value {
        self.direct.write(method, path, body).await
    }

    /// Has the informer of a collection synced at or past the server's state; returns that.
    pub(crate) async fn settle(&self, collection: &str) -> u64 {
        let now = rv(&self.direct.json(collection).await);
        let list = rv(&self.through.json(&format!("{collection}?resourceVersion={now}")).await);
        assert!(list >= now, "{collection}: a list not older than {now} is of {list}");
        now
    }

    /// Until the apiserver answers with this status.
    pub(crate) async fn until_status(&self, path: &str, status: u16) {
        until(&format!("{status} of {path}"), async || self.direct.get(path).await.status == status).await;
    }

    /// Reads that were answered from a cache.
    pub(crate) fn served(&self) -> u64 {
        self.daemon.daemon.reads.metrics().local()
    }
}
