//! What a cache may use, with the apiserver's own numbers as defaults.

use std::time::Duration;

use super::budget::Budget;
use super::history::Limits;
use crate::meta::Gvr;

/// Settings of one cache.
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// Names the cache in logs and metrics.
    pub resource: Gvr,
    /// The field of the resource's field table by whose value watchers are found ([`crate::meta::FieldTable`]).
    pub trigger: Option<usize>,
    /// Events younger than this stay in the window while the two maxima allow. The apiserver's is 75 s.
    pub window_min_age: Duration,
    /// So many events stay whatever their age. The apiserver's smallest window is 100.
    pub window_min_events: usize,
    /// The apiserver's largest window is 102400.
    pub window_max_events: usize,
    /// Memory the window may hold beyond the store: replaced and deleted objects, and its own bookkeeping.
    pub window_max_bytes: usize,
    /// Events the dispatcher may be behind before the writer waits for it.
    pub max_lag: u64,
    /// Time between the bookmarks of one watcher, less up to 5 % of jitter. The apiserver's is 60 s.
    pub bookmark_period: Duration,
    /// What all caches may use together.
    pub budget: Budget,
    /// Gives its state up only when no cache is left that is not pinned.
    pub pinned: bool,
}

// === impl CacheConfig ===

impl CacheConfig {
    pub fn new(resource: Gvr) -> Self {
        Self {
            resource,
            trigger: None,
            window_min_age: Duration::from_secs(75),
            window_min_events: 100,
            window_max_events: 102_400,
            window_max_bytes: 128 << 20,
            max_lag: 8192,
            bookmark_period: Duration::from_secs(60),
            budget: Budget::default(),
            pinned: false,
        }
    }

    pub(super) fn limits(&self) -> Limits {
        Limits {
            min_age: self.window_min_age,
            min_events: self.window_min_events,
            max_events: self.window_max_events,
            max_bytes: self.window_max_bytes,
        }
    }
}
