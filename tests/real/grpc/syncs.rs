//! Many watches on one stream.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::sync_request::Action;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use super::fixtures::{Client, Frame, add, all, client, config_map, filtered, namespace, simulated, watch_of};
use crate::support::metrics::only;
use crate::support::{Through, eventually, until, within};

pub(super) struct Sync {
    requests: mpsc::Sender<v1::SyncRequest>,
    responses: tonic::Streaming<v1::SyncResponse>,
}

impl Sync {
    pub(super) async fn open(client: &mut Client) -> Self {
        let (requests, receiver) = mpsc::channel(64);
        let responses = client.sync(ReceiverStream::new(receiver)).await.unwrap().into_inner();
        Self { requests, responses }
    }

    pub(super) async fn ask(&self, watch_id: u64, action: Action) {
        self.requests.send(v1::SyncRequest { watch_id, action: Some(action) }).await.unwrap();
    }

    pub(super) async fn add(&self, watch_id: u64, watch: v1::WatchRequest, credit: Option<v1::Credit>) {
        self.requests.send(add(watch_id, watch, credit)).await.unwrap();
    }

    /// The next frame that is no bookmark: those come when they are due.
    pub(super) async fn next(&mut self) -> Option<(u64, Frame)> {
        loop {
            let next = within("a frame", self.responses.message()).await;
            let response = next.unwrap_or_else(|status| panic!("{status:?}"))?;
            let frame = response.response.unwrap().frame.unwrap();
            if !matches!(frame, Frame::Bookmark(_)) {
                return Some((response.watch_id, frame));
            }
        }
    }
}

const NONE: Option<v1::Credit> = Some(v1::Credit { frames: 0, bytes: 0 });
pub(super) const PLENTY: v1::Credit = v1::Credit { frames: 1 << 40, bytes: 1 << 40 };

fn named(name: &str) -> v1::WatchRequest {
    watch_of(filtered("configmaps", vec![v1::Filter { names: vec![name.into()], ..Default::default() }]))
}

