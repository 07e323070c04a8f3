//! Carries events from the history to the groups that select them, once per event and group.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use super::groups::WatchGroup;
use super::shared::Shared;
use crate::meta::{ResourceVersion, WatchCacheEvent};

/// The one consumer of a cache's history. Its place in it is shared, so that the writer sees how far it is.
#[derive(Debug)]
pub(super) struct Dispatcher {
    shared: Arc<Shared>,
    events: Vec<Arc<WatchCacheEvent>>,
    touched: Vec<Arc<WatchGroup>>,
    wakers: Vec<Waker>,
}

/// Events dispatched before their watchers are woken.
const BATCH: usize = 256;
/// Evaluations after which a batch ends early: about a millisecond of work.
const EVALUATIONS: u64 = 10_000;
/// How often old events are dropped when none come.
const TICK: Duration = Duration::from_secs(2);

// === impl Dispatcher ===

impl Dispatcher {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, events: Vec::new(), touched: Vec::new(), wakers: Vec::new() }
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
            }
            if ticked {
                self.sweep();
            }
        }
    }

    /// Dispatches up to `max` events. False when there were none left.
    pub(super) fn step(&mut self, max: usize) -> bool {
        let shared = &self.shared;
        let (generation, start) = {
            let state = shared.state.lock();
            let start = shared.dispatched.load(Ordering::Acquire);
            // Not evicted before it is dispatched.
            state.history.read(start, u64::MAX, max, &mut self.events).ok();
            (state.generation, start)
        };
        let mut done = 0;
        let mut evaluated = 0;
        let mut routed = 0;
        for event in &self.events {
            // Per event, so that a registration never waits for a whole batch.
            let groups = shared.groups.read();
            if groups.generation() != generation {
                break;
            }
            let (tried, taken) = groups.dispatch(event, &mut self.touched);
            done += 1;
            evaluated += tried;
            routed += taken;
            if evaluated > EVALUATIONS {
                break;
            }
        }
        shared.counters.dispatched.add(done);
        shared.counters.evaluated.add(evaluated);
        shared.counters.routed.add(routed);
        self.advance(generation, start + done);
        self.events.clear();
        self.wake();
        done > 0
    }

    /// All events before `end` are in the rings.
    fn advance(&self, generation: u64, end: u64) {
        let state = self.shared.state.lock();
        let (true, Some(current)) = (state.generation == generation, &state.current) else { return };
        let rv = if end == state.history.head() {
            Some(current.rv())
        } else if end < state.gap_end {
            None
        } else {
            // Between two events every revision is one state; the least of them is the one before's.
            state.history.before(end)
        };
        self.shared.dispatched.store(end, Ordering::Release);
        if let Some(rv) = rv {
            self.shared.dispatched_rv.store(rv.0, Ordering::Release);
        }
        drop(state);
        self.shared.moved.notify_one();
    }

    /// After the revision has advanced, so that a woken watcher may send it as a bookmark.
    fn wake(&mut self) {
        for group in self.touched.drain(..) {
            group.ring.lock().take_wakers(&mut self.wakers);
        }
        self.wakers.drain(..).for_each(Waker::wake);
    }

    /// Lets old events go, from the window and from the rings.
    pub(super) fn sweep(&self) {
        let (oldest, generation) = {
            let mut state = self.shared.state.lock();
            state.history.evict(Instant::now(), self.shared.dispatched.load(Ordering::Acquire));
            (state.history.oldest(), state.generation)
        };
        let groups = self.shared.groups.read();
        // Of another generation, the revisions could not be compared.
        if groups.generation() == generation {
            groups.trim(oldest.unwrap_or(ResourceVersion(u64::MAX)));
        }
    }
}
