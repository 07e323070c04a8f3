//! Sends readings of all metrics at an interval. The SDK cannot export histograms that it did not count itself. So
//! this module builds the message from the registry that Prometheus also reads.

use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource as ResourceMessage;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_sdk::Resource;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, timeout};

use super::MetricsExport;
use super::connection::Connection;
use super::counts::COUNTS;
use super::families;
use crate::Metrics;

#[derive(Debug)]
pub(super) struct Readings {
    export: MetricsExport,
    connection: Connection,
    registry: watch::Receiver<Option<Metrics>>,
    resource: ResourceMessage,
    /// In nanoseconds since 1970.
    started: u64,
}

// === impl Readings ===

impl Readings {
    pub(super) fn new(
        export: &MetricsExport,
        connection: Connection,
        registry: watch::Receiver<Option<Metrics>>,
        resource: &Resource,
    ) -> Self {
        let attributes = ResourceAttributesWithSchema::from(resource).attributes.0;
        let resource = ResourceMessage { attributes, ..ResourceMessage::default() };
        Self { export: export.clone(), connection, registry, resource, started: now() }
    }

    /// Sends readings until it is stopped, and then one last reading.
    pub(super) async fn run(self, stopped: impl Future<Output = ()>) {
        let mut ticks = tokio::time::interval(self.export.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Skip the first tick: it completes immediately, when there are hardly any values.
        ticks.tick().await;
        tokio::pin!(stopped);
        loop {
            let going = tokio::select! {
                _ = ticks.tick() => true,
                () = &mut stopped => false,
            };
            self.send().await;
            if !going {
                return;
            }
        }
    }

    async fn send(&self) {
        let Some(registry) = self.registry.borrow().clone() else { return };
        let metrics = families::metrics(registry.families(), self.started, now());
        let scope_metrics = vec![ScopeMetrics { metrics, ..ScopeMetrics::default() }];
        let resource = Some(self.resource.clone());
        let resource_metrics = vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }];
        let message = ExportMetricsServiceRequest { resource_metrics };
        let sent = timeout(self.export.timeout, self.connection.send_metrics(message)).await;
        match sent.unwrap_or_else(|late| Err(late.into())) {
            Ok(()) => drop(COUNTS.metrics_sent.inc()),
            Err(error) => {
                COUNTS.metrics_failed.inc();
                tracing::debug!(%error, "metrics are not sent");
            }
        }
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
