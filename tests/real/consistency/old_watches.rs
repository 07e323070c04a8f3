//! Watches from a revision before the informer's own beginning, which the apiserver still has.

use http::Method;
use serde_json::json;

use super::Scene;
use crate::support::client::{Client, rv};

const LIMITS: &str = "/api/v1/namespaces/a/limitranges";

async fn lines(client: &Client, path: &str) -> Vec<String> {
    let mut watch = client.watch(path).await;
    let mut lines = Vec::new();
    while let Some(line) = watch.next_line().await.unwrap() {
        lines.push(line);
    }
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn they_share_what_is_asked_once_and_get_the_same_bytes() {
    let scene = Scene::start("").await;
    let start = rv(&scene.direct.json(LIMITS).await);
    let create = async |n: usize| {
        let object = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": format!("old-{n}")}});
        scene.direct.write(Method::POST, LIMITS, &object).await;
    };
    for n in 0..3 {
        create(n).await;
    }
    // The informer begins here. Nothing is forwarded that would show an older revision.
    scene.through.json("/api/v1/limitranges?resourceVersion=0").await;
    create(3).await;
    let path = format!("{LIMITS}?watch=1&resourceVersion={start}&timeoutSeconds=1");
    let direct = lines(&scene.direct, &path).await;
    assert_eq!(direct.len(), 4);
    let answers = futures_util::future::join_all((0..200).map(|_| lines(&scene.through, &path))).await;
    assert!(answers.iter().all(|lines| *lines == direct));
    let informers = scene.daemon.daemon.factory.informers();
    let stats = informers.iter().map(|informer| informer.cache().stats());
    assert_eq!(stats.map(|stats| stats.backfills_total - stats.backfills_failed_total).sum::<u64>(), 1);
}
