//! A definition that changes while no daemon runs: the apiserver reads the same objects differently, and their
//! revisions do not tell.

use super::life::{Kept, Life, direct, sent};
use crate::cluster::Cluster;
use crate::crontabs::{crontab, definition};
use crate::recovery::Real;
use crate::support::client::{Answer, key, rv};
use crate::support::relay::Loss;
use crate::support::until;
use informerd::upstream::client::ConfigSource;
use serde_json::Value;

const TABS: &str = "/apis/stable.example.com/v1/crontabs";

fn revisions(list: &Value) -> Vec<(String, u64)> {
    list["items"].as_array().unwrap().iter().map(|item| (key(item), rv(item))).collect()
}

pub(super) async fn objects_of_a_changed_definition_are_listed(cluster: &Cluster) {
    let direct = direct(cluster);
    cluster.apply(&definition("{color: {type: string}, size: {type: string}}")).await;
    until("the resource is served", async || direct.get(TABS).await.status == 200).await;
    for name in ["one", "two"] {
        cluster.apply(&crontab("default", name, "{color: red}")).await;
    }
    let kept = Kept::new();
    let yaml = kept.yaml("[{resource: crontabs.stable.example.com, pin: true}]");
    let first = Life::start(cluster, &yaml).await;
    first.through.ready().await;
    kept.written(1).await;
    first.kill().await;

    // Nothing has changed: it is used.
    let second = Life::start(cluster, &yaml).await;
    second.through.ready().await;
    assert_eq!((second.snapshots().await, second.listed("crontabs.stable.example.com").await), ((1, 0), false));
    assert_eq!(second.sent(TABS).await, sent(&direct.get(TABS).await));
    second.kill().await;

    let before = revisions(&direct.json(TABS).await);
    // A default for one field, and the other is pruned.
    cluster.apply(&definition("{size: {type: string, default: large}}")).await;
    until("the apiserver reads the objects differently", async || {
        let answer = direct.get(TABS).await;
        // While its own cache begins anew, it answers 429.
        let text = sent_or_nothing(&answer);
        text.contains("large") && !text.contains("\"spec\":{\"color\"")
    })
    .await;
    assert_eq!(revisions(&direct.json(TABS).await), before);
    let third = Life::start(cluster, &yaml).await;
    third.through.ready().await;
    assert_eq!(third.sent(&format!("{TABS}?resourceVersion=0")).await, sent(&direct.get(TABS).await));
    assert_eq!(third.sent(TABS).await, sent(&direct.get(TABS).await));
    assert_eq!((third.snapshots().await, third.listed("crontabs.stable.example.com").await), ((0, 1), true));
    third.kill().await;
}

/// With `whileAway: serve`, the objects are served as they were until the apiserver answers, and as they are from then on.
#[tokio::test(flavor = "multi_thread")]
async fn objects_of_a_definition_that_changes_meanwhile_are_old_and_then_listed() {
    let real = Real::start().await;
    let direct = direct(&real.cluster);
    real.cluster.apply(&definition("{color: {type: string}}")).await;
    until("the resource is served", async || direct.get(TABS).await.status == 200).await;
    let tab = "apiVersion: stable.example.com/v1\nkind: CronTab\nmetadata: {name: one, namespace: default}\nspec: {color: red}\n";
    real.cluster.apply(tab).await;
    let kept = Kept::new();
    let yaml = format!("whileAway: serve\n{}", kept.yaml("[{resource: crontabs.stable.example.com, pin: true}]"));
    let source = || ConfigSource::kubeconfig(&real.kubeconfig);
    let first = Life::of(source(), &yaml).await;
    first.through.ready().await;
    kept.written(1).await;
    let before = first.sent(TABS).await;
    first.kill().await;

    real.relay.lose(Loss::Closed);
    let second = Life::of(source(), &yaml).await;
    real.cluster.apply(&definition("{size: {type: string, default: large}}")).await;
    until("the apiserver reads the objects differently", async || {
        sent_or_nothing(&direct.get(TABS).await).contains("large")
    })
    .await;
    let old = second.client.get(TABS).await;
    assert!(old.headers.contains_key("warning"), "{}", old.text());
    assert_eq!(sent(&old), before);
    real.relay.lose(Loss::None);
    second.through.ready().await;
    let now = second.sent(TABS).await;
    assert!(now.contains("large") && now != before, "{now}");
    assert_eq!(now, sent(&direct.get(TABS).await));
    assert_eq!((second.snapshots().await, second.listed("crontabs.stable.example.com").await), ((1, 1), true));
    second.kill().await;
}

fn sent_or_nothing(answer: &Answer) -> String {
    if answer.status == 200 { sent(answer) } else { String::new() }
}
