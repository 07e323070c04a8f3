//! One selection watched: frames, resumption, resets, differences.

use std::time::Duration;

use informerd::grpc::pb::v1;
use informerd_sim::Server;
use serde_json::{Value, json};
use tonic::Code;

use super::fixtures::{
    Frame, Frames, all, client, config_map, filtered, labels, namespace, resume, said, simulated, started, watch_of,
};
use crate::support::Through;
use crate::support::client::Client as Http;

fn changed(name: &str, text: &str) -> Value {
    let mut object = config_map("a", name);
    object["data"] = json!({ "text": text });
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_and_then_the_changes() {
    let (server, through, mut client) = simulated([config_map("a", "one"), config_map("b", "two")], "").await;
    let mut frames = Frames::open(&mut client, watch_of(all("configmaps"))).await;
    assert!(!started(&frames.tell().await));
    let (events, end) = frames.snapshot().await;
    let state = server.state("configmaps");
    let wanted: Vec<_> = state.iter().map(|(key, rv)| format!("ADDED {key}@{rv}")).collect();
    assert_eq!((said(&events), end.count), (wanted, 2));

    let created = server.create(config_map("a", "three")).unwrap();
    assert_eq!(said(&frames.events(1).await), [format!("ADDED a/three@{created}")]);
    let modified = server.update(changed("three", "x")).unwrap();
    let event = frames.events(1).await.remove(0);
    assert_eq!(said(std::slice::from_ref(&event)), [format!("MODIFIED a/three@{modified}")]);
    let rest = Http::new(&through.url).get("/api/v1/namespaces/a/configmaps/three?resourceVersion=0").await;
    assert_eq!([&event.object[..], b"\n"].concat(), rest.body);
    let deleted = server.delete("configmaps", "a", "three").unwrap();
    assert_eq!(said(&frames.events(1).await), [format!("DELETED a/three@{deleted}")]);
    assert_eq!(through.daemon.grpc.event_lag.read().count, 3, "of the changes, and not of the snapshot");
}

#[tokio::test(flavor = "multi_thread")]
async fn resumes_where_it_was_here_and_on_another_replica() {
    let (server, through, _) = Through::simulated(
        [json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}), config_map("a", "one")],
        "",
    )
    .await;
    let other = Through::before(&server, "").await;
    let (mut here, mut there) = (client(&through).await, client(&other).await);
    let mut frames = Frames::open(&mut here, watch_of(all("configmaps"))).await;
    started(&frames.tell().await);
    frames.snapshot().await;
    Frames::open(&mut there, watch_of(all("configmaps"))).await.tell().await;
    server.create(config_map("a", "two")).unwrap();
    frames.events(1).await;
    let token = frames.token.clone();
    drop(frames);
    let missed = server.create(config_map("a", "three")).unwrap();
    for client in [&mut here, &mut there] {
        let mut frames = Frames::open(client, resume(all("configmaps"), &token)).await;
        assert!(started(&frames.tell().await));
        assert_eq!(said(&frames.events(1).await), [format!("ADDED a/three@{missed}")]);
    }

    let of_another = here.watch(resume(filtered("configmaps", vec![labels("a=b")]), &token)).await.unwrap_err();
    assert_eq!(of_another.code(), Code::InvalidArgument);
    assert_eq!(of_another.message(), "the resume token is of another selection");
    let cluster = Server::builder()
        .object(config_map("a", "first"))
        .object(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}))
        .start()
        .await
        .unwrap();
    let elsewhere = Through::before(&cluster, "").await;
    let refused = client(&elsewhere).await.watch(resume(all("configmaps"), &token)).await.unwrap_err();
    assert_eq!(refused.message(), "the resume token is of another cluster");
    let garbage = here.watch(resume(all("configmaps"), b"garbage")).await.unwrap_err();
    assert_eq!(garbage.code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn begins_anew_where_the_window_has_passed() {
    let (server, _through, mut client) =
        simulated([config_map("a", "one")], "window: {minAge: 1s, maxEvents: 100}\n").await;
    let mut frames = Frames::open(&mut client, watch_of(all("configmaps"))).await;
    started(&frames.tell().await);
    frames.snapshot().await;
    let token = frames.token.clone();
    let mut last = 0;
    for n in 0..400 {
        last = server.update(changed("one", &n.to_string())).unwrap();
    }
    frames.events(400).await;
    let mut frames = Frames::open(&mut client, resume(all("configmaps"), &token)).await;
    assert!(!started(&frames.tell().await));
    let Frame::Reset(reset) = frames.tell().await else { panic!("no reset") };
    assert_eq!(reset.reason(), v1::reset::Reason::Expired);
    assert_eq!(said(&frames.snapshot().await.0), [format!("ADDED a/one@{last}")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn says_goodbye_in_a_drain_and_at_its_age() {
    let (_server, through, mut client) = simulated([config_map("a", "one")], "").await;
    let short = v1::WatchRequest {
        max_age: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
        ..watch_of(all("configmaps"))
    };
    for (request, reason) in
        [(short, v1::goodbye::Reason::MaxAge), (watch_of(all("configmaps")), v1::goodbye::Reason::Draining)]
    {
        let mut frames = Frames::open(&mut client, request).await;
        started(&frames.tell().await);
        frames.snapshot().await;
        if reason == v1::goodbye::Reason::Draining {
            through.stop(Duration::from_secs(10)).await;
        }
        let Frame::Goodbye(goodbye) = frames.tell().await else { panic!("no goodbye") };
        assert_eq!(goodbye.reason(), reason);
        assert!(frames.next().await.is_none());
    }
    assert_eq!(through.daemon.grpc.watches_open.get(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn bookmarks_say_how_long_the_apiserver_was_silent() {
    let server =
        Server::builder().object(config_map("a", "one")).bookmark_every(Duration::from_secs(1)).start().await.unwrap();
    let through = Through::before(&server, "").await;
    let mut client = client(&through).await;
    let request = v1::WatchRequest {
        bookmark_interval: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
        ..watch_of(filtered("configmaps", vec![namespace("nothing")]))
    };
    let mut frames = Frames::open(&mut client, request).await;
    started(&frames.tell().await);
    frames.snapshot().await;
    let created = server.create(config_map("a", "two")).unwrap();
    let before = frames.token.clone();
    let Some(Frame::Bookmark(bookmark)) = frames.next().await else { panic!("no bookmark") };
    assert!(bookmark.upstream_silence.unwrap().seconds < 30);
    assert_ne!(frames.token, before);
    let mut frames =
        Frames::open(&mut client, resume(filtered("configmaps", vec![namespace("nothing")]), &frames.token)).await;
    assert!(started(&frames.tell().await), "{created}");
}

/// A bookmark every second, on watches that opened when there was nothing new to be heard.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_opens_in_an_outage_is_told_of_the_silence() {
    let (server, _through, mut client) = simulated([config_map("a", "one")], "").await;
    let mut frames = Frames::open(&mut client, watch_of(all("configmaps"))).await;
    started(&frames.tell().await);
    frames.snapshot().await;
    server.faults().blackhole(true);
    let second = Some(prost_types::Duration { seconds: 1, nanos: 0 });
    let fresh = v1::WatchRequest { bookmark_interval: second, ..watch_of(all("configmaps")) };
    let resumed = v1::WatchRequest { bookmark_interval: second, ..resume(all("configmaps"), &frames.token) };
    let merged = |request: &v1::WatchRequest| v1::WatchRequest { conflate: true, ..request.clone() };
    for request in [merged(&fresh), merged(&resumed), fresh.clone(), resumed] {
        let mut frames = Frames::open(&mut client, request.clone()).await;
        if !started(&frames.tell().await) {
            frames.snapshot().await;
        }
        let mut silence = Duration::ZERO;
        for _ in 0..2 {
            let Some(Frame::Bookmark(bookmark)) = frames.next().await else { panic!("no bookmark: {request:?}") };
            let now = bookmark.upstream_silence.unwrap().try_into().unwrap();
            assert!(now > silence, "{now:?} after {silence:?}");
            silence = now;
        }
        let mut again = Frames::open(&mut client, resume(all("configmaps"), &frames.token)).await;
        assert!(started(&again.tell().await), "its token is good");
    }
    let add = v1::AddWatch { watch: Some(fresh), credit: None };
    let add = v1::SyncRequest { watch_id: 1, action: Some(v1::sync_request::Action::Add(add)) };
    let requests = tokio_stream::StreamExt::chain(tokio_stream::once(add), tokio_stream::pending());
    let mut sync = client.sync(requests).await.unwrap().into_inner();
    let mut bookmarks = 0;
    while bookmarks < 2 {
        let response = tokio::time::timeout(Duration::from_secs(10), sync.message()).await.expect("no bookmark");
        bookmarks +=
            usize::from(matches!(response.unwrap().unwrap().response.unwrap().frame, Some(Frame::Bookmark(_))));
    }
}
