//! The admin pages of a running daemon.

use std::time::Duration;

use informerd_sim::{Effect, Fault, Server};
use serde_json::Value;

use super::fixtures::{CONFIG_MAPS, admin, config_map, syncs_late};
use crate::support::client::Client;
use crate::support::{Through, eventually, read};

/// Metric names are a contract with dashboards and alerts: they are changed in this file first, on purpose.
const PINNED: &str = include_str!("../../data/metrics.txt");

#[tokio::test(flavor = "multi_thread")]
async fn metric_names_are_pinned() {
    let server = Server::builder().object(config_map("a", "one")).start().await.unwrap();
    syncs_late(&server, "configmaps", 1);
    let through = Through::before(&server, "").await;
    let client = Client::new(&through.url);
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=0")).await;
    watch.next_event().await;
    // What a watch begins with has no lag; an event that it was there for has.
    server.create(config_map("a", "two")).unwrap();
    watch.next_event().await;
    assert_eq!(client.get("/version").await.status, 200);
    assert_eq!(client.get("/api/v1/namespaces/a/configmaps/none?resourceVersion=0").await.status, 404);
    let (status, text) = admin(&through, "/metrics").await;
    assert_eq!(status, 200);
    let names = families(&text);
    let found: String = names.iter().map(|(name, kind)| format!("{name} {kind}\n")).collect();
    // That of the other mode is held by tests/real/injector.rs.
    let pinned: String = PINNED.split_inclusive('\n').filter(|line| !line.starts_with("informerd_injector_")).collect();
    assert_eq!(found, pinned, "found:\n{found}");

    let labels = r#"group="",version="v1",resource="configmaps",namespace="",selector="",encoding="json""#;
    for line in [
        format!("informerd_cache_objects{{{labels}}} 2"),
        format!("informerd_cache_ready{{{labels}}} 1"),
        format!("informerd_cache_watchers{{{labels}}} 1"),
        r#"informerd_reads_total{plan="wait",reason="not_synced"} 1"#.to_owned(),
        r#"informerd_upstream_requests_total{verb="watchlist",resource="configmaps",code="200"} 1"#.to_owned(),
        "informerd_upstream_reachable 1".to_owned(),
        "informerd_http_watches 1".to_owned(),
        "informerd_http_watch_events_total 2".to_owned(),
        r#"informerd_watch_event_lag_seconds_count{protocol="http"} 1"#.to_owned(),
        r#"informerd_request_duration_seconds_count{plan="wait"} 1"#.to_owned(),
        r#"informerd_request_duration_seconds_count{plan="forward"} 1"#.to_owned(),
        r#"informerd_request_duration_seconds_count{plan="refuse"} 1"#.to_owned(),
        r#"informerd_request_duration_seconds_bucket{le="60.0",plan="refuse"} 1"#.to_owned(),
        r#"informerd_proof_duration_seconds_count{result="proved"} 0"#.to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line || found == format!("{line}.0")), "{line}\nin\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_caches_are_shown() {
    let (server, through, client) =
        Through::simulated([config_map("a", "one")], "resources: [{resource: nodes, pin: true}]\n").await;
    through.ready().await;
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=0")).await;
    watch.next_event().await;
    let written = server.create(config_map("a", "two")).unwrap();
    watch.next_event().await;
    let (status, text) = admin(&through, "/debug/caches").await;
    assert_eq!(status, 200);
    let shown: Value = serde_json::from_str(&text).unwrap();
    let caches = shown["caches"].as_array().unwrap();
    assert_eq!(
        caches.iter().map(|cache| cache["resource"].as_str().unwrap()).collect::<Vec<_>>(),
        ["configmaps", "nodes"]
    );
    let cache = &caches[0];
    for (field, expected) in [
        ("apiVersion", Value::from("v1")),
        ("encoding", "json".into()),
        ("ready", true.into()),
        ("state", "follow".into()),
        ("lastError", "".into()),
        ("pinned", false.into()),
        ("resourceVersion", written.to_string().into()),
        ("objects", 2.into()),
        ("windowEvents", 1.into()),
        ("watchers", 1.into()),
        ("groups", 1.into()),
        ("events", 1.into()),
        ("relists", 0.into()),
        ("idleSeconds", 0.into()),
    ] {
        assert_eq!(cache[field], expected, "{field} in {text}");
    }
    assert!(cache["bytes"].as_u64().unwrap() > 100, "{text}");
    assert_eq!(caches[1]["pinned"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_names_what_is_pending() {
    let server = Server::builder().start().await.unwrap();
    server.faults().add(Fault::always(Effect::Answer { code: 503, retry_after: None }));
    let through = Through::before(&server, "resources: [{resource: nodes, pin: true}]\n").await;
    assert_eq!(admin(&through, "/livez").await.0, 200);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (status, text) = admin(&through, "/readyz").await;
    assert_eq!(status, 503);
    assert!(text.contains("apiserver: pending"), "{text}");
    server.faults().clear();
    // What is pinned must be synced, too, and is named until it is.
    let id = server.faults().add(Fault::always(Effect::NoInitialEnd).on("nodes"));
    eventually("the pinned informer runs", || !through.daemon.factory.informers().is_empty()).await;
    let (status, text) = admin(&through, "/readyz").await;
    assert_eq!(status, 503);
    assert!(text.contains("nodes"), "{text}");
    server.faults().remove(id);
    server.faults().end_watches(Some("nodes"));
    through.ready().await;
    assert_eq!(admin(&through, "/readyz").await, (200, "ok\n".to_owned()));
}

/// What docs/metrics.md says of each metric is what the daemon says: its help, and the labels of its series.
#[tokio::test(flavor = "multi_thread")]
async fn the_page_says_what_the_daemon_says() {
    let server = Server::builder().object(config_map("a", "one")).start().await.unwrap();
    let listen = "listen: [\"https://127.0.0.1:0\", \"http://127.0.0.1:0\"]\n";
    let through = Through::before(&server, listen).await;
    Client::new(&through.listener(1)).get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    let (text, page) = (through.admin().metrics().await, read("docs/metrics.md"));
    let mut wrong = Vec::new();
    let mut compared = 0;
    // Those of the injector are held by tests/real/injector.rs.
    let rows = page.lines().filter(|line| line.starts_with("| `") && !line.starts_with("| `informerd_injector_"));
    for row in rows {
        let [_, name, kind, labels, meaning, _] = row.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let series = name.trim_matches('`');
        let family = match kind {
            "counter" => series.trim_end_matches("_total"),
            "info" => series.trim_end_matches("_info"),
            _ => series,
        };
        let help = text.lines().find_map(|line| line.strip_prefix(&format!("# HELP {family} ")));
        if help.map(|help| help.trim_end_matches('.')) != Some(meaning) {
            wrong.push(format!("{series}: {help:?} is {meaning:?} on the page"));
        }
        let labels: Vec<_> = labels.split(", ").filter(|label| *label != "–").collect();
        for line in text.lines() {
            let Some(rest) = line.strip_prefix(series) else { continue };
            let keys: Vec<_> = match rest.chars().next() {
                Some(' ') => Vec::new(),
                Some('{') => rest[1..].split("\",").filter_map(|pair| Some(pair.split_once("=\"")?.0)).collect(),
                _ => continue,
            };
            compared += 1;
            if keys != labels {
                wrong.push(format!("{series} has {keys:?}, on the page {labels:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(compared > 100, "{compared}");
}

/// The `(name, type)` of every metric family in an exposition.
fn families(exposition: &str) -> Vec<(String, String)> {
    let types = exposition.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let mut names: Vec<_> = types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect();
    names.sort();
    names
}
