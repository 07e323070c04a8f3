//! Tests with a scripted server. Time goes on slowly while there is nothing to do.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use futures_util::future::join_all;
use tokio::sync::Semaphore;

use super::*;
use crate::apiserver::testing::{FakeServer, answer, ticks, until};
use crate::cache::{self, CacheConfig, Writer};
use crate::codec::json;
use crate::meta::{FieldTable, Resource};

/// What the cache has listed it at.
const NOW: u64 = 100;
const TOO_OLD_LIST: &str = "The resourceVersion for the provided list is too old.";

struct World {
    server: FakeServer,
    backfiller: Arc<Backfiller>,
    cache: WatchCache,
    /// Watches are answered while it is open.
    gate: Arc<Semaphore>,
    /// Lists of older revisions are no longer there.
    compacted: Arc<AtomicU64>,
    _writer: Writer,
}

fn item(n: u64, rv: u64) -> String {
    let metadata = format!(r#"{{"name":"n{n}","namespace":"a","uid":"u","resourceVersion":"{rv}"}}"#);
    format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{metadata}}}"#)
}

fn bookmark() -> String {
    let object = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"resourceVersion":"{NOW}"}}}}"#);
    format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n")
}

/// The revision of an object at another one: all were created at 1, and the first ones have changed at 10, 11 and so on.
fn revision(n: u64, changed: u64, at: u64) -> u64 {
    if n < changed && 10 + n <= at { 10 + n } else { 1 }
}

