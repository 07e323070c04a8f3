//! How long things take, as metric families. No label is of a client's making.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::grpc::GrpcMetrics;
use crate::http::HttpMetrics;
use crate::informer::Factory;
use crate::telemetry::histogram::Histogram;

/// Reads the histograms of all rooms when scraped.
pub(super) struct Distributions {
    pub(super) factory: Factory,
    pub(super) http: Arc<HttpMetrics>,
    pub(super) grpc: Arc<GrpcMetrics>,
}

/// One family: its name, its help, its label, and a histogram for each value of that.
type Family<'a> = (&'static str, &'static str, &'static str, Vec<(&'static str, &'a Histogram)>);

// === impl Distributions ===

impl Collector for Distributions {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let proofs = self.factory.proofs();
        let families: [Family<'_>; 3] = [
            (
                "informerd_proof_duration_seconds",
                "How long reads waited for the proof that a cache is fresh enough",
                "result",
                vec![("proved", &proofs.proved), ("failed", &proofs.failed)],
            ),
            (
                "informerd_request_duration_seconds",
                "From a request to the beginning of its answer",
                "plan",
                self.http.latencies.by_plan().collect(),
            ),
            (
                "informerd_watch_event_lag_seconds",
                "From the receipt of an event to its way out to a client",
                "protocol",
                vec![("http", &self.http.event_lag), ("grpc", &self.grpc.event_lag)],
            ),
        ];
        for (name, help, label, histograms) in families {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for (value, histogram) in histograms {
                let read = histogram.read();
                let labels = [(label, value)];
                let mut series = family.encode_family(&labels)?;
                series.encode_histogram::<NoLabelSet>(read.sum, read.count, &read.buckets, None)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Distributions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Distributions")
    }
}
