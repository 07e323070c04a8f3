//! What surrounds a body, beside a real kube-apiserver: warnings and compression.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod gzip;
mod warnings;

use crate::cluster::Cluster;
use crate::support::Through;
use crate::support::client::Client;
use informerd::upstream::client::ConfigSource;

/// A cluster and a daemon before it.
struct World {
    cluster: Cluster,
    direct: Client,
    through: Client,
    daemon: Through,
}

impl World {
    async fn new(yaml: &str) -> Self {
        let cluster = Cluster::start().await;
        let daemon = Through::start(ConfigSource::kubeconfig(cluster.admin()), yaml).await;
        daemon.ready().await;
        let direct = Client::tls(&cluster.info.server, &cluster.info.ca, "admin-token");
        let through = Client::new(&daemon.url);
        Self { cluster, direct, through, daemon }
    }

    /// Reads answered from a cache, or refused by one, so far.
    fn served(&self) -> u64 {
        let http = &self.daemon.daemon.http;
        http.requests_served.get() + http.requests_refused.get()
    }
}
