//! Tests of a state that is confirmed at a revision that the events have not reached.

use super::dispatcher::Dispatcher;
use super::testing::*;
use super::*;
use crate::meta::{EventType, ResourceVersion, Scope};

fn rv(n: u64) -> ResourceVersion {
    ResourceVersion(n)
}

/// A cache with `a/x@10` listed at 100, and confirmed to be complete at 110.
async fn confirmed() -> (Writer, WatchCache, Dispatcher) {
    let (mut writer, cache, dispatcher) = cache(|_| {});
    writer.replace(vec![Arc::new(plain("a", "x", 10))], rv(100)).await.unwrap();
    let snapshot = cache.snapshot().unwrap();
    assert!(cache.confirm(&snapshot, rv(110), Order::now()));
    (writer, cache, dispatcher)
}

fn listed(cache: &WatchCache) -> (u64, Vec<String>) {
    let snapshot = cache.snapshot().unwrap();
    (snapshot.rv().get(), names(snapshot.range(&Scope::default(), None)))
}

async fn passes(writer: &mut Writer) {
    writer.apply(EventType::Added, plain("a", "passing", 105)).await.unwrap();
    writer.apply(EventType::Deleted, plain("a", "passing", 108)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn it_is_the_newest_state_and_no_progress() {
    let (_writer, cache, _) = confirmed().await;
    assert_eq!(listed(&cache), (110, vec!["a/x@10".to_owned()]));
    assert_eq!((cache.newest(), cache.resource_version()), (rv(110), rv(100)));
    assert_eq!(cache.wait_for(rv(110), tokio::time::Instant::now()).await.unwrap().rv(), rv(110));
    assert_eq!(cache.snapshot_at(rv(110)).unwrap().rv(), rv(110));
    // The states between the two revisions are not known yet.
    assert_eq!(cache.snapshot_at(rv(107)).unwrap_err(), SnapshotError::TooNew);
}

#[tokio::test(start_paused = true)]
async fn pages_go_on_where_they_began() {
    let (mut writer, cache, _) = confirmed().await;
    for later in [120, 130] {
        assert!(cache.confirm(&cache.snapshot().unwrap(), rv(later), Order::now()));
    }
    writer.apply(EventType::Added, plain("a", "passing", 105)).await.unwrap();
    for seen in [110, 120, 130] {
        let snapshot = cache.snapshot_at(rv(seen)).unwrap();
        assert_eq!((snapshot.rv(), names(snapshot.range(&Scope::default(), None))), (rv(seen), vec!["a/x@10".into()]));
    }
    assert_eq!(cache.snapshot_at(rv(125)).unwrap_err(), SnapshotError::TooNew, "an object may have been there");
    writer.apply(EventType::Deleted, plain("a", "passing", 108)).await.unwrap();
    writer.apply(EventType::Modified, plain("a", "x", 140)).await.unwrap();
    assert_eq!(names(cache.snapshot_at(rv(120)).unwrap().range(&Scope::default(), None)), ["a/x@10"]);
    assert_eq!(names(cache.snapshot_at(rv(106)).unwrap().range(&Scope::default(), None)).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn readers_never_see_an_object_that_was_made_and_deleted_before_it() {
    let (mut writer, cache, mut dispatcher) = confirmed().await;
    let mut running = cache.watch(spec(WatchStart::After(rv(100)))).unwrap();
    let mut from_state = cache.watch(spec(WatchStart::State)).unwrap();
    let mut from_revision = cache.watch(spec(WatchStart::After(rv(110)))).unwrap();
    let mut from_now = cache.watch(spec(WatchStart::Now)).unwrap();
    writer.apply(EventType::Added, plain("a", "passing", 105)).await.unwrap();
    assert_eq!(listed(&cache), (110, vec!["a/x@10".to_owned()]));
    writer.apply(EventType::Deleted, plain("a", "passing", 108)).await.unwrap();
    assert_eq!(listed(&cache), (110, vec!["a/x@10".to_owned()]));
    writer.apply(EventType::Modified, plain("a", "x", 112)).await.unwrap();
    assert_eq!(listed(&cache), (112, vec!["a/x@112".to_owned()]));
    dispatch(&mut dispatcher);
    // A watch that was already open does not use the confirmed state: it gets every event.
    assert_eq!(take(&mut running), ["ADDED a/passing@105", "DELETED a/passing@108", "MODIFIED a/x@112"]);
    assert_eq!(take(&mut from_state), ["ADDED a/x@10", "BOOKMARK 110 initial", "MODIFIED a/x@112"]);
    for watcher in [&mut from_revision, &mut from_now] {
        assert_eq!(take(watcher), ["MODIFIED a/x@112"]);
    }
    // The same state from the history, now that it has the events.
    assert_eq!(names(cache.snapshot_at(rv(110)).unwrap().range(&Scope::default(), None)), ["a/x@10"]);
    assert_eq!(names(cache.snapshot_at(rv(106)).unwrap().range(&Scope::default(), None)).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn no_bookmark_of_a_running_watch_names_it() {
    let (mut writer, cache, mut dispatcher) = confirmed().await;
    let mut running = cache.watch(spec(WatchStart::After(rv(100)))).unwrap();
    let mut from_state = cache.watch(spec(WatchStart::State)).unwrap();
    assert_eq!(take(&mut from_state), ["ADDED a/x@10", "BOOKMARK 110 initial"]);
    passes(&mut writer).await;
    dispatch(&mut dispatcher);
    running.end(true);
    from_state.end(true);
    assert_eq!(
        take(&mut running),
        ["ADDED a/passing@105", "DELETED a/passing@108", "BOOKMARK 108", "END drained"],
        "as far as the events have come"
    );
    assert_eq!(take(&mut from_state), ["END drained"], "a bookmark does not go back");
}

#[tokio::test(start_paused = true)]
async fn it_ends_with_the_past_it_is_of() {
    let (mut writer, cache, _) = confirmed().await;
    let (old, asked) = (cache.snapshot().unwrap(), Order::now());
    // A list returns the newest revision. One below the confirmed revision comes from a store that was restored.
    let error = writer.replace(vec![Arc::new(plain("a", "x", 10))], rv(105)).await.unwrap_err();
    assert_eq!(error, ReplaceError::WentBack { rv: rv(105), current: rv(110) });
    writer.not_ready("restored");
    assert!(cache.snapshot().is_none() && cache.newest().is_zero());
    writer.replace(vec![Arc::new(plain("a", "x", 10))], rv(50)).await.unwrap();
    assert_eq!(listed(&cache).0, 50);
    let new = cache.snapshot().unwrap();
    assert!(!cache.confirm(&old, rv(120), Order::now()), "not the newest state any more");
    assert!(!cache.confirm(&new, rv(120), asked), "the store was read before");
    assert_eq!(listed(&cache).0, 50);
}

#[tokio::test(start_paused = true)]
async fn a_relist_takes_its_place() {
    let (mut writer, cache, mut dispatcher) = confirmed().await;
    let mut watcher = cache.watch(spec(WatchStart::State)).unwrap();
    let list = [plain("a", "x", 10), plain("a", "y", 115)].map(Arc::new);
    writer.replace(list.into(), rv(120)).await.unwrap();
    dispatch(&mut dispatcher);
    assert_eq!(listed(&cache).0, 120);
    assert_eq!(take(&mut watcher), ["ADDED a/x@10", "BOOKMARK 110 initial", "ADDED a/y@115"]);
}

#[tokio::test(start_paused = true)]
async fn a_relist_that_contradicts_it_ends_the_watches() {
    let (mut writer, cache, _) = confirmed().await;
    let mut watcher = cache.watch(spec(WatchStart::After(rv(110)))).unwrap();
    // The store was restored, and has passed the confirmed revision again.
    writer.replace(vec![Arc::new(plain("a", "x", 105))], rv(120)).await.unwrap();
    assert_eq!(take(&mut watcher), ["END relisted"], "it would never get x@105");
}

#[tokio::test(start_paused = true)]
async fn another_cache_counts_until_this_one_was_reset() {
    let (_other_writer, other, _) = confirmed().await;
    let (mut writer, cache, _) = cache(|_| {});
    assert_eq!(other.newest_before(&cache), Some(rv(110)));
    writer.replace(vec![], rv(50)).await.unwrap();
    assert_eq!(other.newest_before(&cache), Some(rv(110)), "a saved state may be older");
    writer.not_ready("restored");
    writer.replace(vec![], rv(50)).await.unwrap();
    assert_eq!(other.newest_before(&cache), None);
    assert!(other.confirm(&other.snapshot().unwrap(), rv(115), Order::now()));
    assert_eq!(other.newest_before(&cache), Some(rv(115)), "and again once it has moved");
    writer.replace(vec![], rv(115)).await.unwrap();
    assert_eq!(other.newest_before(&cache), None);
}

#[tokio::test]
async fn what_was_shown_is_told_rather_too_new_than_too_old() {
    let (mut writer, cache, _) = cache(|config| config.window_max_events = 1000);
    let rv = ResourceVersion;
    let shown = |cache: &WatchCache, since, namespace: &str| {
        cache.shown_since(rv(since), &predicate(Scope::namespace(namespace), "", "")).map(|rv| rv.0)
    };
    writer.replace(vec![Arc::new(plain("a", "x", 5))], rv(10)).await.unwrap();
    assert_eq!([shown(&cache, 9, "b"), shown(&cache, 10, "a")], [Some(10), None], "what a list shows is not known");
    writer.apply(EventType::Modified, plain("a", "x", 20)).await.unwrap();
    writer.apply(EventType::Added, plain("b", "y", 21)).await.unwrap();
    writer.apply(EventType::Deleted, plain("a", "x", 22)).await.unwrap();
    writer.progress(rv(30));
    assert_eq!([shown(&cache, 10, "a"), shown(&cache, 10, "b"), shown(&cache, 10, "c")], [Some(22), Some(21), None]);
    assert_eq!([shown(&cache, 21, "a"), shown(&cache, 21, "b"), shown(&cache, 22, "a")], [Some(22), None, None]);
    for n in 0..300 {
        writer.apply(EventType::Modified, plain("b", "y", 100 + n)).await.unwrap();
    }
    assert_eq!([shown(&cache, 30, "a"), shown(&cache, 150, "a")], [Some(143), None], "no more than some are looked at");
}
