//! The metrics registry. The modules register their counters, and collectors for values that are only determined at a
//! scrape. Counters are atomics, so a scrape costs the hot path nothing.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::prometheus_protobuf::{self, prometheus_data_model::MetricFamily};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::otel;
use super::process::ProcessCollector;

/// The content type of the text that [`Metrics::encode`] writes.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics of the process. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<RwLock<Registry>>,
}

// === impl Metrics ===

impl Default for Metrics {
    /// Creates a registry with `informerd_build_info`, the `process_` metrics, and the metrics of the OTLP export.
    fn default() -> Self {
        let mut registry = Registry::default();
        let build = Info::new(vec![
            ("version", env!("CARGO_PKG_VERSION")),
            ("os", std::env::consts::OS),
            ("arch", std::env::consts::ARCH),
        ]);
        registry.register("informerd_build", "Version and platform of informerd", build);
        registry.register_collector(Box::new(ProcessCollector::new()));
        otel::register(&mut registry);
        Self { registry: Arc::new(RwLock::new(registry)) }
    }
}

impl Metrics {
    /// Adds metric families whose values are only determined at a scrape.
    pub fn register(&self, collector: impl Collector) {
        self.registry.write().register_collector(Box::new(collector));
    }

    /// Lets a module register its own metric families. Their names must be complete, including `informerd_`.
    pub fn register_with(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.registry.write());
    }

    /// All metrics in the OpenMetrics text format, which Prometheus reads.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        let done = prometheus_client::encoding::text::encode(&mut text, &self.registry.read());
        encoded(done.map(|()| text))
    }

    /// The same metrics as data. Counters have the names that queries use.
    pub(super) fn families(&self) -> Vec<MetricFamily> {
        encoded(prometheus_protobuf::encode(&self.registry.read()))
    }
}

fn encoded<T: Default>(done: Result<T, fmt::Error>) -> T {
    done.unwrap_or_else(|error| {
        tracing::error!(%error, "metrics not encoded");
        T::default()
    })
}
