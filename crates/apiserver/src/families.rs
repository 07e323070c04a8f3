//! The state of the apiserver, and the requests to it, as metric families.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::client::Upstream;

/// Collects what is known at the time of a scrape.
struct Families(Upstream);

// === impl Upstream ===

impl Upstream {
    /// Registers the metrics of this module.
    pub fn register(&self, registry: &mut Registry) {
        self.metrics().register(registry);
        registry.sub_registry_with_prefix("informerd").register_collector(Box::new(Families(self.clone())));
    }
}

// === impl Families ===

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (health, metrics) = (self.0.health(), self.0.metrics());
        let unreachable = if health.reachable { 0 } else { health.since.elapsed().as_secs() };
        let silent = metrics.heard.get().unwrap_or(health.since).elapsed().as_secs();
        for (name, help, value) in [
            (
                "upstream_reachable",
                "Whether the last request to the apiserver got an answer",
                u64::from(self.0.is_reachable()),
            ),
            (
                "upstream_unreachable_seconds",
                "Seconds for which no request to the apiserver got an answer; 0 while they do",
                unreachable,
            ),
            (
                "upstream_away",
                "Whether the apiserver was looked for, and nothing was there",
                u64::from(self.0.away().is_some()),
            ),
            ("upstream_silent_seconds", "Seconds since the apiserver last sent anything", silent),
        ] {
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value as f64).encode(gauge)?;
        }
        let help = "Requests to the apiserver";
        let mut requests = encoder.encode_descriptor("upstream_requests", help, None, MetricType::Counter)?;
        for (series, count) in metrics.requests() {
            let code = series.code.to_string();
            let labels = [("verb", series.verb.as_str()), ("resource", &*series.resource), ("code", code.as_str())];
            ConstCounter::new(count).encode(requests.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Families")
    }
}
