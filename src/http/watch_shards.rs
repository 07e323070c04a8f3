//! The multiplexer of watches over HTTP/1.1: runs those of many connections in one task.
//!
//! An event wakes all watches of a group at once. If each were a task, each would have to be scheduled, and idle threads
//! would take some of them over, with their sockets. A shard is woken once for each event, after the last of its
//! watches, and then runs one after the other.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::stream::{FuturesUnordered, Stream as _};
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::task::coop;

use super::body::BoxError;
use super::watch_writer::WatchWriter;
use crate::lifecycle::rounds::{self, Rounds};
use crate::lifecycle::wakes::JointWaker;
use crate::lifecycle::{contained, has_ended_turn, spawn};

/// All shards of a server. Cloning shares them.
#[derive(Clone, Default)]
pub(super) struct WatchShards(Arc<Mutex<Vec<WatchShard>>>);

/// A watch that a shard runs, for its connection. Dropping it ends the watch.
pub(super) struct Sharded<S>(Arc<ShardWatch<S>>);

struct WatchShard {
    /// Never 0.
    watches: usize,
    inbox: Arc<Inbox>,
}

/// How watches come to the task of a shard.
#[derive(Default)]
struct Inbox {
    arrived: Mutex<Vec<Running>>,
    /// Wakes the task.
    waker: Arc<JointWaker>,
}

/// The task of a shard. It ends with its last watch.
struct Task {
    running: FuturesUnordered<Running>,
    inbox: Arc<Inbox>,
    rounds: Rounds,
    shards: WatchShards,
}

/// If it is dropped before its end, its connection ends.
struct Running(Arc<dyn Run>);

trait Run: Send + Sync {
    /// Ready when the watch has ended.
    fn poll(&self, cx: &mut Context<'_>) -> Poll<()>;

    fn abandon(&self);
}

struct ShardWatch<S> {
    state: Mutex<ShardWatchState<S>>,
    /// Wakes the shard for this watch. Always the same.
    shard: OnceLock<Waker>,
    /// It has used up the budget of a turn, and has woken itself. The others come first now.
    has_ended_turn: AtomicBool,
    connection: AtomicWaker,
}

enum ShardWatchState<S> {
    Runs(WatchWriter<S>),
    /// Waits for the connection.
    Ended(Result<WatchWriter<S>, BoxError>),
    /// The connection is gone, or has taken the result.
    Over,
}

/// The most watches of a shard. With more of them, fewer tasks are scheduled; with fewer, more threads share the work.
const MOST: usize = 256;
/// A shard gets so many watches before the next one begins, as long as there are fewer shards than threads. For few
/// watches, a second thread costs more than it gains.
const FEW: usize = 64;
/// How often the task looks for woken watches before other tasks have their turn.
const PASSES: usize = 16;

// === impl WatchShards ===

impl WatchShards {
    /// Must be called inside a runtime.
    pub(super) fn run<S>(&self, writer: WatchWriter<S>) -> Sharded<S>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let state = Mutex::new(ShardWatchState::Runs(writer));
        let (shard, has_ended_turn) = (OnceLock::new(), AtomicBool::new(false));
        let watch = Arc::new(ShardWatch { state, shard, has_ended_turn, connection: AtomicWaker::new() });
        let running = Running(Arc::clone(&watch) as Arc<dyn Run>);
        let mut shards = self.0.lock();
        let inbox = match with_room(&mut shards, Handle::current().metrics().num_workers()) {
            Some(shard) => {
                shard.watches += 1;
                Arc::clone(&shard.inbox)
            }
            None => {
                let inbox = Arc::<Inbox>::default();
                shards.push(WatchShard { watches: 1, inbox: Arc::clone(&inbox) });
                let (running, of_task) = (FuturesUnordered::new(), Arc::clone(&inbox));
                let rounds = Rounds::default();
                spawn("watches", Task { running, inbox: of_task, rounds, shards: self.clone() });
                inbox
            }
        };
        inbox.arrived.lock().push(running);
        drop(shards);
        inbox.waker.wake_by_ref();
        Sharded(watch)
    }

    /// `count` watches of a shard have ended. Returns whether the shard has none left; it then gets no more.
    fn ended(&self, inbox: &Arc<Inbox>, count: usize) -> bool {
        let mut shards = self.0.lock();
        let Some(index) = shards.iter().position(|shard| Arc::ptr_eq(&shard.inbox, inbox)) else { return true };
        let Some(shard) = shards.get_mut(index) else { return true };
        shard.watches = shard.watches.saturating_sub(count);
        let is_over = shard.watches == 0;
        if is_over {
            shards.remove(index);
        }
        is_over
    }
}

