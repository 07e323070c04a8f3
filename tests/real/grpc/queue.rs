//! Work queues: what workers are given, whatever happens to the apiserver, to other workers and to informerd.

use std::collections::BTreeSet;
use std::time::Duration;

use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::queue_client::QueueClient;
use informerd::grpc::pb::v1::work_request::Action;
use informerd::grpc::pb::v1::work_response::Frame;
use informerd::lifecycle::{self, drain::DrainEnd};
use informerd_sim::Server;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::fixtures::{all, channel, config_map, filtered, join, labelled, labels, namespace};
use crate::support::within;
use crate::support::{Through, eventually};

/// One worker.
pub(super) struct Worker {
    requests: mpsc::Sender<v1::WorkRequest>,
    frames: Streaming<v1::WorkResponse>,
    /// Of frames that came and were not looked at.
    items: Vec<v1::Item>,
}

impl Worker {
    pub(super) async fn join(
        channel: &Channel,
        group: &str,
        selection: v1::Selection,
        capacity: u32,
    ) -> Result<Self, Status> {
        Self::join_all(channel, group, vec![selection], capacity).await
    }

    async fn join_all(
        channel: &Channel,
        group: &str,
        selections: Vec<v1::Selection>,
        capacity: u32,
    ) -> Result<Self, Status> {
        let (requests, receiver) = mpsc::channel(64);
        requests.send(join(group, selections, capacity)).await.unwrap();
        let answer = QueueClient::new(channel.clone()).work(ReceiverStream::new(receiver)).await?;
        let mut worker = Self { requests, frames: answer.into_inner(), items: vec![] };
        match worker.frame().await? {
            Some(Frame::Joined(_)) => Ok(worker),
            other => panic!("joined comes first: {other:?}"),
        }
    }

    pub(super) async fn frame(&mut self) -> Result<Option<Frame>, Status> {
        Ok(within("the next frame for a worker", self.frames.message()).await?.and_then(|response| response.frame))
    }

    /// The error that ends it, whatever comes before.
    async fn refused(&mut self) -> Status {
        loop {
            if let Err(status) = self.frame().await {
                return status;
            }
        }
    }

    /// The next key, whatever else comes before it.
    pub(super) async fn item(&mut self) -> v1::Item {
        while self.items.is_empty() {
            if let Frame::Items(items) = self.frame().await.unwrap().expect("the stream goes on") {
                self.items = items.items;
                self.items.reverse();
            }
        }
        self.items.pop().unwrap()
    }

    async fn items(&mut self, count: usize) -> Vec<v1::Item> {
        let mut items = vec![];
        for _ in 0..count {
            items.push(self.item().await);
        }
        items
    }

    pub(super) async fn say(&self, action: Action) {
        self.requests.send(v1::WorkRequest { action: Some(action) }).await.unwrap();
    }

