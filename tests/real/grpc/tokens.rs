//! A token covers what was received and nothing else, wherever a stream is cut.

use std::collections::BTreeMap;

use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::sync_request::Action;
use informerd_sim::Server;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::fixtures::{
    Client, Frame, Frames, client, filtered, labelled, labels, resume, say, simulated, started, watch_of,
};
use crate::support::within;
use crate::support::{Through, eventually};

/// Keys, in whichever order they change.
const KEYS: usize = 5;
const WRITES: usize = 60;

/// What the client holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Held {
    objects: BTreeMap<String, u64>,
    /// Of everything that was told as gone, the revisions.
    gone: BTreeMap<String, Vec<u64>>,
}

impl Held {
    fn apply(&mut self, event: &v1::Event) {
        let key = event.key.as_ref().unwrap();
        let rv = key.resource_version.parse().unwrap();
        if event.r#type() == v1::event::Type::Deleted {
            self.objects.remove(&key.name);
            let gone = self.gone.entry(key.name.clone()).or_default();
            if !gone.contains(&rv) {
                gone.push(rv);
            }
        } else {
            self.objects.insert(key.name.clone(), rv);
        }
    }
}

/// Objects that come, change, leave the selection, come back and go; returns all that a watch of `app=x` tells of it.
fn churn(server: &Server) -> Vec<String> {
    let mut there = [false; KEYS];
    let mut selected = [false; KEYS];
    let mut told = Vec::new();
    for step in 0..WRITES {
        let n = step * 7 % KEYS;
        let name = format!("n{n}");
        let app = if step % 4 == 3 { "y" } else { "x" };
        let object = labelled("a", &name, &json!({"app": app, "step": step.to_string()}));
        let (rv, is) = match (there[n], step % 9) {
            (true, 8) => (server.delete("configmaps", "a", &name).unwrap(), None),
            (true, _) => (server.update(object).unwrap(), Some(app == "x")),
            (false, _) => (server.create(object).unwrap(), Some(app == "x")),
        };
        there[n] = is.is_some();
        let now = is == Some(true);
        let kind = match (std::mem::replace(&mut selected[n], now), now) {
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
            (false, false) => continue,
        };
        told.push(format!("{kind} a/{name}@{rv}"));
    }
    told
}

/// What a resumed watch tells up to the present.
async fn rest(client: &mut Client, selection: &v1::Selection, token: &[u8], last: &str) -> Vec<v1::Event> {
    let mut frames = Frames::open(client, resume(selection.clone(), token)).await;
    assert!(started(&frames.tell().await), "resumed");
    let mut events: Vec<v1::Event> = Vec::new();
    while events.last().is_none_or(|event| say(event) != last) {
        events.extend(frames.events(1).await);
    }
    events
}

