use proptest::prelude::*;

use super::*;
use crate::cache::testing::{names, plain};

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
        prop_assert!(fed.history.rebuilt.len() <= REBUILT);
    }
}

#[test]
fn the_floor_is_the_list_until_an_event_is_evicted() {
    let mut fed = Fed::new(Limits { max_events: 2, ..LIMITS }, 10);
    assert_eq!(fed.history.floor().0, 10);
    fed.change(5, 1, false);
    fed.change(5, 2, false);
    assert_eq!(fed.history.floor().0, 10);
    fed.change(5, 3, false);
    assert_eq!(fed.history.floor().0, 19, "the oldest event is 20");
}

#[test]
fn young_events_stay_and_old_ones_go() {
    let mut fed = Fed::new(Limits { min_events: 2, ..LIMITS }, 10);
    for name in 0..5 {
        fed.change(1, name, false);
        fed.now += Duration::from_secs(10);
    }
    assert!(!fed.history.evict(fed.now, u64::MAX));
    fed.now += Duration::from_secs(36);
    assert!(fed.history.evict(fed.now, u64::MAX), "86, 76 s old");
    assert_eq!((fed.history.len(), fed.history.floor().0), (3, 12));
    fed.now += Duration::from_secs(1000);
    fed.history.evict(fed.now, u64::MAX);
    assert_eq!(fed.history.len(), 2, "a quiet resource keeps its last events whatever their age");
}

#[test]
fn nothing_undispatched_is_evicted() {
    let mut fed = Fed::new(LIMITS, 0);
    for name in 0..10 {
        fed.change(1, name, false);
    }
    fed.history.limits.max_events = 1;
    fed.history.evict(fed.now, FIRST + 4);
    assert_eq!((fed.history.len(), fed.history.first), (6, FIRST + 4));
    fed.history.evict(fed.now, FIRST + 10);
    assert_eq!(fed.history.len(), 1);
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
    assert!(fed.history.checkpoints() > 0);
    fed.at(30);
    assert_eq!(fed.history.rebuilt.len(), 1);
    let stale = fed.history.rebuild(ResourceVersion(20), &fed.store);
    fed.history.cut(ResourceVersion(700));
    fed.history.remember(&stale);
    assert_eq!((fed.history.floor().0, fed.history.checkpoints(), fed.history.rebuilt.len()), (700, 0, 0));
    let mut replayed = Vec::new();
    assert_eq!(fed.history.read(FIRST + 590, FIRST + 600, 100, &mut replayed), Ok(()));
    assert_eq!(replayed.len(), 10);
    fed.history.limits.max_events = 0;
    fed.history.evict(fed.now, u64::MAX);
    assert_eq!(fed.history.floor().0, 700, "events before the list never were deliverable");
    assert_eq!(fed.history.read(FIRST + 590, FIRST + 600, 100, &mut replayed), Err(Passed));
}
