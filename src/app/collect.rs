//! Registers the metrics of all modules in one registry. Their names and labels are a contract with dashboards and
//! alerts.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::apiserver::client::Upstream;
use crate::auth::Access;
use crate::authority::SignerMetrics;
use crate::grpc::{Groups, GrpcMetrics};
use crate::http::HttpMetrics;
use crate::informer::Factory;
use crate::passthrough::Forward;
use crate::reads::ReadMetrics;
use crate::telemetry::histogram;

/// Incoming and outgoing traffic. No module knows alone how many events the apiserver was spared.
#[derive(Clone)]
pub(super) struct Traffic {
    pub(super) factory: Factory,
    pub(super) reads: Arc<ReadMetrics>,
    pub(super) upstream: Upstream,
    pub(super) http: Arc<HttpMetrics>,
    pub(super) grpc: Arc<GrpcMetrics>,
}

/// Registers the metrics of the modules that have some of their own.
pub(super) fn register(
    registry: &mut Registry,
    access: &Access,
    signer: &SignerMetrics,
    forward: &Forward,
    groups: &Groups,
    traffic: &Traffic,
) {
    let Traffic { factory, reads, upstream, http, grpc } = traffic;
    factory.register(registry);
    reads.register(registry);
    upstream.register(registry);
    http.register(registry);
    grpc.register(registry);
    groups.register(registry);
    forward.metrics().register(registry);
    access.register(registry);
    signer.register(registry);
    let lags = [("http", http.event_lag.clone()), ("grpc", grpc.event_lag.clone())];
    let help = "Time from the receipt of an event to its delivery to a client";
    histogram::register(registry, "watch_event_lag_seconds", help, "protocol", lags);
    registry.register_collector(Box::new(traffic.clone()));
}

// === impl Traffic ===

impl Traffic {
    /// The traffic to clients and the traffic from the apiserver.
    pub(super) fn counts(&self) -> informerd_status::Traffic {
        let (upstream, http, grpc) = (self.upstream.metrics(), &self.http, &self.grpc);
        informerd_status::Traffic {
            answered: http.latencies.counts().iter().sum(),
            asked: upstream.own() + upstream.forwarded(),
            sent_bytes: http.clients.sent_bytes(),
            received_bytes: upstream.received_bytes.get(),
            sent_events: http.watch_events.get() + grpc.events.get(),
            received_events: upstream.received_events.get(),
        }
    }
}

impl Collector for Traffic {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Events that the apiserver was spared since the start";
        // The cost of an idle informerd makes it fall, even below zero.
        let gauge = encoder.encode_descriptor("informerd_spared_events", help, None, MetricType::Gauge)?;
        ConstGauge::new(self.counts().spared_events()).encode(gauge)
    }
}

impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Traffic")
    }
}
