//! The resourceVersion that readers of a resource see does not go back when its informer stops and starts. `linear` and the seeded
//! simulation show the same of cuts, relists, forwarded reads and apiservers that are late.

use http::Method;

use super::{MERGE, Scene};
use crate::support::client::rv;
use crate::support::eventually;

const CRON_TABS: &str = "/apis/stable.example.com/v1/crontabs";
const IN_A: &str = "/apis/stable.example.com/v1/namespaces/a/crontabs";

#[tokio::test(flavor = "multi_thread")]
async fn over_informers_that_stop_and_start() {
    let scene = Scene::start("idleTimeout: 1s\nconsistentReads: probe\n").await;
    let mut newest = 0;
    for round in 0..4 {
        let before = scene.served();
        let list = scene.through.json(&format!("{CRON_TABS}?resourceVersion=0")).await;
        assert!(rv(&list) >= newest, "round {round}: {} after {newest}", rv(&list));
        // Forwarded, and so never older than the store was when it was read.
        newest = newest.max(rv(&scene.through.json(&format!("{IN_A}?pretty=true")).await));
        assert!(scene.served() > before);
        eventually("the informer is stopped", || scene.daemon.daemon.factory.informers().is_empty()).await;
        let body = format!(r#"{{"metadata":{{"annotations":{{"round":"{round}"}}}}}}"#);
        scene.direct.request(Method::PATCH, "/api/v1/namespaces/a", &[MERGE], &body).await;
    }
}
