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