/// The shard for one more watch; `None` for a new one.
fn with_room(shards: &mut [WatchShard], threads: usize) -> Option<&mut WatchShard> {
    let most = if shards.len() < threads { FEW } else { MOST };
    let first = |most| shards.iter().position(|shard| shard.watches < most);
    // One after the other: watches that began together are cheaper to run together.
    let index = first(FEW).or_else(|| first(most))?;
    shards.get_mut(index)
}

// === impl Sharded ===

impl<S> Sharded<S> {
    /// Ready when the watch has ended, with its result.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Result<WatchWriter<S>, BoxError>> {
        self.0.connection.register(cx.waker());
        // If the shard runs the watch now, it wakes the connection after its end.
        let Some(mut state) = self.0.state.try_lock() else { return Poll::Pending };
        match std::mem::replace(&mut *state, ShardWatchState::Over) {
            ShardWatchState::Ended(result) => Poll::Ready(result),
            other => {
                *state = other;
                Poll::Pending
            }
        }
    }
}

impl<S> Drop for Sharded<S> {
    fn drop(&mut self) {
        // The watch is dropped after the lock.
        let _left = std::mem::replace(&mut *self.0.state.lock(), ShardWatchState::Over);
        self.0.shard.get().into_iter().for_each(Waker::wake_by_ref);
    }
}

// === impl Task ===

impl Future for Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { running, inbox, rounds, shards } = &mut *self;
        inbox.waker.register(cx.waker());
        // Whatever is left wakes the task.
        let waker = Waker::from(Arc::clone(&inbox.waker));
        let mut cx = Context::from_waker(&waker);
        let (mut ended, mut passes) = (0, 0);
        // A set of futures returns early when some of them wake themselves.
        rounds.turn(running.len(), || {
            while passes < PASSES && coop::has_budget_remaining() {
                if !inbox.waker.take_woken() {
                    if !rounds::begin() {
                        break;
                    }
                    continue;
                }
                passes += 1;
                running.extend(std::mem::take(&mut *inbox.arrived.lock()));
                while let Poll::Ready(Some(())) = Pin::new(&mut *running).poll_next(&mut cx) {
                    ended += 1;
                }
            }
        });
        if ended > 0 && shards.ended(inbox, ended) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // If it ends for another reason than its last watch, it must get no more.
        self.shards.0.lock().retain(|shard| !Arc::ptr_eq(&shard.inbox, &self.inbox));
        let arrived = std::mem::take(&mut *self.inbox.arrived.lock());
        drop(arrived);
    }
}

// === impl Running ===

impl Future for Running {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // The budget of the task bounds the time in which other tasks of the thread wait. A watch that began without it
        // would stop in the middle of an event.
        if !coop::has_budget_remaining() {
            rounds::refuse(cx);
            return Poll::Pending;
        }
        self.0.poll(cx)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

// === impl ShardWatch ===

impl<S> ShardWatch<S> {
    /// Ends the watch if it still runs, and tells its connection. Whatever fails is dropped after the lock.
    fn end(&self, mut state: impl std::ops::DerefMut<Target = ShardWatchState<S>>, result: Result<(), BoxError>) {
        let failed = match (std::mem::replace(&mut *state, ShardWatchState::Over), result) {
            (ShardWatchState::Runs(writer), Ok(())) => {
                *state = ShardWatchState::Ended(Ok(writer));
                None
            }
            (ShardWatchState::Runs(writer), Err(error)) => {
                *state = ShardWatchState::Ended(Err(error));
                Some(writer)
            }
            (other, _) => {
                *state = other;
                return;
            }
        };
        drop(state);
        self.connection.wake();
        drop(failed);
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Run for ShardWatch<S> {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.shard.get_or_init(|| cx.waker().clone());
        let mut state = self.state.lock();
        let ShardWatchState::Runs(writer) = &mut *state else { return Poll::Ready(()) };
        if self.has_ended_turn.swap(false, Ordering::Relaxed) {
            rounds::after_others(cx.waker());
            return Poll::Pending;
        }
        rounds::runs();
        // Another future may have said so before.
        has_ended_turn();
        let result = match contained("watch", || writer.poll(cx)) {
            Some(Poll::Pending) => {
                // One that has said so waits for the others anyway.
                let ended = !has_ended_turn() && !coop::has_budget_remaining();
                self.has_ended_turn.store(ended, Ordering::Relaxed);
                return Poll::Pending;
            }
            Some(Poll::Ready(result)) => result,
            // The other watches of the shard go on.
            None => Err("the watch has panicked".into()),
        };
        self.end(state, result);
        Poll::Ready(())
    }

    fn abandon(&self) {
        self.end(self.state.lock(), Err("the task of the watch has ended".into()));
    }
}

#[cfg(test)]
#[path = "watch_shards_tests.rs"]
mod tests;
