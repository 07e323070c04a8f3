//! Connections that are as old as they may become: no stream is lost, and nothing that it would have told.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::time::Duration;

use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::objects_client::ObjectsClient;
use informerd::grpc::pb::v1::work_response::Frame as WorkFrame;
use tonic::Status;
use tonic::transport::Endpoint;

use super::fixtures::{
    Client, Frame, Frames, all, channel, client, config_map, get_of, resource, resume, simulated, started, watch_of,
};
use super::queue::{Worker, name_of};
use super::syncs::Sync;
use crate::support::Through;
use crate::support::patience::LONG;
use crate::support::within;

/// Takes calls for half a second and gives streams as much again.
const SHORT: &str = "limits: {grpcConnectionAge: 500ms}\n";

fn ages(goodbye: &v1::Goodbye) -> bool {
    goodbye.reason() == v1::goodbye::Reason::ConnectionAge && goodbye.retry_after.is_none()
}

/// Calls that were answered, and calls that the client's own library did not begin and that were made again.
#[derive(Debug, Default)]
struct Calls {
    answered: u64,
    again: u64,
}

impl Calls {
    /// What a call came to; `None` if it is to be made again, as a tonic client has to (docs/grpc.md). Any other failure is
    /// one of ours.
    fn count<T>(&mut self, result: Result<T, Status>) -> Option<T> {
        match result {
            Ok(answer) => {
                self.answered += 1;
                Some(answer)
            }
            Err(status) if never_began(&status) => {
                self.again += 1;
                None
            }
            Err(status) => panic!("after {self:?}: {status:?}"),
        }
    }

    async fn watch(&mut self, client: &mut Client, request: v1::WatchRequest) -> Frames {
        let answered = async {
            loop {
                if let Some(response) = self.count(client.watch(request.clone()).await) {
                    return Frames::new(response);
                }
            }
        };
        within("a watch begins", answered).await
    }
}

/// Between the moment at which its connection takes in a GOAWAY and the one at which tonic opens another, a call fails in
/// the client: it is never sent.
fn never_began(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            return error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR);
        }
        // The call waited in the library for a connection that was about to end.
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled) {
            return true;
        }
        source = error.source();
    }
    false
}

/// Reads of one object, as fast as they are answered, until told to stop; all of them succeed.
async fn reads(mut client: Client, mut over: tokio::sync::oneshot::Receiver<()>) -> Calls {
    let mut calls = Calls::default();
    while over.try_recv().is_err() {
        calls.count(client.get(get_of(resource("configmaps"), "a", "first")).await);
    }
    calls
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_is_told_goodbye_and_goes_on_over_the_next_connection() {
    let (server, through, _) = Through::simulated([config_map("a", "first")], SHORT).await;
    through.ready().await;
    let mut watcher = client(&through).await;
    let (stop, over) = tokio::sync::oneshot::channel();
    let reading = informerd::lifecycle::spawn("reads", reads(client(&through).await, over));
    let mut watches = Calls::default();
    let mut frames = watches.watch(&mut watcher, watch_of(all("configmaps"))).await;
    assert!(!started(&frames.tell().await));
    frames.snapshot().await;
    let (mut created, mut told, mut goodbyes) = (0, Vec::new(), 0);
    while goodbyes < 3 || told.len() < created {
        if goodbyes < 3 {
            server.create(config_map("a", &format!("n{created}"))).unwrap();
            created += 1;
        }
        match frames.tell().await {
            Frame::Events(events) => told.extend(events.events.into_iter().map(|event| event.key.unwrap().name)),
            Frame::Goodbye(goodbye) => {
                assert!(ages(&goodbye), "{goodbye:?}");
                assert!(frames.next().await.is_none(), "the call ends in order");
                goodbyes += 1;
                let request = resume(all("configmaps"), &frames.token);
                frames = watches.watch(&mut watcher, request).await;
                assert!(started(&frames.tell().await), "resumed");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(told, (0..created).map(|n| format!("n{n}")).collect::<Vec<_>>(), "each once, in order");
    stop.send(()).unwrap();
    let reads = reading.await.unwrap();
    assert!(reads.answered > 0);
    // What was begun was answered, and what was answered has come.
    let (answered, again) = (reads.answered + watches.answered, reads.again + watches.again);
    let begun = through.daemon.grpc.calls.get();
    assert!((answered..=answered + again).contains(&begun), "{begun} begun: {reads:?}, {watches:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_watch_of_a_stream_is_told_goodbye() {
    let (_server, _through, mut client) = simulated([config_map("a", "first")], SHORT).await;
    let mut sync = Sync::open(&mut client).await;
    for watch_id in [1, 2] {
        // The second gets nothing but its goodbye.
        let credit = (watch_id == 2).then(v1::Credit::default);
        sync.add(watch_id, watch_of(all("configmaps")), credit).await;
    }
    let mut left = BTreeSet::new();
    while let Some((watch_id, frame)) = sync.next().await {
        if let Frame::Goodbye(goodbye) = frame {
            assert!(ages(&goodbye), "{goodbye:?}");
            left.insert(watch_id);
        }
    }
    assert_eq!(left, BTreeSet::from([1, 2]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_answers_for_what_it_holds_and_then_hears_goodbye() {
    let (server, through, _) = Through::simulated([config_map("a", "n0")], SHORT).await;
    let mut worker = Worker::join(&channel(&through).await, "g", all("configmaps"), 1).await.unwrap();
    let (mut created, mut handled) = (1, BTreeSet::new());
    let goodbye = loop {
        match worker.frame().await.unwrap().expect("a goodbye comes first") {
            WorkFrame::Items(items) => {
                // Whether the connection grows old meanwhile or not: the key is answered for.
                tokio::time::sleep(Duration::from_millis(100)).await;
                for item in &items.items {
                    handled.insert(name_of(item));
                    worker.done(item).await;
                }
                server.create(config_map("a", &format!("n{created}"))).unwrap();
                created += 1;
            }
            WorkFrame::Goodbye(goodbye) => break goodbye,
            WorkFrame::Joined(_) | WorkFrame::Synced(_) => {}
        }
    };
    assert!(ages(&goodbye), "{goodbye:?}");
    assert!(worker.frame().await.unwrap().is_none(), "the call ends in order");
    assert!(!handled.is_empty());
    // What is left has not failed.
    let mut next = Worker::join(&channel(&through).await, "g", all("configmaps"), 1).await.unwrap();
    while handled.len() < created {
        let item = next.item().await;
        assert_eq!(item.attempt, 1);
        assert!(handled.insert(name_of(&item)), "{} was done", name_of(&item));
        next.done(&item).await;
    }
}

/// Whoever pings a lot, with streams or without, is no enemy.
#[tokio::test(flavor = "multi_thread")]
async fn pings_are_not_punished() {
    let (server, through, _) = Through::simulated([config_map("a", "first")], "").await;
    through.ready().await;
    let channel = Endpoint::from_shared(through.url.clone())
        .unwrap()
        .http2_keep_alive_interval(Duration::from_millis(2))
        .keep_alive_timeout(LONG)
        .keep_alive_while_idle(true)
        .connect()
        .await
        .unwrap();
    // Idle at first.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut client = ObjectsClient::new(channel);
    let mut frames = Frames::begun(&mut client, watch_of(all("configmaps"))).await;
    for n in 0..20 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        server.create(config_map("a", &format!("n{n}"))).unwrap();
        assert_eq!(frames.events(1).await[0].key.as_ref().unwrap().name, format!("n{n}"));
    }
}
