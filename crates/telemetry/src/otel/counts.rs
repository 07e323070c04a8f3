//! Counters for the results of the export. They are global, because the process has only one exporter.

use std::sync::LazyLock;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

pub(super) static COUNTS: LazyLock<Counts> = LazyLock::new(Counts::default);

/// Spans are counted one by one. A metrics reading counts as one, with all its metrics.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) spans_waiting: Gauge,
    pub(super) spans_sent: Counter,
    pub(super) spans_failed: Counter,
    pub(super) spans_dropped: Counter,
    pub(super) metrics_sent: Counter,
    pub(super) metrics_failed: Counter,
}

/// Registers the counters of the export. They exist even without an export.
pub(in super::super) fn register(registry: &mut Registry) {
    let counts = &*COUNTS;
    for (name, help, counter) in [
        ("spans_sent", "Spans that a collector accepted", &counts.spans_sent),
        ("spans_failed", "Spans that could not be sent", &counts.spans_failed),
        ("spans_dropped", "Spans dropped because the queue was full", &counts.spans_dropped),
        ("metrics_sent", "Exports of all metrics that a collector accepted", &counts.metrics_sent),
        ("metrics_failed", "Exports of all metrics that failed", &counts.metrics_failed),
    ] {
        registry.register(format!("informerd_otel_{name}"), help, counter.clone());
    }
    registry.register("informerd_otel_spans_waiting", "Spans waiting to be sent", counts.spans_waiting.clone());
}
