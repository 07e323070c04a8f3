//! Compares the cache with a simple model, under random changes, predicates, dispatcher lag, registration times,
//! relists and time. At every event and every bookmark, the replayed state of every watcher must be the model's list.

use std::collections::{BTreeMap, HashSet};
use std::task::Poll;
use std::time::Duration;

use proptest::prelude::*;

use super::dispatcher::Dispatcher;
use super::testing::*;
use super::*;
use crate::meta::{EventType, Object, ResourceVersion, Scope};
use crate::selector::Predicate;

/// The objects at one moment.
type State = BTreeMap<String, Arc<Object>>;

const NAMESPACES: [&str; 3] = ["a", "a-b", "b"];
const LABELS: [&[(&str, &str)]; 3] = [&[], &[("app", "db")], &[("app", "web")]];
const NODES: [&str; 3] = ["", "n1", "n2"];

#[derive(Clone, Debug)]
struct Change {
    gap: u64,
    namespace: usize,
    name: usize,
    labels: usize,
    node: usize,
    delete: bool,
}

#[derive(Clone, Debug)]
enum Op {
    Change(Change),
    /// Several objects are deleted at one revision, like events that expire.
    Expire(u64, Vec<(usize, usize)>),
    Progress(u64),
    Dispatch(usize),
    Watch {
        predicate: usize,
        start: Start,
        bookmarks: bool,
        initial_end: bool,
    },
    Poll {
        watcher: prop::sample::Index,
        count: usize,
    },
    Leave(prop::sample::Index),
    /// The changes are not seen as events.
    Relist(Vec<Change>),
    Rewind,
    Advance(u64),
    Sweep,
    ListAt(prop::sample::Index),
}

#[derive(Clone, Debug)]
enum Start {
    State,
    Now,
    After(prop::sample::Index),
    Future(u64),
}

/// The state of the apiserver, and its history as far as a reader may know it.
struct Model {
    rv: u64,
    state: State,
    /// The state from each revision on, since the last rewind of the store.
    past: BTreeMap<u64, State>,
    /// Revisions at which several objects were deleted.
    together: HashSet<u64>,
    /// The cache does not know states at revisions strictly between these.
    gaps: Vec<(u64, u64)>,
}

/// A client: the objects that it holds after all events that it received.
struct Client {
    watcher: CacheWatcher,
    predicate: Predicate,
    held: State,
    /// It has a state from its start on; a client that starts in the future has none until then.
    synced: bool,
    listing: bool,
    /// The revision of the last live item.
    last: u64,
    /// The last item was a deletion.
    deleted: bool,
    future: u64,
    generation: usize,
    ended: bool,
}

struct World {
    writer: Writer,
    cache: WatchCache,
    dispatcher: Dispatcher,
    model: Model,
    clients: Vec<Client>,
    generation: usize,
    /// The window is large enough. With a small window, clients may be ended as too slow, and old starts are refused.
    roomy: bool,
    bookmarks: usize,
}

fn change() -> impl Strategy<Value = Change> {
    (1..4_u64, 0..3_usize, 0..4_usize, 0..3_usize, 0..3_usize, prop::bool::weighted(0.3))
        .prop_map(|(gap, namespace, name, labels, node, delete)| Change { gap, namespace, name, labels, node, delete })
}

fn op() -> impl Strategy<Value = Op> {
    let start = prop_oneof![
        Just(Start::State),
        Just(Start::Now),
        any::<prop::sample::Index>().prop_map(Start::After),
        (1..6_u64).prop_map(Start::Future),
    ];
    prop_oneof![
        20 => change().prop_map(Op::Change),
        2 => (1..4_u64, prop::collection::vec((0..3_usize, 0..4_usize), 1..6))
            .prop_map(|(gap, keys)| Op::Expire(gap, keys)),
        2 => (0..4_u64).prop_map(Op::Progress),
        8 => (1..6_usize).prop_map(Op::Dispatch),
        6 => (0..predicates().len(), start, any::<bool>(), any::<bool>())
            .prop_map(|(predicate, start, bookmarks, initial_end)| Op::Watch { predicate, start, bookmarks, initial_end }),
        12 => (any::<prop::sample::Index>(), 1..8_usize).prop_map(|(watcher, count)| Op::Poll { watcher, count }),
        1 => any::<prop::sample::Index>().prop_map(Op::Leave),
        1 => prop::collection::vec(change(), 0..4).prop_map(Op::Relist),
        1 => Just(Op::Rewind),
        3 => (1..70_u64).prop_map(Op::Advance),
        1 => Just(Op::Sweep),
        3 => any::<prop::sample::Index>().prop_map(Op::ListAt),
    ]
}

