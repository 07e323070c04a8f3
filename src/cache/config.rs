//! The limits of a cache. The defaults are the apiserver's own numbers, but for the size of the window.

use std::sync::Arc;
use std::time::Duration;

use super::budget::Budget;
use super::floors::Floor;
use super::history::Limits;
use crate::meta::Gvr;
use crate::packing::{Packing, PackingForm};

/// Settings of one cache.
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// Names the cache in logs and metrics.
    pub resource: Gvr,
    /// The field of the resource's field table whose value is used to index watchers ([`crate::meta::FieldTable`]).
    pub trigger: Option<usize>,
    /// Events younger than this stay in the window unless one of the two maxima is exceeded. The apiserver's value is
    /// 75 s.
    pub window_min_age: Duration,
    /// This number of events stays in the window whatever their age. The apiserver's smallest window is 100.
    pub window_min_events: usize,
    /// The apiserver's largest window is 102400. The default has room for 75 s of 7,500 events a second: as long as the
    /// apiserver sends them all, no client should have to list again.
    pub window_max_events: usize,
    /// Memory that the window may use in addition to the store: replaced and deleted objects, and its own bookkeeping.
    pub window_max_bytes: usize,
    /// How many events the dispatcher may be behind before the writer waits for it.
    pub max_lag: u64,
    /// Time between the bookmarks of one watcher, less up to 5 % of jitter. The apiserver's value is 60 s.
    pub bookmark_period: Duration,
    /// The memory limit of all caches together.
    pub budget: Budget,
    /// What is packed in the process.
    pub packing: Packing,
    /// The form of this cache's objects, if it differs from that of the process.
    pub form: Option<PackingForm>,
    /// A pinned cache gives its state up only after all caches that are not pinned.
    pub pinned: bool,
    /// The floor of the resource. A cache that gives its state up, or stops, raises it to what its readers were shown.
    pub floor: Arc<Floor>,
}

// === impl CacheConfig ===

impl CacheConfig {
    pub fn new(resource: Gvr) -> Self {
        Self {
            resource,
            trigger: None,
            window_min_age: Duration::from_secs(75),
            window_min_events: 100,
            window_max_events: 600_000,
            window_max_bytes: 256 << 20,
            max_lag: 8192,
            bookmark_period: Duration::from_secs(60),
            budget: Budget::default(),
            packing: Packing::default(),
            form: None,
            pinned: false,
            floor: Arc::default(),
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
