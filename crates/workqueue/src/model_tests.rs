//! Compares the queue with a model, under random actions of feeders and workers, and tests specific cases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::{Instant, advance};

use super::core::NotHeld;
use super::{Handed, Outcome, Why, WorkQueue, Worker};

type Key = u8;

#[derive(Clone, Debug)]
enum Action {
    Add(Key),
    AddAfter(Key, u64),
    Cancel(Key),
    Join(usize),
    /// The worker with this number, modulo the number of workers.
    Leave(usize),
    Take(usize),
    /// The worker answers the key that has this number among its keys.
    Answer(usize, usize, Outcome),
    Forget(usize, usize),
    Credit(usize, usize),
    Advance(u64),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let outcome = prop_oneof![
        3 => Just(Outcome::Done),
        2 => Just(Outcome::Retry),
        1 => (0u64..50).prop_map(|ms| Outcome::After(Duration::from_millis(ms))),
    ];
    let action = prop_oneof![
        6 => (0u8..12).prop_map(Action::Add),
        1 => (0u8..12, 0u64..50).prop_map(|(key, ms)| Action::AddAfter(key, ms)),
        1 => (0u8..12).prop_map(Action::Cancel),
        1 => (1usize..4).prop_map(Action::Join),
        1 => any::<usize>().prop_map(Action::Leave),
        8 => any::<usize>().prop_map(Action::Take),
        6 => (any::<usize>(), any::<usize>(), outcome).prop_map(|(w, k, outcome)| Action::Answer(w, k, outcome)),
        1 => (any::<usize>(), any::<usize>()).prop_map(|(w, k)| Action::Forget(w, k)),
        1 => (any::<usize>(), 0usize..4).prop_map(|(w, credit)| Action::Credit(w, credit)),
        3 => (0u64..30).prop_map(Action::Advance),
    ];
    proptest::collection::vec(action, 1..200)
}

/// What must hold for each key, independent of any order.
#[derive(Default)]
struct Model {
    /// Keys that must be handed out (again).
    pending: BTreeSet<Key>,
    /// The keys must not be handed out before these times. Of several times, the earliest counts.
    due: BTreeMap<Key, Instant>,
    held: BTreeMap<Key, usize>,
    failures: BTreeMap<Key, u32>,
    retries: u32,
}

struct World {
    queue: WorkQueue<Key>,
    workers: Vec<(usize, Worker<Key>)>,
    joined: usize,
    model: Model,
    taken: u64,
}

// === impl Model ===

impl Model {
    fn later(&mut self, key: Key, delay: Duration) {
        if delay.is_zero() {
            self.pending.insert(key);
            return;
        }
        let at = Instant::now() + delay;
        let due = self.due.entry(key).or_insert(at);
        *due = (*due).min(at);
    }

    fn tick(&mut self) {
        let now = Instant::now();
        let ready: Vec<Key> = self.due.iter().filter(|(_, at)| **at <= now).map(|(key, _)| *key).collect();
        for key in ready {
            self.due.remove(&key);
            self.pending.insert(key);
        }
    }

    fn own_delay(&mut self, key: Key) -> Duration {
        let failures = self.failures.entry(key).or_default();
        *failures += 1;
        Duration::from_millis(5 * (1 << (*failures - 1))).min(Duration::from_secs(1000))
    }
}

// === impl World ===

impl World {
    fn new() -> Self {
        // Disable the token bucket so that the model can predict every time. The bucket has its own tests.
        Self { queue: WorkQueue::new(1e9), workers: vec![], joined: 0, model: Model::default(), taken: 0 }
    }

    async fn act(&mut self, action: Action) {
        let count = self.workers.len().max(1);
        match action {
            Action::Add(key) => {
                self.queue.add(&key, Why::MODIFIED);
                self.model.pending.insert(key);
            }
            Action::AddAfter(key, ms) => {
                self.queue.add_after(&key, Duration::from_millis(ms), Why::AFTER);
                self.model.later(key, Duration::from_millis(ms));
            }
            Action::Cancel(key) => {
                self.model.tick();
                self.queue.cancel(&key);
                let is_left = self.model.pending.contains(&key) || self.model.held.contains_key(&key);
                if self.model.due.remove(&key).is_some() && !is_left {
                    self.model.failures.remove(&key);
                }
            }
            Action::Join(credit) => {
                self.joined += 1;
                self.workers.push((self.joined, self.queue.join(credit)));
            }
            Action::Leave(n) if !self.workers.is_empty() => {
                let (id, worker) = self.workers.swap_remove(n % count);
                drop(worker);
                let held: Vec<Key> = self.model.held.iter().filter(|(_, w)| **w == id).map(|(key, _)| *key).collect();
                for key in held {
                    self.model.held.remove(&key);
                    let delay = self.model.own_delay(key);
                    self.model.later(key, delay);
                }
            }
            Action::Take(n) => self.take(n % count),
            Action::Answer(n, k, outcome) => self.answer(n % count, k, outcome),
            Action::Forget(n, k) => {
                let Some((id, worker)) = self.workers.get(n % count) else { return };
                let mine: Vec<Key> = self.model.held.iter().filter(|(_, w)| *w == id).map(|(key, _)| *key).collect();
                if let Some(key) = mine.get(k % mine.len().max(1)) {
                    worker.forget(key).unwrap();
                    self.model.failures.remove(key);
                }
            }
            Action::Credit(n, credit) => {
                if let Some((_, worker)) = self.workers.get(n % count) {
                    worker.set_credit(credit);
                }
            }
            Action::Advance(ms) => advance(Duration::from_millis(ms)).await,
            Action::Leave(_) => {}
        }
        self.model.tick();
    }

