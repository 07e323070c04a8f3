use proptest::prelude::*;

use super::*;
use crate::cache::CacheConfig;
use crate::cache::checkpoints::REBUILT;
use crate::cache::testing::{cache, dispatch, names, plain};
use crate::codec::json;
use crate::meta::{FieldTable, Gvr, Object};

const LIMITS: Limits =
    Limits { min_age: Duration::from_secs(75), min_events: 0, max_events: 1 << 20, max_bytes: usize::MAX };

/// A store and its history, fed like a writer does, with every state that they went through.
struct Fed {
    store: Store,
    history: History,
    rv: u64,
    states: Vec<(u64, Vec<String>)>,
    now: Instant,
}

impl Fed {
    fn new(limits: Limits, list_rv: u64) -> Self {
        let mut history = History::new(limits);
        history.reset(ResourceVersion(list_rv));
        let states = vec![(list_rv, Vec::new())];
        Self { store: Store::default(), history, rv: list_rv, states, now: Instant::now() }
    }

    fn change(&mut self, gap: u64, name: usize, delete: bool) {
        self.rv += gap;
        let object = Arc::new(plain("ns", &format!("n{name}"), self.rv));
        let prev = self.store.get(&object.key).cloned();
        let kind = match (&prev, delete) {
            (None, true) => return,
            (Some(_), true) => EventType::Deleted,
            (None, false) => EventType::Added,
            (Some(_), false) => EventType::Modified,
        };
        let event =
            Arc::new(WatchCacheEvent { kind, rv: object.rv, object, prev, received: tokio::time::Instant::now() });
        self.store.apply(&event);
        self.history.push(event, &self.store, self.now);
        self.history.evict(self.now, u64::MAX);
        self.states.push((self.rv, names(self.store.iter())));
    }

