use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use informerd_client::v1::work_request::Action;
use informerd_client::v1::work_response::Frame;
use informerd_client::{Error, Item, Outcome, Queue, Selected, v1};
use serde_json::Value;
use tokio::sync::mpsc;
use tonic::{Code, Status};

use crate::fake::{Fake, Work, pod, refusal};

fn items(names: &[&str]) -> v1::WorkResponse {
    let item = |name: &&str| v1::Item {
        r#ref: Some(v1::ItemRef { namespace: "n".into(), name: (*name).into(), ..Default::default() }),
        object: Some(v1::Object { object: pod(name, "1"), ..Default::default() }),
        attempt: 2,
        ..Default::default()
    };
    of(Frame::Items(v1::Items { items: names.iter().map(item).collect() }))
}

fn of(frame: Frame) -> v1::WorkResponse {
    v1::WorkResponse { frame: Some(frame) }
}

/// The next worker of the queue, of which this is the other side.
async fn joined(workers: &mut mpsc::Receiver<Work>) -> Work {
    let mut work = workers.recv().await.unwrap();
    let Action::Join(join) = answer(&mut work).await else { panic!("the first request is join") };
    assert_eq!((&*join.group, join.capacity, join.selections.len()), ("g", 2, 1));
    work
}

async fn answer((_, requests): &mut Work) -> Action {
    requests.message().await.unwrap().unwrap().action.unwrap()
}

async fn refuse(workers: &mut mpsc::Receiver<Work>) {
    let (sender, _) = joined(workers).await;
    sender.send(Err(refusal(Code::PermissionDenied, Some("FORBIDDEN")))).await.unwrap();
}

async fn handled(item: Item<Value>) -> Result<Outcome, String> {
    assert_eq!(item.object.as_ref().unwrap()["metadata"]["name"], *item.name);
    assert_eq!((item.key(), item.deleted.is_none(), item.attempt), (format!("n/{}", item.name), true, 2));
    match &*item.name {
        "good" => Ok(Outcome::Done),
        "later" => Ok(Outcome::After(Duration::from_secs(3600))),
        "never" => Ok(Outcome::After(Duration::MAX)),
        "worse" => panic!("it failed"),
        _ => Err("it failed".to_owned()),
    }
}

#[tokio::test]
async fn each_key_is_answered_as_its_handler_says() {
    let (mut workers, client) = Fake::workers().await;
    let times = Arc::<AtomicUsize>::default();
    let counted = times.clone();
    let synced = move || assert_eq!(counted.fetch_add(1, Relaxed), 0);
    let queue = Queue::<Value>::new(&client, "g", "v1/pods", Selected::default()).workers(2).synced(synced);
    let running = tokio::spawn(queue.run(handled));

    let mut work = joined(&mut workers).await;
    let mut answers = vec![];
    for name in ["good", "bad", "worse", "later", "never"] {
        work.0.send(Ok(items(&[name]))).await.unwrap();
        answers.push(answer(&mut work).await);
    }
    let named = |key: &v1::ItemRef, name: &str| key.namespace == "n" && key.name == name;
    assert!(matches!(&answers[0], Action::Done(key) if named(key, "good")));
    assert!(matches!(&answers[1], Action::Retry(key) if named(key, "bad")));
    assert!(matches!(&answers[2], Action::Retry(key) if named(key, "worse")));
    let Action::AddAfter(v1::AddAfter { item: Some(key), delay: Some(delay) }) = &answers[3] else {
        panic!("{answers:?}")
    };
    assert!(named(key, "later") && delay.seconds == 3600);
    let Action::AddAfter(v1::AddAfter { delay: Some(delay), .. }) = &answers[4] else { panic!("{answers:?}") };
    assert_eq!(delay.seconds, 365 * 24 * 3600);
    work.0.send(Ok(of(Frame::Goodbye(v1::Goodbye::default())))).await.unwrap();

    let (sender, _requests) = joined(&mut workers).await;
    for _ in 0..2 {
        sender.send(Ok(of(Frame::Synced(v1::Synced::default())))).await.unwrap();
    }
    sender.send(Err(Status::unavailable("cut"))).await.unwrap();
    refuse(&mut workers).await;
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Refused { .. }) && error.to_string().contains("queue g of v1/pods"), "{error}");
    assert_eq!(times.load(Relaxed), 1);
}

/// Counts those that run.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[tokio::test]
async fn handlers_are_dropped_with_their_stream() {
    let (mut workers, client) = Fake::workers().await;
    let running = Arc::<AtomicUsize>::default();
    let counted = running.clone();
    let (began, mut begins) = mpsc::channel(2);
    let handle = move |_: Item<Value>| {
        counted.fetch_add(1, Relaxed);
        let (mine, began) = (Running(counted.clone()), began.clone());
        async move {
            let _mine = mine;
            began.send(()).await.unwrap();
            std::future::pending::<Result<Outcome, String>>().await
        }
    };
    let queue = Queue::<Value>::new(&client, "g", "v1/pods", Selected::default()).workers(2);
    let ends = tokio::spawn(queue.run(handle));
    let (sender, _requests) = joined(&mut workers).await;
    sender.send(Ok(items(&["a", "b"]))).await.unwrap();
    begins.recv().await.unwrap();
    begins.recv().await.unwrap();
    assert_eq!(running.load(Relaxed), 2);
    sender.send(Err(Status::unavailable("cut"))).await.unwrap();
    refuse(&mut workers).await;
    assert_eq!(running.load(Relaxed), 0);
    assert!(matches!(ends.await.unwrap(), Err(Error::Refused { .. })));
}

#[tokio::test]
async fn an_object_of_another_type_fails() {
    let (mut workers, client) = Fake::workers().await;
    let queue = Queue::<Vec<String>>::new(&client, "g", "v1/pods", Selected::default()).workers(2);
    let running = tokio::spawn(queue.run(async |_| Ok::<_, String>(Outcome::Done)));
    let mut work = joined(&mut workers).await;
    work.0.send(Ok(items(&["a"]))).await.unwrap();
    assert!(matches!(answer(&mut work).await, Action::Retry(key) if key.name == "a"));
    running.abort();
}
