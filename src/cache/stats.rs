//! Numbers of one cache, for metrics and the status page.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::ready::Readiness;
use crate::meta::ResourceVersion;

/// A cache's numbers at one moment.
#[derive(Clone, Debug)]
pub struct CacheStats {
    pub state: Readiness,
    pub rv: ResourceVersion,
    /// All events up to here are with the watchers' groups.
    pub dispatched_rv: ResourceVersion,
    pub objects: usize,
    /// Memory of the objects, the tree aside.
    pub bytes: usize,
    pub window_events: usize,
    /// Memory the window holds beyond the objects.
    pub window_bytes: usize,
    pub window_oldest_rv: Option<ResourceVersion>,
    /// The least revision that a watch may start after.
    pub window_floor: ResourceVersion,
    pub window_age: Duration,
    pub watchers: usize,
    pub groups: usize,
    /// Events received from upstream and stored.
    pub events_total: u64,
    /// Events that the dispatcher has gone through.
    pub dispatched_total: u64,
    /// Predicate evaluations: an event and a group each.
    pub evaluated_total: u64,
    /// First syncs and relists.
    pub replaced_total: u64,
    /// Times the writer had to wait for the dispatcher.
    pub lagged_total: u64,
    /// Watchers ended although neither they nor the shutdown asked for it: too slow, a relist, or not ready.
    pub terminated_total: u64,
    /// Watchers that were terminated because they fell behind the window.
    pub too_slow_total: u64,
    pub bookmarks_total: u64,
    /// Attempts to fill the window backwards.
    pub backfills_total: u64,
    pub backfills_failed_total: u64,
    /// Events that the window was filled with.
    pub backfilled_events_total: u64,
}

/// Where the watchers of a cache stand. The others have taken everything there is for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Still send the state they began with.
    pub listing: usize,
    /// Have events to take.
    pub behind: usize,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) events: Counter,
    pub(super) dispatched: Counter,
    pub(super) evaluated: Counter,
    pub(super) replaced: Counter,
    pub(super) lagged: Counter,
    pub(super) terminated: Counter,
    pub(super) too_slow: Counter,
    pub(super) bookmarks: Counter,
    pub(super) backfills: Counter,
    pub(super) backfills_failed: Counter,
    pub(super) backfilled_events: Counter,
}

/// A count nobody synchronises with.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

// === impl Counter ===

impl Counter {
    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
