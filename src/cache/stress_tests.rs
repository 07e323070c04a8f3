//! Tests with concurrent threads: what the model test does one step at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::timeout;

use super::testing::*;
use super::*;
use crate::meta::{EventType, ResourceVersion, Scope};
use crate::selector::Predicate;

const EVENTS: u64 = 4000;
const STEPS: u64 = 2000;

/// Registers repeatedly while events arrive, each time with the state or from its last revision. It must end up with
/// the present state.
async fn client(cache: WatchCache, predicate: Predicate, by_list: bool, end: ResourceVersion) -> BTreeMap<String, u64> {
    let mut held = BTreeMap::new();
    let mut at = ResourceVersion(10);
    let mut round = 0;
    loop {
        round += 1;
        let start = if by_list { WatchStart::State } else { WatchStart::After(at) };
        let mut watcher = cache.watch(WatchSpec { predicate: predicate.clone(), ..spec(start) }).unwrap();
        let mut listing = by_list;
        if listing {
            held.clear();
        }
        // Each round is longer than the one before, so that the last one runs to the end.
        for _ in 0..round * 7 {
            if at == end && !listing {
                return held;
            }
            let next = timeout(Duration::from_secs(120), watcher.next()).await.expect("an event or a bookmark");
            match next.expect("nobody is slow") {
                WatcherEvent::Bookmark { rv, initial_end } => {
                    listing &= !initial_end;
                    at = rv;
                }
                WatcherEvent::Event { kind, object, rv } => {
                    let rv = rv.unwrap_or(object.rv);
                    assert!(listing || rv > at, "{rv} after {at}");
                    if !listing {
                        at = rv;
                    }
                    let key = object.key.to_string();
                    let known = match kind {
                        EventType::Deleted => held.remove(&key),
                        _ => held.insert(key, object.rv.0),
                    };
                    assert_eq!(known.is_some(), kind != EventType::Added, "{kind:?} {}@{rv}", object.key);
                }
                WatcherEvent::Error(status) => panic!("{status:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_gap_and_no_duplicate_under_threads() {
    let (mut writer, cache, _) = cache(|config| config.bookmark_period = Duration::from_millis(20));
    writer.replace(Vec::new(), ResourceVersion(10)).await.unwrap();
    let dispatcher = crate::lifecycle::spawn("dispatcher", cache.run_dispatcher());
    let end = ResourceVersion(10 + EVENTS + 1);
    let predicates = [
        predicate(Scope::all(), "", ""),
        predicate(Scope::namespace("a"), "", ""),
        predicate(Scope::all(), "app=web", ""),
        predicate(Scope::all(), "", "spec.nodeName=n1"),
    ];
    let clients: Vec<_> = predicates
        .iter()
        .flat_map(|predicate| [(predicate, true), (predicate, false), (predicate, false)])
        .map(|(predicate, by_list)| {
            let client = client(cache.clone(), predicate.clone(), by_list, end);
            (predicate, crate::lifecycle::spawn("client", client))
        })
        .collect();
    for i in 1..=EVENTS {
        let labels: &[_] = if i % 3 == 0 { &[("app", "web")] } else { &[] };
        let node = if i % 5 < 2 { "n1" } else { "n2" };
        let namespace = if i % 2 == 0 { "a" } else { "b" };
        let object = object(namespace, &format!("n{}", i * 7919 % 50), 10 + i, labels, node);
        let kind = if i % 11 == 0 { EventType::Deleted } else { EventType::Modified };
        writer.apply(kind, object).await.unwrap();
        if i % 16 == 0 {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    }
    writer.progress(end);
    let snapshot = cache.snapshot().unwrap();
    for (predicate, client) in clients {
        let held = timeout(Duration::from_secs(120), client).await.unwrap().unwrap();
        let listed = snapshot.range(&predicate.scope, None).filter(|object| predicate.matches(object));
        assert_eq!(held, listed.map(|object| (object.key.to_string(), object.rv.0)).collect());
    }
    assert_eq!(cache.stats().terminated_total, 0);
    assert_eq!(cache.stats().watchers, 0);
    dispatcher.abort();
}

/// Nothing else wakes the watchers here: neither a later event nor a bookmark.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_event_wakes_every_watcher() {
    let (mut writer, cache, _) = cache(|_| {});
    writer.replace(Vec::new(), ResourceVersion(10)).await.unwrap();
    let dispatcher = crate::lifecycle::spawn("dispatcher", cache.run_dispatcher());
    let mut watchers: Vec<_> = (0..6)
        .map(|_| {
            let spec = WatchSpec { bookmarks: false, initial_end: false, ..spec(after(10)) };
            let mut watcher = cache.watch(spec).unwrap();
            let (told, seen) = tokio::sync::watch::channel(0);
            let task = crate::lifecycle::spawn("watcher", async move {
                while let Some(WatcherEvent::Event { object, .. }) = watcher.next().await {
                    told.send_replace(object.rv.0);
                }
            });
            (seen, task)
        })
        .collect();
    for rv in 11..=10 + STEPS {
        writer.apply(EventType::Modified, plain("a", "b", rv)).await.unwrap();
        for (seen, _) in &mut watchers {
            let seen = timeout(Duration::from_secs(60), seen.wait_for(|seen| *seen == rv)).await;
            assert!(matches!(seen, Ok(Ok(_))), "not every watcher was woken for {rv}");
        }
    }
    watchers.iter().for_each(|(_, task)| task.abort());
    dispatcher.abort();
}
