//! Metrics of the HTTP side.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::clients::Clients;
use crate::telemetry::histogram::{self, Histogram};
use crate::telemetry::lines::LineCounts;
use crate::telemetry::stripes::StripedCounter;

/// Counters since the start, and gauges of the current state. Shared. [`Self::register`] says what they count.
#[derive(Debug, Default)]
pub struct HttpMetrics {
    pub connections_open: Gauge,
    pub connections_total: Counter,
    pub connections_refused: Counter,
    pub newcomers_open: Gauge,
    pub newcomers_evicted: Counter,
    pub newcomers_refused: Counter,
    pub heads_cut: Counter,
    pub answers_reset: Counter,
    pub requests_waiting: Gauge,
    /// Failed accepts (for example because no file descriptors are left).
    pub accept_errors: Counter,
    pub tls_handshake_errors: Counter,
    /// Connections that ended with an error of the protocol, the socket or a timeout.
    pub connection_errors: Counter,
    /// Writes to the sockets of HTTP/2 connections, and the pieces that were combined into them.
    pub http2_writes: Counter,
    pub http2_pieces: Counter,
    pub requests_served: Counter,
    pub requests_forwarded: Counter,
    /// Requests that informerd answered with a Status of its own.
    pub requests_refused: Counter,
    pub upgrades_open: Gauge,
    pub watches_open: Gauge,
    pub watches_total: Counter,
    pub watch_events: StripedCounter,
    pub watch_bytes: StripedCounter,
    pub watches_drained: Counter,
    pub watches_failed: Counter,
    pub list_objects: Counter,
    pub list_bytes: Counter,
    pub get_bytes: Counter,
    pub gzip_responses: Counter,
    pub gzip_compressions: Counter,
    pub gzip_bytes_in: Counter,
    pub gzip_bytes_out: Counter,
    pub gzip_memory: Gauge,
    /// List bodies that were abandoned because the client stopped reading.
    pub lists_stalled: Counter,
    /// From the request to the headers of its answer.
    pub latencies: Latencies,
    /// From the receipt of an event to its frame for the client's connection. A frame counts with the time of its
    /// oldest event.
    pub event_lag: Histogram,
    pub access_log: Arc<LineCounts>,
    pub clients: Clients,
}

/// Latencies by how requests were answered, labelled as in `informerd_reads_total`.
#[derive(Debug, Default)]
pub struct Latencies([Histogram; PLANS.len()]);

const PLANS: [&str; 5] = ["serve", "wait", "old", "forward", "refuse"];

// === impl HttpMetrics ===

impl HttpMetrics {
    /// Registers the metrics of this module.
    pub fn register(&self, registry: &mut Registry) {
        let (name, help) = ("request_duration_seconds", "Time from a request to the beginning of its answer");
        let latencies = PLANS.into_iter().zip(self.latencies.0.iter().cloned());
        histogram::register(registry, name, help, "plan", latencies);
        let registry = registry.sub_registry_with_prefix("informerd");
        for (name, help, gauge) in [
            ("http_connections", "Open client connections", &self.connections_open),
            (
                "http_newcomers",
                "Connections of authenticating listeners whose clients are not authenticated yet",
                &self.newcomers_open,
            ),
            ("http_watches", "Open watches that are served from a cache", &self.watches_open),
            ("http_gzip_memory_bytes", "Compressed answers in memory, kept or being sent", &self.gzip_memory),
            (
                "http_requests_waiting",
                "Requests over HTTP/2 that wait until fewer of their connection are handled",
                &self.requests_waiting,
            ),
            ("http_upgrades", "Open upgraded connections", &self.upgrades_open),
        ] {
            registry.register(name, help, gauge.clone());
        }
        registry.register("http_watch_events", "Events sent to watches", self.watch_events.clone());
        registry.register("http_watch_bytes", "Bytes sent to watches", self.watch_bytes.clone());
        for (name, help, counter) in [
            ("http_connections_accepted", "Connections accepted", &self.connections_total),
            ("http_connections_refused", "Connections closed because a limit was reached", &self.connections_refused),
            (
                "http_newcomers_evicted",
                "Connections closed in favour of newer ones before their clients were authenticated",
                &self.newcomers_evicted,
            ),
            (
                "http_newcomers_refused",
                "Requests refused because of the limits for clients that are not authenticated",
                &self.newcomers_refused,
            ),
            (
                "http_heads_cut",
                "Connections closed because the head of a request took too long or too much memory",
                &self.heads_cut,
            ),
            (
                "http_answers_reset",
                "Small answers over HTTP/2 that were reset because their client did not read too many of them",
                &self.answers_reset,
            ),
            ("http_connection_errors", "Connections that ended with an error", &self.connection_errors),
            ("http2_writes", "Writes to the sockets of HTTP/2 connections", &self.http2_writes),
            ("http2_pieces", "Frames gathered into writes of HTTP/2 connections", &self.http2_pieces),
            ("http_accept_errors", "Failed accepts", &self.accept_errors),
            ("http_tls_handshake_errors", "Failed TLS handshakes", &self.tls_handshake_errors),
            ("http_requests_served", "Requests answered from a cache", &self.requests_served),
            ("http_requests_forwarded", "Requests forwarded to the apiserver", &self.requests_forwarded),
            ("http_requests_refused", "Requests that informerd answered with an error", &self.requests_refused),
            ("http_watches_opened", "Watches opened from a cache", &self.watches_total),
            ("http_watches_drained", "Watches ended by the drain", &self.watches_drained),
            ("http_watches_failed", "Watches ended with an error event", &self.watches_failed),
            ("http_list_objects", "Objects sent in lists", &self.list_objects),
            ("http_list_bytes", "Bytes sent in lists", &self.list_bytes),
            ("http_get_bytes", "Bytes sent in gets", &self.get_bytes),
            ("http_gzip_responses", "Gets and lists sent compressed", &self.gzip_responses),
            (
                "http_gzip_compressions",
                "Answers compressed; further compressed responses reused one of them",
                &self.gzip_compressions,
            ),
            ("http_gzip_bytes_in", "Bytes that were compressed", &self.gzip_bytes_in),
            ("http_gzip_bytes_out", "Bytes they were compressed to", &self.gzip_bytes_out),
            ("access_log_lines", "Lines of the access log written", &self.access_log.written),
            (
                "access_log_dropped",
                "Lines of the access log dropped because the buffer was full or they could not be written",
                &self.access_log.dropped,
            ),
            (
                "http_lists_stalled",
                "Lists, and answers over gRPC, aborted because the client read nothing",
                &self.lists_stalled,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
    }
}

// === impl Latencies ===

impl Latencies {
    pub(in crate::http) fn observe(&self, plan: &str, duration: Duration) {
        if let Some(at) = PLANS.iter().position(|known| *known == plan) {
            self.0[at].observe(duration);
        }
    }

    /// The requests that were answered, by plan.
    pub fn counts(&self) -> [u64; PLANS.len()] {
        std::array::from_fn(|plan| self.0[plan].read().count)
    }
}
