//! The bodies of gets and lists, written while they are sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use prometheus_client::metrics::counter::Counter;

use super::body::BoxError;
use super::copies::{Copies, Waiting};
use super::gzip::Compressed;
use super::list_writer::BodyStep;
use super::writer::Writer;
use crate::codec::Slices;
use crate::http::record::HttpMetrics;
use crate::memory::{Cut, StallGuard, StallGuards};

/// The rest of a body whose beginning was written already.
pub(super) struct ListBody {
    first: Slices,
    /// The bytes that are still to come, if that is to be said.
    length: Option<u64>,
    stall_guard: Arc<StallGuard<Rest>>,
    waiting: Waiting,
    metrics: Arc<HttpMetrics>,
    sent: Sent,
}

/// Selects the counter for the bytes of a body.
pub(super) type Sent = fn(&HttpMetrics) -> &Counter;

/// What remains to be sent.
pub(super) enum Rest {
    Plain(Box<Writer>),
    /// The rest from this piece on, and what only this answer has of it.
    Compressed(Arc<Compressed>, usize, Copies),
    Nothing,
}

/// The most bytes that are handed out at once. So it is known of large objects, too, that their client takes them.
pub(super) const PART: usize = 256 << 10;

// === impl ListBody ===

impl ListBody {
    /// Continues a list after its first frame. Whoever sends it must know of [`Self::cut`].
    pub(super) fn new(
        first: Slices,
        rest: Rest,
        stall_guards: &StallGuards,
        metrics: &Arc<HttpMetrics>,
        sent: Sent,
    ) -> Self {
        Self {
            first,
            length: None,
            stall_guard: stall_guards.hold(rest),
            waiting: Waiting::default(),
            metrics: Arc::clone(metrics),
            sent,
        }
    }

    /// With its length.
    pub(super) fn sized(self) -> Self {
        Self { length: Some(self.first.len() as u64), ..self }
    }

    pub(super) fn cut(&self) -> Cut {
        self.stall_guard.cut()
    }
}

impl Body for ListBody {
    type Data = Slices;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Slices>, BoxError>>> {
        let Self { first, length, stall_guard, waiting, metrics, sent } = &mut *self;
        let step = stall_guard.take(|held| {
            let mut step = Ok(BodyStep::End);
            if first.is_empty()
                && let Some(rest) = held
            {
                ready!(rest.poll_taken(cx));
                step = rest.step(metrics);
                if matches!(step, Err(_) | Ok(BodyStep::End)) {
                    *held = None;
                }
            }
            if let Ok(BodyStep::Frame(frame)) = &mut step {
                *first = std::mem::take(frame);
            }
            if !first.is_empty() {
                let mut part = first.split_to(first.len().min(PART));
                part.hold(stall_guard.give(part.len()));
                step = Ok(BodyStep::Frame(part));
            }
            if first.is_empty() && held.as_ref().is_some_and(Rest::is_done) {
                *held = None;
            }
            Poll::Ready(step)
        });
        match step {
            Err(given_up) => Poll::Ready(Some(Err(given_up.into()))),
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(Err(error))) => Poll::Ready(Some(Err(error))),
            Ok(Poll::Ready(Ok(BodyStep::Frame(frame)))) => {
                waiting.end();
                sent(metrics).inc_by(frame.len() as u64);
                if let Some(length) = length {
                    *length = length.saturating_sub(frame.len() as u64);
                }
                Poll::Ready(Some(Ok(Frame::data(frame))))
            }
            // Yield to other tasks between the parts of a long search.
            Ok(Poll::Ready(Ok(BodyStep::Again))) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Ok(Poll::Ready(Ok(BodyStep::Wait))) => {
                waiting.poll_late(cx).map(|()| Some(Err("there is no memory for the rest of an answer".into())))
            }
            Ok(Poll::Ready(Ok(BodyStep::End))) => Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

// === impl Rest ===

impl Rest {
    /// Ready once the client has taken the copies in earlier frames.
    fn poll_taken(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Plain(writer) => writer.copies.poll_taken(cx),
            Self::Compressed(_, _, copies) => copies.poll_taken(cx),
            Self::Nothing => Poll::Ready(()),
        }
    }

    fn step(&mut self, metrics: &HttpMetrics) -> Result<BodyStep, BoxError> {
        match self {
            Self::Plain(writer) => {
                let before = writer.objects();
                let step = writer.step();
                metrics.list_objects.inc_by(writer.objects() - before);
                Ok(step?)
            }
            Self::Nothing => Ok(BodyStep::End),
            Self::Compressed(compressed, next, copies) => {
                let step = compressed.piece(*next, copies)?;
                match step {
                    BodyStep::Frame(_) => *next += 1,
                    BodyStep::End => _ = metrics.list_objects.inc_by(compressed.objects()),
                    BodyStep::Again | BodyStep::Wait => {}
                }
                Ok(step)
            }
        }
    }

    /// Whether the end is known before another step.
    fn is_done(&self) -> bool {
        match self {
            Self::Plain(writer) => writer.is_done(),
            Self::Compressed(..) => false,
            Self::Nothing => true,
        }
    }
}

#[cfg(test)]
#[path = "list_body_tests.rs"]
mod tests;
