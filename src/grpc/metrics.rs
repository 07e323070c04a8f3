//! What the gRPC side counts: plain atomics, read by the admin side.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Counters since start and gauges of now.
#[derive(Debug, Default)]
pub struct GrpcMetrics {
    pub calls: Counter,
    /// Calls whose answer began with an error.
    pub calls_failed: Counter,
    pub list_objects: Counter,
    pub list_bytes: Counter,
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
    by: i64,
}

// === impl GrpcMetrics ===

impl GrpcMetrics {
    /// Raises the gauge until the returned value is dropped.
    pub(super) fn raise(self: &Arc<Self>, gauge: fn(&Self) -> &Gauge) -> Raised {
        gauge(self).0.fetch_add(1, Ordering::Relaxed);
        Raised { metrics: Arc::clone(self), gauge, by: 1 }
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
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

// === impl Raised ===

impl Drop for Raised {
    fn drop(&mut self) {
        (self.gauge)(&self.metrics).0.fetch_sub(self.by, Ordering::Relaxed);
    }
}
