//! What a cache says about itself: to metrics, to the status page, and to those who fill it.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use tokio::time::advance;

use super::testing::*;
use super::*;
use crate::meta::{EventType, ResourceVersion};

#[tokio::test(start_paused = true)]
async fn each_event_bookmark_list_and_end_is_counted_once() {
    let rv = ResourceVersion;
    let (mut writer, cache, mut dispatcher) = cache(|config| config.pinned = true);
    assert!(writer.is_pinned() && cache.bookmark_template().is_none() && cache.quiet_since().is_none());
    assert!(cache.ready_or_stopped().now_or_never().is_none());
    writer.replace([plain("a", "x", 5), plain("a", "y", 6)].map(Arc::new).to_vec(), rv(10)).await.unwrap();
    writer.set_bookmark_template(Bytes::from_static(b"{}"));
    assert_eq!(cache.bookmark_template().as_deref(), Some(&b"{}"[..]));
    assert!(cache.ready_or_stopped().now_or_never().is_some() && cache.is_whole());

    drop(cache.backfill(rv(1)));
    let mut backfill = cache.backfill(rv(5)).unwrap();
    backfill.push(EventType::Added, plain("a", "y", 6)).unwrap();
    assert_eq!(backfill.finish(), Ok(1));
    let mut replay = cache.watch(spec(WatchStart::After(rv(5)))).unwrap();
    assert!(poll(&mut replay).is_ready());
    assert_eq!(replay.complete(), rv(6), "no list is known to have more");
    drop(replay);
    assert!(cache.backfill(rv(5)).is_none(), "the window begins there");

    let mut watcher = cache.watch(spec(WatchStart::State)).unwrap();
    let mut seen = take(&mut watcher);
    for (name, at) in [("x", 11), ("y", 12)] {
        writer.apply(EventType::Modified, plain("a", name, at)).await.unwrap();
    }
    dispatch(&mut dispatcher);
    let late = Duration::from_millis(3);
    advance(late).await;
    for is_last in [false, true] {
        let Poll::Ready(Some(event)) = poll(&mut watcher) else { panic!("two events") };
        seen.push(short(&event));
        assert!(watcher.received().is_some());
        assert_eq!((watcher.lag(), watcher.is_caught_up()), (Some(late), is_last));
    }
    assert!(poll(&mut watcher).is_pending());
    assert_eq!((watcher.received(), watcher.lag(), watcher.is_caught_up()), (None, None, false));

    let held = writer.known(plain("a", "x", 11)).unwrap();
    assert!(cache.snapshot().unwrap().get(&held.key).is_some_and(|object| Arc::ptr_eq(object, &held)));
    assert!(writer.known(plain("a", "x", 12)).is_err());
    assert!(writer.known(object_with(r#","spec":{}"#, "uid-a-x", "a", "x", 11, &[], "")).is_err());
    assert!(writer.holds(&held.key) && !writer.holds(&plain("a", "z", 1).key));
    for wrong in [vec![plain("a", "x", 13), plain("a", "y", 14)], vec![plain("a", "x", 12)]] {
        assert!(writer.delete_together(wrong, true).await.is_err(), "not of one later revision");
    }
    writer.delete_together(vec![plain("a", "x", 13), plain("a", "y", 13)], true).await.unwrap();
    writer.progress(rv(14));
    dispatch(&mut dispatcher);
    seen.extend(take(&mut watcher));
    advance(Duration::from_secs(61)).await;
    seen.extend(take(&mut watcher));
    assert_eq!(watcher.complete(), rv(14));
    writer.replace(Vec::new(), rv(14)).await.unwrap();
    let mut steady = cache.watch(spec(WatchStart::State)).unwrap();
    seen.extend(take(&mut steady));
    steady.set_steady_bookmarks(Duration::from_secs(1));
    advance(Duration::from_secs(2)).await;
    seen.extend(take(&mut steady));

    let bookmarks = seen.iter().filter(|line| line.starts_with("BOOKMARK")).count() as u64;
    assert!(bookmarks >= 4, "{seen:?}");
    let (generation, reset_at) = (cache.generation(), writer.reset_at());
    writer.rewound("rewound");
    assert!(reset_at.is_none() && writer.reset_at().is_some() && cache.generation() > generation);
    assert!(cache.ready_or_stopped().now_or_never().is_none(), "it may come back");
    assert!(take(&mut watcher)[0].starts_with("END") && take(&mut steady)[0].starts_with("END"));
    let stats = cache.stats();
    assert_eq!((stats.events_total, stats.dispatched_total, stats.evaluated_total), (4, 4, 4));
    assert_eq!((stats.replaced_total, stats.bookmarks_total, stats.lagged_total), (2, bookmarks, 0));
    assert_eq!((stats.backfills_total, stats.backfills_failed_total, stats.backfilled_events_total), (2, 1, 1));
    assert_eq!((stats.terminated_total, stats.too_slow_total, stats.watchers), (2, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_writer_waits_for_the_dispatcher_and_what_is_old_leaves_though_nothing_comes() {
    let budget = Budget::new(1 << 20);
    let (mut writer, cache, _) = cache(|config| {
        (config.max_lag, config.window_min_events, config.budget) = (1, 0, budget.clone());
    });
    let dispatcher = crate::lifecycle::spawn("dispatcher", cache.run_dispatcher());
    writer.replace(Vec::new(), ResourceVersion(10)).await.unwrap();
    let (watcher, empty) = (cache.watch(spec(WatchStart::Now)).unwrap(), budget.used());
    for rv in 11..=20 {
        let kind = if rv % 2 == 1 { EventType::Added } else { EventType::Deleted };
        let applied = writer.apply(kind, plain("a", "x", rv));
        tokio::time::timeout(Duration::from_secs(60), applied).await.expect("it goes on").unwrap();
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(cache.stats().lagged_total > 0);
    assert_eq!((cache.stats().window_events, watcher.group().ring.lock().len()), (10, 10));
    let full = budget.used();
    tokio::time::sleep(cache.config().window_min_age + Duration::from_secs(5)).await;
    assert_eq!((cache.stats().window_events, watcher.group().ring.lock().len()), (0, 0));
    // Other caches may need the room.
    assert!(empty < full && budget.used() < empty + (full - empty) / 5, "{empty}, {full}, {}", budget.used());
    // Another one does nothing, and this one has stopped.
    dispatcher.abort();
    let dispatcher = crate::lifecycle::spawn("dispatcher", cache.run_dispatcher());
    writer.apply(EventType::Modified, plain("a", "x", 21)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cache.stats().dispatched_total, 10);
    dispatcher.abort();
}

#[tokio::test(start_paused = true)]
async fn the_window_shrinks_before_a_state_is_given_up() {
    let budget = Budget::new(20_000);
    let (mut writer, cache, mut dispatcher) = cache(|config| config.budget = budget.clone());
    writer.replace(Vec::new(), ResourceVersion(10)).await.unwrap();
    for rv in 11..=200 {
        writer.apply(EventType::Modified, plain("a", "x", rv)).await.unwrap();
        dispatch(&mut dispatcher);
    }
    assert!((1..150).contains(&cache.stats().window_events) && budget.used() <= budget.limit());
    assert!(!writer.is_pinned() && !writer.account().is_recalled() && budget.recalls() == 0);
    assert!(budget.recall() && writer.account().is_recalled());
}