/// A server with so many objects, so many of which have changed, and a cache that has listed them.
async fn world(objects: u64, changed: u64, window_max_events: usize) -> World {
    ticks();
    let (gate, questions) = (Arc::new(Semaphore::new(1)), Arc::new(AtomicUsize::new(0)));
    let compacted = Arc::<AtomicU64>::default();
    let (opened, oldest) = (Arc::clone(&gate), Arc::clone(&compacted));
    let server = FakeServer::plain(move |request, _| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let (opened, questions) = (Arc::clone(&opened), Arc::clone(&questions));
        let oldest = oldest.load(Ordering::SeqCst);
        async move {
            if query.contains("sendInitialEvents") {
                let is_first = questions.fetch_add(1, Ordering::SeqCst) == 0;
                let refused = Status::failure(403, "Forbidden", "no").to_json();
                return if is_first { answer(403, refused) } else { answer(200, bookmark()) };
            }
            let at: u64 =
                query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion=")).unwrap().parse().unwrap();
            if query.contains("watch=true") {
                drop(opened.acquire().await.unwrap());
                let events = (0..changed).filter(|n| 10 + n > at);
                let events = events.map(|n| format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", item(n, 10 + n)));
                return answer(200, events.chain([bookmark()]).collect::<String>());
            }
            if at < oldest {
                return answer(410, Status::failure(410, "Expired", TOO_OLD_LIST).to_json());
            }
            let only: Option<u64> = query.split_once("metadata.name%3Dn").map(|(_, n)| n.parse().unwrap());
            let of_it = (0..objects).filter(|n| only.is_none_or(|only| only == *n));
            let items: Vec<_> = of_it.map(|n| item(n, revision(n, changed, at))).collect();
            let (items, metadata) = (items.join(","), format!(r#"{{"resourceVersion":"{at}"}}"#));
            answer(
                200,
                format!(r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{metadata},"items":[{items}]}}"#),
            )
        }
    })
    .await;
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    let source = ListerWatcher::of(Arc::new(Resource::simple("", "configmaps", "ConfigMap")));
    let config = CacheConfig { window_max_events, ..CacheConfig::new(source.resource.gvr.clone()) };
    let (mut writer, cache) = cache::new(config);
    let listed = (0..objects).map(|n| {
        let text = item(n, revision(n, changed, NOW));
        Arc::new(json::parse_item(text.as_bytes(), &FieldTable::default()).unwrap().0)
    });
    writer.replace(listed.collect(), ResourceVersion(NOW)).await.unwrap();
    let backfiller = Arc::new(Backfiller::new(upstream, source, ReflectorConfig::default()));
    World { server, backfiller, cache, gate, compacted, _writer: writer }
}

impl World {
    async fn reach(&self, from: u64) {
        self.backfiller.reach(&self.cache, ResourceVersion(from)).await;
    }

    fn floor(&self) -> u64 {
        self.cache.window_floor().unwrap().get()
    }

    /// The requests with this text, in order.
    fn asked(&self, what: &str) -> Vec<String> {
        self.server.seen.lock().iter().map(|seen| seen.uri.clone()).filter(|uri| uri.contains(what)).collect()
    }

    /// Where the watches have begun.
    fn watched(&self) -> Vec<String> {
        let from = |uri: String| uri.split_once("resourceVersion=").unwrap().1.split('&').next().unwrap().to_owned();
        self.asked("watch=true").into_iter().map(from).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_of_many_objects_is_not_read_for_a_few_watches() {
    for (objects, changed, watches, lists) in [(5001, 33, 7, 0), (5001, 33, 8, 1), (5000, 33, 1, 1), (5001, 32, 1, 32)]
    {
        let world = world(objects, changed, 1000).await;
        join_all((0..watches).map(|_| world.reach(5))).await;
        let floor = if lists == 0 { NOW } else { 5 };
        assert_eq!((world.asked("Exact").len(), world.floor()), (lists, floor), "{objects} {changed} {watches}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_dear_is_asked_for_again_when_more_may_have_come() {
    let world = world(5001, 33, 1000).await;
    // An attempt that was late, at an older revision.
    let closed = world.gate.acquire().await.unwrap();
    world.reach(4).await;
    drop(closed);
    let wanted = async |watches: usize| {
        join_all((0..watches).map(|_| world.reach(5))).await;
        world.floor()
    };
    assert_eq!([wanted(1).await, wanted(8).await], [NOW; 2]);
    tokio::time::advance(DEAR).await;
    assert_eq!(wanted(8).await, 5);
}

#[tokio::test(start_paused = true)]
async fn what_is_dear_or_late_does_not_refuse_what_is_newer() {
    let dear = world(5001, 33, 1000).await;
    for (from, floor) in [(5, NOW), (30, 30)] {
        dear.reach(from).await;
        assert_eq!(dear.floor(), floor, "{from}");
    }
    let late = world(3, 2, 1000).await;
    let closed = late.gate.acquire().await.unwrap();
    late.reach(5).await;
    drop(closed);
    for (from, floor) in [(5, NOW), (10, 10)] {
        late.reach(from).await;
        assert_eq!(late.floor(), floor, "{from}");
    }
    let slow = world(3, 2, 1000).await;
    let closed = slow.gate.acquire().await.unwrap();
    slow.reach(5).await;
    slow.reach(6).await;
    drop(closed);
    slow.reach(10).await;
    assert_eq!(slow.floor(), NOW, "two in a row are no matter of the revision");
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_goes_on_when_its_client_leaves() {
    let world = world(3, 2, 1000).await;
    let closed = world.gate.acquire().await.unwrap();
    tokio::select! {
        () = world.reach(5) => panic!("nothing has come"),
        () = until(|| world.asked("watch=true").len() == 1) => {}
    }
    drop(closed);
    world.reach(5).await;
    assert_eq!((world.asked("watch=true").len(), world.floor()), (1, 5));
}

#[tokio::test(start_paused = true)]
async fn one_that_is_too_old_does_not_refuse_the_newer_ones() {
    let world = world(40, 40, 5).await;
    // Only the last three changes fit.
    join_all((5..=20).chain([46, 47]).map(|from| world.reach(from))).await;
    assert_eq!(world.floor(), 46);
    assert_eq!(world.watched(), ["5", "14", "19", "46", "20"]);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_too_old_does_not_refuse_a_newer_one_that_comes_later() {
    let world = world(40, 40, 5).await;
    for (from, floor) in [(5, NOW), (46, 46)] {
        world.reach(from).await;
        assert_eq!(world.floor(), floor, "{from}");
    }
}

/// The apiserver does not tell which revisions it still has.
#[tokio::test(start_paused = true)]
async fn revisions_whose_lists_are_compacted_are_not_tried_one_by_one() {
    let world = world(40, 40, 1000).await;
    world.compacted.store(46, Ordering::SeqCst);
    join_all((5..=20).chain([46]).map(|from| world.reach(from))).await;
    assert_eq!(world.floor(), 46);
    assert_eq!(world.watched(), ["5", "14", "18", "20", "46"]);
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_that_was_refused_is_asked_for_again_later() {
    let world = world(1, 0, 1000).await;
    let learn = async || {
        world.backfiller.learn_bookmark(&world.cache).await;
        (world.asked("sendInitialEvents").len(), world.cache.bookmark_template().is_some())
    };
    assert_eq!([learn().await, learn().await], [(1, false), (1, false)]);
    tokio::time::advance(UNANSWERED).await;
    assert_eq!([learn().await, learn().await], [(2, true), (2, true)]);
    // The apiserver looks up one key.
    let uri = &world.asked("sendInitialEvents")[0];
    assert!(uri.starts_with("/api/v1/namespaces/default/configmaps?") && uri.contains("metadata.name%3D-"), "{uri}");
}

#[test]
fn a_410_tells_what_is_forgotten() {
    let at = |message: &str| forgotten(&Status::failure(410, "Expired", message.to_owned())).get();
    assert_eq!(at("too old resource version: 5 (17)"), 16);
    assert_eq!(at(TOO_OLD_LIST), 0);
    assert_eq!(at("too old resource version: 5 (x)"), 0);
}
