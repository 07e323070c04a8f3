//! Answers that no apiserver gives, from something before it.

use std::time::Duration;

use informerd::informer::Informer;
use tokio::time::{Instant, sleep};

use super::Scene;
use crate::support::eventually;

const MAPS: &str = "/api/v1/configmaps?resourceVersion=0";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[tokio::test(flavor = "multi_thread")]
async fn watches_answered_with_nothing_teach_nothing_of_encodings() {
    let scene = Scene::start("").await;
    // What is held in JSON would be given to those who prefer protobuf, if the apiserver did not speak it.
    scene.through.json(MAPS).await;
    let accept = format!("{PROTOBUF},application/json");
    let encoding = async || {
        let answer = scene.through.request(http::Method::GET, MAPS, &[("accept", &accept)], "").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.headers["content-type"].to_str().unwrap().to_owned()
    };
    let informers = || scene.daemon.daemon.factory.informers();
    let is_of_maps = |informer: &Informer| &*informer.key().gvr.resource == "configmaps" && informer.cache().is_ready();
    let held = || informers().iter().filter(|informer| is_of_maps(informer)).count();
    crate::support::until("there is one in each encoding", async || {
        assert_eq!(encoding().await, PROTOBUF);
        held() == 2
    })
    .await;
    scene.proxy.answer_nothing(20);
    scene.proxy.cut();
    let (until, mut others) = (Instant::now() + Duration::from_secs(5), 0);
    while Instant::now() < until {
        others += u32::from(encoding().await != PROTOBUF);
        sleep(Duration::from_millis(20)).await;
    }
    assert!(scene.proxy.to_be_empty() < 20, "no watch was answered with nothing");
    assert_eq!(others, 0, "answers in another encoding");
    scene.proxy.answer_nothing(0);
    let follows = || {
        informers().iter().all(|informer| informer.status().state == "follow" && informer.status().refuses().is_empty())
    };
    eventually("every informer follows again, and nothing was learnt", follows).await;
}
