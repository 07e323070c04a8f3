//! A cluster, a daemon before it, and a client of each: what they answer is compared.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "compare.rs"]
mod compare;

use http::Method;
use informerd::apiserver::client::ConfigSource;
use serde_json::Value;

use compare::exchange::{self, Ask, End, Framing};
use compare::{Difference, compare};

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

/// The same answer, as the differential tests compare it. `asked` is the target of the request; other words may follow it.
#[track_caller]
pub(crate) fn assert_alike(asked: &str, direct: &Answer, through: &Answer) {
    assert_same(asked, direct, through, true);
}

/// The same answer, except that each side names the revision of its own cache.
#[track_caller]
pub(crate) fn assert_alike_but_revisions(asked: &str, direct: &Answer, through: &Answer) {
    assert_same(asked, direct, through, false);
}

#[track_caller]
fn assert_same(asked: &str, direct: &Answer, through: &Answer, still: bool) {
    let found = compare(&Ask::get(asked), &exchanged(direct), &exchanged(through), still);
    let found: Vec<_> = found.iter().map(Difference::to_string).collect();
    assert!(found.is_empty(), "{asked}: {}\n{}\n{}", found.join("\n"), direct.text(), through.text());
}

/// Without what depends on the version of HTTP: the two sides may speak different ones. `differential` compares the framing. And
/// without the plan, which only the daemon tells, where it is set to.
fn exchanged(answer: &Answer) -> exchange::Answer {
    let headers = answer
        .headers
        .iter()
        .filter(|(name, _)| !["connection", "keep-alive", "x-informerd-plan"].contains(&name.as_str()));
    exchange::Answer {
        status: answer.status.as_u16(),
        reason: String::new(),
        headers: headers
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect(),
        framing: Framing::Empty,
        body: answer.body.to_vec(),
        end: End::Clean,
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
