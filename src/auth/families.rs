//! All metrics of this module, with the values that are computed at a scrape.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::access::Access;

/// Values that are computed at a scrape.
#[derive(Debug)]
struct Remembered(Access);

// === impl Access ===

impl Access {
    /// Registers the metrics of this module, including the cache sizes.
    pub fn register(&self, registry: &mut Registry) {
        self.metrics().register(registry);
        registry.sub_registry_with_prefix("informerd").register_collector(Box::new(Remembered(self.clone())));
    }
}

// === impl Remembered ===

impl Collector for Remembered {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (credentials, decisions) = self.0.remembered();
        for (name, help, count) in [
            ("auth_credentials", "Cached credentials, as hashes", credentials),
            ("auth_decisions", "Cached decisions", decisions),
        ] {
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(count as f64).encode(gauge)?;
        }
        Ok(())
    }
}
