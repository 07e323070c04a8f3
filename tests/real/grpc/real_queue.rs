//! Work queues and the state of informers before a real kube-apiserver.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::cache_client::CacheClient;
use informerd::grpc::pb::v1::work_request::Action;
use informerd::lifecycle;
use parking_lot::Mutex;
use rand::Rng;

use super::fixtures::{channel, filtered, labels};
use super::queue::{Worker, rv};
use super::real::{STEPS, churn_while, object, world};
use crate::support::client::{self as seen, Client as Http};
use crate::support::grpc;
use crate::support::history::state;
use crate::world::World;

const PATH: &str = "/api/v1/namespaces/a/configmaps";

async fn create(direct: &Http, n: u64) -> u64 {
    seen::rv(&direct.write(Method::POST, PATH, &object(n, 0)).await)
}

/// How many keys a worker takes at once.
const HANDS: u32 = 2;

/// What the workers of one group did.
#[derive(Default)]
struct Work {
    /// Whose hands a key is in.
    held: Mutex<BTreeMap<String, usize>>,
    /// The state that each key was last handled in; zero where it was gone.
    handled: Mutex<BTreeMap<String, u64>>,
    killed: Mutex<usize>,
    /// From here on nobody fails.
    calm: AtomicBool,
    over: AtomicBool,
}

/// Joins, works a little, and vanishes with whatever it holds, over and over.
async fn vanishing(work: Arc<Work>, through: String, me: usize) {
    let mut life = 0;
    while !work.over.load(Ordering::Acquire) {
        let channel = grpc::channel(&through).await;
        let mut worker = Worker::join(&channel, "g", filtered("configmaps", vec![]), HANDS).await.unwrap();
        life += 1;
        let (mut mine, keys): (Vec<String>, usize) = (Vec::new(), rand::rng().random_range(1..20));
        // A key that is handed out to those who die in a row comes back later each time.
        let calm = || work.calm.load(Ordering::Acquire);
        for n in 0.. {
            // With full hands it gets nothing more.
            if n >= keys && !calm() || mine.len() == HANDS as usize {
                break;
            }
            let item = tokio::select! {
                item = worker.item() => item,
                () = until(&work.over) => return,
                // Whoever holds something for good goes.
                () = until(&work.calm), if !mine.is_empty() => break,
            };
            let of = item.r#ref.clone().unwrap();
            let key = format!("{}/{}", of.namespace, of.name);
            let other = work.held.lock().insert(key.clone(), me * 1000 + life);
            assert_eq!(other, None, "{key} is in two hands");
            let fate = if calm() { 9 } else { rand::rng().random_range(0..20) };
            match fate {
                // Still in its hands when it is gone.
                0 => mine.push(key),
                1 | 2 => {
                    work.held.lock().remove(&key);
                    worker.retry(&item).await;
                }
                _ => {
                    let state = if item.object.is_some() { rv(&item) } else { 0 };
                    work.handled.lock().insert(key.clone(), state);
                    // Before the answer: from there on somebody else may have it.
                    work.held.lock().remove(&key);
                    worker.done(&item).await;
                }
            }
        }
        for key in mine {
            work.held.lock().remove(&key);
        }
        *work.killed.lock() += 1;
        drop(worker);
    }
}

async fn until(flag: &AtomicBool) {
    while !flag.load(Ordering::Acquire) {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_vanish_lose_nothing_and_share_no_key() {
    let World { cluster: _cluster, daemon, direct, .. } = world().await;
    let work = Arc::<Work>::default();
    let workers: Vec<_> =
        (0..4).map(|me| lifecycle::spawn("worker", vanishing(Arc::clone(&work), daemon.url.clone(), me))).collect();
    // On a slow machine workers live longer.
    churn_while(&direct, |step| step < STEPS || *work.killed.lock() <= 10).await;
    work.calm.store(true, Ordering::Release);
    // Each back-off is its key's own, so what is left takes no longer than the unluckiest one.
    crate::support::until("all is handled", async || {
        let wanted = state(&direct.json("/api/v1/configmaps").await);
        let mut handled = work.handled.lock().clone();
        handled.retain(|_, rv| *rv != 0);
        assert!(!workers.iter().any(tokio::task::JoinHandle::is_finished), "a worker has failed");
        handled == wanted
    })
    .await;
    work.over.store(true, Ordering::Release);
    for worker in workers {
        worker.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_of_messages_gets_messages() {
    let World { cluster: _cluster, daemon, direct, .. } = world().await;
    let first = create(&direct, 0).await;
    let channel = channel(&daemon).await;
    let of = |encoding: v1::Encoding| v1::Selection {
        encoding: encoding.into(),
        ..filtered("configmaps", vec![labels("app=x")])
    };
    let mut worker = Worker::join(&channel, "g", of(v1::Encoding::KubeProtobuf), 1).await.unwrap();
    let item = worker.item().await;
    assert_eq!((rv(&item), item.encoding()), (first, v1::Encoding::KubeProtobuf));
    assert!(item.object.as_ref().unwrap().object.starts_with(b"k8s\0"));
    let mut cache = CacheClient::new(channel.clone());
    let listed = cache.list_informers(v1::ListInformersRequest {}).await.unwrap().into_inner();
    let [informer] = &listed.informers[..] else { panic!("{listed:?}") };
    // The apiserver makes objects of its own.
    assert!(informer.encoding() == v1::Encoding::KubeProtobuf && informer.objects >= 1, "{informer:?}");
    let [oldest, newest] =
        [&informer.oldest_resource_version, &informer.resource_version].map(|rv| rv.parse::<u64>().unwrap());
    assert!(informer.synced && informer.bytes > 0 && oldest <= newest && newest >= first, "{informer:?}");
    assert_eq!(informer.relists, 0, "the first list is none after the first");
    // Another group takes what is held.
    let mut other = Worker::join(&channel, "h", of(v1::Encoding::Any), 1).await.unwrap();
    let theirs = other.item().await;
    assert_eq!((theirs.encoding(), &theirs.object), (v1::Encoding::KubeProtobuf, &item.object));
    other.say(Action::Done(theirs.r#ref.unwrap())).await;
}