    fn take(&mut self, n: usize) {
        self.model.tick();
        let Some((id, worker)) = self.workers.get(n) else { return };
        let Some(Handed { key, attempt, why }) = worker.try_next() else { return };
        self.taken += 1;
        assert!(self.model.pending.remove(&key), "key {key} was not to be handed out");
        assert_eq!(self.model.held.insert(key, *id), None, "key {key} is in two hands");
        assert_eq!(attempt, self.model.failures.get(&key).copied().unwrap_or(0) + 1);
        assert_ne!(why, Why::default());
    }

    fn answer(&mut self, n: usize, k: usize, outcome: Outcome) {
        let Some((id, worker)) = self.workers.get(n) else { return };
        let other = self.model.held.iter().find(|(_, w)| *w != id).map(|(key, _)| *key);
        if let Some(other) = other {
            assert_eq!(worker.answer(&other, outcome), Err(NotHeld));
        }
        let mine: Vec<Key> = self.model.held.iter().filter(|(_, w)| *w == id).map(|(key, _)| *key).collect();
        let Some(key) = mine.get(k % mine.len().max(1)).copied() else { return };
        worker.answer(&key, outcome).unwrap();
        self.model.held.remove(&key);
        match outcome {
            Outcome::Done => drop(self.model.failures.remove(&key)),
            Outcome::Retry => {
                self.model.retries += 1;
                let delay = self.model.own_delay(key);
                self.model.later(key, delay);
            }
            Outcome::After(delay) => {
                self.model.failures.remove(&key);
                self.model.later(key, delay);
            }
        }
    }

    fn check(&self) {
        let stats = self.queue.stats();
        let waiting = self.model.pending.iter().filter(|key| !self.model.held.contains_key(key)).count();
        assert_eq!((stats.depth, stats.held, stats.delayed), (waiting, self.model.held.len(), self.model.due.len()));
        assert_eq!(stats.queue_duration.count(), self.taken);
    }

    /// Checks that nothing is lost: after all workers have left, one new worker gets every pending key.
    async fn drain(mut self) {
        while !self.workers.is_empty() {
            self.act(Action::Leave(0)).await;
        }
        self.act(Action::Join(100)).await;
        self.act(Action::Advance(3_000_000)).await;
        for _ in 0..20 {
            self.take(0);
        }
        assert!(self.model.pending.is_empty(), "lost: {:?}", self.model.pending);
        while !self.model.held.is_empty() {
            self.answer(0, 0, Outcome::Done);
        }
        self.check();
        assert_eq!(self.queue.stats().depth, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn behaves_as_its_model(actions in actions()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut world = World::new();
            world.act(Action::Join(2)).await;
            for action in actions {
                world.act(action).await;
                world.check();
            }
            world.drain().await;
        });
    }
}

fn queue() -> WorkQueue<Key> {
    WorkQueue::default()
}

