//! Caches kept on disk, so that a restart continues where the last process stopped: without a list.
//!
//! Each cache has one file: a state, and the events that followed it. The file is written whole, under another name,
//! and then events are appended to it. When the events have become as large as the state, it is written again. What is
//! read from it is used only after the apiserver has accepted a watch from its revision.
//!
//! A file is a [`header`] and sealed [`block`]s of [`record`]s. Its first damaged block ends it: damage in the state
//! makes the file useless, and damage in the events costs the events after it.

mod block;
mod directory;
mod header;
#[cfg(test)]
mod hostile_tests;
mod journal;
mod load;
mod metrics;
mod record;
mod recording;
mod seal;
mod shared;
mod storage;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use header::{Cluster, Identity, fingerprint};
pub use load::{read, read_records};
pub use metrics::SnapshotMetrics;
pub use seal::Key;
pub use shared::{Snapshot, SnapshotConfig};
pub use storage::{Disk, Entry, Output, Storage};

use self::shared::Inner;
use crate::cache::{Restoration, WatchCache};

/// The snapshots of this process. Clones share them.
#[derive(Clone, Debug)]
pub struct Snapshots {
    inner: Arc<Inner>,
}

// === impl Snapshots ===

impl Snapshots {
    pub fn new(config: SnapshotConfig, storage: impl Storage) -> Self {
        Self { inner: Arc::new(Inner::new(config, storage)) }
    }

    pub fn metrics(&self) -> &SnapshotMetrics {
        &self.inner.metrics
    }

    /// Whether the files are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.inner.config.key.is_some()
    }

    /// The snapshot of the cache that this names.
    pub fn of(&self, identity: Identity) -> Snapshot {
        let name = identity.file_name().into();
        Snapshot { inner: Arc::clone(&self.inner), identity, name }
    }
}

// === impl Snapshot ===

impl Snapshot {
    /// Reads the file into `restoration`. `None` if there is none that can be used; the reason is logged.
    pub async fn load(&self, restoration: Restoration) -> Option<Restoration> {
        let snapshot = self.clone();
        tokio::task::spawn_blocking(move || load::load(&snapshot, restoration)).await.ok().flatten()
    }

    /// Keeps the file up to date until dropped, or until the cache has stopped for good.
    pub async fn record(self, cache: WatchCache) {
        recording::Recording::new(self, cache).run().await;
    }
}