fn predicates() -> Vec<Predicate> {
    let a = || Scope::namespace("a");
    vec![
        predicate(Scope::all(), "", ""),
        predicate(a(), "", ""),
        predicate(Scope::all(), "app=web", ""),
        predicate(a(), "app", ""),
        predicate(Scope::all(), "app notin (web)", ""),
        predicate(Scope::all(), "", "spec.nodeName=n1"),
        predicate(Scope::namespace("a-b"), "", "spec.nodeName=n2"),
        predicate(Scope::all(), "app=db", "spec.nodeName=n1"),
        predicate(Scope::all(), "", "spec.nodeName!=n1"),
        predicate(Scope::all(), "", "metadata.name=n1"),
        predicate(Scope::all(), "", "metadata.name=n1,metadata.namespace=b"),
        predicate(a(), "app=web", "metadata.name=n2"),
        predicate(a(), "", "metadata.namespace=b"),
    ]
}

fn select(state: &State, predicate: &Predicate) -> Vec<String> {
    names(state.values().filter(|object| predicate.matches(object)))
}

impl Model {
    fn new(rv: u64) -> Self {
        Self {
            rv,
            state: State::new(),
            past: BTreeMap::from([(rv, State::new())]),
            together: HashSet::new(),
            gaps: Vec::new(),
        }
    }

    /// The event that the apiserver would send, if there is one.
    fn change(&mut self, change: &Change) -> Option<(EventType, Object)> {
        let (namespace, name) = (NAMESPACES[change.namespace], format!("n{}", change.name));
        let key = format!("{namespace}/{name}");
        let rv = self.rv + change.gap;
        let new = || object(namespace, &name, rv, LABELS[change.labels], NODES[change.node]);
        let event = match (self.state.get(&key), change.delete) {
            (None, true) => return None,
            (Some(old), true) => {
                let raw = old.raw().unwrap();
                let last = Object::new(old.key.clone(), ResourceVersion(rv), old.attributes.clone(), raw);
                self.state.remove(&key);
                (EventType::Deleted, last)
            }
            (old, false) => {
                let kind = if old.is_some() { EventType::Modified } else { EventType::Added };
                self.state.insert(key, Arc::new(new()));
                (kind, new())
            }
        };
        self.rv = rv;
        self.past.insert(rv, self.state.clone());
        Some(event)
    }

    /// The events of objects that expire, all at one revision.
    fn expire(&mut self, gap: u64, keys: &[(usize, usize)]) -> Vec<Object> {
        let rv = self.rv + gap;
        let key = |(namespace, name): &(usize, usize)| format!("{}/n{name}", NAMESPACES[*namespace]);
        let gone: Vec<_> = keys.iter().filter_map(|at| self.state.remove(&key(at))).collect();
        if !gone.is_empty() {
            self.rv = rv;
            self.past.insert(rv, self.state.clone());
            self.together.insert(rv);
        }
        let at = ResourceVersion(rv);
        let last = |old: Arc<Object>| Object::new(old.key.clone(), at, old.attributes.clone(), old.raw().unwrap());
        gone.into_iter().map(last).collect()
    }

    fn at(&self, rv: u64) -> &State {
        self.past.range(..=rv).next_back().expect("a state of every revision asked for").1
    }

    fn known(&self, rv: u64) -> bool {
        !self.gaps.iter().any(|(from, to)| *from < rv && rv < *to)
    }
}

impl World {
    async fn new(window: usize) -> Self {
        let (mut writer, cache, dispatcher) = cache(|config| {
            config.window_max_events = window;
            config.window_min_events = window.min(100);
        });
        writer.replace(Vec::new(), ResourceVersion(10)).await.unwrap();
        let roomy = window > 1000;
        Self {
            writer,
            cache,
            dispatcher,
            model: Model::new(10),
            clients: Vec::new(),
            generation: 0,
            roomy,
            bookmarks: 0,
        }
    }

