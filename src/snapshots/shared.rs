//! What all snapshots of a process share: the settings, the directory and the metrics.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::SnapshotMetrics;
use super::directory::Directory;
use super::header::Identity;
use super::seal::Key;
use super::storage::Storage;

/// Settings.
#[derive(Clone, Debug)]
pub struct SnapshotConfig {
    pub dir: PathBuf,
    /// All files together, in bytes.
    pub max_bytes: u64,
    /// A file that was not written to for longer than this is not used. The apiserver would most likely refuse its
    /// revision, and a store that was restored from a backup meanwhile may have passed it.
    pub max_age: Duration,
    /// Encrypts the files. Without a key, Secrets are not kept.
    pub key: Option<Key>,
}

/// The snapshot of one cache.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(super) inner: Arc<Inner>,
    pub(super) identity: Identity,
    pub(super) name: Arc<str>,
}

/// What [`super::Snapshots`] and each [`Snapshot`] hold.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) config: SnapshotConfig,
    pub(super) directory: Directory,
    pub(super) metrics: SnapshotMetrics,
    /// Held while a state is written: one at a time.
    pub(super) writing: Arc<tokio::sync::Mutex<()>>,
}

// === impl Inner ===

impl Inner {
    pub(super) fn new(config: SnapshotConfig, storage: impl Storage) -> Self {
        let metrics = SnapshotMetrics::default();
        let directory = Directory::new(Box::new(storage), config.max_bytes, metrics.clone());
        Self { config, directory, metrics, writing: Arc::default() }
    }
}
