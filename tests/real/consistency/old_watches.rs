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
async fn some_are_forwarded_and_a_storm_of_them_is_not() {
    let scene = Scene::start("").await;
    let start = rv(&scene.direct.json(LIMITS).await);
    for n in 0..3 {
        let object = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": format!("old-{n}")}});
        scene.direct.write(Method::POST, LIMITS, &object).await;
    }
    // The informer begins here. Nothing is forwarded that would show an older revision.
    scene.through.json("/api/v1/limitranges?resourceVersion=0").await;
    let path = format!("{LIMITS}?watch=1&resourceVersion={start}&timeoutSeconds=1");
    let direct = lines(&scene.direct, &path).await;
    assert_eq!(direct.len(), 3);
    assert_eq!(lines(&scene.through, &path).await, direct);
    let watches = (0..200).map(|_| lines(&scene.through, &path));
    let answers = futures_util::future::join_all(watches).await;
    let refused = |lines: &&Vec<String>| lines.len() == 1 && lines[0].contains(r#""reason":"Expired","code":410"#);
    let forwarded = answers.iter().filter(|lines| **lines == direct).count();
    assert_eq!(forwarded + answers.iter().filter(refused).count(), 200, "either way it is an answer of an apiserver");
    // A hundred at once, and one more in each second that the storm takes.
    assert!((99..200).contains(&forwarded), "{forwarded} of a storm are forwarded");
}
