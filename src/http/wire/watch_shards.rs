//! The multiplexer of watches over HTTP/1.1: runs those of many connections in one task.
//!
//! An event wakes all watches of a group at once. If each were a task, each would have to be scheduled, and idle threads
//! would take some of them over, with their sockets. A shard is woken once for each event, after the last of its
//! watches, and then runs one after the other.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::task::coop::unconstrained;

use super::watch_writer::WatchWriter;
use crate::http::answer::BoxError;
use crate::lifecycle::multiplexer::{Multiplexed, Multiplexer, MultiplexerHandle};
use crate::lifecycle::turn::Turn;
use crate::lifecycle::{contained, spawn};

/// All shards of a server. Cloning shares them.
#[derive(Clone, Default)]
pub(super) struct WatchShards(Arc<Mutex<Vec<WatchShard>>>);

/// A watch that a shard runs, for its connection. Dropping it ends the watch.
pub(super) struct Sharded<S>(Arc<ShardWatch<S>>);

struct WatchShard {
    /// Never 0.
    watches: usize,
    handle: MultiplexerHandle<Running>,
}

/// The task of a shard. It ends with its last watch.
struct Task {
    watches: Multiplexer<Running>,
    shards: WatchShards,
}

/// If it is dropped before its end, its connection ends.
struct Running(Arc<dyn Run>);

trait Run: Send + Sync {
    /// Ready when the watch has ended.
    fn poll(&self, cx: &mut Context<'_>, turn: &mut Turn) -> Poll<()>;

    fn abandon(&self);
}

struct ShardWatch<S> {
    state: Mutex<ShardWatchState<S>>,
    /// Wakes the shard for this watch. Always the same.
    shard: OnceLock<Waker>,
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

// === impl WatchShards ===

impl WatchShards {
    /// Must be called inside a runtime.
    pub(super) fn run<S>(&self, writer: WatchWriter<S>) -> Sharded<S>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let state = Mutex::new(ShardWatchState::Runs(writer));
        let watch = Arc::new(ShardWatch { state, shard: OnceLock::new(), connection: AtomicWaker::new() });
        let running = Running(Arc::clone(&watch) as Arc<dyn Run>);
        let mut shards = self.0.lock();
        let handle = match with_room(&mut shards, Handle::current().metrics().num_workers()) {
            Some(shard) => {
                shard.watches += 1;
                shard.handle.clone()
            }
            None => {
                let task = Task { watches: Multiplexer::new(), shards: self.clone() };
                let handle = task.watches.handle();
                shards.push(WatchShard { watches: 1, handle: handle.clone() });
                // A turn bounds what it does. The budget of a task would stop most watches in the middle of an event.
                spawn("watches", unconstrained(task));
                handle
            }
        };
        // Under the lock: a shard ends with its last watch.
        handle.run(running);
        drop(shards);
        Sharded(watch)
    }

    /// `count` watches of a shard have ended. Returns whether the shard has none left; it then gets no more.
    fn ended(&self, handle: &MultiplexerHandle<Running>, count: usize) -> bool {
        let mut shards = self.0.lock();
        let Some(index) = shards.iter().position(|shard| shard.handle.is(handle)) else { return true };
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
        let ended = self.watches.poll(cx, &mut Turn::new());
        if ended > 0 && self.shards.ended(&self.watches.handle(), ended) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // If it ends for another reason than its last watch, it must get no more.
        let handle = self.watches.handle();
        self.shards.0.lock().retain(|shard| !shard.handle.is(&handle));
    }
}

// === impl Running ===

impl Multiplexed for Running {
    fn poll(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> Poll<()> {
        self.0.poll(cx, turn)
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
    fn poll(&self, cx: &mut Context<'_>, turn: &mut Turn) -> Poll<()> {
        self.shard.get_or_init(|| cx.waker().clone());
        let mut state = self.state.lock();
        let ShardWatchState::Runs(writer) = &mut *state else { return Poll::Ready(()) };
        let result = match contained("watch", || writer.poll(cx, turn)) {
            Some(Poll::Pending) => return Poll::Pending,
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
