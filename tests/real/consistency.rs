//! How fresh reads are, against a real kube-apiserver behind a network that is late, cut, and changes its mind.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod linear;
mod never_back;
mod odd_answers;
mod old_watches;
mod own_writes;
mod proxy;
mod quiet;
mod silent;

use std::path::PathBuf;

use crate::cluster::Cluster;
use crate::crontabs::definition;
use crate::support::client::Client;
use crate::support::{Through, until};
use crate::world::{JSON, MERGE, admin};
use informerd::upstream::client::ConfigSource;
use proxy::Proxy;

const STRATEGIC: (&str, &str) = ("content-type", "application/strategic-merge-patch+json");
const JSON_PATCH: (&str, &str) = ("content-type", "application/json-patch+json");
const APPLY: (&str, &str) = ("content-type", "application/apply-patch+yaml");

/// A cluster, the network in front of it, and the daemon behind that.
struct Scene {
    cluster: Cluster,
    proxy: Proxy,
    daemon: Through,
    /// To the first apiserver, past the network.
    direct: Client,
    through: Client,
}

impl Scene {
    async fn start(yaml: &str) -> Self {
        let cluster = Cluster::start().await;
        Self::before(cluster, &[], yaml).await
    }

    /// With a second apiserver on the same etcd.
    async fn with_second(yaml: &str) -> Self {
        let cluster = Cluster::start().await;
        let second = cluster.second_apiserver().await;
        Self::before(cluster, &[&second.server], yaml).await
    }

    async fn before(cluster: Cluster, others: &[&str], yaml: &str) -> Self {
        for namespace in ["a", "a-b"] {
            cluster.namespace(namespace).await;
        }
        cluster.apply(&definition("{}")).await;
        let backends = [&[cluster.info.server.as_str()], others].concat();
        let proxy = Proxy::start(&cluster.info.ca, &backends).await;
        let source = ConfigSource::Fixed(Box::new(kube::Config::new(proxy.url.parse().unwrap())));
        let daemon = Through::start(source, yaml).await;
        daemon.ready().await;
        let (direct, through) = (admin(&cluster), Client::new(&daemon.url));
        let path = "/apis/stable.example.com/v1/crontabs?resourceVersion=0";
        until("the definition is served", async || through.get(path).await.status == 200).await;
        Self { cluster, proxy, daemon, direct, through }
    }

    /// Reads that were answered from a cache.
    fn served(&self) -> u64 {
        self.daemon.daemon.reads.metrics().local()
    }

    fn floor(&self, group: &str, resource: &str) -> u64 {
        self.daemon.daemon.reads.floors().of(group, resource).get().get()
    }

    /// A kubeconfig for the daemon.
    fn kubeconfig(&self) -> PathBuf {
        let path = self.cluster.dir().join("through.kubeconfig");
        std::fs::write(&path, informerd_sim::kubeconfig("through", &self.daemon.url)).unwrap();
        path
    }
}
