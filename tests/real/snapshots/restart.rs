//! A restart without a list: what is served afterwards, and what the new daemon asks the apiserver for.

use super::life::{JSON, Kept, Life, PROTOBUF, assert_own, direct, sent};
use crate::cluster::Cluster;
use crate::grpc::told::{LAST, accept, by_http};
use crate::support::client::{Client, rv};
use crate::world::assert_alike;
use http::Method;
use informerd::grpc::pb::v1::Encoding;
use serde_json::{Value, json};

const NAMESPACE: &str = "kept";
const COLLECTION: &str = "/api/v1/namespaces/kept/configmaps";
const ALL: &str = "/api/v1/configmaps?resourceVersion=0";

fn object(name: &str, app: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": app}}, "data": {"text": text},
    })
}

async fn create(direct: &Client, name: &str, app: &str) {
    direct.write(Method::POST, COLLECTION, &object(name, app, "new")).await;
}

async fn update(direct: &Client, name: &str, app: &str, text: &str) {
    direct.write(Method::PUT, &format!("{COLLECTION}/{name}"), &object(name, app, text)).await;
}

async fn delete(direct: &Client, name: &str) {
    direct.write(Method::DELETE, &format!("{COLLECTION}/{name}"), &json!({})).await;
}

/// Whole answers at one revision are the same, byte for byte.
async fn compare_at(direct: &Client, life: &Life, revision: u64) {
    let path = format!("{COLLECTION}?resourceVersion={revision}&resourceVersionMatch=Exact");
    for accept in [JSON, PROTOBUF] {
        let theirs = direct.request(Method::GET, &path, &[("accept", accept)], "").await;
        assert_alike(&format!("{path} {accept}"), &theirs, &life.own(&path, accept).await);
    }
}

/// Watches from one revision tell the same, byte for byte.
async fn compare_from(direct: &Client, life: &Life, revision: u64) {
    for query in ["", "&labelSelector=app%3Dx"] {
        for encoding in [Encoding::Json, Encoding::KubeProtobuf] {
            let path = format!("{COLLECTION}?watch=1&resourceVersion={revision}{query}");
            let accept = [("accept", accept(encoding))];
            let ours = life.client.watch_as(&path, &accept).await;
            assert_own(&path, &ours.headers);
            let theirs = direct.watch_as(&path, &accept).await;
            let (ours, theirs) = (by_http(ours, encoding).await, by_http(theirs, encoding).await);
            assert_eq!(ours, theirs, "{path} {encoding:?}");
            assert!(ours.len() > 6, "{path}: {}", ours.len());
        }
    }
}

/// Scenario: some changes while the first daemon runs, which are in its window, and some while there is none.
pub(super) async fn lists_nothing_and_serves_the_same(cluster: &Cluster) {
    let direct = direct(cluster);
    cluster.namespace(NAMESPACE).await;
    for n in 0..8 {
        create(&direct, &format!("n{n}"), if n % 2 == 0 { "x" } else { "y" }).await;
    }
    let kept = Kept::new();
    let yaml = kept.yaml("[{resource: configmaps, pin: true}]");
    let first = Life::start(cluster, &yaml).await;
    first.through.ready().await;
    first.own(ALL, PROTOBUF).await;
    kept.written(2).await;
    assert_eq!(first.snapshots().await, (0, 0));
    assert!(first.listed("configmaps").await);
    let start = rv(&first.own(COLLECTION, JSON).await.json());

    let before = kept.files();
    update(&direct, "n0", "x", "changed").await;
    update(&direct, "n1", "x", "enters the selection").await;
    update(&direct, "n2", "y", "leaves the selection").await;
    delete(&direct, "n4").await;
    create(&direct, "n8", "x").await;
    let middle = rv(&first.own(COLLECTION, JSON).await.json());
    delete(&direct, "n8").await;
    create(&direct, "n4", "x").await;
    // Both informers have seen it all before their files are looked at.
    first.own(COLLECTION, JSON).await;
    first.own(COLLECTION, PROTOBUF).await;
    kept.appended(&before).await;
    first.stop().await;

    update(&direct, "n0", "y", "while nobody was there").await;
    update(&direct, "n3", "x", "while nobody was there").await;
    delete(&direct, "n6").await;
    create(&direct, "n9", "x").await;
    let second = Life::start(cluster, &yaml).await;
    second.through.ready().await;
    assert_eq!(second.snapshots().await, (1, 0));
    second.own(ALL, PROTOBUF).await;
    assert_eq!(second.snapshots().await, (2, 0), "one for each informer");
    let list = second.own(COLLECTION, JSON).await;
    assert_eq!(sent(&list), sent(&direct.get(COLLECTION).await));
    for revision in [start, middle, rv(&list.json())] {
        compare_at(&direct, &second, revision).await;
    }
    create(&direct, LAST, "x").await;
    for revision in [start, middle] {
        compare_from(&direct, &second, revision).await;
    }
    for informer in second.through.daemon.factory.informers() {
        assert_eq!(informer.cache().stats().backfills_total, 0, "the window was kept: {informer:?}");
    }
    assert!(!second.listed("configmaps").await);
    let resource = "resource=\"configmaps\"";
    assert!(second.count("informerd_upstream_requests_total", &["verb=\"watch\"", resource]).await >= 2);
    second.kill().await;
}
