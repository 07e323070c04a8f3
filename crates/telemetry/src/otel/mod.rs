//! Traces and metrics for an OpenTelemetry collector, by OTLP. A separate thread sends them. A problem with the
//! collector never blocks traffic, which only writes to a bounded queue.

mod config;
mod connection;
mod counts;
mod families;
mod readings;
mod spans;

use std::sync::mpsc;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::{self, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use config::{MetricsExport, OtelConfig, OtlpTarget, Protocol, SpansExport, TraceSampler};
pub(super) use counts::register;

use self::connection::Connection;
use self::readings::Readings;
use self::spans::BoundedProcessor;
use super::Metrics;
use informerd_lifecycle as lifecycle;

/// How long the process waits at its end for the remaining data to be sent.
const FLUSH: Duration = Duration::from_secs(2);

/// The running export. When it is dropped, it sends the remaining data, for a limited time.
#[derive(Debug)]
pub struct Otel {
    registry: watch::Sender<Option<Metrics>>,
    running: Option<Running>,
}

/// The thread that sends, and the data that it sends.
#[derive(Debug)]
struct Running {
    runtime: Runtime,
    spans: Option<SdkTracerProvider>,
    readings: Option<JoinHandle<()>>,
    /// Dropped to stop the readings.
    stop: watch::Sender<()>,
}

// === impl Otel ===

impl Otel {
    /// Starts the thread, unless nothing is exported.
    ///
    /// # Errors
    /// The configured certificates are invalid, or the thread cannot be created.
    pub fn start(config: &OtelConfig) -> Result<Self, String> {
        let (registry, metrics) = watch::channel(None);
        if config.spans.is_none() && config.metrics.is_none() {
            return Ok(Self { registry, running: None });
        }
        let resource = resource(config);
        // A separate worker thread, so that the caller may block while the last data is sent.
        let mut runtime = runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).thread_name("telemetry").enable_all().build();
        let runtime = runtime.map_err(|error| format!("starting the thread that sends telemetry: {error}"))?;
        let within = runtime.enter();
        let (stop, mut stopped) = watch::channel(());
        let (mut spans, mut readings) = (None, None);
        if let Some(export) = &config.spans {
            let exporter = Connection::new(&export.target)?.span_exporter(export.timeout);
            let exporter = exporter.map_err(|error| format!("the export of traces: {error}"))?;
            let provider = SdkTracerProvider::builder()
                .with_span_processor(BoundedProcessor::new(export, exporter))
                .with_sampler(export.sampler.sampler())
                .with_resource(resource.clone());
            spans = Some(provider.build());
        }
        if let Some(export) = &config.metrics {
            let sent = Readings::new(export, Connection::new(&export.target)?, metrics, &resource);
            let stopped = async move { while stopped.changed().await.is_ok() {} };
            readings = Some(lifecycle::spawn("telemetry-metrics", sent.run(stopped)));
        }
        drop(within);
        Ok(Self { registry, running: Some(Running { runtime, spans, readings, stop }) })
    }

    /// Creates spans, if they are exported.
    pub(super) fn tracer(&self) -> Option<SdkTracer> {
        Some(self.running.as_ref()?.spans.as_ref()?.tracer("informerd"))
    }

    /// Sets the registry whose metrics are sent from now on.
    pub fn export(&self, metrics: Metrics) {
        self.registry.send_replace(Some(metrics));
    }
}

impl Drop for Otel {
    fn drop(&mut self) {
        let Some(Running { runtime, spans, readings, stop }) = self.running.take() else { return };
        drop(stop);
        let (done, all_done) = mpsc::sync_channel(1);
        let within = runtime.enter();
        // It blocks until the last spans are sent.
        let flushed = runtime.spawn_blocking(move || spans.map(|spans| spans.shutdown()));
        lifecycle::spawn("telemetry-flush", async move {
            flushed.await.ok();
            if let Some(readings) = readings {
                readings.await.ok();
            }
            done.send(()).ok();
        });
        if all_done.recv_timeout(FLUSH).is_err() {
            tracing::debug!("the collector has not taken the last of the telemetry in time");
        }
        drop(within);
        // Do not wait for a collector or for a pending name lookup.
        runtime.shutdown_background();
    }
}

fn resource(config: &OtelConfig) -> Resource {
    let own = [
        ("service.name", "informerd"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("telemetry.sdk.name", "opentelemetry"),
        ("telemetry.sdk.language", "rust"),
    ];
    let instance = ("service.instance.id".to_owned(), uuid::Uuid::new_v4().to_string());
    let own = own.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).chain([instance]);
    let all = own.chain(config.resource.iter().cloned());
    // If a name occurs more than once, the last attribute counts.
    Resource::builder_empty().with_attributes(all.map(|(key, value)| opentelemetry::KeyValue::new(key, value))).build()
}
