//! Small answers over HTTP/2 that their clients do not take. A client may give its streams no window, or one of a single
//! byte, and such an answer then stays, with its stream, for as long as the client wants. Large answers, forwarded ones and
//! watches have a [`Cut`] of their own.
//!
//! Each is given up as a large answer would be. Memory is reserved for it if it is not small, or if the connection has a
//! few of them already. Without memory, its stream is reset.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use h2::Reason;
use http::Response;
use http_body::{Body as _, Frame, SizeHint};

use super::body::{Body, BoxError};
use super::clients::IsWatch;
use super::metrics::HttpMetrics;
use super::open_head::{OpenHead, Reserved};
use crate::codec::Slices;
use crate::memory::{Cut, Ledger, StallGuard, StallGuards};

/// What the stream of an answer takes that is not taken. Nothing is reserved for an answer of no more bytes than this if
/// the connection has few.
const STREAM: usize = 4 << 10;

/// The small answers of one connection.
pub(super) struct SmallAnswers {
    count: Arc<AtomicUsize>,
    /// For how many of them nothing is reserved.
    free: usize,
    account: OpenHead,
    /// The account of all answers. It is asked to make room when an answer is refused.
    ledger: Ledger,
    stall_guards: StallGuards,
    metrics: Arc<HttpMetrics>,
}

/// One answer, until the library has written its bytes, or has dropped them.
struct One(Arc<AtomicUsize>);

/// The body of a small answer.
struct Small {
    inner: Body,
    guard: Arc<StallGuard<()>>,
    /// `None` once it has gone with the bytes.
    kept: Option<(One, Option<Reserved>)>,
}

// === impl SmallAnswers ===

impl SmallAnswers {
    /// `account`: reserves what is not free.
    pub(super) fn new(
        free: usize,
        account: OpenHead,
        ledger: Ledger,
        stall_guards: StallGuards,
        metrics: Arc<HttpMetrics>,
    ) -> Arc<Self> {
        Arc::new(Self { count: Arc::default(), free, account, ledger, stall_guards, metrics })
    }

    /// Looks after an answer that has begun, if nobody else does.
    ///
    /// # Errors
    /// There is no memory for it. The stream has to be reset.
    pub(super) fn looked_after(&self, mut response: Response<Body>) -> Result<Response<Body>, h2::Error> {
        let (extensions, body) = (response.extensions(), response.body());
        let has_cut = extensions.get::<Cut>().is_some() || extensions.get::<IsWatch>().is_some();
        let size = body.size_hint().exact().and_then(|size| usize::try_from(size).ok());
        let Some(size) = size.filter(|_| !has_cut && !body.is_end_stream()) else { return Ok(response) };
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        let one = One(Arc::clone(&self.count));
        let mut reserved = None;
        if before >= self.free || size > STREAM {
            reserved = self.account.reserved(STREAM + size);
            if reserved.is_none() {
                self.ledger.ask_for_room();
                self.metrics.answers_reset.inc();
                // Clients may send such a request again: it was answered from here, and has changed nothing.
                return Err(Reason::REFUSED_STREAM.into());
            }
        }
        let guard = self.stall_guards.hold(());
        response.extensions_mut().insert(guard.cut());
        Ok(response.map(|inner| Body::new(Small { inner, guard, kept: Some((one, reserved)) })))
    }
}

// === impl One ===

impl Drop for One {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl Small ===

impl http_body::Body for Small {
    type Data = Slices;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Slices>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx)).transpose()?;
        let frame = frame.map(|frame| {
            frame.map_data(|mut bytes| {
                let Some(kept) = self.kept.take() else { return bytes };
                let given = self.guard.take(|held| {
                    *held = None;
                    self.guard.give(bytes.len())
                });
                // It was given up before it began.
                if given.is_err() {
                    self.guard.cut().cut();
                }
                bytes.hold((kept, given.ok()));
                bytes
            })
        });
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
#[path = "small_answers_tests.rs"]
mod tests;
