//! The real binary told to stop.

use std::time::Duration;

use futures_util::future::join_all;
use informerd::lifecycle::drain::DrainEnd;
use informerd_sim::{self as sim, Effect, Fault, Server};
use serde_json::Value;

use super::fixtures::{CONFIG_MAPS, RawConnection, config_map};
use crate::support::Through;
use crate::support::binary::Binary;
use crate::support::client::{Client, Watch, rv};
use crate::support::{eventually, until};

/// Its deadline is longer than any wait of a test: what this would end is not waited for.
async fn start(server: &Server) -> Binary {
    let binary = Binary::start(&sim::kubeconfig("sim", &server.url()), &["--drain-timeout", "1h"]).await;
    binary.ready().await;
    binary
}

/// Until it says by itself that it is to be left.
async fn unready(binary: &Binary) -> String {
    let admin = Client::new(&binary.admin);
    let mut text = String::new();
    until("readiness is withdrawn", async || {
        let answer = admin.get("/readyz").await;
        text = answer.text();
        answer.status != 200
    })
    .await;
    text
}

/// What a watch says until its end, which has to be a clean one.
async fn to_the_end(mut watch: Watch) -> Vec<Value> {
    let mut events = Vec::new();
    while let Some(event) = watch.next().await.expect("a clean end: the last chunk, or the end of the stream") {
        events.push(event);
    }
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_end_cleanly_with_a_bookmark() {
    let server = Server::builder().object(config_map("a", "one")).start().await.unwrap();
    let binary = start(&server).await;
    let (http1, http2) = (Client::new(&binary.url), Client::http2(&binary.url));
    let mut watches = Vec::new();
    for n in 0..40 {
        let client = if n % 2 == 0 { &http1 } else { &http2 };
        let bookmarks = n % 4 < 2;
        let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion=0&allowWatchBookmarks={bookmarks}");
        let mut watch = client.watch(&path).await;
        assert_eq!(watch.next_event().await["object"]["metadata"]["name"], "one");
        watches.push((bookmarks, watch));
    }
    let written = server.create(config_map("a", "two")).unwrap();
    for (_, watch) in &mut watches {
        assert_eq!(rv(&watch.next_event().await["object"]), written);
    }
    // A request whose end has not come when the signal does.
    let mut late = RawConnection::open(&binary.url).await;
    late.say(&format!("GET {CONFIG_MAPS}?watch=1&resourceVersion=0 HTTP/1.1\r\n")).await;
    tokio::time::sleep(Duration::from_millis(200)).await;

    binary.signal("TERM");
    let text = unready(&binary).await;
    assert!(text.contains("draining: withdrawn"), "{text}");
    let host = binary.url.strip_prefix("http://").unwrap();
    late.say(&format!("Host: {host}\r\n\r\n")).await;
    let refused = late.until("}\n").await.to_ascii_lowercase();
    assert!(refused.starts_with("http/1.1 429 ") && refused.contains("retry-after: 1\r\n"), "{refused}");
    assert!(refused.contains("connection: close\r\n"), "{refused}");

    let watches = watches.into_iter().map(|(bookmarks, watch)| async move { (bookmarks, to_the_end(watch).await) });
    for (bookmarks, events) in join_all(watches).await {
        let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        // A regular one may have come before the last one.
        assert!(kinds.iter().all(|kind| *kind == "BOOKMARK"), "{events:?}");
        assert_eq!(!kinds.is_empty(), bookmarks, "{events:?}");
        assert!(events.last().is_none_or(|event| rv(&event["object"]) == written), "{events:?}");
    }
    let status = binary.ended().await;
    assert_eq!(status.code(), Some(0), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_it_at_once() {
    let server = Server::builder().object(config_map("a", "one")).start().await.unwrap();
    let binary = start(&server).await;
    // The drain waits for the end of a request that is forwarded, and this one has none.
    server.faults().add(Fault::always(Effect::Delay(Duration::from_secs(3600))).on("secrets"));
    let mut late = RawConnection::open(&binary.url).await;
    let host = binary.url.strip_prefix("http://").unwrap();
    late.say(&format!("GET /api/v1/secrets HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
    eventually("it is forwarded", || server.requests().iter().any(|request| request.target == "/api/v1/secrets")).await;
    binary.signal("TERM");
    unready(&binary).await;
    binary.signal("INT");
    let status = binary.ended().await;
    assert_eq!(status.code(), Some(0), "asked for, so no failure: {status}");
}

/// What the apiserver watches for us ends with us, too: cleanly, and long before the drain's deadline.
#[tokio::test(flavor = "multi_thread")]
async fn forwarded_watches_end_cleanly() {
    let server = Server::builder().object(config_map("a", "one")).start().await.unwrap();
    let through =
        Through::before(&server, "resources: [{resource: configmaps, exclude: true}]\ndrain: {timeout: 1h}\n").await;
    through.ready().await;
    let mut watches = Vec::new();
    for client in [Client::new(&through.url), Client::http2(&through.url)] {
        let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=0")).await;
        assert_eq!(watch.next_event().await["object"]["metadata"]["name"], "one");
        watches.push(watch);
    }
    assert_eq!(through.daemon.http.requests_served.get(), 0, "they are forwarded");
    let ends = join_all(watches.into_iter().map(to_the_end));
    let (ends, drained) = tokio::join!(ends, through.stop(Duration::from_secs(3600)));
    assert!(ends.iter().all(Vec::is_empty), "{ends:?}");
    assert_eq!(drained, DrainEnd::Clean);
    assert_eq!(through.daemon.http.watches_drained.get(), 2);
}
