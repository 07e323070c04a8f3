//! A definition changes under the objects of its resource: they are read as the apiserver now reads them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use crate::cluster::Cluster;
use crate::crontabs::{crontab, definition, definition_with};
use crate::support::until;
use crate::world::World;
use tokio::time::sleep;

const TABS: &str = "/apis/stable.example.com/v1/crontabs";

#[tokio::test(flavor = "multi_thread")]
async fn a_default_appears_in_objects_that_nobody_has_written() {
    let cluster = Cluster::start().await;
    cluster.apply(&definition("{color: {type: string}, size: {type: string}}")).await;
    sleep(Duration::from_secs(1)).await;
    cluster.apply(&crontab("default", "one", "{color: red}")).await;
    let World { cluster, daemon: _daemon, direct, through } = World::before(cluster, "").await;
    let list = format!("{TABS}?resourceVersion=0");
    assert_eq!(through.json(&list).await["items"], direct.json(TABS).await["items"]);
    let mut watch = through.watch(&format!("{TABS}?watch=1&resourceVersion=0&timeoutSeconds=100")).await;
    assert!(watch.next_line().await.unwrap().unwrap().contains("ADDED"));

    let properties = "{color: {type: string}, size: {type: string, default: large}}";
    cluster.apply(&definition_with("CronTabCollection", "[]", properties)).await;
    // The apiserver ends the watches of a resource whose definition has changed, and so do we.
    while watch.next_line().await.unwrap().is_some() {}
    until("both show the default", async || {
        // While its own cache begins anew, the apiserver answers 429.
        let answers = [direct.get(TABS).await.text(), through.get(&list).await.text()];
        answers.iter().all(|answer| answer.contains("large") && answer.contains("CronTabCollection"))
    })
    .await;
}
