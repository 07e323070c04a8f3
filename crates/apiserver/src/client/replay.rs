//! Sends requests again if the server has said that it did not begin them: by a GOAWAY whose last stream is before
//! theirs, or by REFUSED_STREAM (RFC 9113 §6.8, §8.7). This is safe for writes too. A kube-apiserver sends its clients
//! away when it stops, and with `--goaway-chance` now and then.
//!
//! The part of a body that was already sent is kept in memory, within bounds. Beyond them, the client sees the refusal.

use std::collections::VecDeque;
use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Method, Request};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;

use super::request_body::{ReqBody, empty};
use crate::error::BoxError;
use crate::metrics::UpstreamMetrics;
use informerd_memory::{Ledger, Reservation};

/// Maximum number of bytes kept of one body, with what their pieces need ([`PIECE`]). The kube-apiserver accepts bodies of up to 3 MiB.
const MAX_KEPT: usize = 4 << 20;
/// Maximum number of bytes kept of all bodies together.
const MAX_KEPT_TOTAL: i64 = 64 << 20;
/// The most that a piece needs beside its bytes: its place in a queue that may be twice as long, and an allocation of its own.
const PIECE: usize = 128;
/// A smaller piece is copied: it would keep the whole buffer in which it came.
const COPIED: usize = 4 << 10;

/// Everything that is needed to send a request again.
pub(super) struct Replay {
    head: Request<()>,
    /// `None` if there is no body.
    kept: Option<Arc<Mutex<Kept>>>,
}

/// A body, and the part of it that was already sent.
struct Kept {
    rest: ReqBody,
    pieces: VecDeque<Bytes>,
    /// The next piece for the present reader; after the last piece, it continues in `rest`.
    next: usize,
    /// The number of the sending that reads now. An earlier one, whose stream may take a moment to notice its end, gets
    /// no data.
    turn: u32,
    /// Whether `pieces` holds everything from the start.
    whole: bool,
    bytes: usize,
    /// `None` if there was no memory to spare.
    place: Option<Reservation>,
    metrics: Arc<UpstreamMetrics>,
}

struct Reader {
    kept: Arc<Mutex<Kept>>,
    turn: u32,
}

/// Returns a copy of the request if it is safe to send it twice.
pub(super) fn copy_of(request: &Request<ReqBody>) -> Option<Request<ReqBody>> {
    let is_safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    (is_safe && request.body().is_end_stream()).then(|| with_body(request, empty()))
}

/// The same request with another body. What is not sent of it, its extensions, is left out.
fn with_body<A, B>(request: &Request<A>, body: B) -> Request<B> {
    let mut copy = Request::new(body);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}

/// Whether the server has said that it did nothing for this request.
pub(super) fn was_refused(error: &hyper::Error) -> bool {
    let refusal = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    refusal.is_some_and(|error| {
        error.is_remote()
            && ((error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR))
                || (error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM)))
    })
}

// === impl Replay ===

impl Replay {
    /// Returns the request, to be sent now, and everything that is needed to send it again.
    pub(super) fn of(
        request: Request<ReqBody>,
        metrics: &Arc<UpstreamMetrics>,
        ledger: &Ledger,
    ) -> (Request<ReqBody>, Self) {
        let head = with_body(&request, ());
        if request.body().is_end_stream() {
            return (request, Self { head, kept: None });
        }
        let (parts, body) = request.into_parts();
        let kept = Arc::new(Mutex::new(Kept {
            rest: body,
            pieces: VecDeque::new(),
            next: 0,
            turn: 0,
            whole: true,
            bytes: 0,
            place: ledger.spare(0).ok(),
            metrics: Arc::clone(metrics),
        }));
        let reader = Reader { kept: Arc::clone(&kept), turn: 0 };
        (Request::from_parts(parts, reader.boxed_unsync()), Self { head, kept: Some(kept) })
    }

    /// Returns the request again, unless the start of its body is no longer kept.
    pub(super) fn again(&self) -> Option<Request<ReqBody>> {
        let body = match &self.kept {
            None => empty(),
            Some(kept) => {
                let mut state = kept.lock();
                if !state.whole {
                    return None;
                }
                state.next = 0;
                state.turn += 1;
                Reader { turn: state.turn, kept: Arc::clone(kept) }.boxed_unsync()
            }
        };
        Some(with_body(&self.head, body))
    }
}

/// The request was answered or given up: the rest of its body need not be kept.
impl Drop for Replay {
    fn drop(&mut self) {
        if let Some(kept) = &self.kept {
            kept.lock().forget();
        }
    }
}

// === impl Kept ===

impl Kept {
    fn keep(&mut self, data: &Bytes) {
        let size = PIECE + data.len();
        let total = self.metrics.kept_request_bytes.inc_by(weight(size)) + weight(size);
        self.bytes += size;
        let piece = if data.len() < COPIED { Bytes::copy_from_slice(data) } else { data.clone() };
        self.pieces.push_back(piece);
        self.next = self.pieces.len();
        let fits = self.place.as_mut().is_some_and(|place| place.grow(size).is_ok());
        if self.bytes > MAX_KEPT || total > MAX_KEPT_TOTAL || !fits {
            self.forget();
        }
    }

    /// Releases what was read, and keeps no more; the pieces that the present reader has yet to read stay.
    fn forget(&mut self) {
        self.whole = false;
        let gone: usize = self.pieces.drain(..self.next).map(|piece| PIECE + piece.len()).sum();
        self.next = 0;
        self.release(gone);
    }

    fn release(&mut self, bytes: usize) {
        self.bytes -= bytes;
        if let Some(place) = &mut self.place {
            // A piece that did not fit was not counted.
            place.shrink(place.bytes().saturating_sub(self.bytes));
        }
        self.metrics.kept_request_bytes.dec_by(weight(bytes));
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.release(self.bytes);
    }
}

fn weight(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

// === impl Reader ===

impl Body for Reader {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut kept = self.kept.lock();
        if kept.turn != self.turn {
            return Poll::Ready(Some(Err("the request is sent again elsewhere".into())));
        }
        if let Some(piece) = kept.pieces.get(kept.next).cloned() {
            kept.next += 1;
            if !kept.whole {
                kept.forget();
            }
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let data = match ready!(Pin::new(&mut kept.rest).poll_frame(cx)).transpose() {
            // The Kubernetes API has no trailers. They would end the connection of all clients: the server may have answered
            // and closed the stream, and takes headers on it for a mistake of the connection.
            Ok(frame) => frame.and_then(|frame| frame.into_data().ok()),
            Err(error) => {
                kept.forget();
                return Poll::Ready(Some(Err(error)));
            }
        };
        if let Some(data) = data.as_ref().filter(|_| kept.whole) {
            kept.keep(data);
        }
        Poll::Ready(data.map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        let kept = self.kept.lock();
        kept.next >= kept.pieces.len() && kept.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let kept = self.kept.lock();
        let before: u64 = kept.pieces.iter().skip(kept.next).map(|piece| piece.len() as u64).sum();
        let rest = kept.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(before + rest.lower());
        if let Some(upper) = rest.upper() {
            hint.set_upper(before + upper);
        }
        hint
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
