//! Watches that stay open and say nothing more: they are given up, and what they missed is delivered. `simulated::faults` has
//! the case that no watch says anything and somebody reads the newest state.

use http::Method;
use serde_json::json;

use super::Scene;
use crate::support::client::Client;
use crate::support::until;

const MAPS: &str = "/api/v1/namespaces/a/configmaps";

async fn make(client: &Client, name: &str) {
    client.write(Method::POST, MAPS, &json!({"metadata": {"name": name}})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_says_nothing_is_opened_anew() {
    let scene = Scene::start("").await;
    make(&scene.direct, "first").await;
    let mut watch = scene.through.watch(&format!("{MAPS}?watch=1&resourceVersion=0")).await;
    while watch.next_event().await["object"]["metadata"]["name"] != "first" {}
    scene.proxy.mute("/configmaps");
    make(&scene.direct, "missed").await;
    // It is somebody's read that shows it.
    let all = "/api/v1/configmaps";
    until("lists are complete", async || scene.through.json(all).await.to_string().contains("missed")).await;
    assert_eq!(watch.next_event().await["object"]["metadata"]["name"], "missed");
    let status = scene.daemon.daemon.factory.informers().into_iter().map(|informer| informer.status());
    let counts = status.fold((0, 0), |(silences, relists), one| (silences + one.silences, relists + one.relists));
    assert!(counts.0 >= 1 && counts.1 == 0, "{counts:?}: it is gone on from where it stood");
    make(&scene.direct, "after").await;
    assert_eq!(watch.next_event().await["object"]["metadata"]["name"], "after");
}
