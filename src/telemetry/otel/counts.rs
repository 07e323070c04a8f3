//! What became of what was to be exported. The process has one exporter, so these are its own.

use std::sync::LazyLock;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

pub(super) static COUNTS: LazyLock<Counts> = LazyLock::new(Counts::default);

/// Spans one by one, readings each with all metrics.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) spans_waiting: Gauge,
    pub(super) spans_sent: Counter,
    pub(super) spans_failed: Counter,
    pub(super) spans_dropped: Counter,
    pub(super) metrics_sent: Counter,
    pub(super) metrics_failed: Counter,
}

/// Registers the counts of the export. They are there without an export, too.
pub(in super::super) fn register(registry: &mut Registry) {
    let counts = &*COUNTS;
    for (name, help, counter) in [
        ("spans_sent", "Spans a collector has taken", &counts.spans_sent),
        ("spans_failed", "Spans that could not be sent", &counts.spans_failed),
        ("spans_dropped", "Spans that found no room in the queue", &counts.spans_dropped),
        ("metrics_sent", "Readings of all metrics a collector has taken", &counts.metrics_sent),
        ("metrics_failed", "Readings of all metrics that could not be sent", &counts.metrics_failed),
    ] {
        registry.register(format!("informerd_otel_{name}"), help, counter.clone());
    }
    registry.register("informerd_otel_spans_waiting", "Spans that wait to be sent", counts.spans_waiting.clone());
}