    fn at(&mut self, rv: u64) -> Vec<String> {
        let mut rebuild = self.history.rebuild(ResourceVersion(rv), &self.store);
        let store = rebuild.run();
        assert_eq!(store.bytes(), store.iter().map(|object| object.size()).sum::<usize>());
        self.history.remember(&rebuild);
        names(store.iter())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_state_of_the_window_can_be_rebuilt(
        ops in prop::collection::vec((1..4_u64, 0..40_usize, any::<bool>()), 1..1500),
        max_events in 1..1200_usize,
        asks in prop::collection::vec(any::<prop::sample::Index>(), 20),
    ) {
        let mut fed = Fed::new(Limits { max_events, ..LIMITS }, 10);
        for (gap, name, delete) in ops {
            fed.change(gap, name, delete);
        }
        let floor = fed.history.floor().0;
        let known: Vec<_> = (floor..=fed.rv).collect();
        let check = |fed: &mut Fed, rv: u64| {
            let expected = fed.states.iter().rev().find(|(at, _)| *at <= rv).expect("a state").1.clone();
            prop_assert_eq!(fed.at(rv), expected, "state at {}", rv);
            Ok(())
        };
        for ask in asks {
            check(&mut fed, *ask.get(&known))?;
        }
        for rv in known {
            check(&mut fed, rv)?;
        }
        prop_assert!(fed.history.checkpoints.counts().1 <= REBUILT);
    }
}

#[test]
fn young_events_stay_and_old_ones_go() {
    let mut fed = Fed::new(Limits { min_events: 2, ..LIMITS }, 10);
    for name in 0..5 {
        fed.change(1, name, false);
        fed.now += Duration::from_secs(10);
    }
    fed.history.evict(fed.now, u64::MAX);
    assert_eq!(fed.history.len(), 5);
    fed.now += Duration::from_secs(36);
    fed.history.evict(fed.now, u64::MAX);
    assert_eq!((fed.history.len(), fed.history.floor().0), (3, 12), "86, 76 s old");
    assert_eq!(fed.history.age(fed.now), Duration::from_secs(66));
    fed.now += Duration::from_secs(1000);
    fed.history.evict(fed.now, u64::MAX);
    assert_eq!(fed.history.len(), 2, "a quiet resource keeps its last events whatever their age");
}

#[test]
fn the_byte_budget_counts_what_only_the_window_holds() {
    let mut fed = Fed::new(LIMITS, 0);
    fed.change(1, 1, false);
    let bare = fed.history.bytes();
    fed.change(1, 1, false);
    let (last, replaced) = (plain("ns", "n1", 1), plain("ns", "n1", 2));
    let (last, replaced) = (last.size(), replaced.size_beside(&last).0);
    assert_eq!(fed.history.bytes(), 2 * bare + replaced);
    fed.change(1, 1, true);
    assert_eq!(fed.history.bytes(), 3 * bare + 2 * replaced + last);
    fed.history.limits.max_bytes = 2 * bare + replaced + last;
    fed.history.evict(fed.now, u64::MAX);
    assert_eq!((fed.history.len(), fed.history.bytes()), (1, bare + replaced + last));
}

#[test]
fn a_cut_closes_the_past_but_keeps_the_events() {
    let mut fed = Fed::new(LIMITS, 10);
    for name in 0..600 {
        fed.change(1, name, false);
    }
    assert_eq!(fed.history.checkpoints.counts().0, 2, "one for each 256 events");
    fed.at(30);
    assert_eq!(fed.history.checkpoints.counts().1, 1);
    let stale = fed.history.rebuild(ResourceVersion(20), &fed.store);
    fed.history.cut(ResourceVersion(700));
    fed.history.remember(&stale);
    assert_eq!(
        (fed.history.floor().0, fed.history.checkpoints.counts().0, fed.history.checkpoints.counts().1),
        (700, 0, 0)
    );
    let mut replayed = Vec::new();
    assert_eq!(fed.history.read(FIRST + 590, FIRST + 600, 100, &mut replayed), Ok(()));
    assert_eq!(replayed.len(), 10);
}

#[test]
fn after_a_cut_the_revision_of_the_list_is_known_until_a_later_event_is_evicted() {
    let mut fed = Fed::new(LIMITS, 10);
    for name in 0..200 {
        fed.change(1, name, false);
    }
    fed.history.cut(ResourceVersion(210));
    for name in 0..200 {
        fed.change(10, name, false);
    }
    assert_eq!((fed.history.checkpoints.counts().0, fed.history.list_rv.0), (0, 210));
    for (left, floor) in [(201, 210), (200, 210), (199, 229)] {
        fed.history.limits.max_events = left;
        fed.history.evict(fed.now, u64::MAX);
        assert_eq!((fed.history.len(), fed.history.floor().0), (left, floor));
        assert_eq!(fed.history.beginning().is_some(), left == 200, "no event of the gap, and none is missing");
    }
}

#[test]
fn a_reset_forgets_the_events_and_not_their_positions() {
    let mut fed = Fed::new(Limits { max_events: 3, max_bytes: 1 << 20, ..LIMITS }, 10);
    fed.change(1, 1, false);
    fed.change(1, 1, false);
    let (events, bytes) = (fed.history.len(), fed.history.bytes());
    assert!(fed.history.has_room(1, (1 << 20) - bytes));
    assert!(!fed.history.has_room(2, 0) && !fed.history.has_room(0, (1 << 20) - bytes + 1));
    fed.history.reset(ResourceVersion(5));
    assert_eq!((events, fed.history.len(), fed.history.bytes(), fed.history.plain_bytes()), (2, 0, 0, 0));
    assert_eq!((fed.history.floor().0, fed.history.head()), (5, FIRST + 2));
}

/// A pod of some 5 kB at a revision: what a kubelet changes in its status, and when it did.
fn pod(number: usize, rv: u64) -> Object {
    let time = format!("2026-03-{:02}T{:02}:{:02}:{:02}Z", rv % 28 + 1, rv % 24, rv % 60, rv * 7 % 60);
    let env = |part| {
        format!(
            r#"{{"name":"VARIABLE_{part}","value":"{:x}"}},"#,
            (number + part) as u128 * 0x9e37_79b9_7f4a_7c15_f39c_c060
        )
    };
    let env: String = (0..50).map(env).collect();
    let condition =
        |kind| format!(r#"{{"type":"{kind}","status":"{}","lastTransitionTime":"{time}"}}"#, rv.is_multiple_of(2));
    let text = format!(
        r#"{{"metadata":{{"name":"pod-{number:05}","namespace":"team","uid":"uid-{number}","resourceVersion":"{rv}","managedFields":[{{"manager":"kubelet","time":"{time}"}}]}},"spec":{{"nodeName":"node-1","env":[{env}0]}},"status":{{"conditions":[{},{}],"restartCount":{}}}}}"#,
        condition("Ready"),
        condition("ContainersReady"),
        rv % 40,
    );
    json::parse_item(text.as_bytes(), &FieldTable::default()).unwrap().0
}

#[tokio::test]
async fn the_default_window_has_room_for_7500_changes_a_second() {
    const PODS: usize = 100;
    const CHANGES: usize = 2000;
    let (mut writer, cache, mut dispatcher) = cache(|_| ());
    let pods = (0..PODS).map(|number| Arc::new(pod(number, number as u64 + 1))).collect();
    writer.replace(pods, ResourceVersion(1000)).await.unwrap();
    for change in 0..CHANGES {
        writer.apply(EventType::Modified, pod(change * 37 % PODS, 1001 + change as u64)).await.unwrap();
        dispatch(&mut dispatcher);
    }
    let (stats, config) = (cache.stats(), CacheConfig::new(Gvr::new("", "v1", "pods")));
    assert_eq!(stats.window_events, CHANGES);
    let (events, bytes) = (7500 * 75, stats.window_bytes / CHANGES);
    assert!(config.window_max_events >= events);
    assert!(config.window_max_bytes >= events * bytes, "{bytes} bytes for each");
}
