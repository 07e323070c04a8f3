//! What the gRPC side counts: plain atomics, read by the admin side.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::telemetry::histogram::Histogram;

/// Counters since start and gauges of now.
#[derive(Debug, Default)]
pub struct GrpcMetrics {
    pub calls: Counter,
    /// Calls whose answer began with an error.
    pub calls_failed: Counter,
    pub list_objects: Counter,
    pub list_bytes: Counter,
    pub watches_open: Gauge,
    pub watches: Counter,
    pub syncs_open: Gauge,
    /// Frames of watches, and what they take encoded.
    pub frames: Counter,
    pub bytes: Counter,
    pub events: Counter,
    /// From the receipt of an event to its message for the client's stream. A message counts with its oldest event.
    pub event_lag: Histogram,
    /// Watches that had to begin anew.
    pub resets: Counter,
    /// Changes that later ones took the place of.
    pub conflated: Counter,
    /// Changes that wait for the consumers of conflated watches, and the objects they hold.
    pub pending: Gauge,
    pub pending_bytes: Gauge,
}

#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

/// Raises a gauge of the metrics while it lives.
#[derive(Debug)]
pub(super) struct Raised {
    metrics: Arc<GrpcMetrics>,
    gauge: fn(&GrpcMetrics) -> &Gauge,
}

// === impl GrpcMetrics ===

impl GrpcMetrics {
    /// Raises the gauge until the returned value is dropped.
    pub(super) fn raise(self: &Arc<Self>, gauge: fn(&Self) -> &Gauge) -> Raised {
        gauge(self).change(0, 1);
        Raised { metrics: Arc::clone(self), gauge }
    }
}

// === impl Counter ===

impl Counter {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub fn inc(&self) {
        self.add(1);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

// === impl Gauge ===

impl Gauge {
    /// What was this much is now that much.
    pub(super) fn change(&self, from: usize, to: usize) {
        let by = i64::try_from(to).unwrap_or(i64::MAX) - i64::try_from(from).unwrap_or(i64::MAX);
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

// === impl Raised ===

impl Drop for Raised {
    fn drop(&mut self) {
        (self.gauge)(&self.metrics).change(1, 0);
    }
}
