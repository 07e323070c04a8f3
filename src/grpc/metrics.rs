//! What the gRPC side counts: plain atomics, read by the admin side.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters since start.
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
