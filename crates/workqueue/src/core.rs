//! The queue as a state machine. The caller passes the time, and no call waits.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::limiter::{self, Bucket};
use super::metrics::QueueStats;

/// The longest delay. A longer delay is as good as infinite; the limit keeps instants within their range.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The reasons why a key was handed out. There are several if it was added several times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Why(u16);

/// A key that a worker holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed<K> {
    pub key: K,
    /// 1 for the first attempt, plus one for each failure since the last success.
    pub attempt: u32,
    pub why: Why,
}

/// The result of a worker for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded. Its failures are forgotten (`Forget` and `Done`).
    Done,
    /// It failed. It is queued again after its backoff (`AddRateLimited` and `Done`).
    Retry,
    /// It succeeded and must be queued again after this time (`Forget`, `AddAfter` and `Done`).
    After(Duration),
}

/// The worker answered a key that it does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key is not in this worker's hands")]
pub struct NotHeld;

/// The result of a worker's attempt to take a key.
#[derive(Debug)]
pub(super) enum Taken<K> {
    Key(Handed<K>),
    /// No key is ready. If there is a delayed key, it becomes ready at this time.
    Nothing(Option<Instant>),
    /// No more keys will come.
    Ended,
}

pub(super) type WorkerId = u64;

#[derive(Debug)]
pub(super) struct Core<K> {
    bucket: Bucket,
    entries: HashMap<K, Entry>,
    ready: VecDeque<K>,
    delayed: BTreeSet<(Instant, u64, K)>,
    workers: BTreeMap<WorkerId, WorkerState<K>>,
    /// Workers that can take another key. The worker with the fewest keys comes first. Among equal workers, the one
    /// that waited longest for its turn comes first.
    willing: BTreeSet<(usize, u64, WorkerId)>,
    sequence: u64,
    draining: bool,
    totals: QueueStats,
}

#[derive(Debug)]
struct Entry {
    stage: Stage,
    /// It was added after it was last taken.
    dirty: bool,
    why: Why,
    /// The time at which it will be added, and a number that orders equal times.
    delay: Option<(Instant, u64, Why)>,
    failures: u32,
    /// When it became dirty.
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Ready,
    /// Assigned to a worker that has not fetched it yet.
    Assigned(WorkerId),
    Held(WorkerId, Instant),
}

#[derive(Debug)]
struct WorkerState<K> {
    /// The most keys that it takes at once.
    credit: usize,
    /// When it last had its turn.
    turn: u64,
    assigned: VecDeque<K>,
    held: BTreeSet<K>,
    /// It takes no more keys.
    leaving: bool,
    notify: Arc<Notify>,
}

// === impl Why ===

