//! Sends spans to the collector with the SDK's batch processor and exporter, and counts the spans that they lose.

use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_otlp::SpanExporter as OtlpExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::runtime::Tokio;
use opentelemetry_sdk::trace::span_processor_with_async_runtime::BatchSpanProcessor;
use opentelemetry_sdk::trace::{BatchConfigBuilder, Span, SpanData, SpanExporter, SpanProcessor};

use super::SpansExport;
use super::counts::COUNTS;

/// Space in the batch processor's queue for its own control messages, which must fit even when it is full of spans.
const CONTROL_MESSAGES: usize = 8;

/// The batch processor with an additional limit, because it does not count the spans that it drops.
#[derive(Debug)]
pub(super) struct BoundedProcessor {
    batches: BatchSpanProcessor<Tokio>,
    queue: i64,
}

/// Counts the result of each batch.
#[derive(Debug)]
struct CountingExporter(OtlpExporter);

/// Spans of a batch. They count as failed when this is dropped.
struct Unsent(u64);

// === impl BoundedProcessor ===

impl BoundedProcessor {
    /// Spawns the sending task, so it must be called inside the runtime.
    pub(super) fn new(export: &SpansExport, exporter: OtlpExporter) -> Self {
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(export.queue + CONTROL_MESSAGES)
            .with_max_export_batch_size(export.batch)
            .with_scheduled_delay(export.delay)
            .with_max_export_timeout(export.timeout)
            .with_max_concurrent_exports(1);
        let batches = BatchSpanProcessor::builder(CountingExporter(exporter), Tokio).with_batch_config(config.build());
        Self { batches: batches.build(), queue: i64::try_from(export.queue).unwrap_or(i64::MAX) }
    }
}

impl SpanProcessor for BoundedProcessor {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if !span.span_context.is_sampled() {
            return;
        }
        if COUNTS.spans_waiting.inc() < self.queue {
            self.batches.on_end(span);
        } else {
            COUNTS.spans_waiting.dec();
            COUNTS.spans_dropped.inc();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

// === impl CountingExporter ===

impl SpanExporter for CountingExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        COUNTS.spans_waiting.dec_by(i64::try_from(count).unwrap_or(i64::MAX));
        // The processor drops this future at the timeout.
        let mut unsent = Unsent(count as u64);
        let done = self.0.export(batch).await;
        match &done {
            Ok(()) => drop(COUNTS.spans_sent.inc_by(std::mem::take(&mut unsent.0))),
            Err(error) => tracing::debug!(%error, spans = count, "spans are lost"),
        }
        done
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

// === impl Unsent ===

impl Drop for Unsent {
    fn drop(&mut self) {
        COUNTS.spans_failed.inc_by(self.0);
    }
}
