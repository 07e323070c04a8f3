//! The numbers of one cache, for metrics and the status page.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::ready::Readiness;
use crate::meta::ResourceVersion;

/// The numbers of a cache at one moment.
#[derive(Clone, Debug)]
pub struct CacheStats {
    pub state: Readiness,
    pub rv: ResourceVersion,
    /// All events up to this revision have been passed to the groups of watchers.
    pub dispatched_rv: ResourceVersion,
    pub objects: usize,
    /// Memory of the objects, without the tree.
    pub bytes: usize,
    pub window_events: usize,
    /// Memory that the window holds in addition to the objects.
    pub window_bytes: usize,
    pub window_oldest_rv: Option<ResourceVersion>,
    /// The oldest revision that a watch may start after.
    pub window_floor: ResourceVersion,
    pub window_age: Duration,
    pub watchers: usize,
    pub groups: usize,
    /// Events received from upstream and stored.
    pub events_total: u64,
    /// Events that the dispatcher has processed.
    pub dispatched_total: u64,
    /// Predicate evaluations. Each one is for one event and one group.
    pub evaluated_total: u64,
    /// First syncs and relists.
    pub replaced_total: u64,
    /// How often the writer had to wait for the dispatcher.
    pub lagged_total: u64,
    /// Watchers that were ended neither at their own request nor by the shutdown: too slow, a relist, or not ready.
    pub terminated_total: u64,
    /// Watchers that were terminated because they fell behind the window.
    pub too_slow_total: u64,
    pub bookmarks_total: u64,
    /// Attempts to extend the window into the past.
    pub backfills_total: u64,
    pub backfills_failed_total: u64,
    /// Events that were added to the window by backfills.
    pub backfilled_events_total: u64,
}

/// The progress of a cache's watchers. Watchers that are not counted here have received everything that is pending for
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Watchers that still send their initial state.
    pub listing: usize,
    /// Watchers with pending events.
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

/// A counter that is not used for synchronization.
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
