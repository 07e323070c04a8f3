//! The metrics of this room.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// What is kept, and how often it was of use. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct SnapshotMetrics {
    pub(super) bytes: Gauge,
    pub(super) written_bytes: Counter,
    pub(super) loaded: Counter,
    pub(super) unusable: Counter,
    pub(super) failed: Counter,
}

// === impl SnapshotMetrics ===

impl SnapshotMetrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register("informerd_snapshots_bytes", "Size of all snapshots on disk", self.bytes.clone());
        registry.register(
            "informerd_snapshots_written_bytes",
            "Bytes written to snapshots",
            self.written_bytes.clone(),
        );
        registry.register("informerd_snapshots_loaded", "Snapshots read for a starting informer", self.loaded.clone());
        registry.register(
            "informerd_snapshots_unusable",
            "Snapshots that could not be used: too old, damaged, or of another cluster or resource",
            self.unusable.clone(),
        );
        registry.register("informerd_snapshots_failed", "Snapshots that could not be written", self.failed.clone());
    }
}
