//! The metrics of the gRPC services.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::telemetry::histogram::Histogram;
use crate::telemetry::stripes::StripedCounter;

/// Counters since the start of the process, and gauges of the current state.
#[derive(Debug, Default)]
pub struct GrpcMetrics {
    pub calls: Counter,
    /// Calls that failed before the response began.
    pub calls_failed: Counter,
    /// Calls whose first message, or the rest of a message, did not come in time.
    pub calls_silent: Counter,
    /// Requests that were refused because those of their client took too much memory, and health watches and reflection streams
    /// that were refused because their client, or all together, had too many open.
    pub overflows: Counter,
    pub list_objects: Counter,
    pub list_bytes: Counter,
    pub watches_open: Gauge,
    pub watches: Counter,
    pub syncs_open: Gauge,
    /// Frames of watches, and their encoded size in bytes.
    pub frames: StripedCounter,
    pub bytes: StripedCounter,
    pub events: StripedCounter,
    /// The time from the receipt of an event to its message on the client's stream. A message counts with its oldest
    /// event.
    pub event_lag: Histogram,
    /// Watches that had to start again with a new snapshot.
    pub resets: Counter,
    /// Changes that were replaced by later ones.
    pub conflated: Counter,
    /// Changes that are pending for the consumers of conflated watches, and the size of their objects.
    pub pending: Gauge,
    pub pending_bytes: Gauge,
}

// === impl GrpcMetrics ===

impl GrpcMetrics {
    /// Registers the metrics of this module, except those of the work queues.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("informerd");
        for (name, help, gauge) in [
            ("grpc_watches", "Open gRPC watches", &self.watches_open),
            ("grpc_syncs", "Open gRPC streams of many watches", &self.syncs_open),
            ("grpc_pending_changes", "Changes waiting for the consumers of conflated watches", &self.pending),
            (
                "grpc_pending_bytes",
                "Size of the objects waiting for the consumers of conflated watches",
                &self.pending_bytes,
            ),
        ] {
            registry.register(name, help, gauge.clone());
        }
        for (name, help, counter) in [
            ("grpc_watch_frames", "Frames sent to gRPC watches", &self.frames),
            ("grpc_watch_events", "Events sent to gRPC watches", &self.events),
            ("grpc_watch_bytes", "Bytes sent to gRPC watches", &self.bytes),
        ] {
            registry.register(name, help, counter.clone());
        }
        for (name, help, counter) in [
            ("grpc_calls", "gRPC calls", &self.calls),
            ("grpc_calls_failed", "gRPC calls whose answer began with an error", &self.calls_failed),
            ("grpc_calls_silent", "gRPC calls that ended because nothing of their request came", &self.calls_silent),
            (
                "grpc_overflows",
                "Requests, health watches and reflection streams refused because their clients had too much",
                &self.overflows,
            ),
            ("grpc_list_objects", "Objects sent in gRPC lists", &self.list_objects),
            ("grpc_list_bytes", "Bytes of objects sent in gRPC lists", &self.list_bytes),
            ("grpc_watches_opened", "gRPC watches opened", &self.watches),
            ("grpc_watches_reset", "gRPC watches that had to start again with a snapshot", &self.resets),
            ("grpc_conflated_events", "Events replaced by a later one of the same object", &self.conflated),
        ] {
            registry.register(name, help, counter.clone());
        }
    }
}
