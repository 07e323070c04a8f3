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

#[tokio::test(start_paused = true)]
async fn it_is_the_newest_state_and_no_progress() {
    let (_writer, cache, _) = confirmed().await;
    assert_eq!(listed(&cache), (110, vec!["a/x@10".to_owned()]));
    assert_eq!((cache.newest(), cache.resource_version()), (rv(110), rv(100)));
    assert_eq!(cache.wait_for(rv(110), tokio::time::Instant::now()).await.unwrap().rv(), rv(110));
    assert_eq!(cache.snapshot_at(rv(110)).unwrap().rv(), rv(110));
    // The states between the two revisions are not known yet.
    assert_eq!(cache.snapshot_at(rv(107)).unwrap_err(), SnapshotError::TooNew);
    // The earlier ones are known, within a bound.
    for at in 111..=8400 {
        assert!(cache.confirm(&cache.snapshot().unwrap(), rv(at), Order::now()));
    }
    let known: Vec<_> = (101..=8410).filter(|at| cache.snapshot_at(rv(*at)).is_ok()).collect();
    assert_eq!(known, (208..=8400).collect::<Vec<_>>());
}

/// What else follows is in the model.
#[tokio::test(start_paused = true)]
async fn a_list_below_it_is_of_a_store_that_was_set_back() {
    let (mut writer, cache, _) = confirmed().await;
    assert!(cache.confirm(&cache.snapshot().unwrap(), rv(111), Order::now()));
    let old = cache.snapshot().unwrap();
    let error = writer.replace(vec![Arc::new(plain("a", "x", 10))], rv(105)).await.unwrap_err();
    assert_eq!(error, ReplaceError::WentBack { rv: rv(105), current: rv(111) });
    writer.rewound("restored");
    assert!(cache.snapshot().is_none() && cache.newest().is_zero());
    writer.replace(vec![Arc::new(plain("a", "x", 10))], rv(50)).await.unwrap();
    assert!(!cache.confirm(&old, rv(120), Order::now()), "not the newest state any more");
    assert_eq!(listed(&cache).0, 50);
}

#[tokio::test(start_paused = true)]
async fn a_relist_that_contradicts_it_ends_the_watches() {
    let (mut writer, cache, _) = confirmed().await;
    let mut watcher = cache.watch(spec(WatchStart::After(rv(110)))).unwrap();
    writer.replace(vec![Arc::new(plain("a", "x", 10))], rv(115)).await.unwrap();
    assert!(take(&mut watcher).is_empty(), "it has the state of then");
    // The store was restored, and has passed the confirmed revision again.
    writer.replace(vec![Arc::new(plain("a", "x", 105))], rv(120)).await.unwrap();
    assert_eq!(take(&mut watcher), ["END relisted"], "it would never get x@105");
}

#[tokio::test(start_paused = true)]
async fn another_cache_counts_until_this_one_was_reset() {
    let (mut other_writer, other, _) = confirmed().await;
    let (mut writer, cache, _) = cache(|_| {});
    assert_eq!(other.newest_before(&cache), Some(rv(110)));
    writer.replace(vec![], rv(50)).await.unwrap();
    assert_eq!(other.newest_before(&cache), Some(rv(110)), "a saved state may be older");
    // And again once it has moved, by something that began later.
    for (at, moves) in [(111, true), (112, true), (113, true), (114, true), (115, false), (116, false), (117, false)] {
        let before = Order::now();
        writer.rewound("restored");
        writer.replace(vec![], rv(50)).await.unwrap();
        assert_eq!(other.newest_before(&cache), None);
        let newest = other.snapshot().unwrap();
        match at {
            111 => assert!(other.confirm(&newest, rv(at), Order::now())),
            112 => drop(other_writer.replace(vec![Arc::new(plain("a", "x", 10))], rv(at)).await.unwrap()),
            113 => other_writer.progress_proved(rv(at), Order::now()),
            114 => assert!(other_writer.progress(rv(at))),
            115 => other_writer.progress_proved(rv(at), before),
            116 => assert!(other.confirm(&newest, rv(120), before)),
            _ => other_writer.progress_proved(rv(at), Order::now()),
        }
        assert_eq!(other.newest_before(&cache), moves.then_some(rv(at)), "{at}");
    }
    writer.replace(vec![], rv(120)).await.unwrap();
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