    async fn run(&mut self, op: Op) {
        match op {
            Op::Change(change) => {
                if let Some((kind, object)) = self.model.change(&change) {
                    self.writer.apply(kind, object).await.unwrap();
                }
            }
            Op::Expire(gap, keys) => {
                let expired = self.model.expire(gap, &keys);
                self.writer.delete_together(expired).await.unwrap();
            }
            Op::Progress(gap) => {
                self.model.rv += gap;
                assert!(self.writer.progress(ResourceVersion(self.model.rv)));
            }
            Op::Dispatch(events) => drop(self.dispatcher.step(events)),
            Op::Watch { predicate, start, bookmarks, initial_end } => {
                self.watch(&predicates()[predicate], &start, bookmarks, initial_end);
            }
            Op::Poll { watcher, count } if !self.clients.is_empty() => {
                let client = watcher.index(self.clients.len());
                for _ in 0..count {
                    self.poll(client);
                }
            }
            Op::Leave(client) if !self.clients.is_empty() => {
                let client = client.index(self.clients.len());
                self.clients.swap_remove(client);
            }
            Op::Relist(changes) => self.relist(&changes).await,
            Op::Rewind => {
                self.writer.not_ready("rewound");
                self.model = Model::new(10);
                self.generation += 1;
                self.writer.replace(Vec::new(), ResourceVersion(10)).await.unwrap();
            }
            Op::Advance(seconds) => tokio::time::advance(Duration::from_secs(seconds)).await,
            Op::Sweep => sweep(&mut self.dispatcher),
            Op::ListAt(index) => self.list_at(index),
            Op::Poll { .. } | Op::Leave(_) => {}
        }
        assert_eq!(self.cache.resource_version().0, self.model.rv);
    }

    fn floor(&self) -> u64 {
        self.cache.stats().window_floor.0
    }

    fn watch(&mut self, predicate: &Predicate, start: &Start, bookmarks: bool, initial_end: bool) {
        let rv = self.model.rv;
        let mut client = |start, held: State, synced, future| {
            let deadline = tokio::time::Instant::now() + Duration::from_secs(100_000);
            let spec = WatchSpec { predicate: predicate.clone(), start, bookmarks, initial_end, deadline };
            let watcher = self.cache.watch(spec).unwrap();
            let held = held.into_iter().filter(|(_, object)| predicate.matches(object)).collect();
            let (predicate, generation) = (predicate.clone(), self.generation);
            let listing = start == WatchStart::State;
            let last = if listing { rv } else { 0 };
            self.clients.push(Client {
                watcher,
                predicate,
                held,
                synced,
                listing,
                last,
                deleted: false,
                future,
                generation,
                ended: false,
            });
        };
        match start {
            Start::State => client(WatchStart::State, State::new(), true, 0),
            Start::Now => client(WatchStart::Now, self.model.state.clone(), true, 0),
            Start::Future(by) => client(WatchStart::After(ResourceVersion(rv + by)), State::new(), false, rv + by),
            Start::After(index) => {
                let floor = self.cache.stats().window_floor.0;
                let from = floor + index.index((rv - floor + 1) as usize) as u64;
                client(WatchStart::After(ResourceVersion(from)), self.model.at(from).clone(), true, 0);
                if floor > 0 {
                    let spec = spec(WatchStart::After(ResourceVersion(floor - 1)));
                    assert!(matches!(self.cache.watch(spec), Err(WatchError::TooOld { .. })));
                }
            }
        }
    }

    async fn relist(&mut self, changes: &[Change]) {
        let (before, old) = (self.model.rv, self.model.state.clone());
        for change in changes {
            self.model.change(change);
        }
        self.model.rv += 1;
        let now = self.model.state.clone();
        self.model.past.insert(self.model.rv, now.clone());
        self.model.gaps.push((before, self.model.rv));
        let deleted: Vec<_> = old.values().filter(|object| !now.contains_key(object.key.as_str())).cloned().collect();
        let open: HashSet<_> = (0..self.clients.len()).filter(|client| !self.clients[*client].ended).collect();
        let replaced = self.writer.replace(now.into_values().collect(), ResourceVersion(self.model.rv)).await.unwrap();
        assert_eq!(replaced.deleted, deleted.len());
        // Only the clients that hold a deleted object end.
        let mut ended = 0;
        for client in open.into_iter().map(|client| &self.clients[client]) {
            let closed = client.watcher.group().ring.lock().closed();
            if client.generation == self.generation && closed != Some(EndReason::Relisted) {
                assert!(closed.is_none() && !deleted.iter().any(|object| client.predicate.matches(object)));
            } else {
                ended += usize::from(closed == Some(EndReason::Relisted));
            }
        }
        assert!(ended >= replaced.ended);
        assert_eq!(replaced.continued, replaced.ended == 0);
    }

    fn list_at(&self, index: prop::sample::Index) {
        let (floor, rv) = (self.floor(), self.model.rv);
        let at = floor + index.index((rv - floor + 1) as usize) as u64;
        let snapshot = self.cache.snapshot_at(ResourceVersion(at)).unwrap();
        for predicate in predicates().into_iter().filter(|predicate| !predicate.matches_nothing()) {
            let listed = names(snapshot.range(&predicate.scope, None).filter(|object| predicate.matches(object)));
            assert_eq!(listed, select(self.model.at(at), &predicate), "list at {at}");
        }
    }

