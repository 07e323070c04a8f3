//! Small answers over HTTP/2 that their clients do not take. A client may give its streams no window, or one of a single
//! byte, and such an answer then stays, with its stream, for as long as the client wants. Large answers, forwarded ones and
//! watches have a [`Cut`] of their own.
//!
//! A few of a connection cost nothing, and some more of all connections, if they are small: to look after an answer takes
//! half as much work again as to give it. Memory is reserved for any further one, and it is given up as a large answer
//! would be. Without memory, it waits until its client has taken one that is free, and those are given up soon of which nothing
//! is taken. If that does not help, its stream is reset.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::Reason;
use http::Response;
use http_body::{Body as _, Frame, SizeHint};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};

use super::body::{Body, BoxError};
use super::handler::BoxFuture;
use crate::codec::Slices;
use crate::http::door::{OpenHead, Reserved};
use crate::http::record::HttpMetrics;
use crate::lifecycle::multiplexer::IsWatch;
use crate::memory::{Cut, Pressure, StallGuard, StallGuards};

/// What the stream of an answer takes that is not taken. An answer of no more bytes than this may be free.
const STREAM: usize = 4 << 10;
/// So many answers of each connection are free.
const FEW: usize = 4;
/// So large a part of the memory for answers is for free answers of all connections.
const SHARE: usize = 8;
/// The least pause between two looks for answers of which nothing is taken.
const PAUSE: Duration = Duration::from_millis(100);

/// How long an answer waits for memory. What is given up in a hurry is free by then.
const WAIT: Duration = Duration::from_secs(5);

/// The small answers of all connections.
pub(in crate::http) struct SmallAnswers {
    /// Places for free ones.
    free: Arc<Semaphore>,
    /// The guards hold the answers that are not free. They hurry no answers of other kinds.
    guards: StallGuards,
    refused: Notify,
    metrics: Arc<HttpMetrics>,
}

/// The small answers of one connection.
pub(in crate::http) struct OfConnection {
    few: Arc<Semaphore>,
    all: Arc<SmallAnswers>,
    account: OpenHead,
}

/// An answer for which there is no memory yet. The error resets its stream.
pub(super) type Later = BoxFuture<Result<Response<Body>, Reason>>;

enum Kept {
    /// Until the library has written the bytes, or has dropped them.
    Free(OwnedSemaphorePermit),
    /// An answer that is not free reserves memory, and ends when its client does not read.
    Further { reserved: Reserved, guard: Arc<StallGuard<()>> },
}

/// The body of a small answer.
struct Small {
    inner: Body,
    /// `None` once it has gone with the bytes.
    kept: Option<Kept>,
}

// === impl SmallAnswers ===

impl SmallAnswers {
    /// `memory`: what all answers may take.
    pub(in crate::http) fn new(memory: usize, metrics: Arc<HttpMetrics>) -> Arc<Self> {
        let (guards, refused) = (StallGuards::default(), Notify::new());
        let free = Arc::new(Semaphore::new(memory / SHARE / STREAM));
        Arc::new(Self { free, guards, refused, metrics })
    }

    /// `account`: reserves what is not free.
    pub(in crate::http) fn of_connection(self: &Arc<Self>, account: OpenHead) -> Arc<OfConnection> {
        Arc::new(OfConnection { few: Arc::new(Semaphore::new(FEW)), all: Arc::clone(self), account })
    }

    /// Gives up the answers of which nothing is taken for `timeout`, or for a shorter time while memory is short or one was
    /// refused. Runs forever.
    pub(in crate::http) async fn watch(self: Arc<Self>, timeout: Duration, pressure: Pressure) {
        let count = |given_up| _ = self.metrics.lists_stalled.inc_by(given_up);
        let hurries = async {
            loop {
                self.refused.notified().await;
                count(self.guards.hurry());
                sleep(PAUSE).await;
            }
        };
        tokio::join!(self.guards.clone().watch(timeout, pressure, count), hurries);
    }
}

// === impl OfConnection ===

impl OfConnection {
    /// Looks after an answer that has begun, if nobody else does. `is_read`: its request cannot have changed anything.
    ///
    /// # Errors
    /// There is no memory for it now. What its request has reserved has to be kept until there is.
    pub(in crate::http) fn looked_after(
        self: &Arc<Self>,
        response: Response<Body>,
        is_read: bool,
    ) -> Result<Response<Body>, Later> {
        let (extensions, body) = (response.extensions(), response.body());
        let has_cut = extensions.get::<Cut>().is_some() || extensions.get::<IsWatch>().is_some();
        let size = body.size_hint().exact().and_then(|size| usize::try_from(size).ok());
        let Some(size) = size.filter(|_| !has_cut && !body.is_end_stream()) else { return Ok(response) };
        match self.free(size).or_else(|| self.further(size)) {
            Some(kept) => Ok(kept.with(response)),
            None => Err(Box::pin(Arc::clone(self).later(response, size, is_read))),
        }
    }

    fn free(&self, size: usize) -> Option<Kept> {
        let mut places = [&self.few, &self.all.free].into_iter().filter(|_| size <= STREAM);
        places.find_map(|places| Arc::clone(places).try_acquire_owned().ok()).map(Kept::Free)
    }

    fn further(&self, size: usize) -> Option<Kept> {
        let reserved = self.account.reserved(STREAM + size)?;
        Some(Kept::Further { reserved, guard: self.all.guards.hold(()) })
    }

    async fn later(
        self: Arc<Self>,
        response: Response<Body>,
        size: usize,
        is_read: bool,
    ) -> Result<Response<Body>, Reason> {
        let until = Instant::now() + WAIT;
        let mut few = pin!(Arc::clone(&self.few).acquire_owned());
        loop {
            self.all.refused.notify_one();
            tokio::select! {
                Ok(few) = &mut few, if size <= STREAM => return Ok(Kept::Free(few).with(response)),
                () = sleep(PAUSE) => {}
            }
            if let Some(kept) = self.further(size) {
                return Ok(kept.with(response));
            }
            if Instant::now() >= until {
                self.all.metrics.answers_reset.inc();
                // Clients send a refused request again.
                return Err(if is_read { Reason::REFUSED_STREAM } else { Reason::ENHANCE_YOUR_CALM });
            }
        }
    }
}

// === impl Kept ===

impl Kept {
    fn with(self, mut response: Response<Body>) -> Response<Body> {
        if let Self::Further { guard, .. } = &self {
            response.extensions_mut().insert(guard.cut());
        }
        response.map(|inner| Body::new(Small { inner, kept: Some(self) }))
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
                    Some(Kept::Further { reserved, guard }) => {
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
