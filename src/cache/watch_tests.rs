//! The guarantees for a watcher.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::time::{Instant, advance, timeout};

use super::dispatcher::Dispatcher;
use super::testing::*;
use super::*;
use crate::meta::{EventType, ResourceVersion, Scope};

const LIST: u64 = 100;

/// A cache that listed `a/x@10` and `b/y@20` at 100.
async fn listed(change: impl FnOnce(&mut CacheConfig)) -> (Writer, WatchCache, Dispatcher) {
    let (mut writer, cache, dispatcher) = cache(change);
    let objects = [plain("a", "x", 10), plain("b", "y", 20)].map(Arc::new);
    writer.replace(objects.into(), ResourceVersion(LIST)).await.unwrap();
    (writer, cache, dispatcher)
}

async fn modify(writer: &mut Writer, namespace: &str, name: &str, rv: u64) {
    writer.apply(EventType::Modified, plain(namespace, name, rv)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn too_old_is_counted_as_the_apiserver_counts() {
    let (mut writer, cache, mut dispatcher) = listed(|config| config.window_max_events = 2).await;
    let too_old = |rv, oldest_minus_1| {
        let error = cache.watch(spec(after(rv))).map(drop).unwrap_err();
        let (rv, oldest_minus_1) = (ResourceVersion(rv), ResourceVersion(oldest_minus_1));
        assert_eq!(error, WatchError::TooOld { rv, oldest_minus_1 });
        assert_eq!(error.to_string(), format!("too old resource version: {rv} ({oldest_minus_1})"));
    };
    too_old(99, 100);
    assert!(take(&mut cache.watch(spec(after(100))).unwrap()).is_empty());
    assert!(take(&mut cache.watch(spec(after(101))).unwrap()).is_empty());
    for rv in [105, 110] {
        modify(&mut writer, "a", "x", rv).await;
        dispatch(&mut dispatcher);
    }
    too_old(99, 100);
    assert_eq!(take(&mut cache.watch(spec(after(100))).unwrap()), ["MODIFIED a/x@105", "MODIFIED a/x@110"]);
    modify(&mut writer, "a", "x", 115).await;
    too_old(108, 109);
    assert_eq!(take(&mut cache.watch(spec(after(109))).unwrap()), ["MODIFIED a/x@110", "MODIFIED a/x@115"]);
}

#[tokio::test(start_paused = true)]
async fn it_is_known_where_watchers_stand() {
    let (mut writer, cache, mut dispatcher) = listed(|_| {}).await;
    let standing = |listing, behind| Standing { listing, behind };
    assert_eq!(cache.standing(), standing(0, 0));
    let mut live = cache.watch(spec(after(100))).unwrap();
    let mut state = cache.watch(spec(WatchStart::State)).unwrap();
    let other = cache.watch(WatchSpec { predicate: predicate(Scope::all(), "app=web", ""), ..spec(after(100)) });
    assert_eq!(cache.standing(), standing(1, 0));
    modify(&mut writer, "a", "x", 101).await;
    dispatch(&mut dispatcher);
    assert_eq!(cache.standing(), standing(1, 1));
    take(&mut state);
    assert_eq!(cache.standing(), standing(0, 1));
    take(&mut live);
    assert_eq!(cache.standing(), standing(0, 0));
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn a_slow_watcher_is_ended_and_holds_no_memory() {
    let (mut writer, cache, mut dispatcher) = listed(|config| config.window_max_events = 10).await;
    let mut slow = cache.watch(spec(after(100))).unwrap();
    let mut listing = cache.watch(spec(WatchStart::State)).unwrap();
    let mut fast = cache.watch(spec(after(100))).unwrap();
    assert_eq!(take(&mut fast).len(), 0);
    let held = Arc::downgrade(cache.snapshot().unwrap().get(&crate::meta::ObjectKey::new("a", "x")).unwrap());
    for rv in 101..=150 {
        modify(&mut writer, "a", "x", rv).await;
        dispatch(&mut dispatcher);
        assert_eq!(take(&mut fast), [format!("MODIFIED a/x@{rv}")]);
    }
    assert!(held.upgrade().is_some(), "pinned by those who have not read");
    sweep(&mut dispatcher);
    assert!(held.upgrade().is_none(), "the window has passed them");
    assert_eq!(take(&mut slow), ["END too_slow"]);
    assert_eq!(take(&mut listing), ["END too_slow"]);
    assert!(take(&mut fast).is_empty());
    assert_eq!((cache.stats().terminated_total, cache.stats().too_slow_total), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_replay_that_the_window_has_passed_ends() {
    let (mut writer, cache, mut dispatcher) = listed(|config| config.window_max_events = 200).await;
    let mut watcher = None;
    for rv in 101..=400 {
        modify(&mut writer, "a", "x", rv).await;
        dispatch(&mut dispatcher);
        if rv == 300 {
            assert!(poll(watcher.insert(cache.watch(spec(after(100))).unwrap())).is_ready());
        }
    }
    let rest = take(&mut watcher.unwrap());
    assert_eq!((rest[0].as_str(), rest.last().unwrap().as_str()), ("MODIFIED a/x@102", "END too_slow"));
    assert!(rest.len() < 100, "only what was already at hand");
}

/// A client that continued from a revision of which only some deletions were sent would miss the others.
#[tokio::test(start_paused = true)]
async fn deletions_of_one_revision_are_claimed_with_the_last_of_them() {
    let objects = |rv| (0..100).map(move |i| plain("a", &format!("n{i:03}"), rv));
    let (mut writer, cache, _) = cache(|_| {});
    writer.replace(objects(90).map(Arc::new).collect(), ResourceVersion(LIST)).await.unwrap();
    writer.delete_together(objects(103).collect(), true).await.unwrap();
    // More than a replay reads at once.
    let mut replay = cache.watch(spec(after(LIST))).unwrap();
    for taken in 1..=100 {
        assert!(poll(&mut replay).is_ready());
        assert_eq!(replay.complete().0, if taken < 100 { 102 } else { 103 }, "after {taken}");
    }
}

/// The stream may have broken between the first of them and the others, which are asked for again.
#[tokio::test(start_paused = true)]
async fn deletions_that_may_not_be_all_are_not_claimed_before_something_follows_them() {
    for (next, is_drained) in [(101, false), (102, false), (101, true)] {
        let (mut writer, cache, mut dispatcher) = listed(|_| {}).await;
        let mut live = cache.watch(spec(after(LIST))).unwrap();
        writer.delete_together(vec![plain("a", "x", 101)], false).await.unwrap();
        assert_eq!((writer.resource_version().0, writer.certain().0), (101, 100));
        dispatch(&mut dispatcher);
        let mut others = [after(LIST), after(101), WatchStart::State].map(|start| cache.watch(spec(start)).unwrap());
        live.set_steady_bookmarks(Duration::from_secs(1));
        for watcher in others.iter_mut().chain([&mut live]) {
            take(watcher);
            assert_eq!((watcher.complete().0, watcher.split_at()), (100, Some(ResourceVersion(101))));
        }
        advance(Duration::from_secs(2)).await;
        assert_eq!(take(&mut live), ["BOOKMARK 100"], "it lives");
        if is_drained {
            cache.end_watchers(true);
            for watcher in others.iter_mut().chain([&mut live]) {
                assert_eq!(take(watcher), ["END drained"], "who knows when something follows");
                assert_eq!((watcher.complete().0, watcher.cut_short_at()), (100, Some(ResourceVersion(101))));
            }
            continue;
        }
        assert!(writer.progress(ResourceVersion(next)));
        assert_eq!(writer.certain().0, next);
        dispatch(&mut dispatcher);
        for watcher in others.iter_mut().chain([&mut live]) {
            take(watcher);
            assert_eq!((watcher.complete().0, watcher.split_at()), (next, None));
        }
    }
}

/// Nothing was asked, so the store may have been set back since they came.
#[tokio::test(start_paused = true)]
async fn a_doubt_about_deletions_that_ends_by_itself_is_no_news_of_the_store() {
    let (mut writer, cache, _dispatcher) = listed(|_| {}).await;
    writer.delete_together(vec![plain("a", "x", 101)], false).await.unwrap();
    let before = cache.quiet_since().unwrap();
    writer.ends_doubt();
    assert_eq!((writer.certain().0, cache.quiet_since()), (101, Some(before)));
    writer.progress(ResourceVersion(102));
    assert!(cache.quiet_since().unwrap().2 > before.2);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_once_a_minute_and_before_the_deadline() {
    let (mut writer, cache, mut dispatcher) = listed(|_| {}).await;
    let start = Instant::now();
    let deadline = start + Duration::from_secs(150);
    let mut watcher = cache.watch(WatchSpec { deadline, ..spec(after(100)) }).unwrap();
    writer.progress(ResourceVersion(120));
    dispatch(&mut dispatcher);
    dispatcher.step(1);
    let mut seen = Vec::new();
    while let Some(event) = watcher.next().await {
        assert_eq!(short(&event), "BOOKMARK 120");
        seen.push(start.elapsed().as_secs());
    }
    assert_eq!((seen.len(), seen.last()), (3, Some(&148)), "{seen:?}");
    assert!((57..=60).contains(&seen[0]) && (114..=120).contains(&seen[1]), "{seen:?}");
    assert_eq!(watcher.end_reason(), Some(EndReason::Deadline));
    assert_eq!(start.elapsed().as_secs(), 150);
    assert!(watcher.next().await.is_none(), "and stays ended");
    assert_eq!(cache.stats().terminated_total, 0);
}

#[tokio::test(start_paused = true)]
async fn who_begins_before_the_stores_progress_is_told_of_it_by_a_bookmark() {
    let (mut writer, cache, mut dispatcher) = listed(|_| {}).await;
    modify(&mut writer, "a", "x", 101).await;
    writer.progress(ResourceVersion(120));
    dispatch(&mut dispatcher);
    dispatcher.step(1);
    for (from, event) in [(100, Some("MODIFIED a/x@101")), (101, None), (110, None)] {
        let mut watcher = cache.watch(spec(after(from))).unwrap();
        assert_eq!(take(&mut watcher), event.into_iter().collect::<Vec<_>>(), "from {from}");
        advance(Duration::from_secs(50)).await;
        assert!(take(&mut watcher).is_empty(), "it is not marked");
        advance(Duration::from_secs(11)).await;
        assert_eq!(take(&mut watcher), ["BOOKMARK 120"], "from {from}");
    }
    let mut newest = cache.watch(spec(after(120))).unwrap();
    advance(Duration::from_secs(61)).await;
    assert!(take(&mut newest).is_empty(), "it knows");
    let start = Instant::now();
    newest.set_steady_bookmarks(Duration::from_secs(20));
    assert_eq!(short(&newest.next().await.unwrap()), "BOOKMARK 120");
    assert!((19..=20).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

/// A client that polls again only after it was woken, and before any bookmark is due.
#[tokio::test(start_paused = true)]
async fn a_task_that_waits_is_woken() {
    let (x, y) = (|rv| plain("a", "x", rv), |rv| plain("b", "y", rv));
    for (what, from, list, expected) in [
        ("an event", LIST, None, Some("MODIFIED b/y@102")),
        ("a list with a change", LIST, Some((vec![x(101), y(103)], 103)), Some("MODIFIED b/y@103")),
        ("a list that shows nothing of its revision", 120, Some((vec![x(10), y(20)], 140)), None),
        ("a list without its object", LIST, Some((vec![x(10)], 140)), None),
        ("a drain", LIST, None, None),
        ("another past", LIST, None, None),
    ] {
        let (mut writer, cache, _) = listed(|_| {}).await;
        let dispatcher = crate::lifecycle::spawn("dispatcher", cache.run_dispatcher());
        let predicate = predicate(Scope::namespace("b"), "", "");
        let mut watcher = cache.watch(WatchSpec { predicate, ..spec(after(from)) }).unwrap();
        let next = crate::lifecycle::spawn("watch", async move {
            let looks = std::future::poll_fn(|cx| Poll::Ready(watcher.poll_next(cx).is_pending()));
            assert!(looks.await);
            watcher.next().await.map(|event| short(&event))
        });
        tokio::task::yield_now().await;
        match (list, what) {
            (Some((objects, rv)), _) => {
                let objects = objects.into_iter().map(Arc::new).collect();
                writer.replace(objects, ResourceVersion(rv)).await.unwrap();
            }
            (None, "an event") => {
                modify(&mut writer, "a", "x", 101).await;
                modify(&mut writer, "b", "y", 102).await;
            }
            (None, "a drain") => cache.end_watchers(false),
            (None, _) => writer.rewound("rewound"),
        }
        let next = timeout(Duration::from_secs(10), next).await.expect(what).unwrap();
        assert_eq!(next.as_deref(), expected, "{what}");
        dispatcher.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn the_writer_waits_for_a_dispatcher_that_is_far_behind() {
    let (mut writer, cache, mut dispatcher) = listed(|config| {
        config.max_lag = 10;
        config.window_max_events = 5;
    })
    .await;
    let mut watcher = cache.watch(spec(after(100))).unwrap();
    for rv in 101..=110 {
        modify(&mut writer, "a", "x", rv).await;
    }
    let stuck = timeout(Duration::from_secs(1), modify(&mut writer, "a", "x", 111)).await;
    assert!(stuck.is_err());
    assert!(timeout(Duration::from_secs(1), writer.delete_together(vec![plain("a", "x", 111)], true)).await.is_err());
    assert_eq!(cache.stats().window_events, 10, "nothing undispatched is lost");
    dispatcher.step(1);
    timeout(Duration::from_secs(1), modify(&mut writer, "a", "x", 111)).await.unwrap();
    assert_eq!(cache.stats().lagged_total, 2);
    dispatch(&mut dispatcher);
    assert_eq!(take(&mut watcher).len(), 11);
}

#[tokio::test(start_paused = true)]
async fn the_task_that_polled_last_is_woken_for_each_event() {
    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (mut writer, cache, mut dispatcher) = listed(|_| {}).await;
    let mut watcher = cache.watch(spec(WatchStart::Now)).unwrap();
    let tasks = [Arc::<Count>::default(), Arc::<Count>::default()];
    let mut rv = 200;
    modify(&mut writer, "a", "x", rv).await;
    dispatch(&mut dispatcher);
    assert!(poll(&mut watcher).is_ready(), "this one takes an event, and does not wait");
    // Who polls until there is nothing, one after the other.
    for pollers in [&[0][..], &[0], &[1], &[0, 1], &[1, 0], &[0, 1, 0], &[1], &[0]] {
        let mut last = 0;
        for &poller in pollers {
            let waker = Waker::from(Arc::clone(&tasks[poller]));
            let mut cx = Context::from_waker(&waker);
            while watcher.poll_next(&mut cx).is_ready() {}
            assert!(watcher.poll_next(&mut cx).is_pending());
            // It knows the task now, and does not look for events again: it would wait for the lock forever.
            let group = Arc::clone(watcher.group());
            let _locked = group.ring.lock();
            assert!(watcher.poll_next(&mut cx).is_pending());
            last = poller;
        }
        let before = tasks[last].0.load(Ordering::Relaxed);
        rv += 1;
        modify(&mut writer, "a", "x", rv).await;
        dispatch(&mut dispatcher);
        assert_eq!(tasks[last].0.load(Ordering::Relaxed), before + 1, "{pollers:?}");
    }
}

#[test]
fn an_idle_watcher_is_small() {
    assert!(size_of::<CacheWatcher>() <= 192, "{}", size_of::<CacheWatcher>());
    assert!(size_of::<tokio::time::Sleep>() + size_of::<CacheWatcher>() + ring::SLOT_SIZE < 512);
}

#[tokio::test]
async fn an_unsynced_cache_starts_no_watch() {
    let (mut writer, cache, _) = cache(|_| {});
    assert_eq!(cache.watch(spec(WatchStart::State)).map(drop), Err(WatchError::NotReady));
    writer.replace(Vec::new(), ResourceVersion(1)).await.unwrap();
    assert_eq!(take(&mut cache.watch(spec(WatchStart::State)).unwrap()), ["BOOKMARK 1 initial"]);
    let (now, zero) = (spec(WatchStart::Now), ResourceVersion::ZERO);
    let mut early = CacheWatcher::new(membership::Membership::join(&cache.shared(), &now.predicate), &now);
    writer.not_ready("gone");
    assert!(matches!(cache.ready(), Readiness::NotReady { why, .. } if &*why == "gone"));
    assert_eq!(cache.snapshot_at(ResourceVersion(1)).map(drop), Err(SnapshotError::NotReady));
    assert_eq!(cache.wait_for(ResourceVersion(1), Instant::now()).await.map(drop), Err(WaitError::NotReady));
    assert_eq!(writer.apply(EventType::Added, plain("a", "x", 2)).await, Err(ApplyError::NotSynced));
    assert!(!early.begin(watcher::Phase::Live, ring::Basis::Known, zero, zero), "its group has ended");
    drop(early);
    assert_eq!(cache.watch(spec(WatchStart::State)).map(drop), Err(WatchError::NotReady));
    assert_eq!(cache.stats().watchers, 0);
    drop(writer);
    assert!(
        !cache.wait_ready(Instant::now() + Duration::from_secs(3600)).await.is_ready(),
        "nothing will change again"
    );
}

#[tokio::test]
async fn what_readers_were_shown_outlives_the_state() {
    let (mut writer, cache, _) = cache(|_| {});
    let floor = Arc::clone(&cache.config().floor);
    writer.replace(Vec::new(), ResourceVersion(5)).await.unwrap();
    writer.rewound("restored from a backup");
    assert_eq!(floor.get(), ResourceVersion::ZERO, "it no longer applies");
    writer.replace(Vec::new(), ResourceVersion(3)).await.unwrap();
    writer.not_ready("given up");
    assert_eq!(floor.get(), ResourceVersion(3));
    writer.replace(Vec::new(), ResourceVersion(7)).await.unwrap();
    writer.progress(ResourceVersion(9));
    drop(writer);
    assert_eq!((floor.get(), floor.newest()), (ResourceVersion(7), ResourceVersion(9)), "nothing has changed since 7");
}

/// However few of the objects or events a watch selects, it lets others run after each few thousand, and gets all of
/// them, whatever happens meanwhile.
#[tokio::test]
async fn a_watch_pauses_however_far_apart_its_matches_are() {
    const OBJECTS: u64 = 10_000;
    for apart in [1, 31, 1500] {
        let (mut writer, cache, mut dispatcher) = cache(|_| {});
        let object = |n: u64, rv| {
            let app = if n.is_multiple_of(apart) { "web" } else { "other" };
            object("a", &format!("n{n:05}"), rv, &[("app", app)], "")
        };
        let listed = (0..OBJECTS).map(|n| std::sync::Arc::new(object(n, 1 + n))).collect();
        writer.replace(listed, ResourceVersion(OBJECTS)).await.unwrap();
        for n in 0..OBJECTS {
            writer.apply(EventType::Modified, object(n, OBJECTS + 1 + n)).await.unwrap();
            dispatch(&mut dispatcher);
        }
        let selected = || predicate(Scope::all(), "app=web", "");
        for (start, kind) in [(WatchStart::State, "ADDED"), (after(OBJECTS), "MODIFIED")] {
            let mut watcher =
                cache.watch(WatchSpec { predicate: selected(), initial_end: false, ..spec(start) }).unwrap();
            let (mut events, mut together, mut pauses) = (0, 0, 0);
            while events < OBJECTS.div_ceil(apart) {
                if let Poll::Ready(event) = poll(&mut watcher) {
                    let n = events * apart;
                    assert_eq!(short(&event.unwrap()), format!("{kind} a/n{n:05}@{}", OBJECTS + 1 + n));
                    if events.is_multiple_of(50) {
                        let (gone, rv) = ((n + 77 * apart) % OBJECTS, writer.resource_version().next());
                        writer.apply(EventType::Deleted, plain("a", &format!("n{gone:05}"), rv.0)).await.unwrap();
                        dispatch(&mut dispatcher);
                    }
                    (events, together) = (events + 1, together + 1);
                    assert!(together <= 4096 / apart + 2, "{apart}, {start:?}: {together} without a pause");
                } else {
                    assert!(watcher.is_paused(), "{apart}, {start:?}");
                    (pauses, together) = (pauses + 1, 0);
                }
            }
            assert!((2..20).contains(&pauses), "{apart}, {start:?}: {pauses} pauses");
        }
    }
}
