//! Tests with a raw HTTP client the faults that no test of the daemon shows to have happened.

use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::json;

use super::tests::{PODS, Stream, get, pod, request, server, text};
use super::*;

#[tokio::test]
async fn events_are_cut_and_replaced_by_errors() {
    let server = server().await;
    let strike = async |effect: Effect| {
        // Earlier streams would consume the fault, too.
        server.faults().end_watches(None);
        while server.counts().open_watches("pods") > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut stream = Stream::open(&server, &format!("resourceVersion={}", server.revision())).await;
        let name = format!("p{}", server.revision());
        let rv = server.create(pod(&name, json!({}))).unwrap();
        assert_eq!(stream.brief().await, format!("ADDED {name} {rv}"));
        server.faults().add(Fault::once(effect));
        server.update(pod(&name, json!({"a": "b"}))).unwrap();
        stream
    };
    let mut stream = strike(Effect::Cut(Cut::Rst)).await;
    let half = stream.line().await;
    assert!(half.starts_with("{\"type\":\"MODIFIED\"") && !half.ends_with('\n') && stream.broken, "{half}");
    let mut stream = strike(Effect::Cut(Cut::Fin)).await;
    assert!(!stream.line().await.ends_with('\n') && stream.broken);
    let mut stream = strike(Effect::Cut(Cut::End)).await;
    assert!(!stream.line().await.ends_with('\n') && !stream.broken);
    let mut stream = strike(Effect::Expire).await;
    assert_eq!(stream.event().await.1["code"], 410);
    assert_eq!((stream.line().await, stream.broken), (String::new(), false));
    let mut stream = strike(Effect::ErrorEvent(500)).await;
    assert_eq!(stream.event().await.1["code"], 500);
}

#[tokio::test]
async fn list_bodies_are_cut_and_slow() {
    let server = server().await;
    server.create(pod("p", json!({}))).unwrap();
    server.faults().add(Fault::once(Effect::Cut(Cut::Rst)).verb(Verb::List));
    let response = request(&server, false, "GET", PODS, &[], "").await.unwrap();
    assert!(response.into_body().collect().await.is_err());
    server.faults().add(Fault::once(Effect::Cut(Cut::End)).verb(Verb::List));
    let (_, _, half) = text(&server, PODS, &[]).await;
    assert!(half.starts_with("{\"kind\":\"PodList\"") && !half.ends_with('\n'));
    for effect in [Effect::Delay(Duration::from_millis(100)), Effect::SlowBody(Duration::from_millis(100))] {
        server.faults().add(Fault::once(effect));
        let start = tokio::time::Instant::now();
        assert_eq!(get(&server, PODS).await.0, 200);
        assert!(start.elapsed() >= Duration::from_millis(100));
    }
}

#[tokio::test]
async fn connections_are_ended_reset_and_silenced() {
    let server = server().await;
    for http2 in [false, true] {
        let from = format!("resourceVersion={}", server.revision());
        let mut stream = Stream::open_over(&server, http2, &from).await;
        server.faults().end_watches(Some("pods"));
        assert_eq!((stream.line().await, stream.broken), (String::new(), false));
        let mut stream = Stream::open_over(&server, http2, &from).await;
        server.faults().expire_watches(None);
        assert_eq!(stream.event().await.1["code"], 410);
        let mut stream = Stream::open_over(&server, http2, &from).await;
        assert_eq!(server.counts().open_watches("pods"), 1);
        server.faults().reset_connections();
        assert_eq!((stream.line().await, stream.broken), (String::new(), true));
        let mut stream = Stream::open_over(&server, http2, &from).await;
        server.faults().half_open();
        server.create(pod(&format!("p{http2}"), json!({}))).unwrap();
        assert!(stream.quiet(Duration::from_millis(200)).await);
        assert_eq!(get(&server, PODS).await.0, 200, "new connections are well");
        server.faults().close_connections();
        assert_eq!((stream.line().await, stream.broken), (String::new(), true));
    }
    server.faults().blackhole(true);
    let silent = request(&server, false, "GET", PODS, &[], "");
    assert!(tokio::time::timeout(Duration::from_millis(200), silent).await.is_err());
    server.faults().blackhole(false);
    assert_eq!(get(&server, PODS).await.0, 200);
}

#[tokio::test]
async fn goaway_lets_streams_go_on() {
    let server = server().await;
    let mut stream = Stream::open_over(&server, true, &format!("resourceVersion={}", server.revision())).await;
    server.faults().go_away();
    let rv = server.create(pod("p", json!({}))).unwrap();
    assert_eq!(stream.brief().await, format!("ADDED p {rv}"));
}

#[tokio::test]
async fn a_replica_lags_behind() {
    let server = server().await;
    let replica = server.replica(Duration::from_millis(300)).await.unwrap();
    let mut stream = Stream::open(&replica, "resourceVersion=0").await;
    let rv = server.create(pod("p", json!({}))).unwrap();
    assert_eq!(get(&server, PODS).await.1["items"].as_array().unwrap().len(), 1);
    assert_eq!(get(&replica, &format!("{PODS}?resourceVersion=0")).await.1["items"], json!([]));
    assert!(stream.quiet(Duration::from_millis(100)).await);
    let (_, waited) = get(&replica, &format!("{PODS}?resourceVersion={rv}")).await;
    assert_eq!(waited["items"].as_array().unwrap().len(), 1);
    assert_eq!(stream.brief().await, format!("ADDED p {rv}"));
    assert_eq!(replica.counts().requests(Verb::List, "pods"), 2);
    assert_eq!(server.counts().requests(Verb::List, "pods"), 1);
}

#[tokio::test]
async fn watch_events_lag_and_bookmarks_are_left_out() {
    let server = server().await;
    server.faults().add(Fault::once(Effect::NoInitialEnd));
    let mut stream = Stream::open(&server, "allowWatchBookmarks=1").await;
    assert!(stream.quiet(Duration::from_millis(100)).await);
    let lag = server.faults().add(Fault::always(Effect::Lag(Duration::from_secs(3600))));
    let rv = server.create(pod("p", json!({}))).unwrap();
    assert!(stream.quiet(Duration::from_millis(100)).await);
    server.faults().remove(lag);
    assert_eq!(stream.brief().await, format!("ADDED p {rv}"));
    let none = server.faults().add(Fault::always(Effect::NoBookmark));
    assert!(stream.quiet(Duration::from_millis(1500)).await);
    assert_eq!(server.faults().hits(none), 1);
}
