//! The watch cache of one resource: its objects, the sliding window of its events, and its watchers.
//!
//! A [`Writer`] feeds it, and a [`WatchCache`] reads it. The writer puts an event into the history. The dispatcher
//! passes it to the groups of watchers that select it. Each [`CacheWatcher`] reads it from its group's ring at its own
//! pace. Readers of the present state take no lock. An older state is rebuilt exactly from the window.

mod backfill;
mod budget;
mod checkpoints;
mod config;
#[cfg(test)]
mod confirm_tests;
mod difference;
mod dispatcher;
mod floors;
mod group;
mod group_index;
#[cfg(test)]
mod group_index_tests;
mod groups;
mod history;
mod initial;
mod invariants;
mod keeper;
#[cfg(test)]
mod labels_tests;
mod membership;
#[cfg(test)]
mod model;
#[cfg(test)]
mod model_client;
#[cfg(test)]
mod model_ops;
#[cfg(test)]
mod model_tests;
mod order;
mod packer_task;
mod reached;
mod ready;
mod recorder;
#[cfg(test)]
mod relist_tests;
mod restoration;
mod ring;
#[cfg(test)]
mod ring_tests;
mod schedule;
mod shared;
mod spec;
mod stats;
#[cfg(test)]
mod stats_tests;
mod store;
#[cfg(test)]
mod stress_tests;
#[cfg(test)]
mod testing;
mod walk;
mod watch_cache;
#[cfg(test)]
mod watch_tests;
mod watcher;
mod writer;

use std::sync::Arc;

pub use backfill::{Backfill, BackfillError};
pub use budget::{Account, Budget, Full, Lent};
pub use config::CacheConfig;
pub use floors::{Floor, Floors, history_of};
pub use invariants::{Invariant, register};
pub use order::Order;
pub use packer_task::Arriving;
pub use ready::Readiness;
pub use recorder::{Recorded, Recorder, RecorderEnd};
pub use restoration::{Restoration, RestoreError};
pub use spec::{EndReason, WatchSpec, WatchStart, WatcherEvent};
pub use stats::{CacheStats, Standing};
pub use store::{Snapshot, StateId};
pub use walk::Walk;
pub use watch_cache::{SnapshotError, WaitError, WatchCache, WatchError};
pub use watcher::CacheWatcher;
pub use writer::{ApplyError, ReplaceError, Replaced, Writer};

/// Creates a cache. It is not ready until its writer has put a list into it, and delivers no events until
/// [`WatchCache::run_dispatcher`] runs.
pub fn new(config: CacheConfig) -> (Writer, WatchCache) {
    let shared = Arc::new(shared::SharedCache::new(config));
    (Writer::new(shared.clone()), WatchCache::new(shared))
}