    /// Polls one item; false if there is none now.
    fn poll(&mut self, client: usize) -> bool {
        let Self { model, clients, generation, roomy, bookmarks, .. } = self;
        let client = &mut clients[client];
        match poll(&mut client.watcher) {
            Poll::Pending => return false,
            Poll::Ready(None) => {
                client.ended = true;
                match client.watcher.end_reason().unwrap() {
                    EndReason::TooSlow => assert!(!*roomy, "nothing leaves a roomy window unread"),
                    EndReason::Relisted | EndReason::Deadline => {}
                    EndReason::NotReady => assert!(client.generation < *generation),
                    other => panic!("{other:?}"),
                }
                return false;
            }
            Poll::Ready(Some(event)) => client.take(&event, model, *generation),
        }
        *bookmarks += 1;
        true
    }

    /// After everything was dispatched and read, the clients that are still open hold the present state.
    fn settle(&mut self) {
        dispatch(&mut self.dispatcher);
        for client in 0..self.clients.len() {
            for _ in 0..10_000 {
                if !self.poll(client) {
                    break;
                }
            }
            let client = &self.clients[client];
            if !client.ended && client.synced {
                assert_eq!(client.generation, self.generation);
                assert_eq!(names(client.held.values()), select(&self.model.state, &client.predicate));
            }
        }
        let open = self
            .clients
            .iter()
            .filter(|client| !client.ended && client.watcher.group().ring.lock().closed().is_none())
            .count();
        assert_eq!(self.cache.stats().watchers, open);
        self.clients.clear();
        assert_eq!((self.cache.stats().watchers, self.cache.stats().groups), (0, 0));
    }
}

impl Client {
    fn take(&mut self, event: &WatcherEvent, model: &Model, generation: usize) {
        let text = short(event);
        match event {
            WatcherEvent::Event { kind, object, rv } => {
                let key = object.key.as_str().to_owned();
                let at = rv.unwrap_or(object.rv).0;
                if self.listing && *kind == EventType::Added && at <= self.last && !self.held.contains_key(&key) {
                    assert!(self.held.keys().next_back().is_none_or(|last| *last < key), "{text} out of key order");
                    self.held.insert(key, object.clone());
                    return;
                }
                self.listing_ends(model, generation, &text);
                // Invariant 1.
                // The model forgets a past that was rewound.
                let known = generation != self.generation || model.together.contains(&at);
                let together = known && self.deleted && *kind == EventType::Deleted;
                assert!(at > self.last || at == self.last && together, "{text} after {}", self.last);
                assert!(at > self.future, "{text}");
                (self.last, self.deleted) = (at, *kind == EventType::Deleted);
                if !self.synced {
                    return;
                }
                // Invariant 3.
                let held = self.held.get(&key);
                assert_eq!(held.is_some(), *kind != EventType::Added, "{text}");
                match kind {
                    EventType::Deleted => {
                        if rv.is_some() {
                            assert_eq!(held.unwrap().rv, object.rv, "{text}: not the state that was last in it");
                        }
                        self.held.remove(&key);
                    }
                    _ => drop(self.held.insert(key, object.clone())),
                }
                // Other deletions of this revision may follow. Before a bookmark they must all be delivered.
                if !model.together.contains(&at) {
                    self.check(at, model, generation, &text);
                }
            }
            WatcherEvent::Bookmark { rv, initial_end } => {
                if *initial_end {
                    assert_eq!(rv.0, self.last, "{text}");
                }
                self.listing_ends(model, generation, &text);
                assert!(rv.0 >= self.last && rv.0 > self.future, "{text} after {}", self.last);
                (self.last, self.deleted) = (rv.0, false);
                if generation == self.generation {
                    assert!(model.known(rv.0), "{text} is inside a gap");
                }
                self.check(rv.0, model, generation, &text);
            }
            WatcherEvent::Error(_) => panic!("{text}"),
        }
    }

    fn listing_ends(&mut self, model: &Model, generation: usize, text: &str) {
        if std::mem::take(&mut self.listing) {
            self.check(self.last, model, generation, text);
        }
    }

    /// Invariant 2, and more: at every event.
    fn check(&self, rv: u64, model: &Model, generation: usize, text: &str) {
        if self.synced && generation == self.generation && model.known(rv) {
            assert_eq!(names(self.held.values()), select(model.at(rv), &self.predicate), "after {text}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 4000, ..ProptestConfig::default() })]
    #[test]
    fn every_watcher_replays_to_the_list_at_every_revision(
        ops in prop::collection::vec(op(), 1..250),
        roomy in prop::bool::weighted(0.7),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut world = World::new(if roomy { 100_000 } else { 7 }).await;
            for op in ops {
                world.run(op).await;
            }
            world.settle();
        });
    }
}
