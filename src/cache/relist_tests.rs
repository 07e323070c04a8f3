//! How a list may affect open watches, and readiness.

use std::time::Duration;

use tokio::time::Instant;

use super::dispatcher::Dispatcher;
use super::floors::MOST_GAPS;
use super::testing::*;
use super::*;
use crate::meta::{EventType, Object, ObjectKey, ResourceVersion, Scope};

async fn synced(objects: Vec<Object>, rv: u64) -> (Writer, WatchCache, Dispatcher) {
    let (mut writer, cache, dispatcher) = cache(|_| {});
    let replaced = replace(&mut writer, objects, rv).await;
    assert!(replaced.continued);
    (writer, cache, dispatcher)
}

async fn replace(writer: &mut Writer, objects: Vec<Object>, rv: u64) -> Replaced {
    writer.replace(objects.into_iter().map(Arc::new).collect(), ResourceVersion(rv)).await.unwrap()
}

fn listed(cache: &WatchCache) -> Vec<String> {
    names(cache.snapshot().unwrap().range(&Scope::all(), None))
}

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(10)
}

/// Who continues after the revision that it has reached would never learn of the deletion.
#[tokio::test(start_paused = true)]
async fn what_a_list_at_the_same_revision_lacks_cuts_watches_short() {
    let (mut writer, cache, mut dispatcher) = synced(vec![plain("a", "x", 1), plain("a", "y", 2)], 10).await;
    let [mut same, mut later] = [0; 2].map(|_| cache.watch(spec(WatchStart::Now)).unwrap());
    let replaced = replace(&mut writer, vec![plain("a", "x", 1)], 10).await;
    assert_eq!((replaced.ended, replaced.deleted), (2, 1));
    assert_eq!(take(&mut same), ["END relisted"]);
    assert_eq!(same.cut_short_at(), Some(ResourceVersion(10)));
    // So it is after a bookmark.
    same = cache.watch(spec(WatchStart::Now)).unwrap();
    writer.progress(ResourceVersion(12));
    dispatch(&mut dispatcher);
    tokio::time::advance(Duration::from_secs(61)).await;
    assert_eq!(take(&mut same), ["BOOKMARK 12"]);
    replace(&mut writer, vec![], 12).await;
    assert_eq!((take(&mut same)[0].as_str(), same.cut_short_at()), ("END relisted", Some(ResourceVersion(12))));
    replace(&mut writer, vec![plain("a", "z", 13)], 14).await;
    // A list at a later revision is known to have more.
    drop((same, later));
    later = cache.watch(spec(WatchStart::Now)).unwrap();
    replace(&mut writer, vec![], 15).await;
    assert_eq!((take(&mut later), later.cut_short_at()), (vec!["END relisted".to_owned()], None));
}

