//! Reads of the newest state of a resource to which nothing happens, while much happens to others: what they cost.

use std::time::Duration;

use http::Method;
use informerd::upstream::RequestVerb;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Scene;
use crate::support::client::rv;

const PROBE: &str = "consistentReads: { get: probe, list: probe, watch: probe }\n";
const CRON_TABS: &str = "/apis/stable.example.com/v1/crontabs";
const IN_A: &str = "/apis/stable.example.com/v1/namespaces/a/crontabs";

fn crontab(name: &str) -> Value {
    json!({"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": name}})
}

impl Scene {
    /// Objects that stay as they are, and an informer that has them.
    async fn quiet(objects: usize) -> Self {
        let scene = Self::start(PROBE).await;
        for n in 0..objects {
            scene.direct.write(Method::POST, IN_A, &crontab(&format!("q{n}"))).await;
        }
        scene.through.json(&format!("{CRON_TABS}?resourceVersion=0")).await;
        scene.noise().await;
        scene.through.json(CRON_TABS).await;
        scene
    }

    /// The store goes on without the resource.
    async fn noise(&self) {
        let noise = json!({"metadata": {"annotations": {"noise": format!("{:?}", Instant::now())}}});
        self.direct.write(Method::PATCH, "/api/v1/namespaces/a", &noise).await;
    }

    fn probes(&self) -> u64 {
        self.daemon.daemon.upstream.metrics().total(RequestVerb::Probe, Some("crontabs.stable.example.com"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_collection_is_compared_and_served() {
    let scene = Scene::quiet(30).await;
    let (served, probes) = (scene.served(), scene.probes());
    for _ in 0..20 {
        scene.noise().await;
        let floor = rv(&scene.direct.json(&format!("{CRON_TABS}?limit=1")).await);
        let list = scene.through.json(CRON_TABS).await;
        assert!(rv(&list) >= floor);
        assert_eq!(list["items"].as_array().unwrap().len(), 30);
        // The revision that the list names can be gone on from, and read again, though no event has come to it.
        let again = format!("{CRON_TABS}?resourceVersion={}&resourceVersionMatch=Exact", rv(&list));
        assert_eq!(scene.through.json(&again).await["items"], list["items"]);
        let path = format!("{CRON_TABS}?watch=1&resourceVersion={}&timeoutSeconds=1", rv(&list));
        let mut watch = scene.through.watch(&path).await;
        assert_eq!(watch.next_line().await.unwrap(), None);
    }
    assert_eq!(scene.served() - served, 60);
    let probes = scene.probes() - probes;
    assert!(probes <= 25, "{probes} requests for 20 reads");
    assert_eq!(scene.silences(), 0, "a quiet watch is no silent one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_watch_of_a_quiet_collection_begins_with_its_state() {
    let scene = Scene::quiet(3).await;
    for query in
        ["watch=1", "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"]
    {
        for _ in 0..5 {
            scene.noise().await;
            let mut watch = scene.through.watch(&format!("{CRON_TABS}?{query}&timeoutSeconds=1")).await;
            let mut events = Vec::new();
            while let Some(event) = watch.next().await.unwrap() {
                events.push(event);
            }
            let added = events.iter().filter(|event| event["type"] == "ADDED").count();
            assert_eq!(added, 3, "{events:?}");
        }
    }
}

/// What a running watch is told comes from its own stream: a state that was compared is none of its events, and proves
/// nothing of those that may be on their way.
#[tokio::test(flavor = "multi_thread")]
async fn watches_from_a_compared_state_see_every_later_event_and_no_earlier_one() {
    let scene = Scene::quiet(3).await;
    // Events are late: an object is made and deleted without a trace in the state.
    scene.proxy.lag(0, Duration::from_millis(1500));
    scene.proxy.cut();
    scene.through.json(&format!("{CRON_TABS}?resourceVersion=0")).await;
    let start = rv(&scene.through.json(CRON_TABS).await);
    let watch =
        |from: u64| format!("{CRON_TABS}?watch=1&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=8");
    let mut before = scene.through.watch(&watch(start)).await;
    let mut direct = scene.direct.watch(&watch(start)).await;
    scene.direct.write(Method::POST, IN_A, &crontab("passing")).await;
    scene.direct.write(Method::DELETE, &format!("{IN_A}/passing"), &Value::Null).await;
    let list = scene.through.json(CRON_TABS).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 3);
    let mut after = scene.through.watch(&watch(rv(&list))).await;
    let mut direct_after = scene.direct.watch(&watch(rv(&list))).await;
    scene.direct.write(Method::POST, IN_A, &crontab("staying")).await;
    for (what, through, direct, count) in
        [("before", &mut before, &mut direct, 3), ("after", &mut after, &mut direct_after, 1)]
    {
        let (mut have, mut want) = (Vec::new(), Vec::new());
        for (watch, lines) in [(through, &mut have), (direct, &mut want)] {
            while let Some(line) = watch.next_line().await.unwrap() {
                if !line.contains("BOOKMARK") {
                    lines.push(line);
                }
            }
        }
        assert_eq!((have.len(), &have), (count, &want), "{what}");
    }
}
