//! Traces and metrics for an OpenTelemetry collector, by OTLP. A thread of its own sends them: whatever becomes of the
//! collector, traffic only ever meets a queue with a bound.

mod config;
mod counts;
mod exposition;
mod queue;
mod sender;

use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::TracerProvider;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource as ResourceMessage;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, SpanData};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, timeout, timeout_at};

pub use config::{MetricsExport, OtelConfig, OtlpTarget, Protocol, SpansExport, TraceSampler};
pub(super) use counts::ExportCollector;

use self::counts::{METRICS, SPANS};
use self::queue::Queue;
use self::sender::{Failure, Sender};
use super::Metrics;

/// How long the end of the process waits for what is still to be sent.
const FLUSH: Duration = Duration::from_secs(2);
/// Between two attempts to send the same spans: doubled each time.
const PAUSE: Duration = Duration::from_secs(1);
const ATTEMPTS: u32 = 5;

/// The running export; what is left is sent, for a bounded time, when it is finished or dropped.
#[derive(Debug)]
pub struct Otel {
    tracer: Option<SdkTracer>,
    registry: watch::Sender<Option<Metrics>>,
    stop: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What of it goes wrong before anything is sent.
#[derive(Debug, thiserror::Error)]
pub enum OtelError {
    #[error("starting the thread that sends telemetry: {0}")]
    Thread(std::io::Error),
    #[error("{0}")]
    Tls(String),
}

struct Spans {
    export: SpansExport,
    sender: Sender,
    queue: mpsc::Receiver<SpanData>,
    resource: ResourceAttributesWithSchema,
}

struct Readings {
    export: MetricsExport,
    sender: Sender,
    registry: watch::Receiver<Option<Metrics>>,
    resource: ResourceMessage,
    started: SystemTime,
}

// === impl Otel ===

impl Otel {
    /// Starts the thread, unless there is nothing to send.
    ///
    /// # Errors
    /// The certificates of the configuration are of no use, or the system gives no thread.
    pub fn start(config: &OtelConfig) -> Result<Self, OtelError> {
        let resource = resource(config);
        let (registry, metrics) = watch::channel(None);
        let (stop, stopped) = watch::channel(());
        let mut otel = Self { tracer: None, registry, stop: None, thread: None };
        let spans = match &config.spans {
            None => None,
            Some(export) => {
                let (queue, receiver) = mpsc::channel(export.queue);
                let provider = SdkTracerProvider::builder()
                    .with_span_processor(Queue::new(queue))
                    .with_sampler(export.sampler.sampler())
                    .with_resource(resource.clone())
                    .build();
                otel.tracer = Some(provider.tracer("informerd"));
                let sender = Sender::new(&export.target, sender::TRACES)?;
                Some(Spans { export: export.clone(), sender, queue: receiver, resource: (&resource).into() })
            }
        };
        let readings = match &config.metrics {
            None => None,
            Some(export) => {
                let attributes = ResourceAttributesWithSchema::from(&resource).attributes.0;
                let resource = ResourceMessage { attributes, ..ResourceMessage::default() };
                let sender = Sender::new(&export.target, sender::METRICS)?;
                let (export, started) = (export.clone(), SystemTime::now());
                Some(Readings { export, sender, registry: metrics, resource, started })
            }
        };
        if spans.is_none() && readings.is_none() {
            return Ok(otel);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(OtelError::Thread)?;
        let body = move || {
            runtime.block_on(async {
                let spans = async {
                    if let Some(spans) = spans {
                        spans.run(stopped.clone()).await;
                    }
                };
                let readings = async {
                    if let Some(readings) = readings {
                        readings.run(stopped.clone()).await;
                    }
                };
                let all = async { tokio::join!(spans, readings) };
                let bound = async {
                    ended(stopped.clone()).await;
                    tokio::time::sleep(FLUSH).await;
                };
                tokio::select! { _ = all => {}, () = bound => {} }
            });
            // A name that is being looked up is not waited for.
            runtime.shutdown_background();
        };
        otel.stop = Some(stop);
        let thread = std::thread::Builder::new().name("telemetry".to_owned()).spawn(body);
        otel.thread = Some(thread.map_err(OtelError::Thread)?);
        Ok(otel)
    }

    /// Makes spans, if they are to be exported.
    pub(super) fn tracer(&self) -> Option<SdkTracer> {
        self.tracer.clone()
    }

    /// The registry whose metrics are sent from now on.
    pub fn export(&self, metrics: Metrics) {
        self.registry.send_replace(Some(metrics));
    }
}

impl Drop for Otel {
    fn drop(&mut self) {
        drop(self.stop.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the telemetry thread panicked");
        }
    }
}

async fn ended(mut stopped: watch::Receiver<()>) {
    while stopped.changed().await.is_ok() {}
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
    // The last one of a name counts.
    Resource::builder_empty().with_attributes(all.map(|(key, value)| opentelemetry::KeyValue::new(key, value))).build()
}

// === impl Spans ===

impl Spans {
    async fn run(mut self, stopped: watch::Receiver<()>) {
        let mut batch = Vec::new();
        let mut going = true;
        while going {
            tokio::select! {
                biased;
                () = ended(stopped.clone()) => going = false,
                got = self.queue.recv_many(&mut batch, self.export.batch) => going = got > 0,
            }
            let full = async {
                let until = Instant::now() + self.export.delay;
                while batch.len() < self.export.batch {
                    let room = self.export.batch - batch.len();
                    match timeout_at(until, self.queue.recv_many(&mut batch, room)).await {
                        Ok(got) if got > 0 => {}
                        _ => return,
                    }
                }
            };
            tokio::select! { () = full => {}, () = ended(stopped.clone()) => going = false }
            self.send(std::mem::take(&mut batch), &stopped).await;
        }
        // What has come until now, and nothing that comes while it is sent.
        for _ in 0..=self.export.queue / self.export.batch {
            while let (true, Ok(span)) = (batch.len() < self.export.batch, self.queue.try_recv()) {
                batch.push(span);
            }
            self.send(std::mem::take(&mut batch), &stopped).await;
        }
    }

