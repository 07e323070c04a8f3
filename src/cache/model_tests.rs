//! Compares the cache with a simple model, to the byte, under random changes, predicates, dispatcher lag, registration
//! times, lists, proofs, restarts and time. No state is left out: each client is judged at every item, whenever it waits,
//! at its end, and by what it claims to have.
//!
//! The cache may be behind the apiserver, whose later states clients have seen elsewhere.

use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use tokio::time::{Instant, advance};

use super::dispatcher::Dispatcher;
use super::model::*;
use super::model_client::Client;
use super::model_ops::*;
use super::testing::*;
use super::*;
use crate::meta::{EventType, Object, ResourceVersion};
use crate::packing::PackingForm;

struct World {
    writer: Writer,
    cache: WatchCache,
    dispatcher: Dispatcher,
    /// One for each history that the store has had. The last one is the present one.
    truths: Vec<Model>,
    /// How much of the present log the cache has heard, and the revision that it has seen.
    heard: usize,
    seen: u64,
    /// The revisions ahead of the events that the cache was told of.
    confirmed: HashSet<u64>,
    backfill: Option<(Backfill, bool)>,
    clients: Vec<Client>,
    /// With a small window, clients may be ended as too slow, and old starts are refused.
    window: usize,
    packed: bool,
}

fn begin(window: usize, packed: bool) -> (Writer, WatchCache, Dispatcher) {
    cache(|config| {
        config.window_max_events = window;
        config.window_min_events = window.min(100);
        config.form = packed.then_some(PackingForm::Packed);
    })
}

impl World {
    async fn new(window: usize, packed: bool) -> Self {
        let (mut writer, cache, dispatcher) = begin(window, packed);
        writer.replace(Vec::new(), ResourceVersion(10)).await.unwrap();
        let (truths, confirmed) = (vec![Model::new(10)], HashSet::new());
        let (heard, seen, backfill, clients) = (0, 10, None, Vec::new());
        Self { writer, cache, dispatcher, truths, heard, seen, confirmed, backfill, clients, window, packed }
    }

    fn truth(&mut self) -> &mut Model {
        self.truths.last_mut().unwrap()
    }

    async fn run(&mut self, op: Op) {
        let client = |index: Index, world: &Self| (!world.clients.is_empty()).then(|| index.index(world.clients.len()));
        match op {
            Op::Change(change) => {
                self.truth().change(&change);
                self.hear(usize::MAX).await;
            }
            Op::Unseen(changes) => changes.iter().for_each(|change| self.truth().change(change)),
            Op::Passing(confirmed) => {
                for delete in [false, true] {
                    let change = Change { gap: 1, namespace: 0, name: 4, labels: 2, node: 1, delete };
                    self.truth().change(&change);
                }
                if confirmed {
                    self.confirm();
                }
            }
            Op::Hear(most) => self.hear(most).await,
            Op::Confirm => self.confirm(),
            Op::Expire { gap, keys, part } => {
                self.hear(usize::MAX).await;
                self.truth().expire(gap, &keys);
                if let Some(part) = part {
                    dispatch(&mut self.dispatcher);
                    self.hear(usize::MAX).await;
                    self.dispatcher.step(part);
                    self.poll_all();
                }
                self.hear(usize::MAX).await;
            }
            Op::Progress(gap) => {
                self.truth().progress(gap);
                self.hear(usize::MAX).await;
            }
            Op::Proved(gap) => {
                self.hear(usize::MAX).await;
                self.truth().progress(gap);
                (self.heard, self.seen) = (self.truth().log.len(), self.truth().rv);
                self.writer.progress_proved(ResourceVersion(self.seen), Order::now());
            }
            Op::Dispatch(events) => drop(self.dispatcher.step(events)),
            Op::Watch { predicate, start, bookmarks, initial_end, seconds } => {
                let deadline = Instant::now() + Duration::from_secs(seconds.unwrap_or(100_000));
                let (start, rv) = self.start(&start);
                let predicate = predicates().swap_remove(predicate);
                self.watch(&WatchSpec { predicate, start, bookmarks, initial_end, deadline }, rv);
            }
            Op::Poll { watcher, count } => {
                let Some(client) = client(watcher, self) else { return };
                (0..count).for_each(|_| _ = self.poll(client));
            }
            Op::Leave(index) => drop(client(index, self).map(|client| self.clients.swap_remove(client))),
            Op::Resume { client: index, by_claim } => {
                let Some(client) = client(index, self) else { return };
                self.resume(client, by_claim);
            }
            Op::End(index, last_bookmark) => {
                let Some(client) = client(index, self) else { return };
                self.clients[client].watcher.end(last_bookmark);
                self.clients[client].drain(last_bookmark);
            }
            Op::Relist { changes, gap, rewritten } => self.relist(&changes, gap, rewritten).await,
            Op::Rewind(to) => self.rewind(to).await,
            Op::Restart(saved) => self.restart(saved).await,
            Op::Backfill(from) => {
                let (first, floor) = (self.truth().first, self.floor());
                let from = first + from.index((floor - first + 1) as usize) as u64;
                self.backfill = self.cache.backfill(ResourceVersion(from)).map(|backfill| (backfill, true));
            }
            Op::Backfilled => self.backfilled(),
            Op::Advance(seconds) => advance(Duration::from_secs(seconds)).await,
            Op::Sweep => sweep(&mut self.dispatcher),
            Op::ListAt(index) => {
                let (floor, rv) = (self.floor(), self.seen);
                let at = floor + index.index((rv - floor + 1) as usize) as u64;
                self.list_at(at);
                self.list_ahead();
            }
        }
        self.judge_readers();
    }

