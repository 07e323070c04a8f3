//! Watches that the apiserver answers through informerd. They end when the process ends, and when the client loses its
//! right to them. They end between two events, as if the apiserver had ended them, and are not cut. So they do when the
//! connection to the apiserver breaks between two events.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use http::{Response, StatusCode};
use http_body::{Body, Frame};

use super::answer::{BoxError, SHORTEST, body};
use super::record::HttpMetrics;
use super::service::ServiceInner;
use crate::auth::Term;
use crate::codec::{json, protobuf};
use crate::lifecycle::ending::Ending;
use crate::meta::{RequestInfo, Status, Verb};
use crate::passthrough::ForwardBody;

/// A watch that is being relayed.
pub(super) struct RelayedWatch<B> {
    /// `None` once the watch has ended.
    inner: Option<B>,
    /// `None` if the boundaries of its events cannot be found.
    framing: Option<Framing>,
    ending: Ending,
    /// For clients that are not trusted: until when the watch may go on.
    term: Option<Term>,
    over: Option<Over>,
    /// The last bytes to send.
    parting: Option<Bytes>,
    metrics: Arc<HttpMetrics>,
}

/// Why the watch ends at the next event boundary.
enum Over {
    Drained,
    Gone(Option<Box<Status>>),
}

/// Finds the ends of events in the bytes of a stream, and keeps the position within the current event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// JSON: each event is one line.
    Lines { between: bool },
    /// Protobuf: each event follows its length, which is four bytes in big-endian order.
    Lengths { length: [u8; 4], known: usize, left: usize },
}

// === impl ServiceInner ===

impl ServiceInner {
    /// An answer of the apiserver.
    pub(super) fn relayed(
        &self,
        response: Response<ForwardBody>,
        info: &RequestInfo,
        term: Option<Term>,
    ) -> Response<body::Body> {
        // With more parameters than are read here, only the apiserver knows whether it is one: then there is a term. If it is a
        // list, it has no events to end between.
        let is_watch = info.is_resource && info.verb == Verb::Watch;
        let framing = Framing::of(response.headers()).filter(|_| is_watch);
        let is_watch = (is_watch || term.is_some()) && response.status() == StatusCode::OK;
        if !is_watch || framing.is_none() && term.is_none() {
            return response.map(body::relayed);
        }
        response.map(|body| {
            let ending = Ending::new(&self.parts.drain, self.parts.drain_spread, SHORTEST);
            body::relayed(RelayedWatch::new(body, framing, ending, term, &self.parts.metrics))
        })
    }
}

// === impl RelayedWatch ===

impl<B> RelayedWatch<B> {
    pub(super) fn new(
        inner: B,
        framing: Option<Framing>,
        ending: Ending,
        term: Option<Term>,
        metrics: &Arc<HttpMetrics>,
    ) -> Self {
        let metrics = Arc::clone(metrics);
        Self { inner: Some(inner), framing, ending, term, over: None, parting: None, metrics }
    }

    fn poll_over(&mut self, cx: &mut Context<'_>) {
        if self.over.is_some() {
            return;
        }
        if let Some(Poll::Ready(status)) = self.term.as_mut().map(|term| term.poll_over(cx)) {
            self.term = None;
            self.over = Some(Over::Gone(status));
        } else if self.framing.is_some() && self.ending.poll(cx) {
            self.over = Some(Over::Drained);
        }
    }

    /// Ends the watch. To be called between two events.
    fn end(&mut self) {
        self.inner = None;
        match &self.over {
            Some(Over::Gone(Some(status))) => {
                self.metrics.watches_failed.inc();
                self.parting = self.framing.as_ref().map(|framing| framing.error(status));
            }
            Some(Over::Gone(None)) => {}
            Some(Over::Drained) | None => _ = self.metrics.watches_drained.inc(),
        }
    }
}

impl<B> Body for RelayedWatch<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if this.inner.is_some() {
            this.poll_over(cx);
            if this.over.is_some() {
                match &this.framing {
                    // Anything sent now would look like a part of an event.
                    None => {
                        this.inner = None;
                        return Poll::Ready(Some(Err("the right to the watch is gone".into())));
                    }
                    Some(framing) if framing.is_between() => this.end(),
                    Some(_) => {}
                }
            }
        }
        let Some(inner) = &mut this.inner else {
            return Poll::Ready(this.parting.take().map(|parting| Ok(Frame::data(parting))));
        };
        let polled = ready!(Pin::new(inner).poll_frame(cx)).map(|frame| frame.map_err(Into::into));
        let frame = match polled {
            Some(Ok(frame)) => frame,
            // The client has only whole events: for it the watch ends as one that times out, and it goes on after the last one.
            Some(Err(_)) if this.framing.as_ref().is_some_and(Framing::is_between) => {
                this.inner = None;
                return Poll::Ready(None);
            }
            polled => return Poll::Ready(polled),
        };
        match frame.into_data() {
            Ok(mut data) => {
                let first = this.framing.as_mut().and_then(|framing| framing.follow(&data));
                if this.over.is_some()
                    && let Some(first) = first
                {
                    data.truncate(first);
                    this.end();
                }
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Err(frame) => Poll::Ready(Some(Ok(frame))),
        }
    }
}

// === impl Framing ===

impl Framing {
    /// The framing of a stream with these headers; `None` if the boundaries of its events cannot be found.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        if headers.contains_key(CONTENT_ENCODING) {
            return None;
        }
        let media_type = headers.get(CONTENT_TYPE)?.to_str().ok()?;
        match media_type.split(';').next()?.trim() {
            "application/json" => Some(Self::Lines { between: true }),
            "application/vnd.kubernetes.protobuf" => Some(Self::Lengths { length: [0; 4], known: 0, left: 0 }),
            _ => None,
        }
    }

    fn is_between(&self) -> bool {
        match self {
            Self::Lines { between } => *between,
            Self::Lengths { known, left, .. } => *known == 0 && *left == 0,
        }
    }

    /// The last event of a watch that is no longer allowed.
    fn error(&self, status: &Status) -> Bytes {
        match self {
            Self::Lines { .. } => json::error_frame(status),
            Self::Lengths { .. } => protobuf::error_frame(status),
        }
    }

    /// Reads the next bytes of the stream. Returns the end of the first event that ends within them.
    fn follow(&mut self, data: &[u8]) -> Option<usize> {
        match self {
            Self::Lines { between } => {
                if let Some(last) = data.last() {
                    *between = *last == b'\n';
                }
                memchr::memchr(b'\n', data).map(|at| at + 1)
            }
            Self::Lengths { length, known, left } => {
                let (mut at, mut first) = (0, None);
                while at < data.len() {
                    if *left > 0 {
                        let taken = (*left).min(data.len() - at);
                        *left -= taken;
                        at += taken;
                    } else {
                        length[*known] = data[at];
                        *known += 1;
                        at += 1;
                        if *known < length.len() {
                            continue;
                        }
                        *known = 0;
                        *left = u32::from_be_bytes(*length) as usize;
                    }
                    if *left == 0 {
                        first = first.or(Some(at));
                    }
                }
                first
            }
        }
    }
}

#[cfg(test)]
#[path = "relayed_watch_tests.rs"]
mod tests;
