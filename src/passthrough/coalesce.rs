//! Equal reads that wait at the same time share one upstream read. That read starts after the last of them has arrived.
//!
//! One read per key is in flight. Reads that arrive meanwhile form one batch. The read of the batch starts when the
//! first read has been answered. So however many clients ask, the apiserver sees one read of each kind at a time, and
//! every answer is as fresh as if each client had asked alone.
//!
//! This is not the single flight of `upstream`. That one paces our own requests, keeps several in flight while the
//! apiserver delays one, and its answers outlive their readers. Here the key is a client's request, and the read is
//! dropped with the last of its readers.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::future::{Shared, WeakShared};
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// The batches of all keys.
pub(super) struct Coalescer<K, T> {
    lanes: Arc<Mutex<HashMap<K, Lane<T>>>>,
}

/// The queue of one key.
struct Lane<T> {
    /// The turn to read.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// The batch that has not started yet.
    queued: Option<Batch<T>>,
    /// Batches that exist, started or not. The lane is removed with the last one.
    batches: usize,
}

type Read<T> = Pin<Box<dyn Future<Output = T> + Send>>;

struct Batch<T> {
    /// A weak reference: the members own the read, and it is dropped with the last of them.
    answer: WeakShared<Read<T>>,
    members: Arc<AtomicUsize>,
}

/// Held by the read that has its turn. When it is dropped, the next batch may start.
pub(super) struct Turn {
    _turn: OwnedMutexGuard<()>,
    members: usize,
}

/// Counts a member of a batch for as long as it waits.
struct Member(Arc<AtomicUsize>);

/// Removes a lane with its last batch, however the batch ends.
struct LaneGuard<K: Eq + Hash, T> {
    lanes: Arc<Mutex<HashMap<K, Lane<T>>>>,
    key: K,
}

// === impl Coalescer ===

impl<K, T> Coalescer<K, T>
where
    K: Clone + Eq + Hash + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    pub(super) fn new() -> Self {
        Self { lanes: Arc::default() }
    }

    /// Joins the waiting batch of this key, or opens one with `read`.
    ///
    /// The members that still wait drive the batch's read. If a client leaves, the others are not affected. If all have
    /// left, the read is dropped.
    pub(super) async fn read<F, R>(&self, key: K, read: F) -> T
    where
        F: FnOnce(Turn) -> R + Send + 'static,
        R: Future<Output = T> + Send + 'static,
    {
        let (answer, _member) = self.join(key, read);
        answer.await
    }

    /// The number of keys that are being read.
    #[cfg(test)]
    fn lanes(&self) -> usize {
        self.lanes.lock().len()
    }

    fn join<F, R>(&self, key: K, read: F) -> (Shared<Read<T>>, Member)
    where
        F: FnOnce(Turn) -> R + Send + 'static,
        R: Future<Output = T> + Send + 'static,
    {
        let mut lanes = self.lanes.lock();
        let lane = lanes.entry(key.clone()).or_insert_with(|| Lane { turn: Arc::default(), queued: None, batches: 0 });
        if let Some(batch) = &lane.queued
            && let Some(answer) = batch.answer.upgrade()
        {
            batch.members.fetch_add(1, Ordering::AcqRel);
            return (answer, Member(Arc::clone(&batch.members)));
        }
        let members = Arc::new(AtomicUsize::new(1));
        lane.batches += 1;
        let guard = LaneGuard { lanes: Arc::clone(&self.lanes), key };
        let answer = batch(Arc::clone(&lane.turn), Arc::clone(&members), guard, read).boxed().shared();
        lane.queued = answer.downgrade().map(|answer| Batch { answer, members: Arc::clone(&members) });
        (answer, Member(members))
    }
}

async fn batch<K, T, F, R>(
    turn: Arc<tokio::sync::Mutex<()>>,
    members: Arc<AtomicUsize>,
    guard: LaneGuard<K, T>,
    read: F,
) -> T
where
    K: Eq + Hash,
    F: FnOnce(Turn) -> R,
    R: Future<Output = T>,
{
    let turn = turn.lock_owned().await;
    // From here on no client can join: a later client must see a later state.
    let members = guard.start(&members);
    read(Turn { _turn: turn, members }).await
}

// === impl Turn ===

impl Turn {
    /// The number of clients that this read is for.
    pub(super) fn members(&self) -> usize {
        self.members
    }
}

// === impl Member ===