    /// What a list without a revision shows, and what is said of it.
    fn judge_readers(&self) {
        let truth = self.truths.last().unwrap();
        assert_eq!((self.cache.resource_version().0, self.writer.resource_version().0), (self.seen, self.seen));
        let snapshot = self.cache.snapshot().unwrap();
        assert_eq!(snapshot.rv(), self.cache.newest());
        assert_same(snapshot.store().iter(), truth.at(snapshot.rv().0), "a list");
        let (from, to, _) = self.cache.quiet_since().unwrap();
        assert_same(truth.at(from.0).values(), truth.at(to.0), "it is not quiet");
    }

    fn list_at(&self, at: u64) {
        let snapshot = self.cache.snapshot_at(ResourceVersion(at)).unwrap();
        for predicate in predicates().into_iter().filter(|predicate| !predicate.matches_nothing()) {
            let listed = snapshot.range(&predicate.scope, None).filter(|object| predicate.matches(object));
            assert_same(listed, &select(self.truths.last().unwrap().at(at), &predicate), "a list at a revision");
        }
    }

    /// The states that were confirmed are known, and no others.
    fn list_ahead(&self) {
        let truth = self.truths.last().unwrap();
        for at in self.seen + 1..=truth.rv {
            let listed = self.cache.snapshot_at(ResourceVersion(at)).ok();
            assert_eq!(listed.is_some(), self.confirmed.contains(&at), "{at}");
            listed.inspect(|listed| assert_same(listed.store().iter(), truth.at(at), "a confirmed list"));
        }
    }

    async fn hear(&mut self, most: usize) {
        let Self { writer, truths, heard, .. } = self;
        for (rv, sent) in truths.last().unwrap().log.iter().skip(*heard).take(most) {
            match sent {
                // What the cache holds tells whether it is new.
                Sent::Event(EventType::Added | EventType::Modified, object) => {
                    let kind = [EventType::Added, EventType::Modified][(*rv % 2) as usize];
                    writer.apply(kind, copy(object)).await.unwrap();
                }
                Sent::Event(EventType::Deleted, object) => {
                    writer.apply(EventType::Deleted, copy(object)).await.unwrap();
                }
                Sent::Together(objects) => {
                    let (objects, sure) = (objects.iter().map(|object| copy(object)).collect(), rv.is_multiple_of(2));
                    writer.delete_together(objects, sure).await.unwrap();
                }
                Sent::Progress if rv.is_multiple_of(2) && *rv > writer.resource_version().0 => {
                    writer.apply(EventType::Deleted, plain("a", "nobody-has-it", *rv)).await.unwrap();
                }
                Sent::Progress => assert!(writer.progress(ResourceVersion(*rv))),
            }
            *heard += 1;
        }
        self.seen = self.writer.resource_version().0;
    }

