//! Small answers over HTTP/2 that their clients do not take. A client may give its streams no window, or one of a single
//! byte, and such an answer then stays, with its stream, for as long as the client wants. Large answers, forwarded ones and
//! watches have a [`Cut`] of their own.
//!
//! A few of a connection cost nothing, and some more of all connections, if they are small: to look after an answer takes
//! half as much work again as to give it. Memory is reserved for any further one, and it is given up as a large answer
//! would be. Without memory, its stream is reset.

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

/// What the stream of an answer takes that is not taken. An answer of no more bytes than this may be free.
const STREAM: usize = 4 << 10;
/// So many answers of each connection are free.
const FEW: usize = 4;
/// So large a part of the memory for answers is for free answers of all connections.
const SHARE: usize = 8;

/// The free answers of all connections.
#[derive(Debug)]
pub(super) struct FreeAnswers {
    count: AtomicUsize,
    most: usize,
}

/// The small answers of one connection.
pub(super) struct SmallAnswers {
    counts: Arc<Counts>,
    account: OpenHead,
    /// The account of all answers. It is asked to make room when an answer is refused.
    ledger: Ledger,
    stall_guards: StallGuards,
    metrics: Arc<HttpMetrics>,
}

struct Counts {
    own: AtomicUsize,
    all: Arc<FreeAnswers>,
}

/// One free answer, until the library has written its bytes, or has dropped them.
struct Free(Arc<Counts>);

/// What is kept for an answer that is not free.
struct Further {
    reserved: Reserved,
    guard: Arc<StallGuard<()>>,
}

enum Kept {
    Free(Free),
    Further(Further),
}

/// The body of a small answer.
struct Small {
    inner: Body,
    /// `None` once it has gone with the bytes.
    kept: Option<Kept>,
}

// === impl FreeAnswers ===

impl FreeAnswers {
    /// `memory`: what all answers may take.
    pub(super) fn new(memory: usize) -> Arc<Self> {
        Arc::new(Self { count: AtomicUsize::new(0), most: memory / SHARE / STREAM })
    }
}

// === impl SmallAnswers ===

impl SmallAnswers {
    /// `account`: reserves what is not free.
    pub(super) fn new(
        all: Arc<FreeAnswers>,
        account: OpenHead,
        ledger: Ledger,
        stall_guards: StallGuards,
        metrics: Arc<HttpMetrics>,
    ) -> Arc<Self> {
        let counts = Arc::new(Counts { own: AtomicUsize::new(0), all });
        Arc::new(Self { counts, account, ledger, stall_guards, metrics })
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
        let free = if size <= STREAM { self.counts.free() } else { None };
        let kept = match free {
            Some(free) => Kept::Free(free),
            None => {
                let Some(reserved) = self.account.reserved(STREAM + size) else {
                    self.ledger.ask_for_room();
                    self.metrics.answers_reset.inc();
                    // Clients may send such a request again: it was answered from here, and has changed nothing.
                    return Err(Reason::REFUSED_STREAM.into());
                };
                let guard = self.stall_guards.hold(());
                response.extensions_mut().insert(guard.cut());
                Kept::Further(Further { reserved, guard })
            }
        };
        Ok(response.map(|inner| Body::new(Small { inner, kept: Some(kept) })))
    }
}

// === impl Counts ===

impl Counts {
    /// `None` if there are too many already.
    fn free(self: &Arc<Self>) -> Option<Free> {
        let (own, all) = (self.own.fetch_add(1, Ordering::Relaxed), self.all.count.fetch_add(1, Ordering::Relaxed));
        let free = Free(Arc::clone(self));
        (own < FEW || all < self.all.most).then_some(free)
    }
}

// === impl Free ===

impl Drop for Free {
    fn drop(&mut self) {
        self.0.own.fetch_sub(1, Ordering::Relaxed);
        self.0.all.count.fetch_sub(1, Ordering::Relaxed);
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
                match self.kept.take() {
                    None => {}
                    Some(Kept::Free(free)) => bytes.hold(free),
                    Some(Kept::Further(Further { reserved, guard })) => {
                        let length = bytes.len();
                        let given = guard.take(|held| {
                            *held = None;
                            guard.give(length)
                        });
                        // It was given up before it began.
                        if given.is_err() {
                            guard.cut().cut();
                        }
                        bytes.hold((reserved, given.ok()));
                    }
                }
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