/// A stream that is granted so many frames of up to three events, and then cut: the events it has told, and the last token.
async fn granted(
    client: &mut Client,
    watch: v1::WatchRequest,
    frames: u64,
    through: &Through,
) -> (Vec<v1::Event>, Vec<u8>) {
    let (requests, receiver) = mpsc::channel(4);
    let watch = v1::WatchRequest { max_batch: 3, ..watch };
    let credit = Some(v1::Credit { frames, bytes: 1 << 30 });
    let action = Some(Action::Add(v1::AddWatch { watch: Some(watch.clone()), credit }));
    requests.send(v1::SyncRequest { watch_id: 1, action }).await.unwrap();
    // Another one, whose answer shows that the first has said all that it may.
    let mut stream = client.sync(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    let (mut events, mut token) = (Vec::new(), Vec::new());
    for _ in 0..frames {
        let response =
            within("the next frame of the stream", stream.message()).await.unwrap().unwrap().response.unwrap();
        token = response.resume_token.to_vec();
        if let Some(Frame::Events(batch)) = response.frame {
            assert!(batch.events.len() <= 3);
            events.extend(batch.events);
        }
    }
    if watch.conflate {
        // What is merged has been taken off the cache, and is in no frame.
        eventually("the rest waits", || through.daemon.grpc.pending.get() > 0).await;
    }
    (events, token)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_covers_what_was_sent_and_nothing_more() {
    let (server, through, mut client) = simulated([], "").await;
    let selection = filtered("configmaps", vec![labels("app=x")]);
    let mut frames = Frames::open(&mut client, watch_of(selection.clone())).await;
    started(&frames.tell().await);
    frames.snapshot().await;
    let from = frames.token.clone();
    let mut told = churn(&server);
    let last = server.create(labelled("a", "last", &json!({"app": "x"}))).unwrap();
    let last = format!("ADDED a/last@{last}");
    told.push(last.clone());
    let mut truth = Held::default();
    rest(&mut client, &selection, &from, &last).await.iter().for_each(|event| truth.apply(event));

    let batches = told.len() as u64 / 3;
    for cut in 2..batches {
        // The first frame is the start.
        let (events, token) = granted(&mut client, resume(selection.clone(), &from), cut, &through).await;
        assert_eq!(events.len() as u64, 3 * (cut - 1));
        let then = rest(&mut client, &selection, &token, &last).await;
        let all: Vec<_> = events.iter().chain(&then).map(say).collect();
        assert_eq!(all, told, "each once, in order, cut after {cut}");
    }
    // Merged: whatever is covered was received in that or a later state, so that the rest leads to the truth.
    for cut in 2..5 {
        let conflated = v1::WatchRequest { conflate: true, ..resume(selection.clone(), &from) };
        let (events, token) = granted(&mut client, conflated, cut, &through).await;
        let mut held = Held::default();
        events.iter().for_each(|event| held.apply(event));
        rest(&mut client, &selection, &token, &last).await.iter().for_each(|event| held.apply(event));
        for (name, gone) in &mut held.gone {
            gone.sort_unstable();
            assert!(gone.len() >= truth.gone[name].iter().filter(|rv| gone.contains(rv)).count());
        }
        assert_eq!(held.objects, truth.objects, "cut after {cut}");
        // No deletion is left out: in a merged run it has the deletion's own revision, too.
        assert_eq!(held.gone, truth.gone, "cut after {cut}");
    }
}

/// A connection that is dropped with frames on their way.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_connection_loses_only_what_was_not_received() {
    let (server, through, _) = Through::simulated([], "").await;
    let selection = filtered("configmaps", vec![labels("app=x")]);
    let mut steady = client(&through).await;
    let mut frames = Frames::open(&mut steady, watch_of(selection.clone())).await;
    started(&frames.tell().await);
    frames.snapshot().await;
    let from = frames.token.clone();
    let mut told = churn(&server);
    let last = server.create(labelled("a", "last", &json!({"app": "x"}))).unwrap();
    told.push(format!("ADDED a/last@{last}"));
    for cut in 1..told.len() {
        let request = v1::WatchRequest { max_batch: 1, ..resume(selection.clone(), &from) };
        let mut frames = Frames::open(&mut client(&through).await, request).await;
        assert!(started(&frames.tell().await));
        let mut events = frames.events(cut).await;
        let token = frames.token.clone();
        drop(frames);
        events.extend(rest(&mut steady, &selection, &token, told.last().unwrap()).await);
        assert_eq!(events.iter().map(say).collect::<Vec<_>>(), told, "cut after {cut}");
    }
}

/// In the midst of a snapshot nothing is complete.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_covered_by_its_end_only() {
    let mut builder = Server::builder();
    for n in 0..20 {
        builder = builder.object(labelled("a", &format!("n{n}"), &json!({"app": "x"})));
    }
    let server = builder.start().await.unwrap();
    let through = Through::before(&server, "").await;
    let mut client = client(&through).await;
    let selection = filtered("configmaps", vec![labels("app=x")]);
    for conflate in [false, true] {
        let mut frames =
            Frames::open(&mut client, v1::WatchRequest { max_batch: 3, conflate, ..watch_of(selection.clone()) }).await;
        assert!(!started(&frames.tell().await));
        let mut seen = 0;
        loop {
            let frame = frames.tell().await;
            let complete = matches!(frame, Frame::SnapshotEnd(_));
            if let Frame::Events(batch) = frame {
                seen += batch.events.len();
            }
            let mut other = Frames::open(&mut client, resume(selection.clone(), &frames.token)).await;
            assert_eq!(started(&other.tell().await), complete, "after {seen} of 20");
            if complete {
                break;
            }
        }
        assert_eq!(seen, 20);
    }
}