    fn confirm(&mut self) {
        let (snapshot, truth) = (self.cache.snapshot().unwrap(), self.truths.last().unwrap());
        if names(snapshot.store().iter()) == names(truth.state.values()) {
            assert!(self.cache.confirm(&snapshot, ResourceVersion(truth.rv), Order::now()));
            self.confirmed.insert(truth.rv);
        }
    }

    fn floor(&self) -> u64 {
        self.cache.stats().window_floor.0
    }

    fn start(&mut self, start: &Start) -> (WatchStart, u64) {
        let (floor, seen, newest, now) = (self.floor(), self.seen, self.cache.newest().0, self.truth().rv);
        let after = |rv| (WatchStart::After(ResourceVersion(rv)), rv);
        match start {
            Start::State => (WatchStart::State, newest),
            Start::Now => (WatchStart::Now, newest),
            Start::Future(by) => after(now + by),
            Start::Confirmed(index) => {
                let ahead: Vec<_> = (seen..=now).filter(|at| *at == seen || self.confirmed.contains(at)).collect();
                after(*index.get(&ahead))
            }
            Start::After(index) => after(floor + index.index((seen - floor + 1) as usize) as u64),
            Start::Elsewhere(index) => after(seen + index.index((now - seen + 1) as usize) as u64),
        }
    }

    fn watch(&mut self, spec: &WatchSpec, rv: u64) -> &mut Client {
        let watcher = self.cache.watch(spec.clone()).unwrap();
        let before = WatchStart::After(ResourceVersion(self.floor() - 1));
        assert!(matches!(
            self.cache.watch(WatchSpec { start: before, ..spec.clone() }),
            Err(WatchError::TooOld { .. })
        ));
        let mut client = Client::new(watcher, spec, &self.cache, self.truths.len() - 1, rv);
        client.known = rv <= self.seen || self.confirmed.contains(&rv);
        self.clients.push(client);
        self.clients.last_mut().unwrap()
    }

    /// Whatever the client has received meanwhile, nothing is lost. If the apiserver has only written its objects otherwise,
    /// its history goes on.
    fn resume(&mut self, client: usize, by_claim: bool) {
        let (before, epoch, truth) = (&self.clients[client], self.truths.len() - 1, self.truths.last().unwrap());
        let goes_on = before.epoch == epoch
            || before.epoch + 1 == epoch && truth.goes_on && before.ended == Some(EndReason::Relisted);
        let is_cut_short = before.ended.is_none() && before.complete() < before.position;
        let position = before.position.filter(|_| !is_cut_short);
        // After other ends, a token says nothing.
        let has_token = matches!(before.ended, None | Some(EndReason::Deadline | EndReason::Drained));
        let from = if by_claim { before.complete().filter(|_| has_token) } else { position };
        let Some(rv) = from.filter(|rv| goes_on && *rv >= self.floor()) else { return };
        let (predicate, kept) = (before.predicate.clone(), before.kept());
        self.watch(&WatchSpec { predicate, ..spec(WatchStart::After(ResourceVersion(rv))) }, rv).with(kept);
    }

    fn current(&mut self) -> impl Iterator<Item = &mut Client> {
        let generation = self.cache.shared();
        self.clients.iter_mut().filter(move |client| {
            Arc::ptr_eq(&client.cache.shared(), &generation) && client.ended.is_none() && client.is_closed.is_none()
        })
    }

