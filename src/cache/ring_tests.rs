//! How much rings hold beyond the window, with random sizes, readers and timing.

use std::collections::HashSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::history::memory;
use super::testing::*;
use super::*;
use crate::meta::{EventType, ResourceVersion, Scope};
use crate::selector::Predicate;

#[derive(Clone, Debug)]
enum Op {
    /// One object changes to this number of bytes.
    Change {
        namespace: usize,
        bytes: usize,
    },
    /// Dispatches all pending events, as after a notification.
    Dispatch,
    Read {
        watcher: prop::sample::Index,
        events: usize,
    },
}

const NAMESPACES: [&str; 3] = ["a", "b", "c"];
const WINDOW: usize = 64 << 10;
const LARGEST: usize = 16 << 10;
const EVENTS: usize = 64;
const STEP: usize = 16;

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let change = |bytes| (0..NAMESPACES.len(), bytes).prop_map(|(namespace, bytes)| Op::Change { namespace, bytes });
    let op = prop_oneof![
        6 => change(0..200_usize),
        6 => change(0..LARGEST),
        4 => Just(Op::Dispatch),
        1 => (any::<prop::sample::Index>(), 1..20_usize).prop_map(|(watcher, events)| Op::Read { watcher, events }),
    ];
    prop::collection::vec(op, 1..400)
}

/// Memory and number of the events in rings that are older than `oldest`.
fn held(cache: &WatchCache, oldest: ResourceVersion) -> (usize, usize) {
    let shared = cache.shared();
    let mut seen = HashSet::new();
    let mut bytes = 0;
    for group in shared.groups.read().iter() {
        for event in group.ring.lock().events().filter(|event| event.rv < oldest) {
            if seen.insert(Arc::as_ptr(event)) {
                bytes += memory(event);
            }
        }
    }
    (bytes, seen.len())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn rings_are_bounded_with_the_window(ops in ops()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (mut writer, cache, mut dispatcher) = cache(|config| {
                (config.window_max_bytes, config.window_max_events) = (WINDOW, EVENTS);
                config.window_min_events = 1;
            });
            let objects = NAMESPACES.map(|namespace| Arc::new(plain(namespace, "x", 1)));
            writer.replace(objects.into(), ResourceVersion(10)).await.unwrap();
            // A watcher that reads nothing drops nothing, whether it is alone in its group or together with one that
            // reads.
            let in_namespace = |namespace: &str| predicate(Scope { namespace: Some(namespace.into()), name: None }, "", "");
            let predicates = [Predicate::everything(), predicate(Scope::all(), "", ""), in_namespace("a")];
            let mut watchers: Vec<_> = predicates
                .into_iter()
                .chain(NAMESPACES.map(in_namespace))
                .map(|predicate| cache.watch(WatchSpec { predicate, ..spec(WatchStart::Now) }).unwrap())
                .collect();
            let readers = watchers.len() / 2;
            let mut rv = 10;
            for op in ops {
                match op {
                    Op::Change { namespace, bytes } => {
                        rv += 1;
                        let text = "x".repeat(bytes);
                        let object = object(NAMESPACES[namespace], "x", rv, &[("size", &text)], "");
                        writer.apply(EventType::Modified, object).await.unwrap();
                    }
                    Op::Dispatch => {
                        let mut has_more = true;
                        while has_more {
                            has_more = dispatcher.step(STEP);
                            let (bytes, events) = held(&cache, ResourceVersion(u64::MAX));
                            // The half is the tolerated excess. One step may exceed it by a quarter and one event at
                            // most.
                            let most = WINDOW + WINDOW / 2 + WINDOW / 4 + 2 * LARGEST;
                            prop_assert!(bytes <= most, "{} bytes", bytes);
                            prop_assert!(events <= EVENTS + EVENTS / 2 + STEP, "{} events", events);
                            if dispatcher.is_due() {
                                sweep(&mut dispatcher);
                                let oldest = cache.stats().window_oldest_rv.unwrap_or_default();
                                prop_assert_eq!(held(&cache, oldest), (0, 0));
                            }
                        }
                    }
                    Op::Read { watcher, events } => {
                        let reader = watcher.index(readers);
                        for _ in 0..events {
                            drop(poll(&mut watchers[reader]));
                        }
                    }
                }
            }
            Ok(())
        })?;
    }
}

/// How many of ten events the first step dispatches to so many groups, with a window of four times these bytes. And the
/// bytes of one event.
async fn first_step(groups: usize, quarter: usize) -> (u64, usize) {
    let (mut writer, cache, mut dispatcher) = cache(|config| config.window_max_bytes = 4 * quarter);
    writer.replace(vec![Arc::new(plain("a", "x", 100))], ResourceVersion(100)).await.unwrap();
    let watch = |number: usize| {
        let predicate = predicate(Scope::all(), "", &format!("spec.nodeName!=n{number}"));
        cache.watch(WatchSpec { predicate, ..spec(WatchStart::Now) }).unwrap()
    };
    let _watchers: Vec<_> = (0..groups).map(watch).collect();
    for rv in 101..=110 {
        writer.apply(EventType::Modified, plain("a", "x", rv)).await.unwrap();
    }
    let bytes = cache.shared().state.lock().history.plain_bytes() / 10;
    dispatcher.step(usize::MAX);
    (cache.stats().dispatched_total, bytes)
}

/// So watchers are woken soon, and rings hold little more than the window.
#[tokio::test(start_paused = true)]
async fn a_step_ends_after_a_quarter_of_the_window_or_ten_thousand_evaluations() {
    const ROOM: usize = usize::MAX / 4;
    let (all, bytes) = first_step(1, ROOM).await;
    assert_eq!(all, 10);
    for (groups, quarter, events) in [(1, 2 * bytes - 1, 2), (1, 2 * bytes, 3), (5000, ROOM, 3), (5001, ROOM, 2)] {
        assert_eq!(first_step(groups, quarter).await.0, events, "{groups} groups, {quarter} bytes");
    }
}

/// Otherwise each event would have the task run once more, for nothing.
#[tokio::test(start_paused = true)]
async fn a_step_says_whether_events_are_left() {
    let (mut writer, _cache, mut dispatcher) = cache(|_| {});
    writer.replace(vec![Arc::new(plain("a", "x", 100))], ResourceVersion(100)).await.unwrap();
    for rv in 101..=103 {
        writer.apply(EventType::Modified, plain("a", "x", rv)).await.unwrap();
    }
    assert_eq!([1, 1, 1, 1].map(|most| dispatcher.step(most)), [true, true, false, false]);
    writer.progress(ResourceVersion(200));
    assert!(!dispatcher.step(1));
}
