//! Compares the cache with a simple model, under random changes, predicates, dispatcher lag, registration times,
//! relists and time. At every event and every bookmark, the replayed state of every watcher must be the model's list.
//!
//! The cache may be behind the apiserver, whose later states clients have seen elsewhere.

use std::collections::{HashSet, VecDeque};
use std::task::Poll;
use std::time::Duration;

use proptest::prelude::*;

use super::dispatcher::Dispatcher;
use super::model::*;
use super::testing::*;
use super::*;
use crate::meta::{EventType, Object, ResourceVersion};
use crate::selector::Predicate;

#[derive(Clone, Debug)]
enum Op {
    Change(Change),
    /// The cache does not hear of these yet.
    Unseen(Vec<Change>),
    /// The cache hears of so much.
    Hear(usize),
    /// The cache is told that the newest state is the one that it has, if it is.
    Confirm,
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
    /// A client begins another watch where its watch says that it is.
    Resume(prop::sample::Index),
    /// The changes, and those that are unseen, are never seen as events.
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
    /// After a state that the cache has not seen.
    Elsewhere(prop::sample::Index),
    /// After a state that does not exist yet.
    Future(u64),
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
    /// The revision that it named as its start.
    start: u64,
    /// The cache knows the state that it began with.
    known: bool,
    /// It has received the events up to this revision from an earlier watch, and may get them again.
    had: u64,
    generation: usize,
    ended: bool,
}

struct World {
    writer: Writer,
    cache: WatchCache,
    dispatcher: Dispatcher,
    model: Model,
    /// What the cache has not heard yet.
    unseen: VecDeque<Sent>,
    /// The revision that the cache has seen.
    seen: u64,
    clients: Vec<Client>,
    generation: usize,
    /// The window is large enough. With a small window, clients may be ended as too slow, and old starts are refused.
    roomy: bool,
}

fn op() -> impl Strategy<Value = Op> {
    let start = prop_oneof![
        Just(Start::State),
        Just(Start::Now),
        any::<prop::sample::Index>().prop_map(Start::After),
        any::<prop::sample::Index>().prop_map(Start::Elsewhere),
        (1..6_u64).prop_map(Start::Future),
    ];
    prop_oneof![
        20 => change().prop_map(Op::Change),
        6 => bustle(4).prop_map(Op::Unseen),
        3 => (1..3_usize).prop_map(Op::Hear),
        2 => Just(Op::Confirm),
        2 => (1..4_u64, prop::collection::vec((0..3_usize, 0..4_usize), 1..6))
            .prop_map(|(gap, keys)| Op::Expire(gap, keys)),
        2 => (0..4_u64).prop_map(Op::Progress),
        8 => (1..6_usize).prop_map(Op::Dispatch),
        8 => (0..predicates().len(), start, any::<bool>(), any::<bool>())
            .prop_map(|(predicate, start, bookmarks, initial_end)| Op::Watch { predicate, start, bookmarks, initial_end }),
        12 => (any::<prop::sample::Index>(), 1..8_usize).prop_map(|(watcher, count)| Op::Poll { watcher, count }),
        1 => any::<prop::sample::Index>().prop_map(Op::Leave),
        3 => any::<prop::sample::Index>().prop_map(Op::Resume),
        2 => bustle(6).prop_map(Op::Relist),
        1 => Just(Op::Rewind),
        3 => (1..70_u64).prop_map(Op::Advance),
        1 => Just(Op::Sweep),
        3 => any::<prop::sample::Index>().prop_map(Op::ListAt),
    ]
}

impl World {
    async fn new(window: usize) -> Self {
        let (mut writer, cache, dispatcher) = cache(|config| {
            config.window_max_events = window;
            config.window_min_events = window.min(100);
        });
        writer.replace(Vec::new(), ResourceVersion(10)).await.unwrap();
        let (model, roomy) = (Model::new(10), window > 1000);
        let (unseen, clients) = Default::default();
        Self { writer, cache, dispatcher, model, unseen, seen: 10, clients, generation: 0, roomy }
    }