    async fn relist(&mut self, changes: &[Change], gap: u64, rewritten: bool) {
        let from = self.seen;
        let old = self.truth().at(from).clone();
        changes.iter().for_each(|change| self.truth().change(change));
        if gap > 0 {
            self.truth().progress(gap);
        }
        let stays = |(key, old): (&String, &Arc<_>)| {
            self.truths.last().unwrap().state.get(key).is_some_and(|now| is_same(Some(now), Some(old)))
        };
        let is_rewritten = rewritten && old.iter().any(stays);
        if is_rewritten {
            let truth = self.truth().rewritten();
            self.truths.push(truth);
        }
        let (to, list) = (self.truth().rv, self.truth().state.clone());
        let gap = Rc::new(Gap { from, to, old, list });
        let uid = |object: &Object| object.attributes.uid().to_owned();
        let is_gone = |old: &&Arc<Object>| gap.list.get(old.key.as_str()).is_none_or(|now| uid(now) != uid(old));
        let gone: Vec<_> = gap.old.values().filter(is_gone).collect();
        let listed = gap.list.values().map(|object| self.writer.known(copy(object)).unwrap_or_else(Arc::new)).collect();
        let replaced = self.writer.replace(listed, ResourceVersion(to)).await.unwrap();
        assert_eq!((replaced.deleted, replaced.continued), (gone.len(), replaced.ended == 0 && !is_rewritten));
        // Only the clients end that hold a deleted object, or began with a state that the cache will never know.
        let mut ended = 0;
        for client in self.current() {
            let lacks = gone.iter().any(|object| client.predicate.matches(object));
            let is_lost = !client.known && from < client.start && client.start < to;
            client.is_closed = (is_rewritten || lacks || is_lost).then_some(EndReason::Relisted);
            assert_eq!(client.watcher.ended(), client.is_closed, "from {} through {from} to {to}", client.start);
            ended += usize::from(client.is_closed.is_some());
            if client.is_closed.is_none() {
                client.relisted(&gap);
            }
        }
        assert!(replaced.ended >= ended);
        (self.seen, self.heard) = (to, self.truth().log.len());
        self.moved(to > from || is_rewritten);
    }

    /// The window is another one by now, and what was confirmed is of the past.
    fn moved(&mut self, moved: bool) {
        if let Some((_, stays)) = &mut self.backfill {
            *stays &= !moved;
        }
        if moved {
            self.confirmed.clear();
        }
    }

    /// Readers and clients were given up for this reason.
    fn given_up(&mut self, reason: EndReason) {
        self.current().for_each(|client| client.is_closed = Some(reason));
        self.moved(true);
    }

    async fn rewind(&mut self, to: Index) {
        let (before, asked) = (self.cache.snapshot().unwrap(), Order::now());
        self.writer.rewound("rewound");
        self.given_up(EndReason::NotReady);
        assert!(self.cache.snapshot().is_none() && self.cache.watch(spec(WatchStart::Now)).is_err());
        let truth = self.truth();
        let back = to.index(2 * (truth.rv - truth.first + 1) as usize) as u64;
        if truth.first + back < truth.rv {
            let truth = truth.rewound(truth.first + back);
            self.truths.push(truth);
        }
        self.list().await;
        let now = self.cache.snapshot().unwrap();
        for snapshot in [before, now] {
            assert!(!self.cache.confirm(&snapshot, ResourceVersion(self.seen + 1), asked), "of before");
        }
    }

    async fn list(&mut self) {
        let truth = self.truths.last().unwrap();
        let list = truth.state.values().map(|object| Arc::new(copy(object))).collect();
        self.writer.replace(list, ResourceVersion(truth.rv)).await.unwrap();
        (self.seen, self.heard) = (truth.rv, truth.log.len());
    }

    async fn restart(&mut self, saved: Option<Index>) {
        let (mut recorder, state) = self.cache.record().unwrap();
        let recorded = recorder.read(usize::MAX).unwrap();
        let (writer, cache, dispatcher) = begin(self.window, self.packed);
        let (before, _) =
            (std::mem::replace(&mut self.writer, writer), std::mem::replace(&mut self.dispatcher, dispatcher));
        self.given_up(EndReason::Stopped);
        drop(before);
        self.cache = cache;
        // It may have had another state before.
        self.writer.replace(Vec::new(), ResourceVersion(1 << 40)).await.unwrap();
        self.writer.not_ready("given up");
        let Some(saved) = saved else { return self.list().await };
        let mut restoration = self.writer.restoration();
        let encoding = crate::meta::Encoding::Json;
        let style = crate::codec::json::Style::Stripped;
        restoration.set_form(crate::codec::Form::new(encoding, style, "v1", "Pod", "PodList"));
        state.store().iter().for_each(|object| restoration.insert(copy(object)).unwrap());
        restoration.begin(state.rv(), state.len()).unwrap();
        // The file may end anywhere after the state.
        let count = saved.index(recorded.events.len() + 2);
        recorded.events.iter().take(count).for_each(|event| restoration.push(event.kind, copy(&event.object)).unwrap());
        if let Some(rv) = recorded.rv.filter(|_| count > recorded.events.len()) {
            restoration.progress(rv);
        }
        restoration.finish();
        self.writer.restore(restoration).unwrap();
        self.seen = self.writer.resource_version().0;
        let seen = self.seen;
        self.heard = self.truth().log.partition_point(|(rv, _)| *rv <= seen);
    }