impl Why {
    /// The queue is new, so every object is new to it.
    pub const INITIAL: Self = Self(1);
    pub const ADDED: Self = Self(1 << 1);
    pub const MODIFIED: Self = Self(1 << 2);
    pub const DELETED: Self = Self(1 << 3);
    /// A worker requested a retry.
    pub const RETRY: Self = Self(1 << 4);
    /// A worker requested the key for this time.
    pub const AFTER: Self = Self(1 << 5);
    /// A worker requested all objects.
    pub const RESYNC: Self = Self(1 << 6);
    /// The worker that held it has disconnected.
    pub const RETURNED: Self = Self(1 << 7);

    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(super) fn join(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

// === impl Core ===

impl<K: Clone + Eq + Hash + Ord> Core<K> {
    pub(super) fn new(burst: f64, now: Instant) -> Self {
        Self {
            bucket: Bucket::new(burst, now),
            entries: HashMap::new(),
            ready: VecDeque::new(),
            delayed: BTreeSet::new(),
            workers: BTreeMap::new(),
            willing: BTreeSet::new(),
            sequence: 0,
            draining: false,
            totals: QueueStats::default(),
        }
    }

    pub(super) fn add(&mut self, key: &K, why: Why, now: Instant) {
        self.mark(key, why, now);
        self.dispatch();
    }

    pub(super) fn add_after(&mut self, key: &K, delay: Duration, why: Why, now: Instant) {
        self.totals.retries += 1;
        if delay.is_zero() {
            return self.add(key, why, now);
        }
        self.schedule(key, delay, why, now);
    }

    pub(super) fn cancel(&mut self, key: &K) {
        let delay = self.entries.get_mut(key).and_then(|entry| entry.delay.take());
        if let Some((at, number, _)) = delay {
            self.delayed.remove(&(at, number, key.clone()));
            self.settle(key);
        }
    }

    /// Queues the delayed keys whose time has come.
    pub(super) fn advance(&mut self, now: Instant) {
        while self.delayed.first().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, _, key)) = self.delayed.pop_first() else { return };
            let why = self.entries.get_mut(&key).and_then(|entry| entry.delay.take()).map(|(.., why)| why);
            self.mark(&key, why.unwrap_or_default(), now);
        }
        self.dispatch();
    }

    pub(super) fn join(&mut self, credit: usize, notify: Arc<Notify>) -> WorkerId {
        let (id, turn) = (self.next_number(), self.next_number());
        let worker =
            WorkerState { credit, turn, assigned: VecDeque::new(), held: BTreeSet::new(), leaving: false, notify };
        self.workers.insert(id, worker);
        self.reconsider(id);
        self.dispatch();
        id
    }

    /// Sets the most keys that a worker takes at once. The worker keeps the keys that it holds beyond that.
    pub(super) fn set_credit(&mut self, id: WorkerId, credit: usize) {
        if let Some(worker) = self.workers.get_mut(&id) {
            self.willing.remove(&worker.rank(id));
            worker.credit = credit;
            self.reconsider(id);
            self.dispatch();
        }
    }

    /// Removes a worker. Keys that it had not fetched go back to the front of the queue. Keys that it held count as
    /// failed and are queued after their own backoff, so that a key that crashes its worker does not go around the
    /// group without a pause. This does not use the shared retry bucket, because the keys themselves did not fail.
    pub(super) fn leave(&mut self, id: WorkerId, now: Instant) {
        let Some(worker) = self.workers.remove(&id) else { return };
        self.willing.remove(&worker.rank(id));
        for key in worker.assigned.iter().rev() {
            self.requeue(key);
        }
        for key in &worker.held {
            self.totals.returned += 1;
            let failures = self.release(key, now).map_or(0, |entry| {
                entry.failures = entry.failures.saturating_add(1);
                entry.failures - 1
            });
            self.schedule(key, limiter::of_key(failures), Why::RETURNED, now);
            self.settle(key);
        }
        self.dispatch();
    }

    /// Takes the next key of this worker. From now on the worker holds it; if the key is added again, it is queued
    /// again.
    pub(super) fn take(&mut self, id: WorkerId, now: Instant) -> Taken<K> {
        let Some(worker) = self.workers.get_mut(&id) else { return Taken::Ended };
        let Some(key) = worker.assigned.pop_front() else {
            return if (self.draining || worker.leaving) && worker.held.is_empty() {
                Taken::Ended
            } else {
                Taken::Nothing(self.next_ready())
            };
        };
        worker.held.insert(key.clone());
        let Some(entry) = self.entries.get_mut(&key) else { return Taken::Nothing(None) };
        entry.stage = Stage::Held(id, now);
        entry.dirty = false;
        self.totals.queue_duration.observe(now.saturating_duration_since(entry.since));
        let (attempt, why) = (entry.failures.saturating_add(1), std::mem::take(&mut entry.why));
        Taken::Key(Handed { key, attempt, why })
    }

    /// Records the result of a key. The worker no longer holds it.
    pub(super) fn answer(&mut self, id: WorkerId, key: &K, outcome: Outcome, now: Instant) -> Result<(), NotHeld> {
        let worker = self.workers.get_mut(&id).ok_or(NotHeld)?;
        if !worker.held.contains(key) {
            return Err(NotHeld);
        }
        self.willing.remove(&worker.rank(id));
        worker.held.remove(key);
        self.reconsider(id);
        let Some(entry) = self.release(key, now) else { return Err(NotHeld) };
        let failures = entry.failures;
        entry.failures = if outcome == Outcome::Retry { failures.saturating_add(1) } else { 0 };
        match outcome {
            Outcome::Done => {}
            Outcome::Retry => {
                // Both delays count this failure. The longer one applies.
                let delay = self.bucket.reserve(now).max(limiter::of_key(failures));
                self.add_after(key, delay, Why::RETRY, now);
            }
            Outcome::After(delay) => self.add_after(key, delay, Why::AFTER, now),
        }
        self.settle(key);
        self.dispatch();
        if self.draining {
            self.wake_all();
        } else if let Some(worker) = self.workers.get(&id).filter(|worker| worker.leaving) {
            worker.notify.notify_one();
        }
        Ok(())
    }

    /// Forgets the failures of a key. If a worker holds the key, it keeps it.
    pub(super) fn forget(&mut self, key: &K) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.failures = 0;
        }
    }

    pub(super) fn drain(&mut self) {
        self.draining = true;
        let assigned: Vec<K> = self.workers.values_mut().flat_map(|worker| worker.assigned.drain(..)).collect();
        for key in assigned.iter().rev() {
            self.requeue(key);
        }
        self.willing.clear();
        self.wake_all();
    }

    /// Stops handing out keys to this worker. Keys that it has not fetched go to other workers. It ends after it has
    /// answered all keys that it holds.
    pub(super) fn retire(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        self.willing.remove(&worker.rank(id));
        worker.leaving = true;
        worker.notify.notify_one();
        for key in std::mem::take(&mut worker.assigned).iter().rev() {
            self.requeue(key);
        }
        self.dispatch();
    }

    pub(super) fn holds(&self, id: WorkerId, key: &K) -> bool {
        self.workers.get(&id).is_some_and(|worker| worker.held.contains(key))
    }

    pub(super) fn stats(&self, now: Instant) -> QueueStats {
        let held = self.workers.values().flat_map(|worker| &worker.held).filter_map(|key| self.entries.get(key));
        let in_hand = held.filter_map(|entry| match entry.stage {
            Stage::Held(_, since) => Some(now.saturating_duration_since(since).as_secs_f64()),
            _ => None,
        });
        let (held, unfinished, longest) =
            in_hand.fold((0, 0.0, 0.0_f64), |(count, sum, most), s| (count + 1, sum + s, most.max(s)));
        let assigned: usize = self.workers.values().map(|worker| worker.assigned.len()).sum();
        QueueStats {
            depth: self.ready.len() + assigned,
            unfinished,
            longest,
            held,
            delayed: self.delayed.len(),
            workers: self.workers.len(),
            ..self.totals.clone()
        }
    }

    fn next_ready(&self) -> Option<Instant> {
        self.delayed.first().map(|(at, ..)| *at)
    }

    fn mark(&mut self, key: &K, why: Why, now: Instant) {
        let entry = self.entries.entry(key.clone()).or_insert_with(|| Entry::new(now));
        entry.why.join(why);
        if std::mem::replace(&mut entry.dirty, true) {
            return;
        }
        self.totals.adds += 1;
        entry.since = now;
        if entry.stage == Stage::Idle {
            entry.stage = Stage::Ready;
            self.ready.push_back(key.clone());
        }
    }

    fn schedule(&mut self, key: &K, delay: Duration, why: Why, now: Instant) {
        let at = now + delay.min(LONGEST);
        let number = self.next_number();
        let entry = self.entries.entry(key.clone()).or_insert_with(|| Entry::new(now));
        let (at, mut joined) = match entry.delay {
            Some((before, _, joined)) => (before.min(at), joined),
            None => (at, Why::default()),
        };
        joined.join(why);
        let before = entry.delay.replace((at, number, joined));
        let first = self.next_ready();
        if let Some((at, number, _)) = before {
            self.delayed.remove(&(at, number, key.clone()));
        }
        self.delayed.insert((at, number, key.clone()));
        if first.is_none_or(|first| at < first) {
            // The workers must wake up earlier.
            self.willing
                .iter()
                .filter_map(|(.., id)| self.workers.get(id))
                .for_each(|worker| worker.notify.notify_one());
        }
    }

    /// Takes the key from its worker without giving it to another one.
    fn release(&mut self, key: &K, now: Instant) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(key)?;
        if let Stage::Held(_, since) = entry.stage {
            self.totals.work_duration.observe(now.saturating_duration_since(since));
        }
        entry.stage = Stage::Idle;
        Some(entry)
    }

    /// After a release: queues the key if it was added in the meantime, and removes its entry if nothing is left to
    /// remember.
    fn settle(&mut self, key: &K) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        if entry.stage != Stage::Idle {
            return;
        }
        if entry.dirty {
            entry.stage = Stage::Ready;
            self.ready.push_back(key.clone());
        } else if entry.delay.is_none() {
            // A key with failures is delayed, held or ready until its delay is cancelled, so no failures are lost.
            self.entries.remove(key);
        }
    }

    /// Puts the key back at the front of the queue.
    fn requeue(&mut self, key: &K) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.stage = Stage::Ready;
            self.ready.push_front(key.clone());
        }
    }

    /// Assigns ready keys to workers that can take them.
    fn dispatch(&mut self) {
        if self.draining {
            return;
        }
        while !self.ready.is_empty() {
            let Some((.., id)) = self.willing.pop_first() else { return };
            let Some(key) = self.ready.pop_front() else { return };
            let turn = self.next_number();
            let Some(worker) = self.workers.get_mut(&id) else { continue };
            worker.turn = turn;
            worker.assigned.push_back(key.clone());
            worker.notify.notify_one();
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.stage = Stage::Assigned(id);
            }
            self.reconsider(id);
        }
    }

    /// Checks whether a worker can take another key. Its old rank must already be removed.
    fn reconsider(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.get(&id) else { return };
        if !self.draining && !worker.leaving && worker.load() < worker.credit {
            self.willing.insert(worker.rank(id));
        }
    }

    fn wake_all(&self) {
        self.workers.values().for_each(|worker| worker.notify.notify_one());
    }

    fn next_number(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
}

// === impl Entry ===

impl Entry {
    fn new(now: Instant) -> Self {
        Self { stage: Stage::Idle, dirty: false, why: Why::default(), delay: None, failures: 0, since: now }
    }
}

// === impl WorkerState ===

impl<K> WorkerState<K> {
    fn load(&self) -> usize {
        self.assigned.len() + self.held.len()
    }

    fn rank(&self, id: WorkerId) -> (usize, u64, WorkerId) {
        (self.load(), self.turn, id)
    }
}
