//! The queue as workers use it: shared and awaited.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::core::{Core, Handed, NotHeld, Outcome, Taken, Why, WorkerId};
use super::limiter::BURST;
use super::metrics::QueueStats;

/// A queue of keys for a group of workers.
///
/// It drops nothing. Its length is the number of distinct keys, so the code that feeds it must limit them. Only
/// [`Worker::next`] waits.
#[derive(Debug)]
pub struct WorkQueue<K> {
    core: Arc<Mutex<Core<K>>>,
}

/// The place of one worker. When it is dropped, the keys that it holds go back to the queue.
#[derive(Debug)]
pub struct Worker<K: Clone + Eq + Hash + Ord> {
    core: Arc<Mutex<Core<K>>>,
    id: WorkerId,
    notify: Arc<Notify>,
}

// === impl WorkQueue ===

impl<K: Clone + Eq + Hash + Ord> Default for WorkQueue<K> {
    fn default() -> Self {
        Self::new(BURST)
    }
}

impl<K: Clone + Eq + Hash + Ord> WorkQueue<K> {
    /// `burst`: see [`BURST`].
    pub(super) fn new(burst: f64) -> Self {
        Self { core: Arc::new(Mutex::new(Core::new(burst, Instant::now()))) }
    }

    /// Queues a key unless it is already waiting. A key that a worker holds is queued again after the worker's
    /// answer.
    pub fn add(&self, key: &K, why: Why) {
        self.core.lock().add(key, why, Instant::now());
    }

    /// Queues a key after a delay of at most a year. If it is called several times, the earliest time counts.
    pub fn add_after(&self, key: &K, delay: Duration, why: Why) {
        self.core.lock().add_after(key, delay, why, Instant::now());
    }

    /// Forgets the time at which a key was to be queued, and its failures with it. A key that is queued already, or that a
    /// worker holds, stays as it is.
    pub fn cancel(&self, key: &K) {
        self.core.lock().cancel(key);
    }

    /// Adds a worker that takes up to `credit` keys at once. If several workers can take a key, the one with the
    /// fewest keys gets it.
    pub fn join(&self, credit: usize) -> Worker<K> {
        let notify = Arc::<Notify>::default();
        let id = self.core.lock().join(credit, notify.clone());
        Worker { core: self.core.clone(), id, notify }
    }

    /// Stops handing out keys. Each worker ends after it has answered all keys that it holds.
    pub fn drain(&self) {
        self.core.lock().drain();
    }

    pub fn stats(&self) -> QueueStats {
        let mut core = self.core.lock();
        let now = Instant::now();
        core.advance(now);
        core.stats(now)
    }
}

// === impl Worker ===

impl<K: Clone + Eq + Hash + Ord> Worker<K> {
    /// Waits for the next key. From then on this worker holds it. Returns `None` once the queue drains and this
    /// worker holds no keys. The future is cancel safe.
    pub async fn next(&self) -> Option<Handed<K>> {
        loop {
            let wake = match self.take() {
                Taken::Key(handed) => return Some(handed),
                Taken::Ended => return None,
                Taken::Nothing(wake) => wake,
            };
            match wake {
                Some(at) => tokio::select! {
                    () = self.notify.notified() => {}
                    () = sleep_until(at) => {}
                },
                None => self.notify.notified().await,
            }
        }
    }

    /// Returns the next key if one is ready now.
    pub fn try_next(&self) -> Option<Handed<K>> {
        match self.take() {
            Taken::Key(handed) => Some(handed),
            Taken::Nothing(_) | Taken::Ended => None,
        }
    }

    /// Returns a key to the queue with its result.
    ///
    /// # Errors
    /// This worker does not hold the key.
    pub fn answer(&self, key: &K, outcome: Outcome) -> Result<(), NotHeld> {
        self.core.lock().answer(self.id, key, outcome, Instant::now())
    }

    /// Forgets the failures of a key that this worker holds. The worker keeps the key.
    ///
    /// # Errors
    /// This worker does not hold the key.
    pub fn forget(&self, key: &K) -> Result<(), NotHeld> {
        let mut core = self.core.lock();
        if !core.holds(self.id, key) {
            return Err(NotHeld);
        }
        core.forget(key);
        Ok(())
    }

    /// Whether this worker holds the key.
    pub fn holds(&self, key: &K) -> bool {
        self.core.lock().holds(self.id, key)
    }

    /// Sets the most keys that it takes at once.
    pub fn set_credit(&self, credit: usize) {
        self.core.lock().set_credit(self.id, credit);
    }

    /// Stops taking keys. The worker ends after it has answered all keys that it holds.
    pub fn retire(&self) {
        self.core.lock().retire(self.id);
    }

    fn take(&self) -> Taken<K> {
        let mut core = self.core.lock();
        let now = Instant::now();
        core.advance(now);
        core.take(self.id, now)
    }
}

impl<K: Clone + Eq + Hash + Ord> Drop for Worker<K> {
    fn drop(&mut self) {
        self.core.lock().leave(self.id, Instant::now());
    }
}
