//! A restart without a list: what is served afterwards, and what the new daemon asks the apiserver for.

use super::life::{JSON, Kept, Life, PINNED, PROTOBUF, direct, sent};
use crate::cluster::Cluster;
use crate::support::client::{Client, rv};
use crate::world::assert_alike;
use http::Method;
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

/// Scenario: some changes while the first daemon runs, which are in its window, and some while there is none.
pub(super) async fn lists_nothing_and_serves_the_same(cluster: &Cluster) {
    let direct = direct(cluster);
    cluster.namespace(NAMESPACE).await;
    for n in 0..8 {
        create(&direct, &format!("n{n}"), if n % 2 == 0 { "x" } else { "y" }).await;
    }
    let kept = Kept::new();
    let yaml = kept.yaml(PINNED);
    let first = Life::ready(cluster, &yaml).await;
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
    let second = Life::ready(cluster, &yaml).await;
    assert_eq!(second.snapshots().await, (1, 0));
    second.own(ALL, PROTOBUF).await;
    assert_eq!(second.snapshots().await, (2, 0), "one for each informer");
    let list = second.own(COLLECTION, JSON).await;
    assert_eq!(sent(&list), sent(&direct.get(COLLECTION).await));
    for revision in [start, middle, rv(&list.json())] {
        compare_at(&direct, &second, revision).await;
    }
    for informer in second.through.daemon.factory.informers() {
        assert_eq!(informer.cache().stats().backfills_total, 0, "the window was kept: {informer:?}");
    }
    assert!(!second.listed("configmaps").await);
    let resource = "resource=\"configmaps\"";
    assert!(second.count("informerd_upstream_requests_total", &["verb=\"watch\"", resource]).await >= 2);
    second.kill().await;
}