impl Drop for Member {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

// === impl LaneGuard ===

impl<K: Eq + Hash, T> LaneGuard<K, T> {
    /// Closes the batch to new members and counts its members.
    fn start(&self, members: &Arc<AtomicUsize>) -> usize {
        let mut lanes = self.lanes.lock();
        if let Some(lane) = lanes.get_mut(&self.key)
            && lane.queued.as_ref().is_some_and(|queued| Arc::ptr_eq(&queued.members, members))
        {
            lane.queued = None;
        }
        members.load(Ordering::Acquire)
    }
}

impl<K: Eq + Hash, T> Drop for LaneGuard<K, T> {
    fn drop(&mut self) {
        let mut lanes = self.lanes.lock();
        let Some(lane) = lanes.get_mut(&self.key) else { return };
        lane.batches -= 1;
        if lane.batches == 0 {
            lanes.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::lifecycle::spawn;

    const SECOND: Duration = Duration::from_secs(1);

    type Log = Arc<Mutex<Vec<(usize, Instant)>>>;

    /// A read that takes a second and returns its number. The log records its members and its start.
    async fn ask(coalescer: Arc<Coalescer<&'static str, usize>>, key: &'static str, log: Log) -> usize {
        coalescer
            .read(key, move |turn| async move {
                let number = {
                    let mut log = log.lock();
                    log.push((turn.members(), Instant::now()));
                    log.len()
                };
                sleep(SECOND).await;
                number
            })
            .await
    }

    #[tokio::test(start_paused = true)]
    async fn a_joiner_never_gets_a_read_that_started_before_it_came() {
        let (coalescer, log) = (Arc::new(Coalescer::new()), Log::default());
        let mut tasks = Vec::new();
        for step in 0u32..40 {
            let (coalescer, log) = (Arc::clone(&coalescer), Arc::clone(&log));
            tasks.push(spawn("reader", async move {
                sleep(step * SECOND / 7).await;
                let arrived = Instant::now();
                let number = ask(coalescer, "pods", Arc::clone(&log)).await;
                let started = log.lock()[number - 1].1;
                (arrived, started)
            }));
        }
        for task in tasks {
            let (arrived, started) = task.await.unwrap();
            assert!(started >= arrived, "{started:?} {arrived:?}");
            assert!(started - arrived <= SECOND, "waits for one read at most");
        }
        let log = log.lock();
        assert_eq!(log.iter().map(|(members, _)| members).sum::<usize>(), 40);
        assert!(log.len() <= 8, "six seconds of questions, one read a second: {}", log.len());
        assert_eq!(coalescer.lanes(), 0, "nothing is left behind");
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_takes_nothing_from_the_others() {
        let (coalescer, log) = (Arc::new(Coalescer::new()), Log::default());
        let running = spawn("running", ask(Arc::clone(&coalescer), "pods", Arc::clone(&log)));
        let leader = spawn("leader", ask(Arc::clone(&coalescer), "pods", Arc::clone(&log)));
        let follower = spawn("follower", ask(Arc::clone(&coalescer), "pods", Arc::clone(&log)));
        assert_eq!(running.await.unwrap(), 1);
        // The second read is in flight, driven by either of the two.
        sleep(SECOND / 2).await;
        leader.abort();
        assert_eq!(follower.await.unwrap(), 2);
        assert_eq!(log.lock().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_all_have_left_is_gone() {
        let (coalescer, log) = (Arc::new(Coalescer::new()), Log::default());
        let running = spawn("running", ask(Arc::clone(&coalescer), "pods", Arc::clone(&log)));
        sleep(SECOND / 4).await;
        let queued = spawn("queued", ask(Arc::clone(&coalescer), "pods", Arc::clone(&log)));
        sleep(SECOND / 4).await;
        queued.abort();
        assert!(queued.await.unwrap_err().is_cancelled());
        let late = spawn("late", ask(Arc::clone(&coalescer), "pods", Arc::clone(&log)));
        assert_eq!(running.await.unwrap(), 1);
        assert_eq!(late.await.unwrap(), 2);
        assert_eq!(log.lock()[1].0, 1, "the one who left is not counted");
        let aborted = spawn("aborted", ask(Arc::clone(&coalescer), "pods", Arc::clone(&log)));
        sleep(SECOND / 4).await;
        aborted.abort();
        assert!(aborted.await.is_err());
        assert_eq!(coalescer.lanes(), 0);
    }
}
