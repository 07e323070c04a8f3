//! Where spans wait: a bounded queue that never holds up whoever ends a span.

use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use tokio::sync::mpsc;

use super::counts::SPANS;

#[derive(Debug)]
pub(super) struct Queue {
    sender: mpsc::Sender<SpanData>,
}

// === impl Queue ===

impl Queue {
    pub(super) fn new(sender: mpsc::Sender<SpanData>) -> Self {
        Self { sender }
    }
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if !span.span_context.is_sampled() {
            return;
        }
        // Counted first: whoever takes it out counts, too.
        SPANS.queued();
        if self.sender.try_send(span).is_err() {
            SPANS.taken(1);
            SPANS.dropped();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}
