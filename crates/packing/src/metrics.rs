//! The metrics of this room.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::Packing;

// === impl Packing ===

impl Collector for Packing {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let stats = self.stats();
        for (name, help, value) in [
            ("informerd_packed_objects", "Objects that are packed at present", stats.objects as i64),
            (
                "informerd_packed_saved_bytes",
                "Memory saved by packed objects, minus their dictionaries",
                stats.saved_bytes,
            ),
            (
                "informerd_packing_hot_bytes",
                "Size of the objects that stay unpacked because they are read",
                stats.hot_bytes as i64,
            ),
        ] {
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(gauge)?;
        }
        for (name, help, value) in [
            ("informerd_objects_packed", "Times that an object was packed", stats.packed_total),
            ("informerd_objects_unpacked", "Times that a packed object was unpacked to be read", stats.unpacked_total),
            ("informerd_dictionaries_trained", "Dictionaries trained to pack objects", stats.trained_total),
        ] {
            let counter = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(value).encode(counter)?;
        }
        Ok(())
    }
}
