//! How fresh reads are, against a real kube-apiserver behind a network that is late, cut, and changes its mind.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod linear;
mod old_watches;
mod own_writes;
mod proxy;
mod silent;

use crate::cluster::Cluster;
use crate::crontabs::definition;
use crate::support::{unauthenticated, until};
use crate::world::{JSON, MERGE, World};
use proxy::Proxy;

const STRATEGIC: (&str, &str) = ("content-type", "application/strategic-merge-patch+json");
const JSON_PATCH: (&str, &str) = ("content-type", "application/json-patch+json");
const APPLY: (&str, &str) = ("content-type", "application/apply-patch+yaml");

/// A cluster, the network in front of it, and the daemon behind that.
struct Scene {
    /// Its `direct` is to the first apiserver, past the network.
    world: World,
    proxy: Proxy,
}

impl std::ops::Deref for Scene {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Scene {
    async fn start(yaml: &str) -> Self {
        Self::before(Cluster::start().await, &[], yaml).await
    }

    /// With more apiservers on the same etcd.
    async fn before(cluster: Cluster, others: &[&str], yaml: &str) -> Self {
        for namespace in ["a", "a-b"] {
            cluster.namespace(namespace).await;
        }
        cluster.apply(&definition("{}")).await;
        let backends = [&[cluster.info.server.as_str()], others].concat();
        let proxy = Proxy::start(&cluster.info.ca, &backends).await;
        let world = World::between(cluster, unauthenticated(&proxy.url), yaml).await;
        let path = "/apis/stable.example.com/v1/crontabs?resourceVersion=0";
        until("the definition is served", async || world.through.get(path).await.status == 200).await;
        Self { world, proxy }
    }
}
