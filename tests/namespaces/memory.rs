//! The program in the memory of a small pod: whatever is asked of it, it is never killed for what it holds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod calls;
mod load;

use std::time::Duration;

use bytes::Bytes;

use crate::support::client::Client;
use crate::support::limited::Limited;
use crate::support::{until, within};
use calls::{Connection, Heard};
use informerd::grpc::pb::v1;
use informerd::lifecycle::spawn;
use informerd::packing::{Body, Packing, PackingForm, Visit};
use informerd_sim::{Server, Verb};
use load::{MIB, filled, follow, insist, large, list_of, lists_at_once, noise, stalled, stalled_calls};
use serde_json::json;
use tokio::net::TcpStream;

const GOING: &str = "/api/v1/namespaces/go/configmaps";

/// So many objects of 20 kB are made while they are watched, and deleted again.
async fn come_and_go(server: &Server, limited: &Limited, objects: usize) {
    let client = Client::new(&limited.url);
    let watching = spawn("watching", follow(limited.url.clone(), format!("{GOING}?watch=1&resourceVersion=0")));
    for object in 0..objects {
        server.create(large("go", &format!("m{object:04}"), 20_000)).unwrap();
        if object % 64 == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    limited.lives(&format!("{objects} have come")).await;
    let (_, list) = insist(&client, GOING).await;
    assert_eq!(memchr::memmem::find_iter(&list, "\"namespace\":\"go\"").count(), objects);
    for object in 0..objects {
        server.delete("configmaps", "go", &format!("m{object:04}")).unwrap();
        if object % 256 == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    limited.lives(&format!("{objects} are gone")).await;
    let (_, list) = insist(&client, GOING).await;
    assert!(list.len() < 1000, "{} bytes", list.len());
    watching.abort();
}

/// So many clients ask for lists and take nothing: from the cache or from the apiserver, compressed or not.
async fn slow_readers(limited: &Limited, lists: usize, clients: usize) -> Vec<TcpStream> {
    let ask = |client: usize| {
        let version = ["", "?resourceVersion=0"][client / 2 % 2];
        (format!("{}{version}", list_of(client % lists)), ["", "accept-encoding: gzip\r\n"][client % 2])
    };
    stalled(&limited.url, (0..clients).map(ask).collect()).await
}

/// So many watches with many selectors, of which a few are read, and changes for them.
async fn many_watchers(server: &Server, limited: &Limited, watchers: usize) -> Vec<TcpStream> {
    let path =
        |n: usize| format!("/api/v1/namespaces/w/configmaps?watch=1&resourceVersion=0&labelSelector=!n{}", n % 50);
    let open = stalled(&limited.url, (0..watchers).map(|n| (path(n), "")).collect()).await;
    let reading: Vec<_> = (0..10).map(|n| spawn("watcher", follow(limited.url.clone(), path(n)))).collect();
    for change in 0..400 {
        server.create(large("w", &format!("m{change:04}"), 20_000)).unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    reading.iter().for_each(tokio::task::JoinHandle::abort);
    open
}

/// All of it at once.
async fn everything(limit: usize, objects: usize, clients: usize) {
    let server = filled(8, objects).start().await.unwrap();
    let limited = Limited::start(&server, limit, &[]).await;
    let (slow, watchers, refused, ()) = tokio::join!(
        slow_readers(&limited, 8, clients),
        many_watchers(&server, &limited, clients * 3),
        lists_at_once(&server, &limited.url, 8, 2),
        come_and_go(&server, &limited, 500),
    );
    limited.lives(&format!("everything, {refused} lists refused")).await;
    eprintln!("{}", limited.said_of_memory().await);
    drop((slow, watchers));
    assert_eq!(lists_at_once(&server, &limited.url, 1, 1).await, 0, "afterwards there is room");
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_come_and_go_in_64_mib() {
    let server = Server::builder().history(100).start().await.unwrap();
    let limited = Limited::start(&server, 64 * MIB, &[]).await;
    come_and_go(&server, &limited, 3000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_forwarded_and_shared_in_128_mib() {
    let server = filled(8, 1000).start().await.unwrap();
    let limited = Limited::start(&server, 128 * MIB, &[]).await;
    let refused = lists_at_once(&server, &limited.url, 8, 4).await;
    limited.lives(&format!("lists, {refused} refused")).await;
    accounted_for(&limited).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_at_once_in_64_mib() {
    everything(64 * MIB, 300, 32).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_lists_that_nobody_takes_in_64_mib() {
    let server = filled(2, 300).start().await.unwrap();
    let limited = Limited::start(&server, 64 * MIB, &["--limits-write-stall-timeout", "20s"]).await;
    let open = stalled_calls(&limited.url, 2, 100).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    limited.lives(&format!("{} calls are open", open.len())).await;
    assert!(open.len() >= 20, "{}: {}", open.len(), limited.said_of_memory().await);
    // Who takes his list gets all of it, in whatever messages.
    let mut open = open.into_iter();
    let mut last = open.next().unwrap();
    let mut objects = 0;
    while let Some(message) = within("the next part of a list", last.message()).await.unwrap() {
        if let Some(v1::list_response::Part::Chunk(chunk)) = message.part {
            objects += chunk.objects.len();
        }
    }
    assert_eq!(objects, 300);
    limited.lives("afterwards").await;
    // Who never takes it is cut off, and told so.
    accounted_for(&limited).await;
    let mut cut = open.next().unwrap();
    let status = loop {
        match within("a list that nobody takes is given up", cut.message()).await {
            Ok(message) => assert!(message.is_some(), "it was cut"),
            Err(status) => break status,
        }
    };
    // A message of which a part was sent ends by the reset that stands for that code.
    let is_reset = format!("{status:?}").contains("ENHANCE_YOUR_CALM");
    assert!(is_reset || status.code() == tonic::Code::ResourceExhausted, "{status:?}");
}

/// Calls over so many connections, as many over each. All are begun before an answer is waited for.
async fn calls(
    url: &str,
    connections: usize,
    each: usize,
    is_all: bool,
    request: impl Fn(usize) -> (&'static str, bytes::Bytes),
) -> (Vec<Connection>, Heard) {
    let mut open = Vec::new();
    for connection in 0..connections {
        let mut opened = Connection::open(url).await;
        for call in 0..each {
            let (method, sent) = request(connection * each + call);
            opened.call(method, sent, is_all).await;
        }
        open.push(opened);
    }
    let mut all = Heard::default();
    for heard in futures_util::future::join_all(open.iter_mut().map(Connection::hear)).await {
        all.begun.extend(heard.begun);
        all.refused.extend(heard.refused);
        all.silent += heard.silent;
    }
    // The last one: while clients have that much memory, there is none for the state of a cache.
    let codes = [tonic::Code::ResourceExhausted, tonic::Code::InvalidArgument, tonic::Code::FailedPrecondition];
    assert!(all.refused.iter().all(|code| codes.contains(code)), "{:?}", all.refused);
    (open, all)
}

/// Waits until nothing is left in the account, but for the selections of groups that linger.
async fn accounted_for(limited: &Limited) {
    until("all is given back", async || {
        let (metrics, left) = (limited.metrics().await, limited.metric("informerd_bodies_bytes").await);
        let groups = metrics.lines().filter(|line| line.starts_with("informerd_queue_workers{")).count();
        // A group has a selection, a name and a user.
        left < 32_768.0_f64.max(1_536.0 * groups as f64)
    })
    .await;
}

/// What clients that are known, or trusted, can make a small process take in: messages that do not end, that say what the
/// client holds, and whose two bytes become a hundred.
#[tokio::test(flavor = "multi_thread")]
async fn large_grpc_requests_in_64_mib() {
    let server = filled(1, 20).start().await.unwrap();
    let limited = Limited::start(&server, 64 * MIB, &[]).await;
    let part = calls::watch_with_known(70_000).slice(..3 * MIB);
    let (held, heard) = calls(&limited.url, 16, 8, false, |_| ("Objects/Watch", part.clone())).await;
    limited.lives(&format!("messages that do not end, {} refused", heard.refused.len())).await;
    assert!(heard.refused.len() > 100 && heard.begun.is_empty(), "{heard:?}");
    drop(held);
    accounted_for(&limited).await;

    let whole = calls::watch_with_known(5000);
    let (held, heard) = calls(&limited.url, 12, 4, true, |_| ("Objects/Watch", whole.clone())).await;
    let refused = heard.refused.len();
    limited.lives(&format!("what clients hold, {} watches, {refused} refused", heard.begun.len())).await;
    drop((held, heard));
    accounted_for(&limited).await;

    let filters = calls::list_of_filters(MIB);
    let (held, heard) = calls(&limited.url, 8, 2, false, |_| ("Objects/List", filters.clone())).await;
    limited.lives("messages of many parts").await;
    assert_eq!((heard.refused.len(), heard.begun.len(), heard.silent), (16, 0, 0));
    drop(held);
    accounted_for(&limited).await;

    // Whoever asks for little is served, as soon as the state was read again.
    until("a small watch is served", async || {
        let (_held, heard) = calls(&limited.url, 1, 1, true, |_| ("Objects/Watch", calls::watch_with_known(10))).await;
        heard.begun.len() == 1
    })
    .await;
}

/// Objects that are larger than what a message usually has room for, to gets, workers, watches and lists whose clients take a
/// few bytes of them.
#[tokio::test(flavor = "multi_thread")]
async fn large_objects_that_nobody_takes_in_64_mib() {
    let mut builder = Server::builder();
    for object in 0..8 {
        builder = builder.object(large("n0", &format!("m{object}"), MIB / 2));
    }
    let server = builder.start().await.unwrap();
    let limited = Limited::start(&server, 64 * MIB, &["--limits-write-stall-timeout", "3s"]).await;
    let get = |call: usize| ("Objects/Get", calls::get("n0", &format!("m{}", call % 8)));
    let (_, heard) = calls(&limited.url, 1, 1, true, get).await;
    assert_eq!(heard.begun.len(), 1, "the cache is there");
    for (kind, connections, each) in
        [("Objects/Get", 30, 10), ("Queue/Work", 80, 1), ("Objects/Watch", 80, 1), ("Objects/List", 80, 1)]
    {
        let request = |call: usize| match kind {
            "Objects/Get" => get(call),
            "Queue/Work" => (kind, calls::worker(call, "n0")),
            "Objects/Watch" => (kind, calls::watch("n0")),
            _ => (kind, calls::list("n0")),
        };
        let (held, heard) = calls(&limited.url, connections, each, kind != "Queue/Work", request).await;
        let (begun, refused) = (heard.begun.len(), heard.refused.len());
        limited.lives(&format!("{begun} of {kind}, {refused} refused")).await;
        assert_eq!(begun + refused, connections * each, "{kind}: {heard:?}");
        if kind == "Objects/Get" {
            // They are given up while the client holds them.
            assert!(begun >= 5, "{heard:?}");
            accounted_for(&limited).await;
            until("a get is served", async || calls(&limited.url, 1, 1, true, get).await.1.begun.len() == 1).await;
        }
        drop((held, heard));
        accounted_for(&limited).await;
    }
}

/// It stays as large as it is, however the cache keeps it.
fn pod(name: &str, bytes: usize) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "a", "annotations": {"x": noise(name, bytes)}},
        "spec": {"containers": [{"name": "main", "image": "image"}]},
    })
}

#[test]
fn what_must_not_be_packed_cannot_be_packed() {
    let packer = Packing::default().packer(Some(PackingForm::Packed));
    let bytes = |i: usize| Bytes::from(pod(&format!("large-{i}"), MIB / 2).to_string());
    packer.train(&(0..10).map(bytes).collect::<Vec<_>>(), 10 * MIB);
    assert!(packer.is_trained());
    for i in 0..20 {
        assert_eq!(Body::new(bytes(i)).pack(&packer, 0), Visit::Plain);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_with_a_memory_limit_forwards_what_does_not_fit_and_is_never_killed() {
    const PODS: &str = "/api/v1/pods";
    const CONFIG_MAPS: &str = "/api/v1/configmaps";
    let mut builder = Server::builder().object(pod("one", 0));
    for i in 0..400 {
        let name = format!("m{i:03}");
        builder = builder.object(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "a"}, "data": {"text": noise(&name, MIB / 2)},
        }));
    }
    let server = builder.start().await.unwrap();
    let resources = "[{resource: pods, pin: true}, {resource: configmaps, pin: true}]";
    let limited = Limited::start(&server, 160 * MIB, &["--resources", resources]).await;
    limited.ready().await;
    assert!(limited.log().contains("pinned, but not cached, its reads are forwarded"));
    let client = Client::new(&limited.url);
    let pods = async || {
        let list = client.json(&format!("{PODS}?resourceVersion=0")).await;
        list["items"].as_array().unwrap().len()
    };
    assert_eq!(pods().await, 1);

    // 200 MB at a time through 160.
    let wanted = Client::new(&server.url()).get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    let path = format!("{CONFIG_MAPS}?resourceVersion=0");
    for (_, list) in futures_util::future::join_all((0..3).map(|_| insist(&client, &path))).await {
        assert!(list == wanted.body, "{} bytes", list.len());
    }
    limited.lives("large objects").await;

    // What is cached grows beyond everything.
    let mut watch = client.watch(&format!("{PODS}?watch=1&resourceVersion=0")).await;
    watch.next().await.unwrap().unwrap();
    for i in 0..260 {
        server.create(pod(&format!("large-{i}"), MIB / 2)).unwrap();
    }
    let ended = async { while watch.next().await.expect("a clean end").is_some() {} };
    within("the watch of what outgrew the memory has ended", ended).await;
    limited.lives("large objects").await;
    assert_eq!(pods().await, 261);
    limited.lives("large objects").await;
    assert!(limited.metric("informerd_caches_recalled_total").await >= 1.0);
    assert!(server.counts().requests(Verb::Watch, "pods") >= 1);
}
