//! Registers the metrics of all modules in one registry. Their names and labels are a contract with dashboards and
//! alerts.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::introspect::traffic;
use crate::apiserver::client::Upstream;
use crate::auth::Access;
use crate::authority::SignerMetrics;
use crate::grpc::{Groups, GrpcMetrics};
use crate::http::HttpMetrics;
use crate::informer::Factory;
use crate::passthrough::Forward;
use crate::reads::ReadMetrics;
use crate::telemetry::histogram;

/// The modules that have metrics of their own.
pub(super) struct Rooms<'a> {
    pub(super) access: &'a Access,
    pub(super) signer: &'a SignerMetrics,
    pub(super) forward: &'a Forward,
    pub(super) groups: &'a Groups,
    pub(super) traffic: Traffic,
}

/// Incoming and outgoing traffic. No module knows alone how many events the apiserver was spared.
#[derive(Clone)]
pub(super) struct Traffic {
    pub(super) factory: Factory,
    pub(super) reads: Arc<ReadMetrics>,
    pub(super) upstream: Upstream,
    pub(super) http: Arc<HttpMetrics>,
    pub(super) grpc: Arc<GrpcMetrics>,
}

// === impl Rooms ===

impl Rooms<'_> {
    pub(super) fn register(self, registry: &mut Registry) {
        let Traffic { factory, reads, upstream, http, grpc } = &self.traffic;
        factory.register(registry);
        reads.register(registry);
        upstream.register(registry);
        http.register(registry);
        grpc.register(registry);
        self.groups.register(registry);
        self.forward.metrics().register(registry);
        self.access.register(registry);
        self.signer.register(registry);
        let lags = [("http", http.event_lag.clone()), ("grpc", grpc.event_lag.clone())];
        let help = "Time from the receipt of an event to its delivery to a client";
        histogram::register(registry, "watch_event_lag_seconds", help, "protocol", lags);
        registry.register_collector(Box::new(self.traffic));
    }
}

// === impl Traffic ===

impl Collector for Traffic {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let traffic = traffic(self.upstream.metrics(), &self.http, &self.grpc);
        let help = "Events that the apiserver was spared since the start";
        // The cost of an idle informerd makes it fall, even below zero.
        let gauge = encoder.encode_descriptor("informerd_spared_events", help, None, MetricType::Gauge)?;
        ConstGauge::new(traffic.spared_events()).encode(gauge)
    }
}

impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Traffic")
    }
}