#[tokio::test(start_paused = true)]
async fn retries_of_many_keys_share_a_bucket() {
    let queue: WorkQueue<u16> = WorkQueue::default();
    let worker = queue.join(1000);
    // Also after an hour, no more than a burst is given at once.
    for _ in 0..2 {
        for key in 0..200 {
            queue.add(&key, Why::ADDED);
        }
        for _ in 0..200 {
            let key = worker.next().await.unwrap().key;
            worker.answer(&key, Outcome::Retry).unwrap();
        }
        advance(Duration::from_millis(50)).await;
        assert_eq!(queue.stats().depth, 100, "the burst");
        advance(Duration::from_secs(5)).await;
        assert_eq!(queue.stats().depth, 150, "ten a second");
        advance(Duration::from_secs(3600)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn keys_go_to_the_worker_with_the_fewest() {
    let queue = queue();
    let (busy, idle, third) = (queue.join(10), queue.join(10), queue.join(10));
    for key in 0..9 {
        queue.add(&key, Why::ADDED);
    }
    let counts = [&busy, &idle, &third].map(|worker| std::iter::from_fn(|| worker.try_next()).count());
    assert_eq!(counts, [3, 3, 3]);
    idle.answer(&1, Outcome::Done).unwrap();
    queue.add(&9, Why::ADDED);
    assert_eq!((busy.try_next(), third.try_next()), (None, None));
    assert_eq!(idle.try_next().map(|handed| handed.key), Some(9));
}

#[tokio::test(start_paused = true)]
async fn credit_bounds_what_is_in_hand() {
    let queue = queue();
    let worker = queue.join(2);
    for key in 0..5 {
        queue.add(&key, Why::ADDED);
    }
    assert_eq!(std::iter::from_fn(|| worker.try_next()).count(), 2);
    worker.answer(&0, Outcome::Done).unwrap();
    assert_eq!(worker.try_next().map(|handed| handed.key), Some(2));
    worker.set_credit(4);
    assert_eq!(std::iter::from_fn(|| worker.try_next()).count(), 2);
    worker.set_credit(0);
    worker.answer(&1, Outcome::Done).unwrap();
    queue.add(&7, Why::ADDED);
    assert_eq!(worker.try_next(), None);
}

#[tokio::test(start_paused = true)]
async fn a_vanished_worker_gives_its_keys_back() {
    let queue = queue();
    let (first, second) = (queue.join(2), queue.join(0));
    for key in 0..2 {
        queue.add(&key, Why::ADDED);
    }
    assert_eq!(first.next().await.unwrap().key, 0, "0 is in its hands, 1 on its way to it");
    drop(first);
    second.set_credit(10);
    assert_eq!(second.next().await.map(|handed| (handed.key, handed.attempt)), Some((1, 1)));
    assert_eq!(second.try_next(), None);
    let returned = second.next().await.unwrap();
    assert_eq!((returned.key, returned.attempt), (0, 2));
    assert!(returned.why.contains(Why::RETURNED));
    assert_eq!(queue.stats().returned, 1);
}

#[tokio::test(start_paused = true)]
async fn an_earlier_time_counts_also_for_those_who_sleep() {
    let queue = queue();
    let worker = queue.join(1);
    queue.add_after(&1, Duration::from_secs(100), Why::AFTER);
    let start = Instant::now();
    let feed = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        queue.add_after(&1, Duration::from_secs(2), Why::AFTER);
    };
    let (handed, ()) = tokio::join!(worker.next(), feed);
    assert_eq!((handed.map(|handed| handed.key), start.elapsed().as_secs()), (Some(1), 3));
    worker.answer(&1, Outcome::Done).unwrap();
    advance(Duration::from_secs(200)).await;
    assert_eq!(worker.try_next(), None, "only the earliest");
    queue.add_after(&2, Duration::MAX, Why::AFTER);
    assert_eq!(queue.stats().delayed, 1);
}

#[tokio::test(start_paused = true)]
async fn draining_hands_nothing_out_and_ends_when_all_is_answered() {
    let queue = queue();
    let (worker, other) = (queue.join(1), queue.join(1));
    for key in 0..4 {
        queue.add(&key, Why::ADDED);
    }
    let key = worker.next().await.unwrap().key;
    queue.drain();
    assert_eq!(other.next().await, None);
    queue.add(&9, Why::ADDED);
    worker.answer(&key, Outcome::Done).unwrap();
    assert_eq!(worker.next().await, None);
    assert_eq!((queue.stats().held, queue.stats().depth), (0, 4), "what nobody had stays");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_retires_answers_for_what_it_holds_and_has_ended() {
    let queue = WorkQueue::default();
    let (leaving, staying) = (queue.join(2), queue.join(0));
    for key in 1..=3_u8 {
        queue.add(&key, Why::ADDED);
    }
    let held = leaving.next().await.unwrap();
    assert_eq!(held.key, 1);
    leaving.retire();
    // Keys that it had not fetched, and new keys, go to the other worker.
    staying.set_credit(5);
    assert!(leaving.try_next().is_none());
    assert_eq!([staying.next().await.unwrap().key, staying.next().await.unwrap().key], [2, 3]);
    leaving.set_credit(5);
    queue.add(&4, Why::ADDED);
    assert_eq!(staying.next().await.unwrap().key, 4);
    let ended = async { leaving.next().await };
    tokio::pin!(ended);
    assert!(tokio::time::timeout(Duration::from_secs(60), &mut ended).await.is_err(), "not before its answer");
    leaving.answer(&1, Outcome::Done).unwrap();
    assert!(ended.await.is_none());
}