    async fn send(&self, batch: Vec<SpanData>, stopped: &watch::Receiver<()>) {
        let count = batch.len() as u64;
        if count == 0 {
            return;
        }
        SPANS.taken(count);
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        let message = ExportTraceServiceRequest { resource_spans };
        let all = timeout(self.export.timeout, self.attempts(&message, stopped)).await;
        match all.unwrap_or_else(|_| Err(Failure::Final("no answer in time".to_owned()))) {
            Ok(rejected) => SPANS.sent(count, rejected),
            Err(failure) => {
                SPANS.failed(count);
                tracing::debug!(%failure, spans = count, "spans are lost");
            }
        }
    }

    async fn attempts(
        &self,
        message: &ExportTraceServiceRequest,
        stopped: &watch::Receiver<()>,
    ) -> Result<u64, Failure> {
        let mut pause = PAUSE;
        for _ in 1..ATTEMPTS {
            match self.sender.send_spans(message).await {
                Err(Failure::Retry { after, reason }) => {
                    tracing::debug!(reason, "spans are sent again");
                    tokio::select! {
                        () = tokio::time::sleep(after.unwrap_or_else(|| pause.mul_f64(rand::random_range(0.5..1.0)))) => {}
                        () = ended(stopped.clone()) => break,
                    }
                    pause *= 2;
                }
                done => return done,
            }
        }
        self.sender.send_spans(message).await
    }
}

// === impl Readings ===

impl Readings {
    async fn run(self, stopped: watch::Receiver<()>) {
        let mut ticks = tokio::time::interval(self.export.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is at once, when there is little to tell.
        ticks.tick().await;
        loop {
            let going = tokio::select! {
                _ = ticks.tick() => true,
                () = ended(stopped.clone()) => false,
            };
            self.send().await;
            if !going {
                return;
            }
        }
    }

    async fn send(&self) {
        let Some(registry) = self.registry.borrow().clone() else { return };
        let metrics = exposition::metrics(&registry.encode(), self.started, SystemTime::now());
        let scope_metrics = vec![ScopeMetrics { metrics, ..ScopeMetrics::default() }];
        let resource = Some(self.resource.clone());
        let resource_metrics = vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }];
        let message = ExportMetricsServiceRequest { resource_metrics };
        let sent = timeout(self.export.timeout, self.sender.send_metrics(&message)).await;
        // Not sent again: the next reading tells the same and more.
        match sent.unwrap_or_else(|_| Err(Failure::Final("no answer in time".to_owned()))) {
            Ok(_) => METRICS.sent(1, 0),
            Err(failure) => {
                METRICS.failed(1);
                tracing::debug!(%failure, "metrics are not sent");
            }
        }
    }
}
