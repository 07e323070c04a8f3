//! What became of what was to be exported. The process has one exporter, so these are its own.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

pub(super) static SPANS: Counts = Counts::new();
/// Counts messages, each with all metrics.
pub(super) static METRICS: Counts = Counts::new();

/// What became of the items of one signal.
#[derive(Debug)]
pub(super) struct Counts {
    waiting: AtomicI64,
    sent: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Debug)]
pub(in super::super) struct ExportCollector;

// === impl Counts ===

impl Counts {
    const fn new() -> Self {
        let zero = AtomicU64::new;
        Self { waiting: AtomicI64::new(0), sent: zero(0), failed: zero(0), dropped: zero(0) }
    }

    pub(super) fn queued(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// No longer waiting.
    pub(super) fn taken(&self, count: u64) {
        self.waiting.fetch_sub(i64::try_from(count).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// No room.
    pub(super) fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn sent(&self, count: u64, rejected: u64) {
        self.sent.fetch_add(count.saturating_sub(rejected), Ordering::Relaxed);
        self.failed.fetch_add(rejected, Ordering::Relaxed);
    }

    pub(super) fn failed(&self, count: u64) {
        self.failed.fetch_add(count, Ordering::Relaxed);
    }
}

// === impl ExportCollector ===

impl Collector for ExportCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        for (name, help, count) in [
            ("informerd_otel_spans_sent", "Spans a collector has taken", load(&SPANS.sent)),
            ("informerd_otel_spans_failed", "Spans that could not be sent", load(&SPANS.failed)),
            ("informerd_otel_spans_dropped", "Spans that found no room in the queue", load(&SPANS.dropped)),
            ("informerd_otel_metrics_sent", "Readings of all metrics a collector has taken", load(&METRICS.sent)),
            ("informerd_otel_metrics_failed", "Readings of all metrics that could not be sent", load(&METRICS.failed)),
        ] {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(count).encode(metric)?;
        }
        let waiting = SPANS.waiting.load(Ordering::Relaxed).max(0);
        let help = "Spans that wait to be sent";
        let metric = encoder.encode_descriptor("informerd_otel_spans_waiting", help, None, MetricType::Gauge)?;
        ConstGauge::new(waiting as f64).encode(metric)
    }
}
