//! The bodies of gets and lists, written while they are sent. A list consists of a head, its items as shared slices in
//! batches, and a tail.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame};
use prometheus_client::metrics::counter::Counter;

use super::body::BoxError;
use super::copies::Copies;
use super::gzip::{Compressed, Piece};
use super::metrics::HttpMetrics;
use super::writer::Writer;
use crate::codec::{Form, ListMetaOut, Shape, Slices};
use crate::memory::{StallGuard, StallGuards};
use crate::meta::{Damaged, Object};
use crate::reads::{ListAnswer, ListItems};

/// Objects per frame. A frame goes to the kernel in one vectored write, which takes up to 64 slices.
const BATCH: usize = 63;

/// Writes one list.
pub(super) struct ListWriter {
    form: Arc<Form>,
    shape: Shape,
    meta: ListMetaOut,
    items: ListItems,
    batch: Vec<Arc<Object>>,
    /// Other batches may follow.
    more: bool,
    /// Held back until it is known whether another item follows: the last item has no comma.
    held: Option<Arc<Object>>,
    state: State,
    objects: u64,
}

/// One step of writing.
pub(super) enum Step {
    Frame(Slices),
    /// No output yet: a selective list searched a part of the cache and found no match.
    Again,
    End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    Items,
    Done,
}

/// The rest of a body whose beginning was written already.
pub(super) struct ListBody {
    first: Option<Slices>,
    stall_guard: Arc<StallGuard<Rest>>,
    metrics: Arc<HttpMetrics>,
    sent: Sent,
}

/// Selects the counter for the bytes of a body.
pub(super) type Sent = fn(&HttpMetrics) -> &Counter;

/// What remains to be sent.
pub(super) enum Rest {
    Plain(Box<Writer>),
    /// The rest from this piece on.
    Compressed(Arc<Compressed>, usize),
}

// === impl ListWriter ===

impl ListWriter {
    pub(super) fn new(answer: ListAnswer) -> Self {
        Self {
            form: answer.form,
            shape: answer.shape,
            meta: answer.meta,
            items: answer.items,
            batch: Vec::with_capacity(BATCH),
            more: true,
            held: None,
            state: State::Head,
            objects: 0,
        }
    }

    /// The number of objects written so far.
    pub(super) fn objects(&self) -> u64 {
        self.objects
    }

    /// Adds the objects that are unpacked for this step to `copies`.
    ///
    /// # Errors
    /// The bytes of an object are damaged. So is the next step.
    pub(super) fn step(&mut self, copies: &mut Copies) -> Result<Step, Damaged> {
        if self.state == State::Done {
            return Ok(Step::End);
        }
        if self.batch.is_empty() && self.more {
            self.more = self.items.next(BATCH, &mut self.batch);
            if self.more && self.batch.is_empty() {
                return Ok(Step::Again);
            }
        }
        let mut out = Slices::new();
        let empty = self.state == State::Head && self.batch.is_empty();
        if self.state == State::Head {
            out.append(self.form.list_head(self.shape, &self.meta, empty));
            self.state = State::Items;
        }
        let mut written = 0;
        for object in &self.batch {
            if copies.is_full() {
                break;
            }
            written += 1;
            if object.is_packed() {
                copies.add(object.framed_len());
            }
            // It stays where it is if it cannot be written: the list never goes on without it.
            if let Some(held) = &self.held {
                out.append(self.form.list_item(held, self.shape, false)?);
            }
            self.held = Some(Arc::clone(object));
        }
        self.objects += written as u64;
        self.batch.drain(..written);
        if self.batch.is_empty() && !self.more {
            if let Some(last) = &self.held {
                out.append(self.form.list_item(last, self.shape, true)?);
            }
            self.held = None;
            out.append(self.form.list_tail(self.shape, &self.meta, empty));
            self.state = State::Done;
        }
        Ok(Step::Frame(out))
    }

    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }
}

// === impl ListBody ===

impl ListBody {
    /// Continues a list after its first frame, if there is one.
    pub(super) fn new(
        first: Slices,
        rest: Rest,
        stall_guards: &StallGuards,
        metrics: &Arc<HttpMetrics>,
        sent: Sent,
    ) -> Self {
        Self {
            first: (!first.is_empty()).then_some(first),
            stall_guard: stall_guards.hold(rest),
            metrics: Arc::clone(metrics),
            sent,
        }
    }
}

impl Body for ListBody {
    type Data = Slices;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Slices>, BoxError>>> {
        let Self { first, stall_guard, metrics, sent } = &mut *self;
        let step = stall_guard.take(|held| {
            if let Some(first) = first.take() {
                return Poll::Ready(Ok(Step::Frame(first)));
            }
            let Some(rest) = held else { return Poll::Ready(Ok(Step::End)) };
            ready!(rest.poll_taken(cx));
            let step = rest.step(metrics);
            if rest.is_done() || matches!(step, Err(_) | Ok(Step::End)) {
                *held = None;
            }
            Poll::Ready(step)
        });
        match step {
            Err(given_up) => Poll::Ready(Some(Err(given_up.into()))),
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(Err(error))) => Poll::Ready(Some(Err(error))),
            Ok(Poll::Ready(Ok(Step::Frame(frame)))) => {
                sent(metrics).inc_by(frame.len() as u64);
                Poll::Ready(Some(Ok(Frame::data(frame))))
            }
            // Yield to other tasks between the parts of a long search.
            Ok(Poll::Ready(Ok(Step::Again))) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Ok(Poll::Ready(Ok(Step::End))) => Poll::Ready(None),
        }
    }
}

// === impl Rest ===

impl Rest {
    /// Ready once the client has taken the copies in earlier frames.
    fn poll_taken(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Plain(writer) => writer.poll_taken(cx),
            Self::Compressed(..) => Poll::Ready(()),
        }
    }

    fn step(&mut self, metrics: &HttpMetrics) -> Result<Step, BoxError> {
        match self {
            Self::Plain(writer) => {
                let before = writer.objects();
                let step = writer.step();
                metrics.list_objects.inc_by(writer.objects() - before);
                Ok(step?)
            }
            Self::Compressed(compressed, next) => match compressed.piece(*next) {
                Piece::Chunk(chunk) => {
                    *next += 1;
                    Ok(Step::Frame(chunk.into()))
                }
                Piece::Later => Ok(Step::Again),
                Piece::Failed => Err("an answer could not be compressed".into()),
                Piece::End => {
                    metrics.list_objects.inc_by(compressed.objects());
                    Ok(Step::End)
                }
            },
        }
    }

    /// Whether the end is known before another step.
    fn is_done(&self) -> bool {
        match self {
            Self::Plain(writer) => writer.is_done(),
            Self::Compressed(..) => false,
        }
    }
}

#[cfg(test)]
#[path = "list_body_tests.rs"]
mod tests;
