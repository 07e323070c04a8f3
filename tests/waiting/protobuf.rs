//! Kubernetes protobuf before a real kube-apiserver: odd objects, and the encoding of each answer. `vectors` compares all types byte for
//! byte, and the differential tests compare requests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod poison;
mod policy;

use std::collections::BTreeMap;

use crate::cluster::Cluster;
use crate::support::client::{Answer, rv};
use crate::world::{PROTOBUF, World};
use http::Method;
use informerd::codec::json::{ListMeta, WatchFrame};
use informerd::codec::{ListDecoder, WatchDecoder};
use informerd::meta::{Encoding, FieldTable};
use serde_json::json;

const GO: &str = "application/vnd.kubernetes.protobuf,application/json";

async fn world(yaml: &str) -> World {
    let cluster = Cluster::start().await;
    cluster.namespace("a").await;
    World::before(cluster, yaml).await
}

fn partial(kind: &str, version: &str) -> String {
    format!("{PROTOBUF};as=PartialObjectMetadata{kind};g=meta.k8s.io;v={version}")
}

fn list_meta(answer: &Answer) -> ListMeta {
    let mut decoder = ListDecoder::new(Encoding::Protobuf, 16 << 20, FieldTable::default());
    decoder.push(answer.body.clone());
    while decoder.next().unwrap().is_some() {}
    decoder.finish().unwrap()
}

impl World {
    async fn get(&self, path: &str, accept: &str) -> Answer {
        self.through.request(Method::GET, path, &[("accept", accept)], "").await
    }

    /// Has the protobuf informer of a collection synced at or past the server's state; gives a revision both know.
    async fn settled(&self, collection: &str) -> u64 {
        let now = rv(&self.direct.json(collection).await);
        let answer = self.get(&format!("{collection}?resourceVersion={now}"), PROTOBUF).await;
        assert_eq!((answer.status.as_u16(), &answer.headers["content-type"]), (200, &PROTOBUF.parse().unwrap()));
        list_meta(&answer).rv.get()
    }

    /// What the daemon holds, by resource: of JSON and of protobuf.
    fn informers(&self) -> BTreeMap<String, (usize, usize)> {
        let mut found = BTreeMap::new();
        for informer in self.daemon.daemon.factory.informers() {
            let counts: &mut (usize, usize) = found.entry(informer.key().gvr.group_resource()).or_default();
            match informer.key().encoding {
                Encoding::Json | Encoding::Table => counts.0 += 1,
                Encoding::Protobuf => counts.1 += 1,
            }
        }
        found
    }
}
