//! Watches that begin at a revision that the cache has not seen, and relists that take the place of its events.

use super::dispatcher::Dispatcher;
use super::testing::*;
use super::*;
use crate::meta::{EventType, Object, ResourceVersion, Scope};
use crate::selector::Predicate;

fn rv(n: u64) -> ResourceVersion {
    ResourceVersion(n)
}

/// A cache that listed `a/x@10` at 100.
async fn listed() -> (Writer, WatchCache, Dispatcher) {
    let (mut writer, cache, dispatcher) = cache(|_| {});
    writer.replace(vec![Arc::new(plain("a", "x", 10))], rv(100)).await.unwrap();
    (writer, cache, dispatcher)
}

async fn relist(writer: &mut Writer, objects: Vec<Object>, at: u64) -> Replaced {
    writer.replace(objects.into_iter().map(Arc::new).collect(), rv(at)).await.unwrap()
}

fn everything(cache: &WatchCache, after: u64) -> CacheWatcher {
    cache.watch(spec(WatchStart::After(rv(after)))).unwrap()
}

fn of(cache: &WatchCache, predicate: Predicate, after: u64) -> CacheWatcher {
    cache.watch(WatchSpec { predicate, ..spec(WatchStart::After(rv(after))) }).unwrap()
}

/// An object was created at 110 and deleted at 130. Another one, which the cache has, was selected from 115 to 135.
#[tokio::test(start_paused = true)]
async fn what_came_and_went_in_the_gap_ends_those_who_began_in_it() {
    let (mut writer, cache, mut dispatcher) = listed().await;
    let mut within = [
        everything(&cache, 120),
        of(&cache, predicate(Scope::all(), "app=web", ""), 120),
        of(&cache, predicate(Scope::namespace("a"), "", "spec.nodeName=n1"), 101),
        of(&cache, predicate(Scope::all(), "", "metadata.name=gone"), 139),
    ];
    let mut before = everything(&cache, 100);
    let mut after = [everything(&cache, 140), everything(&cache, 150)];
    let replaced = relist(&mut writer, vec![plain("a", "x", 135)], 140).await;
    assert_eq!(replaced, Replaced { continued: false, ended: 4, changed: 1, deleted: 0 });
    dispatch(&mut dispatcher);
    for watcher in &mut within {
        assert_eq!(take(watcher), ["END relisted"]);
    }
    assert_eq!(take(&mut before), ["MODIFIED a/x@135"]);
    for watcher in &mut after {
        assert!(take(watcher).is_empty());
    }
    assert_eq!((cache.stats().terminated_total, cache.stats().watchers), (4, 3));
    for again in [101, 120, 139] {
        assert!(cache.watch(spec(WatchStart::After(rv(again)))).is_err(), "they have to list");
    }
    writer.apply(EventType::Added, plain("a", "new", 141)).await.unwrap();
    writer.apply(EventType::Added, plain("a", "later", 151)).await.unwrap();
    dispatch(&mut dispatcher);
    assert_eq!(take(&mut before), ["ADDED a/new@141", "ADDED a/later@151"]);
    assert_eq!(take(&mut after[0]), ["ADDED a/new@141", "ADDED a/later@151"]);
    assert_eq!(take(&mut after[1]), ["ADDED a/later@151"]);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_task_is_woken_by_its_end() {
    let (mut writer, cache, _) = listed().await;
    let mut watcher = everything(&cache, 120);
    assert!(take(&mut watcher).is_empty());
    let end = crate::lifecycle::spawn("watch", async move { watcher.next().await.map(|event| short(&event)) });
    tokio::task::yield_now().await;
    relist(&mut writer, vec![plain("a", "x", 10)], 140).await;
    let soon = std::time::Duration::from_secs(60);
    assert_eq!(tokio::time::timeout(soon, end).await.expect("it is woken").unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_second_relist_is_looked_at_anew() {
    let (mut writer, cache, _) = listed().await;
    let (mut early, mut late) = (everything(&cache, 150), everything(&cache, 160));
    // A list below their start says nothing about them.
    assert!(relist(&mut writer, vec![plain("a", "x", 10), plain("a", "y", 130)], 140).await.continued);
    writer.apply(EventType::Modified, plain("a", "y", 145)).await.unwrap();
    assert!(take(&mut early).is_empty() && take(&mut late).is_empty());
    let replaced = relist(&mut writer, vec![plain("a", "x", 10), plain("a", "y", 145)], 155).await;
    assert_eq!((replaced.continued, replaced.ended), (false, 1));
    assert_eq!(take(&mut early), ["END relisted"]);
    assert!(take(&mut late).is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_was_reached_by_the_events_goes_on() {
    let (mut writer, cache, mut dispatcher) = listed().await;
    let mut watcher = everything(&cache, 120);
    writer.apply(EventType::Added, plain("a", "y", 110)).await.unwrap();
    writer.progress(rv(120));
    assert!(relist(&mut writer, vec![plain("a", "x", 10), plain("a", "y", 135)], 140).await.continued);
    dispatch(&mut dispatcher);
    assert_eq!(take(&mut watcher), ["MODIFIED a/y@135"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_without_a_gap_ends_nobody() {
    let (mut writer, cache, _) = listed().await;
    let mut watcher = everything(&cache, 120);
    assert!(relist(&mut writer, vec![plain("a", "x", 10)], 100).await.continued);
    assert!(take(&mut watcher).is_empty());
}

/// The state of a revision that was confirmed is known, although the events have not reached it.
#[tokio::test(start_paused = true)]
async fn who_began_with_a_confirmed_state_goes_on() {
    let (mut writer, cache, mut dispatcher) = listed().await;
    for at in [110, 120] {
        assert!(cache.confirm(&cache.snapshot().unwrap(), rv(at), Order::now()));
    }
    let mut known = [
        everything(&cache, 110),
        everything(&cache, 120),
        cache.watch(spec(WatchStart::Now)).unwrap(),
        cache.watch(WatchSpec { initial_end: false, ..spec(WatchStart::State) }).unwrap(),
    ];
    // Between the two, an object may have been there.
    let mut unknown = everything(&cache, 115);
    assert_eq!(take(&mut known[3]), ["ADDED a/x@10"]);
    let replaced = relist(&mut writer, vec![plain("a", "x", 135)], 140).await;
    assert_eq!((replaced.continued, replaced.ended), (false, 1));
    dispatch(&mut dispatcher);
    for watcher in &mut known {
        assert_eq!(take(watcher), ["MODIFIED a/x@135"]);
    }
    assert_eq!(take(&mut unknown), ["END relisted"]);
}

/// A saved state is one that a relist may replace, like any other.
#[tokio::test(start_paused = true)]
async fn who_began_ahead_of_a_restored_state_ends() {
    let (mut writer, cache, _) = cache(|_| {});
    let mut saved = writer.restoration();
    let encoding = crate::meta::Encoding::Json;
    saved.set_form(crate::codec::Form::new(encoding, crate::codec::json::Style::Stripped, "v1", "Pod", "PodList"));
    saved.insert(plain("a", "x", 10)).unwrap();
    saved.begin(rv(100), 1).unwrap();
    writer.restore(saved).unwrap();
    let (mut ahead, mut there) = (everything(&cache, 120), everything(&cache, 100));
    assert_eq!(relist(&mut writer, vec![plain("a", "x", 10)], 140).await.ended, 1);
    assert_eq!(take(&mut ahead), ["END relisted"]);
    assert!(take(&mut there).is_empty());
}
