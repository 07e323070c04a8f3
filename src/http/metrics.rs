//! What the HTTP side counts: plain atomics, read by the admin side.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use super::clients::Clients;
use crate::telemetry::histogram::Histogram;
use crate::telemetry::lines::LineCounts;

/// Counters since start and gauges of now. Shared; every field is updated with relaxed order.
#[derive(Debug, Default)]
pub struct HttpMetrics {
    pub connections_open: Gauge,
    pub connections_total: Counter,
    /// Connections closed at once because the bound was reached.
    pub connections_refused: Counter,
    /// Connections of delegated listeners whose clients are not authenticated yet.
    pub newcomers_open: Gauge,
    /// Connections that were closed to make room for others.
    pub newcomers_evicted: Counter,
    /// Requests on them that were refused because they were too much.
    pub newcomers_refused: Counter,
    /// Failed accepts (out of file descriptors and the like).
    pub accept_errors: Counter,
    pub tls_handshake_errors: Counter,
    /// Connections that ended with an error of the protocol, the socket or a timeout.
    pub connection_errors: Counter,
    /// Writes to the sockets of HTTP/2 connections, and the pieces that were gathered into them.
    pub http2_writes: Counter,
    pub http2_pieces: Counter,
    /// Requests answered from a cache.
    pub requests_served: Counter,
    /// Requests handed to the apiserver.
    pub requests_forwarded: Counter,
    /// Requests answered with a Status of ours.
    pub requests_refused: Counter,
    pub upgrades_open: Gauge,
    pub watches_open: Gauge,
    pub watches_total: Counter,
    pub watch_events: Counter,
    pub watch_bytes: Counter,
    /// Watches ended because of a drain.
    pub watches_drained: Counter,
    /// Watches that ended with an ERROR event.
    pub watches_failed: Counter,
    pub list_objects: Counter,
    pub list_bytes: Counter,
    pub get_bytes: Counter,
    /// Gets and lists answered compressed.
    pub gzip_responses: Counter,
    /// Answers that were compressed: the other compressed responses shared one of them.
    pub gzip_compressions: Counter,
    /// What went into the compression, and what came out.
    pub gzip_bytes_in: Counter,
    pub gzip_bytes_out: Counter,
    /// Compressed bytes in memory, kept or being sent.
    pub gzip_memory: Gauge,
    /// List bodies given up because the client stopped taking them.
    pub lists_stalled: Counter,
    /// From the request to the head of its answer.
    pub latencies: Latencies,
    /// From the receipt of an event to its frame for the client's connection. A frame counts with its oldest event.
    pub event_lag: Histogram,
    /// Lines of the access log.
    pub access_log: Arc<LineCounts>,
    pub clients: Clients,
}

/// Times by how requests were answered, in the words of `informerd_reads_total`.
#[derive(Debug, Default)]
pub struct Latencies([Histogram; PLANS.len()]);

const PLANS: [&str; 5] = ["serve", "wait", "old", "forward", "refuse"];

#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

/// Raises a gauge of the metrics while it lives.
#[derive(Debug)]
pub struct Raised {
    metrics: Arc<HttpMetrics>,
    gauge: fn(&HttpMetrics) -> &Gauge,
}

// === impl HttpMetrics ===

impl HttpMetrics {
    /// Raises the gauge until the returned value is dropped.
    pub fn raise(self: &Arc<Self>, gauge: fn(&Self) -> &Gauge) -> Raised {
        gauge(self).0.fetch_add(1, Ordering::Relaxed);
        Raised { metrics: Arc::clone(self), gauge }
    }
}

// === impl Latencies ===

impl Latencies {
    pub(super) fn observe(&self, plan: &str, duration: Duration) {
        if let Some(at) = PLANS.iter().position(|known| *known == plan) {
            self.0[at].observe(duration);
        }
    }

    pub fn by_plan(&self) -> impl Iterator<Item = (&'static str, &Histogram)> {
        PLANS.into_iter().zip(&self.0)
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
    pub fn add(&self, n: i64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

// === impl Raised ===

impl Drop for Raised {
    fn drop(&mut self) {
        (self.gauge)(&self.metrics).0.fetch_sub(1, Ordering::Relaxed);
    }
}