    fn backfilled(&mut self) {
        let Some((mut backfill, stays)) = self.backfill.take() else { return };
        let (truth, from, until) = (self.truths.last().unwrap(), backfill.from().0, backfill.until().0);
        let mut fill = || {
            for (_, sent) in truth.log.iter().filter(|(rv, _)| from < *rv && *rv <= until) {
                match sent {
                    Sent::Event(kind, object) => backfill.push(*kind, copy(object))?,
                    Sent::Together(objects) => {
                        objects
                            .iter()
                            .try_for_each(|object| backfill.push(crate::meta::EventType::Deleted, copy(object)))?;
                    }
                    Sent::Progress => {}
                }
            }
            truth.at(from.clamp(truth.first, truth.rv)).values().try_for_each(|object| backfill.was(copy(object)))
        };
        let filled = fill().and_then(|()| backfill.finish());
        let is_odd = !stays || self.window < 1000 || (from + 1..=until).any(|rv| truth.together.contains(&rv));
        assert!(filled.map_or(is_odd, |_| stays), "{filled:?}");
        if filled.is_ok() {
            assert_eq!(self.floor(), from);
        }
    }

    /// Polls one item; false if there is none now.
    fn poll(&mut self, client: usize) -> bool {
        let Self { truths, clients, .. } = self;
        let client = &mut clients[client];
        client.poll(&truths[client.epoch])
    }

    fn poll_all(&mut self) {
        for client in 0..self.clients.len() {
            assert!((0..10_000).any(|_| !self.poll(client)));
        }
    }

    /// After everything was heard, dispatched and read, all clients have the present state: those that are open, and those
    /// that have ended and continue.
    async fn settle(&mut self, finale: Finale) {
        let future = self.clients.iter().map(|client| client.start).max().unwrap_or(0);
        let gap = future.saturating_sub(self.truth().rv) + 1;
        self.truth().progress(gap);
        self.hear(usize::MAX).await;
        dispatch(&mut self.dispatcher);
        self.poll_all();
        advance(Duration::from_secs(1)).await;
        self.poll_all();
        if let Finale::Drain(last_bookmark) = finale {
            self.cache.end_watchers(last_bookmark);
        }
        for by_claim in [false, true] {
            (0..self.clients.len()).for_each(|client| self.resume(client, by_claim));
        }
        match finale {
            Finale::Settle => {}
            Finale::Drain(last_bookmark) => self.current().for_each(|client| client.drain(last_bookmark)),
            Finale::Stop => {
                self.writer = begin(self.window, self.packed).0;
                self.given_up(EndReason::Stopped);
            }
        }
        self.poll_all();
        let (rv, now) = (self.truth().rv, Instant::now());
        for client in self.clients.iter().filter(|client| client.ended.is_none()) {
            assert!(client.deadline > now && matches!(finale, Finale::Settle));
            assert_eq!(client.complete(), Some(rv), "it has the present state");
        }
        let open = self.clients.iter().filter(|client| client.ended.is_none()).count();
        assert_eq!(self.cache.stats().watchers, open);
        self.clients.clear();
        assert_eq!((self.cache.stats().watchers, self.cache.stats().groups), (0, 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 4000, cases: cases(1000), ..ProptestConfig::default() })]
    #[test]
    fn every_client_has_what_the_apiserver_has(
        ops in prop::collection::vec(op(), 1..250),
        roomy in prop::bool::weighted(0.7),
        packed: bool,
        finale in finale(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut world = World::new(if roomy { 100_000 } else { 7 }, packed).await;
            for op in ops {
                world.run(op).await;
            }
            world.settle(finale).await;
        });
    }
}