/// The rest is in the model.
#[tokio::test(start_paused = true)]
async fn what_reads_otherwise_at_the_same_revision_is_another_lineage() {
    let (mut writer, cache, _dispatcher) = synced(vec![plain("a", "x", 5), plain("a", "y", 6)], 10).await;
    let before = cache.snapshot().unwrap();
    let otherwise = object_with(r#","spec":{"size":"large"}"#, "uid-a-x", "a", "x", 5, &[], "");
    assert!(!replace(&mut writer, vec![otherwise, plain("a", "y", 6)], 10).await.continued);
    let now = cache.snapshot().unwrap();
    assert!(now.id() != before.id() && now.lineage() != before.lineage(), "answers of before are no longer good");
}

/// Apiservers sort them. Whoever else answers may not.
#[tokio::test(start_paused = true)]
async fn a_list_in_any_order_is_one_state() {
    let (mut writer, cache, _dispatcher) = synced(vec![plain("a", "x", 1), plain("a", "z", 2)], 10).await;
    let (z, y, old) = (plain("a", "z", 2), plain("a", "y", 12), plain("a", "y", 11));
    let replaced = replace(&mut writer, vec![z, old, y], 13).await;
    assert_eq!((replaced.changed, replaced.deleted), (1, 1));
    assert_eq!(listed(&cache), ["a/y@12", "a/z@2"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_contradicts_what_was_received_ends_all() {
    let (mut writer, cache, mut dispatcher) = synced(vec![plain("a", "x", 1)], 10).await;
    let mut watcher = cache.watch(spec(after(10))).unwrap();
    // An object created at 5, which should have been in the list at 10.
    let replaced = replace(&mut writer, vec![plain("a", "x", 1), plain("a", "y", 5)], 20).await;
    assert_eq!(replaced, Replaced { continued: false, ended: 1, changed: 1, deleted: 0 });
    dispatch(&mut dispatcher);
    assert_eq!(take(&mut watcher), ["END relisted"]);
    assert_eq!(take(&mut cache.watch(spec(after(20))).unwrap()), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn old_gaps_become_one() {
    let (mut writer, cache, _) = synced(Vec::new(), 10).await;
    for n in 2..=MOST_GAPS as u64 + 3 {
        replace(&mut writer, Vec::new(), 10 * n).await;
    }
    let inside = [10, 11, 20, 30, 40, 41, 50].map(|rv| cache.is_inside_gap(ResourceVersion(rv)));
    assert_eq!(inside, [false, true, true, true, false, true, false]);
    assert!(
        !cache.is_whole() && cache.backfill(ResourceVersion(45)).is_none(),
        "no events lead to what lists have shown"
    );
}

/// Its clients come to others, which have what it lacks.
#[tokio::test(start_paused = true)]
async fn what_a_cache_lacks_when_it_goes_is_a_gap() {
    for stops in [false, true] {
        let (mut writer, cache, _dispatcher) = synced(vec![plain("a", "x", 1)], 10).await;
        writer.apply(EventType::Modified, plain("a", "x", 12)).await.unwrap();
        writer.lacks_after(ResourceVersion(10));
        if stops {
            drop(writer);
        } else {
            writer.not_ready("there is no memory for it");
        }
        let inside = || [10, 11, 12, 13].map(|rv| cache.is_inside_gap(ResourceVersion(rv)));
        assert_eq!(inside(), [false, true, true, false], "{stops}");
        // Somebody lists, and the store has not changed.
        let floor = &cache.config().floor;
        floor.rewound(floor.get(), ResourceVersion(12));
        assert_eq!((floor.get(), inside()), (ResourceVersion(12), [false, true, true, false]), "{stops}");
        // Otherwise whoever lists would list again for as long as it does not change.
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!(inside(), [false, true, false, false], "{stops}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_changes_nothing_keeps_the_window() {
    let (mut writer, cache, _) = synced(vec![plain("a", "x", 1)], 10).await;
    writer.apply(EventType::Modified, plain("a", "x", 11)).await.unwrap();
    let kept = cache.snapshot().unwrap();
    assert!(replace(&mut writer, vec![plain("a", "x", 11)], 11).await.continued);
    assert_eq!(take(&mut cache.watch(spec(after(10))).unwrap()), ["MODIFIED a/x@11"]);
    assert!(replace(&mut writer, vec![plain("a", "x", 11)], 12).await.continued);
    assert!(cache.watch(spec(after(11))).is_err(), "what came and went between 11 and 12 is unknown");
    replace(&mut writer, vec![plain("a", "x", 11)], 15).await;
    assert_eq!([12, 13, 14, 15].map(|rv| cache.is_inside_gap(ResourceVersion(rv))), [false, true, true, false]);
    let key = ObjectKey::new("a", "x");
    assert!(Arc::ptr_eq(kept.get(&key).unwrap(), cache.snapshot().unwrap().get(&key).unwrap()), "bytes are held once");
}

#[tokio::test(start_paused = true)]
async fn a_list_never_takes_readers_back() {
    let (mut writer, cache, _) = synced(vec![plain("a", "x", 1)], 10).await;
    writer.progress(ResourceVersion(30));
    let older = writer.replace(Vec::new(), ResourceVersion(29)).await;
    assert_eq!(older, Err(ReplaceError::WentBack { rv: ResourceVersion(29), current: ResourceVersion(30) }));
    let ahead = writer.replace(vec![Arc::new(plain("a", "x", 41))], ResourceVersion(40)).await;
    let (rv, list) = (ResourceVersion(41), ResourceVersion(40));
    assert_eq!(ahead, Err(ReplaceError::Ahead { key: ObjectKey::new("a", "x"), rv, list }));
    assert!(!writer.progress(ResourceVersion(29)));
    let went_back = writer.apply(EventType::Modified, plain("a", "x", 30)).await;
    let (rv, current) = (ResourceVersion(30), ResourceVersion(30));
    assert_eq!(went_back, Err(ApplyError::WentBack { rv, current }));
    assert_eq!((listed(&cache), cache.resource_version().0), (vec!["a/x@1".to_owned()], 30));
}

#[tokio::test(start_paused = true)]
async fn readers_can_wait_for_a_revision() {
    let (mut writer, cache, _) = cache(|_| {});
    assert!(matches!(cache.wait_ready(soon()).await, Readiness::Pending { .. }));
    assert!(!cache.is_ready());
    let later = || Instant::now() + Duration::from_secs(5);
    let listed = async {
        tokio::task::yield_now().await;
        replace(&mut writer, Vec::new(), 10).await;
    };
    assert_eq!(tokio::join!(cache.wait_ready(later()), listed).0, Readiness::Ready);
    assert!(cache.is_ready());

    assert_eq!(cache.wait_for(ResourceVersion(10), soon()).await.unwrap().rv().0, 10);
    let current = ResourceVersion(10);
    assert_eq!(cache.wait_for(ResourceVersion(11), soon()).await.map(drop), Err(WaitError::Timeout { current }));
    for (want, step) in [(12, false), (14, true)] {
        let moves = async {
            tokio::task::yield_now().await;
            if step {
                writer.apply(EventType::Added, plain("a", "x", want + 1)).await.unwrap();
            } else {
                writer.progress(ResourceVersion(want));
            }
        };
        let (snapshot, ()) = tokio::join!(cache.wait_for(ResourceVersion(want), later()), moves);
        assert!(snapshot.unwrap().rv().0 >= want);
    }
}
