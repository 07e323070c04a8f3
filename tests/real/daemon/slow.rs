//! Clients that do not read: nobody else waits for them, and what they cost is bounded.

use std::time::Duration;

use http_body_util::BodyExt;
use informerd_sim::Server;
use serde_json::{Value, json};

use super::fixtures::{CONFIG_MAPS, RawConnection, config_map};
use crate::support::client::{Client, Watch};
use crate::support::{Through, eventually};

/// 24 MiB of objects or events, far more than sockets, streams and the window together may hold.
const EVENTS: usize = 96;

fn big(name: &str, n: usize) -> Value {
    let mut object = config_map("a", name);
    object["data"] = json!({"n": n.to_string(), "text": "x".repeat(256 << 10)});
    object
}

/// Changes one object again and again: each time, the one who reads hears of it at once.
async fn changes(server: &Server, good: &mut Watch) {
    server.create(big("big", 0)).unwrap();
    for n in 0..EVENTS {
        let event = tokio::time::timeout(Duration::from_secs(30), good.next_event()).await.expect("held up");
        assert_eq!(event["object"]["data"]["n"], n.to_string());
        server.update(big("big", n + 1)).unwrap();
    }
    good.next_event().await;
}

const SMALL: &str = "window: { minAge: 1s, maxEvents: 100, maxBytes: 4Mi }\nlimits: { writeStallTimeout: 2s }\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_takes_nothing_is_cut() {
    let (server, through, _) = Through::simulated([], SMALL).await;
    let mut good = Client::new(&through.url).watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=0")).await;
    let mut raw = RawConnection::open(&through.url).await;
    let host = through.url.strip_prefix("http://").unwrap();
    raw.say(&format!("GET {CONFIG_MAPS}?watch=1&resourceVersion=0 HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
    raw.until("\r\n\r\n").await;
    let http = &through.daemon.http;
    eventually("both watches are open", || http.watches_open.get() == 2).await;

    changes(&server, &mut good).await;
    let cache = through.daemon.factory.informers()[0].cache().clone();
    assert!(cache.stats().window_bytes <= 6 << 20, "the window is bounded: {} bytes", cache.stats().window_bytes);
    eventually("the silent one is cut", || http.watches_open.get() == 1 && http.connections_open.get() == 1).await;
    assert_eq!(cache.stats().watchers, 1);
    server.create(config_map("a", "after")).unwrap();
    assert_eq!(good.next_event().await["object"]["metadata"]["name"], "after");
}

/// On HTTP/2 one stream of a connection may be left lying while others are read.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_takes_nothing_holds_up_no_other() {
    let (server, through, _) = Through::simulated([], SMALL).await;
    let client = Client::http2(&through.url);
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion=0");
    let mut good = client.watch(&path).await;
    let left_lying = client.send(http::Method::GET, &path, &[], "").await;
    assert_eq!(through.daemon.http.connections_open.get(), 1);
    changes(&server, &mut good).await;
    let cache = through.daemon.factory.informers()[0].cache().clone();
    assert!(cache.stats().window_bytes <= 6 << 20, "{} bytes", cache.stats().window_bytes);
    // Read at last: what was on its way, whole events, and then a clean end, since the window has passed it.
    let body = tokio::time::timeout(Duration::from_secs(20), left_lying.into_body().collect()).await;
    let body = body.expect("the watch ends").expect("it ends cleanly").to_bytes();
    assert!(body.ends_with(b"\n") && body.len() < 16 << 20, "{} bytes", body.len());
    for (n, line) in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).enumerate() {
        let event: Value = serde_json::from_slice(line).unwrap();
        assert_eq!(event["object"]["data"]["n"], n.to_string(), "in order and without a gap");
    }
    assert_eq!(cache.stats().too_slow_total, 1);
}

/// A list whose client stops in the middle of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_nobody_takes_is_given_up() {
    let server = Server::builder().start().await.unwrap();
    // More than what is written at once, and more than sockets hold.
    const OBJECTS: usize = 700;
    for n in 0..OBJECTS {
        let mut object = config_map("a", &format!("some-{n:03}"));
        object["data"] = json!({"text": "x".repeat(32 << 10)});
        server.create(object).unwrap();
    }
    let through = Through::before(&server, SMALL).await;
    let path = format!("{CONFIG_MAPS}?resourceVersion=0");
    let whole = Client::new(&through.url).get(&path).await;
    assert_eq!(whole.json()["items"].as_array().unwrap().len(), OBJECTS);
    let http = &through.daemon.http;
    let errors = http.connection_errors.get();
    let mut raw = RawConnection::open(&through.url).await;
    let host = through.url.strip_prefix("http://").unwrap();
    raw.say(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
    raw.until("\"items\":[").await;
    eventually("cut", || http.connection_errors.get() > errors).await;
    // A list on a stream that is not read is given up, too, though its connection lives.
    let stalled = http.lists_stalled.get();
    let client = Client::http2(&through.url);
    let left_lying = client.send(http::Method::GET, &path, &[], "").await;
    eventually("given up", || http.lists_stalled.get() > stalled).await;
    assert!(left_lying.into_body().collect().await.is_err(), "a list that is not whole does not end well");
    assert_eq!(client.json("/api/v1/namespaces/a/configmaps/some-000?resourceVersion=0").await["kind"], "ConfigMap");
}