    pub(super) async fn done(&self, item: &v1::Item) {
        self.say(Action::Done(item.r#ref.clone().unwrap())).await;
    }

    pub(super) async fn retry(&self, item: &v1::Item) {
        self.say(Action::Retry(item.r#ref.clone().unwrap())).await;
    }
}

pub(super) fn name_of(item: &v1::Item) -> String {
    item.r#ref.as_ref().unwrap().name.clone()
}

fn names(items: &[v1::Item]) -> BTreeSet<String> {
    items.iter().map(name_of).collect()
}

/// Of the object, or of the deletion where there is none.
pub(super) fn rv(item: &v1::Item) -> u64 {
    let object = item.object.as_ref().or(item.deleted.as_ref()).unwrap();
    object.key.as_ref().unwrap().resource_version.parse().unwrap()
}

fn why(item: &v1::Item) -> BTreeSet<v1::Why> {
    item.why.iter().map(|why| v1::Why::try_from(*why).unwrap()).collect()
}

async fn three() -> (Server, Through, Channel) {
    let (server, through, _) = Through::simulated(["a", "b", "c"].map(|name| config_map("n", name)), "").await;
    let channel = channel(&through).await;
    (server, through, channel)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_object_comes_once_and_then_what_changes() {
    let (server, _through, channel) = three().await;
    let mut worker = Worker::join(&channel, "g", all("configmaps"), 10).await.unwrap();
    let items = worker.items(3).await;
    assert_eq!(names(&items), ["a", "b", "c"].map(str::to_owned).into());
    for item in &items {
        assert_eq!((item.attempt, why(item)), (1, [v1::Why::Initial].into()));
        assert!(item.object.as_ref().unwrap().object.starts_with(br#"{"kind":"ConfigMap""#));
        assert_eq!(item.encoding, v1::Encoding::Json as i32);
        worker.done(item).await;
    }
    let changed = server.update(labelled("n", "b", &json!({"x": "y"}))).unwrap();
    let item = worker.item().await;
    assert_eq!((name_of(&item).as_str(), rv(&item), why(&item)), ("b", changed, [v1::Why::Modified].into()));
    worker.done(&item).await;
    let gone = server.delete("configmaps", "n", "c").unwrap();
    let item = worker.item().await;
    assert_eq!((name_of(&item).as_str(), item.object.as_ref(), rv(&item)), ("c", None, gone));
    assert_eq!(why(&item), [v1::Why::Deleted].into());
    worker.done(&item).await;
    server.create(config_map("n", "d")).unwrap();
    let item = worker.item().await;
    assert_eq!((name_of(&item).as_str(), item.deleted.as_ref(), why(&item)), ("d", None, [v1::Why::Added].into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_come_back_with_a_count_and_forget_clears_it() {
    let (_server, through, channel) = three().await;
    let only = v1::Filter { names: vec!["a".to_owned()], ..Default::default() };
    let mut worker = Worker::join(&channel, "g", filtered("configmaps", vec![only]), 1).await.unwrap();
    for attempt in 1..=3 {
        let item = worker.item().await;
        assert_eq!(item.attempt, attempt);
        worker.retry(&item).await;
    }
    let item = worker.item().await;
    assert_eq!((item.attempt, why(&item)), (4, [v1::Why::Retry].into()));
    worker.say(Action::Forget(item.r#ref.clone().unwrap())).await;
    worker.retry(&item).await;
    let item = worker.item().await;
    assert_eq!(item.attempt, 2);
    let delay = Some(prost_types::Duration { seconds: 0, nanos: 1_000_000 });
    worker.say(Action::AddAfter(v1::AddAfter { item: item.r#ref.clone(), delay })).await;
    let item = worker.item().await;
    assert_eq!((item.attempt, why(&item)), (1, [v1::Why::After].into()));
    worker.done(&item).await;
    worker.say(Action::Resync(v1::Resync {})).await;
    let item = worker.item().await;
    assert_eq!(why(&item), [v1::Why::Resync].into());
    worker.done(&item).await;
    // A key that is not in hand, and one that is nowhere.
    for name in ["nowhere", "a"] {
        let key = v1::ItemRef { namespace: "n".into(), name: name.into(), resource: None };
        worker.say(Action::AddAfter(v1::AddAfter { item: Some(key), delay: None })).await;
    }
    let item = worker.item().await;
    assert_eq!((name_of(&item).as_str(), why(&item)), ("a", [v1::Why::After].into()));
    let metrics = through.context.metrics.encode();
    assert!(metrics.contains("workqueue_retries_total{name=\"g\"} 6\n"), "{metrics}");
    assert!(metrics.contains("workqueue_work_duration_seconds_count{name=\"g\"} 7\n"), "{metrics}");
    assert!(metrics.contains("workqueue_work_duration_seconds_bucket{le=\"+Inf\",name=\"g\"} 7\n"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_its_selections_while_it_has_workers() {
    let (_server, _through, channel) = three().await;
    let in_n = filtered("configmaps", vec![namespace("n"), namespace("m")]);
    let same = filtered("configmaps", vec![namespace("m"), namespace("n")]);
    let mut worker = Worker::join(&channel, "g", in_n, 1).await.unwrap();
    let mut second = Worker::join(&channel, "g", same, 1).await.unwrap();
    assert_ne!(name_of(&worker.item().await), name_of(&second.item().await), "no key is in two hands");
    let refused = Worker::join(&channel, "g", all("configmaps"), 1).await.err().unwrap();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("other selections"), "{}", refused.message());
    assert!(Worker::join(&channel, "another", all("configmaps"), 1).await.is_ok());
    drop((worker, second));
    // As soon as both are gone.
    crate::support::until("the group has ended", async || {
        match Worker::join(&channel, "g", all("configmaps"), 1).await {
            Ok(_) => true,
            Err(refused) => {
                assert_eq!(refused.code(), Code::FailedPrecondition);
                false
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_are_told_and_end_the_stream() {
    let (_server, _through, channel) = three().await;
    let labels = filtered("configmaps", vec![labels("a in (")]);
    let of = |selections| Worker::join_all(&channel, "g", selections, 1);
    assert_eq!(of(vec![]).await.err().unwrap().code(), Code::InvalidArgument);
    assert_eq!(of(vec![labels]).await.err().unwrap().code(), Code::InvalidArgument);
    assert_eq!(of(vec![all("nothings")]).await.err().unwrap().code(), Code::NotFound);
    assert_eq!(of(vec![all("secrets")]).await.err().unwrap().code(), Code::FailedPrecondition);

    let mut worker = Worker::join(&channel, "g", all("configmaps"), 10).await.unwrap();
    let item = worker.item().await;
    // A delay out of range is of one key, and ends nothing.
    let after = |item: &v1::Item, seconds| {
        let delay = Some(prost_types::Duration { seconds, nanos: 0 });
        Action::AddAfter(v1::AddAfter { item: item.r#ref.clone(), delay })
    };
    worker.say(after(&item, -1)).await;
    while name_of(&worker.item().await) != name_of(&item) {}
    worker.say(after(&item, i64::MAX)).await;
    worker.say(after(&item, 0)).await;
    while name_of(&worker.item().await) != name_of(&item) {}
    worker.done(&item).await;
    worker.done(&item).await;
    let refused = worker.refused().await;
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("not in this worker's hands"), "{}", refused.message());
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_unhandled_deletions_begin_the_queue_anew() {
    let keep = [config_map("n", "keep")];
    let (server, through, _) = Through::simulated_with(keep, "", |config| config.queues.max_deletions = 3).await;
    let channel = channel(&through).await;
    let mut worker = Worker::join(&channel, "g", all("configmaps"), 1).await.unwrap();
    let held = worker.item().await;
    assert_eq!(name_of(&held), "keep");
    for n in 0..5 {
        server.create(config_map("n", &format!("x{n}"))).unwrap();
        server.delete("configmaps", "n", &format!("x{n}")).unwrap();
    }
    let refused = worker.refused().await;
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    let mut worker = Worker::join(&channel, "g", all("configmaps"), 10).await.unwrap();
    let item = worker.item().await;
    assert_eq!((name_of(&item).as_str(), why(&item)), ("keep", [v1::Why::Initial].into()));
}

/// One that never joins holds up no drain.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_lets_workers_finish_what_they_hold() {
    let (_server, through, channel) = three().await;
    let mut worker = Worker::join(&channel, "g", all("configmaps"), 1).await.unwrap();
    let held = worker.item().await;
    let mut client = QueueClient::new(channel);
    let call = async move { client.work(tokio_stream::pending::<v1::WorkRequest>()).await.map(drop) };
    let silent = lifecycle::spawn("silent worker", call);
    eventually("the call is there", || through.daemon.grpc.calls.get() == 2).await;
    // Nobody waits for this deadline here.
    let stop = through.stop(Duration::from_secs(3600));
    let work = async {
        eventually("draining", || through.context.drain.is_draining()).await;
        assert_eq!(silent.await.unwrap().unwrap_err().code(), Code::Unavailable);
        worker.done(&held).await;
        loop {
            match worker.frame().await {
                Ok(Some(Frame::Goodbye(goodbye))) => break goodbye,
                Ok(Some(Frame::Synced(_))) => {}
                other => panic!("nothing more is handed out: {other:?}"),
            }
        }
    };
    let (end, goodbye) = tokio::join!(stop, work);
    assert_eq!(goodbye.reason, v1::goodbye::Reason::Draining as i32);
    assert_eq!(end, DrainEnd::Clean);
}