fn written(name: &str, text: &str) -> Value {
    let mut object = config_map("a", name);
    object["data"] = json!({ "text": text });
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn credit_is_what_may_be_sent() {
    let (server, through, _) = Through::simulated([config_map("a", "one")], "").await;
    let mut sync = Sync::open(&mut client(&through).await).await;
    sync.add(1, named("one"), Some(v1::Credit { frames: 2, bytes: 1 << 20 })).await;
    // Its presence shows that the first is out of credit and not just late.
    sync.add(2, named("one"), None).await;
    let mut frames = BTreeMap::<u64, usize>::new();
    let mut ended = 0;
    while ended < 1 {
        let (id, frame) = sync.next().await.unwrap();
        *frames.entry(id).or_default() += 1;
        ended += usize::from(id == 2 && matches!(frame, Frame::SnapshotEnd(_)));
    }
    server.update(written("one", "x")).unwrap();
    let (id, frame) = loop {
        let (id, frame) = sync.next().await.unwrap();
        if id == 2 {
            break (id, frame);
        }
        *frames.entry(id).or_default() += 1;
    };
    assert!(id == 2 && matches!(frame, Frame::Events(_)));
    assert_eq!(frames[&1], 2, "started, and the object");
    sync.ask(1, Action::Credit(v1::Credit { frames: 1, bytes: 0 })).await;
    let (id, frame) = sync.next().await.unwrap();
    assert!(id == 1 && matches!(frame, Frame::SnapshotEnd(_)), "{id} {frame:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_watch_is_not_held_up_by_a_large_one() {
    let large = (0..100).map(|n| {
        let mut object = config_map("large", &format!("n{n}"));
        object["data"] = json!({ "x": "y".repeat(200_000) });
        object
    });
    let (_server, through, _) = Through::simulated(large.chain([config_map("small", "one")]), "").await;
    let mut sync = Sync::open(&mut client(&through).await).await;
    let of = |name: &str| watch_of(filtered("configmaps", vec![namespace(name)]));
    sync.add(1, of("large"), Some(PLENTY)).await;
    let (_, frame) = sync.next().await.unwrap();
    assert!(matches!(frame, Frame::Started(_)));
    sync.add(2, of("small"), Some(PLENTY)).await;
    let mut large = 0;
    loop {
        match sync.next().await.unwrap() {
            (2, Frame::SnapshotEnd(_)) => break,
            (1, Frame::SnapshotEnd(_)) => panic!("20 MB first, and then one object"),
            (1, Frame::Events(events)) => large += events.events.len(),
            _ => {}
        }
    }
    assert!(large < 100, "{large}");
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_come_go_and_fail_alone() {
    let (_server, through, mut client) = simulated([config_map("a", "one")], "").await;
    let mut sync = Sync::open(&mut client).await;
    sync.add(1, watch_of(all("secrets")), None).await;
    let (id, Frame::Goodbye(goodbye)) = sync.next().await.unwrap() else { panic!() };
    let error = goodbye.error.clone().unwrap();
    assert_eq!((id, goodbye.reason(), error.code), (1, v1::goodbye::Reason::Failed, Code::FailedPrecondition as i32));
    // Its number is free again, and the stream is well.
    sync.add(1, named("one"), None).await;
    while !matches!(sync.next().await.unwrap(), (1, Frame::SnapshotEnd(_))) {}
    eventually("one watch is open", || through.daemon.grpc.watches_open.get() == 1).await;
    sync.ask(1, Action::Remove(v1::RemoveWatch {})).await;
    let (_, Frame::Goodbye(goodbye)) = sync.next().await.unwrap() else { panic!() };
    assert_eq!(goodbye.reason(), v1::goodbye::Reason::Removed);
    assert_eq!(through.daemon.grpc.watches_open.get(), 0);
    // A watch with a number that is taken is a mistake that cannot be answered to either.
    sync.add(2, named("one"), NONE).await;
    sync.add(2, named("one"), NONE).await;
    assert_eq!(
        within("the error that ends the stream", sync.responses.message()).await.unwrap_err().code(),
        Code::InvalidArgument
    );

    let mut sync = Sync::open(&mut client).await;
    sync.add(1, named("one"), NONE).await;
    sync.add(2, named("one"), None).await;
    while !matches!(sync.next().await.unwrap(), (2, Frame::SnapshotEnd(_))) {}
    through.stop(Duration::from_secs(10)).await;
    let mut left = Vec::new();
    while let Some((id, frame)) = sync.next().await {
        let Frame::Goodbye(goodbye) = frame else { panic!("{frame:?}") };
        assert_eq!(goodbye.reason(), v1::goodbye::Reason::Draining);
        left.push(id);
    }
    left.sort_unstable();
    assert_eq!(left, [1, 2], "those without credit hear it, too");
}

/// The apiserver says nothing, so the watches stay as they were asked for.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_to_open_is_accounted_for() {
    let (server, through, _) = Through::simulated([config_map("a", "one")], "").await;
    let mut sync = Sync::open(&mut client(&through).await).await;
    sync.add(1, named("one"), None).await;
    while !matches!(sync.next().await.unwrap(), (1, Frame::SnapshotEnd(_))) {}
    server.faults().blackhole(true);
    let held = async || only(&through.admin().metrics().await, "informerd_bodies_bytes", &[]);
    let known: HashMap<_, _> = (0..10_000).map(|n| (format!("{n:036}"), format!("{n:07}"))).collect();
    for id in 2..6 {
        sync.add(id, v1::WatchRequest { known: known.clone(), ..watch_of(all("services")) }, None).await;
    }
    until("four tables of 10,000 are held", async || held().await > 4.0 * 1.5e6).await;
    for id in 2..6 {
        sync.ask(id, Action::Remove(v1::RemoveWatch {})).await;
        while !matches!(sync.next().await.unwrap(), (of, Frame::Goodbye(_)) if of == id) {}
    }
    until("what was removed is given back", async || held().await < 2e6).await;
}
