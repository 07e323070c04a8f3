//! Events expire, many at one revision of the store: the apiserver attaches them to one lease.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use crate::cluster::Cluster;
use crate::support::client::{Watch, rv};
use crate::support::grpc::{all, objects, watch_of};
use crate::support::within;
use crate::world::World;
use http::Method;
use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::objects_client::ObjectsClient;
use informerd::grpc::pb::v1::watch_request::Start;
use informerd::grpc::pb::v1::watch_response::Frame;
use serde_json::json;
use tonic::transport::Channel;

const EVENTS: &str = "/api/v1/namespaces/default/events";
const COUNT: usize = 12;

/// `DELETED e-1 5` of everything up to the deletion of the last event.
async fn told(mut watch: Watch) -> Vec<String> {
    let (mut told, mut gone) = (Vec::new(), 0);
    while gone < COUNT {
        let event = watch.next().await.unwrap();
        let event = event.unwrap_or_else(|| panic!("the watch has ended after {told:#?}"));
        let kind = event["type"].as_str().unwrap();
        gone += usize::from(kind == "DELETED");
        if kind != "BOOKMARK" {
            told.push(format!("{kind} {} {}", event["object"]["metadata"]["name"], rv(&event["object"])));
        }
    }
    told
}

/// One frame of a typed watch with one deletion: its name and revision, the revision that the frame claims, and the token.
struct Gone {
    name: String,
    rv: u64,
    claims: u64,
    token: Vec<u8>,
}

/// A typed watch of events, with one event in a frame.
async fn typed(client: &mut ObjectsClient<Channel>, start: Start) -> tonic::Streaming<v1::WatchResponse> {
    let request = v1::WatchRequest { start: Some(start), max_batch: 1, ..watch_of(all("events")) };
    client.watch(request).await.unwrap().into_inner()
}

/// The next deletions.
async fn typed_gone(watch: &mut tonic::Streaming<v1::WatchResponse>, count: usize) -> Vec<Gone> {
    let mut gone = Vec::new();
    while gone.len() < count {
        let frame = within("they expire", watch.message()).await.unwrap();
        let frame = frame.expect("the watch goes on");
        let Some(Frame::Events(events)) = frame.frame else { continue };
        let [event] = &events.events[..] else { panic!("{events:?}") };
        if event.r#type() == v1::event::Type::Deleted {
            let v1::Key { name, resource_version, .. } = event.key.clone().unwrap();
            let (rv, token) = (resource_version.parse().unwrap(), frame.resume_token.to_vec());
            gone.push(Gone { name, rv, claims: frame.resource_version.parse().unwrap(), token });
        }
    }
    gone
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_go_on_when_events_expire_together() {
    // A lease is used for another twentieth of the time to live, in whole seconds.
    let cluster = Cluster::start_with(&["--apiserver-flag=event-ttl=25s"]).await;
    let World { cluster: _cluster, daemon, direct, through } = World::before(cluster, "").await;
    through.json("/api/v1/events?resourceVersion=0").await;
    let now = rv(&through.json("/api/v1/events?resourceVersion=0").await);
    let path = format!("{EVENTS}?watch=1&resourceVersion={now}&timeoutSeconds=200&allowWatchBookmarks=true");
    let watches = (direct.watch(&path).await, through.watch(&path).await);
    let mut client = objects(&daemon.url).await;
    let mut typed_watch = typed(&mut client, Start::FromResourceVersion(now.to_string())).await;
    for n in 0..COUNT {
        let pod = json!({"kind": "Pod", "name": "x", "namespace": "default"});
        let metadata = json!({"name": format!("e-{n}")});
        let event = json!({"metadata": metadata, "involvedObject": pod, "type": "Normal", "reason": "r"});
        direct.write(Method::POST, EVENTS, &event).await;
    }
    let (direct_told, through_told, gone) =
        tokio::join!(told(watches.0), told(watches.1), typed_gone(&mut typed_watch, COUNT));
    assert_eq!(direct_told, through_told);
    // Who continues after any of the frames gets the deletions that were not in it, or in one before it.
    for (n, frame) in gone.iter().enumerate() {
        let mut rest: BTreeSet<_> = gone[n + 1..].iter().map(|gone| &gone.name).collect();
        assert!(gone[n + 1..].iter().all(|gone| gone.rv > frame.claims), "{} is claimed too early", frame.claims);
        let mut again = typed(&mut client, Start::ResumeToken(frame.token.clone().into())).await;
        while !rest.is_empty() {
            rest.remove(&typed_gone(&mut again, 1).await[0].name);
        }
    }
    let deleted = || direct_told.iter().filter(|event| event.starts_with("DELETED"));
    let revisions: BTreeSet<_> = deleted().map(|event| event.rsplit(' ').next().unwrap()).collect();
    assert!(revisions.len() < COUNT, "none expired at the same revision: {direct_told:#?}");
    let informers = daemon.daemon.factory.informers();
    let events = informers.iter().find(|informer| &*informer.key().gvr.resource == "events").unwrap();
    assert_eq!(events.status().relists, 0, "nothing had to be listed anew");
    let left = through.json(&format!("{EVENTS}?resourceVersion=0")).await;
    assert_eq!(left["items"].as_array().unwrap().len(), 0, "{left}");
}