    async fn run(&mut self, op: Op) {
        match op {
            Op::Change(change) => {
                self.unseen.extend(self.model.change(&change));
                self.hear(usize::MAX).await;
            }
            Op::Unseen(changes) => {
                for change in changes {
                    self.unseen.extend(self.model.change(&change));
                }
            }
            Op::Hear(most) => self.hear(most).await,
            Op::Confirm => self.confirm(),
            Op::Expire(gap, keys) => {
                self.unseen.push_back(self.model.expire(gap, &keys));
                self.hear(usize::MAX).await;
            }
            Op::Progress(gap) => {
                self.model.rv += gap;
                self.unseen.push_back(Sent::Progress(self.model.rv));
                self.hear(usize::MAX).await;
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
            Op::Resume(client) if !self.clients.is_empty() => self.resume(client.index(self.clients.len())),
            Op::Relist(changes) => self.relist(&changes).await,
            Op::Rewind => {
                self.writer.not_ready("rewound");
                self.model = Model::new(10);
                (self.unseen, self.seen) = (VecDeque::new(), 10);
                self.generation += 1;
                self.writer.replace(Vec::new(), ResourceVersion(10)).await.unwrap();
            }
            Op::Advance(seconds) => tokio::time::advance(Duration::from_secs(seconds)).await,
            Op::Sweep => sweep(&mut self.dispatcher),
            Op::ListAt(index) => self.list_at(index),
            Op::Poll { .. } | Op::Leave(_) | Op::Resume(_) => {}
        }
        assert_eq!(self.cache.resource_version().0, self.seen);
    }

    async fn hear(&mut self, most: usize) {
        for _ in 0..most {
            match self.unseen.pop_front() {
                None => return,
                Some(Sent::Event(kind, object)) => self.writer.apply(kind, object).await.unwrap(),
                Some(Sent::Together(objects)) => self.writer.delete_together(objects).await.unwrap(),
                Some(Sent::Progress(rv)) => assert!(self.writer.progress(ResourceVersion(rv))),
            }
            self.seen = self.writer.resource_version().0;
        }
    }

    fn confirm(&mut self) {
        let snapshot = self.cache.snapshot().unwrap();
        if names(snapshot.store().iter()) == names(self.model.state.values()) {
            assert!(self.cache.confirm(&snapshot, ResourceVersion(self.model.rv), Order::now()));
            self.model.confirmed.insert(self.model.rv);
        }
    }

    fn floor(&self) -> u64 {
        self.cache.stats().window_floor.0
    }

    fn watch(&mut self, predicate: &Predicate, start: &Start, bookmarks: bool, initial_end: bool) {
        let (floor, seen, newest, now) = (self.floor(), self.seen, self.cache.newest().0, self.model.rv);
        let deadline = tokio::time::Instant::now() + Duration::from_secs(100_000);
        let after = |rv| (WatchStart::After(ResourceVersion(rv)), rv);
        let (start, rv) = match start {
            Start::State => (WatchStart::State, newest),
            Start::Now => (WatchStart::Now, newest),
            Start::Future(by) => after(now + by),
            Start::After(index) => after(floor + index.index((seen - floor + 1) as usize) as u64),
            Start::Elsewhere(index) => after(seen + index.index((now - seen + 1) as usize) as u64),
        };
        let asked = WatchSpec { predicate: predicate.clone(), start, bookmarks, initial_end, deadline };
        let watcher = self.cache.watch(asked).unwrap();
        if floor > 0 {
            let spec = spec(WatchStart::After(ResourceVersion(floor - 1)));
            assert!(matches!(self.cache.watch(spec), Err(WatchError::TooOld { .. })));
        }
        let (listing, synced) = (start == WatchStart::State, rv <= now);
        let held = if synced && !listing { select(self.model.at(rv), predicate) } else { State::new() };
        self.clients.push(Client {
            watcher,
            predicate: predicate.clone(),
            held,
            synced,
            listing,
            last: if listing { rv } else { 0 },
            deleted: false,
            start: if matches!(start, WatchStart::After(_)) { rv } else { 0 },
            known: rv <= seen || self.model.confirmed.contains(&rv),
            had: 0,
            generation: self.generation,
            ended: false,
        });
    }

    /// Whatever the client has received meanwhile, nothing is lost.
    fn resume(&mut self, client: usize) {
        let client = &self.clients[client];
        let rv = client.watcher.complete();
        if client.generation != self.generation || !client.synced || rv.0 < self.floor() || rv.is_zero() {
            return;
        }
        let start = WatchStart::After(rv);
        let watcher = self.cache.watch(WatchSpec { predicate: client.predicate.clone(), ..spec(start) }).unwrap();
        self.clients.push(Client {
            watcher,
            predicate: client.predicate.clone(),
            held: client.held.clone(),
            synced: true,
            listing: false,
            last: rv.0,
            deleted: false,
            start: rv.0,
            known: rv.0 <= self.seen || self.model.confirmed.contains(&rv.0),
            had: client.last.max(client.had),
            generation: self.generation,
            ended: false,
        });
    }

    async fn relist(&mut self, changes: &[Change]) {
        self.unseen.clear();
        let (seen, old) = (self.seen, self.model.at(self.seen).clone());
        for change in changes {
            self.model.change(change);
        }
        self.model.rv += 1;
        let (rv, now) = (self.model.rv, self.model.state.clone());
        self.model.past.insert(rv, now.clone());
        self.model.gaps.push((seen, rv));
        let uid = |object: &Object| object.attributes.uid().to_owned();
        let is_gone = |old: &Object| now.get(old.key.as_str()).is_none_or(|now| uid(now) != uid(old));
        let deleted: Vec<_> = old.values().filter(|object| is_gone(object)).cloned().collect();
        let open: HashSet<_> = (0..self.clients.len()).filter(|client| !self.clients[*client].ended).collect();
        let replaced = self.writer.replace(now.values().cloned().collect(), ResourceVersion(rv)).await.unwrap();
        assert_eq!(replaced.deleted, deleted.len());
        // Only the clients end that hold a deleted object, or began with a state that the cache will never know.
        let mut ended = 0;
        for client in open.into_iter().map(|client| &self.clients[client]) {
            let end = client.watcher.ended();
            if client.generation == self.generation && end != Some(EndReason::Relisted) {
                assert!(end.is_none() && !deleted.iter().any(|object| client.predicate.matches(object)));
                assert!(client.known || client.start <= seen || client.start >= rv, "{} to {rv}", client.start);
            } else {
                ended += usize::from(end == Some(EndReason::Relisted));
            }
        }
        assert!(ended >= replaced.ended);
        assert_eq!(replaced.continued, replaced.ended == 0);
        self.seen = rv;
    }

    fn list_at(&self, index: prop::sample::Index) {
        let (floor, rv) = (self.floor(), self.seen);
        let at = floor + index.index((rv - floor + 1) as usize) as u64;
        let snapshot = self.cache.snapshot_at(ResourceVersion(at)).unwrap();
        for predicate in predicates().into_iter().filter(|predicate| !predicate.matches_nothing()) {
            let listed = names(snapshot.range(&predicate.scope, None).filter(|object| predicate.matches(object)));
            assert_eq!(listed, names(select(self.model.at(at), &predicate).values()), "list at {at}");
        }
    }

    /// Polls one item; false if there is none now.
    fn poll(&mut self, client: usize) -> bool {
        let Self { model, clients, generation, roomy, .. } = self;
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
        true
    }

    /// After everything was heard, dispatched and read, the clients that are still open hold the present state.
    async fn settle(&mut self) {
        self.hear(usize::MAX).await;
        dispatch(&mut self.dispatcher);
        for client in 0..self.clients.len() {
            for _ in 0..10_000 {
                if !self.poll(client) {
                    break;
                }
            }
            let client = &mut self.clients[client];
            client.sync(&self.model, self.generation);
            if !client.ended && client.synced {
                assert_eq!(client.generation, self.generation);
                let selected = select(&self.model.state, &client.predicate);
                assert_eq!(names(client.held.values()), names(selected.values()));
            }
        }
        let open = self.clients.iter().filter(|client| !client.ended && client.watcher.ended().is_none()).count();
        assert_eq!(self.cache.stats().watchers, open);
        self.clients.clear();
        assert_eq!((self.cache.stats().watchers, self.cache.stats().groups), (0, 0));
    }
}

impl Client {
    fn take(&mut self, event: &WatcherEvent, model: &Model, generation: usize) {
        let text = short(event);
        self.sync(model, generation);
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
                assert!(at > self.start, "{text}");
                (self.last, self.deleted) = (at, *kind == EventType::Deleted);
                if !self.synced {
                    return;
                }
                // Invariant 3.
                let held = self.held.get(&key);
                assert!(held.is_some() == (*kind != EventType::Added) || at <= self.had, "{text}");
                match kind {
                    EventType::Deleted => {
                        if rv.is_some() && at > self.had {
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
                assert!(rv.0 >= self.last && rv.0 > self.start, "{text} after {}", self.last);
                (self.last, self.deleted) = (rv.0, false);
                if generation == self.generation {
                    assert!(model.known(rv.0), "{text} is inside a gap");
                }
                self.check(rv.0, model, generation, &text);
            }
            WatcherEvent::Error(_) => panic!("{text}"),
        }
    }

    /// The future that it began in has come: it has the state of that revision from elsewhere.
    fn sync(&mut self, model: &Model, generation: usize) {
        if !self.synced && generation == self.generation && model.rv >= self.start {
            self.held = select(model.at(self.start), &self.predicate);
            self.synced = true;
        }
    }

    fn listing_ends(&mut self, model: &Model, generation: usize, text: &str) {
        if std::mem::take(&mut self.listing) {
            self.check(self.last, model, generation, text);
        }
    }

    /// Invariant 2, and more: at every event.
    fn check(&self, rv: u64, model: &Model, generation: usize, text: &str) {
        if self.synced && generation == self.generation && model.known(rv) && rv >= self.had {
            let selected = select(model.at(rv), &self.predicate);
            assert_eq!(names(self.held.values()), names(selected.values()), "after {text}");
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
            world.settle().await;
        });
    }
}
