//! A definition that changes while no daemon runs: the apiserver reads the same objects differently, and their
//! revisions do not tell.

use super::life::{Kept, Life, direct, sent};
use crate::cluster::Cluster;
use crate::crontabs::{crontab, definition};
use crate::support::history::state;
use crate::support::until;

const TABS: &str = "/apis/stable.example.com/v1/crontabs";

pub(super) async fn objects_of_a_changed_definition_are_listed(cluster: &Cluster) {
    let direct = direct(cluster);
    cluster.apply(&definition("{color: {type: string}, size: {type: string}}")).await;
    until("the resource is served", async || direct.get(TABS).await.status == 200).await;
    for name in ["one", "two"] {
        cluster.apply(&crontab("default", name, "{color: red}")).await;
    }
    let kept = Kept::new();
    let yaml = kept.yaml("[{resource: crontabs.stable.example.com, pin: true}]");
    let first = Life::ready(cluster, &yaml).await;
    kept.written(1).await;
    first.kill().await;

    // Nothing has changed: it is used.
    let second = Life::ready(cluster, &yaml).await;
    assert_eq!((second.snapshots().await, second.listed("crontabs.stable.example.com").await), ((1, 0), false));
    assert_eq!(second.sent(TABS).await, sent(&direct.get(TABS).await));
    second.kill().await;

    let before = state(&direct.json(TABS).await);
    // A default for one field, and the other is pruned.
    cluster.apply(&definition("{size: {type: string, default: large}}")).await;
    until("the apiserver reads the objects differently", async || {
        let answer = direct.get(TABS).await;
        // While its own cache begins anew, it answers 429.
        let text = answer.text();
        answer.status == 200 && text.contains("large") && !text.contains("\"spec\":{\"color\"")
    })
    .await;
    assert_eq!(state(&direct.json(TABS).await), before);
    let third = Life::ready(cluster, &yaml).await;
    assert_eq!(third.sent(&format!("{TABS}?resourceVersion=0")).await, sent(&direct.get(TABS).await));
    assert_eq!(third.sent(TABS).await, sent(&direct.get(TABS).await));
    assert_eq!((third.snapshots().await, third.listed("crontabs.stable.example.com").await), ((0, 1), true));
    third.kill().await;
}
