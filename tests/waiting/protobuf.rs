//! Kubernetes protobuf before a real kube-apiserver: odd objects, and the encoding of each answer. `vectors` compares all types byte for
//! byte, and the differential tests compare requests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod poison;

use crate::cluster::Cluster;
use crate::support::client::{Answer, rv};
use crate::world::{PROTOBUF, World};
use http::Method;
use informerd::meta::Encoding;

const GO: &str = "application/vnd.kubernetes.protobuf,application/json";

async fn world(yaml: &str) -> World {
    let cluster = Cluster::start().await;
    cluster.namespace("a").await;
    World::before(cluster, yaml).await
}

fn partial(kind: &str, version: &str) -> String {
    format!("{PROTOBUF};as=PartialObjectMetadata{kind};g=meta.k8s.io;v={version}")
}

impl World {
    async fn get(&self, path: &str, accept: &str) -> Answer {
        self.through.request(Method::GET, path, &[("accept", accept)], "").await
    }

    /// Has the protobuf informer of a collection synced at or past the server's state.
    async fn settled(&self, collection: &str) {
        let now = rv(&self.direct.json(collection).await);
        let answer = self.get(&format!("{collection}?resourceVersion={now}"), PROTOBUF).await;
        assert_eq!((answer.status.as_u16(), &answer.headers["content-type"]), (200, &PROTOBUF.parse().unwrap()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_setting_decides() {
    let yaml = "resources: [{resource: configmaps, protobuf: json}, {resource: pods, protobuf: forward}]\n";
    let world = world(yaml).await;
    for (collection, accept, media, served) in [
        ("/api/v1/configmaps", GO, "application/json", 1),
        ("/api/v1/configmaps", PROTOBUF, PROTOBUF, 0),
        ("/api/v1/pods", GO, PROTOBUF, 0),
        ("/api/v1/pods", "application/json", "application/json", 1),
        ("/api/v1/services", GO, PROTOBUF, 1),
    ] {
        let before = world.served();
        let answer = world.get(&format!("{collection}?resourceVersion=0"), accept).await;
        assert_eq!(answer.headers["content-type"], media, "{collection} {accept}");
        assert_eq!(world.served() - before, served, "{collection} {accept}");
    }
    for (resource, held) in [("configmaps", [1, 0]), ("pods", [1, 0]), ("services", [0, 1])] {
        let factory = &world.daemon.daemon.factory;
        let of = |encoding| factory.those(|key| (&*key.gvr.resource, key.encoding) == (resource, encoding)).len();
        assert_eq!([Encoding::Json, Encoding::Protobuf].map(of), held, "{resource}, in JSON and in protobuf");
    }
}
