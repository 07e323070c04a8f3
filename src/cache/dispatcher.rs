//! Fan-out: passes events from the history to the groups of watchers that select them, once per event and group.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use super::group::WatchGroup;
use super::history::{Left, memory};
use super::shared::SharedCache;
use crate::lifecycle::wakes;
use crate::meta::{ResourceVersion, WatchCacheEvent};

/// The fan-out of one cache, and the only consumer of its history. Its position is shared, so that the writer sees its
/// progress.
#[derive(Debug)]
pub(super) struct Dispatcher {
    shared: Arc<SharedCache>,
    events: Vec<Arc<WatchCacheEvent>>,
    touched: Vec<Arc<WatchGroup>>,
    wakers: Vec<Waker>,
    /// What had left the window at the last sweep of the rings, and what has left it by now.
    swept: Left,
    left: Left,
}

/// A running sweep: the groups whose rings may still hold events that are older than the window.
pub(super) struct Sweep {
    oldest: ResourceVersion,
    groups: Vec<Arc<WatchGroup>>,
}

/// Maximum number of events dispatched before their watchers are woken.
const BATCH: usize = 256;
/// Number of evaluations after which a batch ends early: about a millisecond of work.
const EVALUATIONS: u64 = 10_000;
/// Number of rings swept in one step.
const RINGS: usize = 256;
/// How often old events are dropped while no new ones arrive.
const TICK: Duration = Duration::from_secs(2);

// === impl Dispatcher ===

impl Dispatcher {
    pub(super) fn new(shared: Arc<SharedCache>) -> Self {
        Self {
            shared,
            events: Vec::new(),
            touched: Vec::new(),
            wakers: Vec::new(),
            swept: Left::default(),
            left: Left::default(),
        }
    }

    pub(super) async fn run(mut self) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let ticked = tokio::select! {
                () = self.shared.work.notified() => false,
                _ = tick.tick() => true,
            };
            while self.step(BATCH) {
                tokio::task::yield_now().await;
                if self.is_due() {
                    self.sweep().await;
                }
            }
            if ticked || self.is_due() {
                self.sweep().await;
            }
        }
    }

    /// Dispatches up to `max` events, and stops early after a quarter of the window's bytes. Returns whether there are
    /// events left: each later one notifies.
    pub(super) fn step(&mut self, max: usize) -> bool {
        let shared = Arc::clone(&self.shared);
        let max_bytes = shared.config.window_max_bytes / 4;
        let (generation, start) = {
            let state = shared.state.lock();
            let start = shared.dispatched.load(Ordering::Acquire);
            // Events are not evicted before they are dispatched.
            state.history.read(start, u64::MAX, max, &mut self.events).ok();
            (state.generation, start)
        };
        let mut done = 0;
        let mut evaluated = 0;
        let mut bytes = 0;
        for event in &self.events {
            // Locked for each event, so that a registration never waits for a whole batch.
            let groups = shared.groups.read();
            if groups.generation() != generation {
                break;
            }
            let tried = groups.dispatch(event, &mut self.touched);
            done += 1;
            evaluated += tried;
            bytes += memory(event);
            if evaluated > EVALUATIONS || bytes > max_bytes {
                break;
            }
        }
        shared.counters.dispatched.add(done);
        shared.counters.evaluated.add(evaluated);
        let has_more = self.advance(generation, start + done);
        self.events.clear();
        self.wake();
        has_more
    }

    /// Records that all events before `end` are in the rings. Returns whether there are others.
    fn advance(&mut self, generation: u64, end: u64) -> bool {
        let mut state = self.shared.state.lock();
        let (true, Some(current)) = (state.generation == generation, &state.current) else { return false };
        let is_all = end == state.history.head();
        let rv = if is_all {
            Some(self.shared.certain(current.rv()))
        } else if end < state.gap_end {
            None
        } else {
            // All revisions between two events have the same state; the lowest of them is the revision of the earlier
            // event.
            state.history.before(end)
        };
        self.shared.dispatched.store(end, Ordering::Release);
        if let Some(rv) = rv {
            self.shared.dispatched_rv.store(rv.0, Ordering::Release);
        }
        state.history.evict(Instant::now(), end);
        self.left = state.history.left();
        drop(state);
        self.shared.moved.notify_one();
        !is_all
    }

    /// Called after the revision has advanced, so that a woken watcher may send it as a bookmark.
    fn wake(&mut self) {
        for group in self.touched.drain(..) {
            group.ring.take_wakers(&mut self.wakers);
        }
        wakes::together(self.wakers.drain(..));
    }

    /// Whether so much has left the window that the rings must drop it too: a watcher that is not polled drops nothing
    /// by itself. So all rings together hold at most the window's bound plus half a window, and the events of one step.
    pub(super) fn is_due(&self) -> bool {
        let config = &self.shared.config;
        let events = self.left.events - self.swept.events;
        let bytes = self.left.bytes - self.swept.bytes;
        events >= config.window_max_events as u64 / 2 || bytes >= config.window_max_bytes as u64 / 2
    }

    async fn sweep(&mut self) {
        let mut sweep = self.begin_sweep();
        while sweep.step() {
            tokio::task::yield_now().await;
        }
    }

    /// Drops old events: from the window at once, and from the rings in the steps of the sweep.
    pub(super) fn begin_sweep(&mut self) -> Sweep {
        let (oldest, generation) = {
            let state = &mut *self.shared.state.lock();
            let (now, dispatched) = (Instant::now(), self.shared.dispatched.load(Ordering::Acquire));
            state.history.evict(now, dispatched);
            // What has left the window makes room for others, also if this cache gets no more events. A state that is being read is
            // counted once it is there.
            if let Some(current) = state.current.as_ref().filter(|_| !self.shared.keeper.account.is_loading()) {
                self.shared.keeper.count(current.store(), &mut state.history, now, dispatched);
            }
            self.left = state.history.left();
            (state.history.oldest(), state.generation)
        };
        self.swept = self.left;
        let groups = self.shared.groups.read();
        // Revisions of different generations cannot be compared. If the generation ends during the sweep, its groups
        // are closed and hold nothing.
        let groups = if groups.generation() == generation { groups.iter().cloned().collect() } else { Vec::new() };
        Sweep { oldest: oldest.unwrap_or(ResourceVersion(u64::MAX)), groups }
    }
}

// === impl Sweep ===

impl Sweep {
    /// Returns false once all rings are swept.
    pub(super) fn step(&mut self) -> bool {
        let rest = self.groups.len().saturating_sub(RINGS);
        for group in self.groups.drain(rest..) {
            group.ring.lock().trim(self.oldest);
        }
        rest > 0
    }
}
