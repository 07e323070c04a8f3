//! How many requests of one HTTP/2 connection are handled at once. Others wait with nothing but their heads, like those
//! that Go's HTTP/2 server has not started yet: a client that opens all streams of its connections at once would
//! otherwise make the process hold the state of a handler for each.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::body::Body;
use super::connection::Connection;
use super::head;
use super::metrics::HttpMetrics;
use super::newcomer::HEADER_COST;
use super::open_head::{OpenHead, Reserved};
use super::server::{BoxFuture, Handler};
use crate::telemetry::gauge::Raised;

/// The most requests of a connection that are handled at once: those whose answer has not begun. As many as the streams
/// that Go's HTTP/2 server allows by default, and a few more.
const MOST_RUNNING: usize = 256;
/// The least number of those where memory is small.
const LEAST_RUNNING: usize = 32;
/// So many of a connection are handled whatever memory there is.
const FEW: usize = 4;
/// How long a request waits for a place, and for memory. The others may have no answer soon, or may need the answer to this
/// one. It is then handled as well if there is memory for it.
const WAIT: Duration = Duration::from_secs(1);
/// Who waits for memory looks again after this time.
const AGAIN: Duration = Duration::from_millis(20);
/// What a request takes that waits, without its headers.
const WAITING: usize = 2 << 10;
/// What a handler takes.
const RUNNING: usize = 8 << 10;

/// In the extensions of a request that has to be refused, because there is no memory for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoRoom;

/// The handlers of one connection.
pub(super) struct Handlers {
    handler: Arc<dyn Handler>,
    few: Arc<Semaphore>,
    running: Arc<Semaphore>,
    account: OpenHead,
    metrics: Arc<HttpMetrics>,
}

/// An answer that has not begun. It is small, because hyper keeps room for it until the stream ends: a watch would
/// otherwise hold the state of a wait.
pub(super) struct Handled {
    answer: BoxFuture<Response<Body>>,
    /// Given back when the answer has begun.
    place: Option<Place>,
}

/// The place of a request that is handled.
#[expect(dead_code, reason = "kept, and never looked at")]
enum Place {
    Few(OwnedSemaphorePermit),
    /// Boxed, because hyper keeps room for it until the stream ends.
    Further(Box<(OwnedSemaphorePermit, Reserved)>),
}

/// How many requests of a connection are handled at once: one for each MiB that all answers may take.
pub(super) fn at_once(memory: usize) -> usize {
    (memory >> 20).clamp(LEAST_RUNNING, MOST_RUNNING)
}

/// Tries until then, and then once more. Memory that others of the connection have is free soon.
async fn in_time(until: Instant, mut has_room: impl FnMut() -> bool) -> bool {
    while !has_room() {
        let now = Instant::now();
        if now >= until {
            return false;
        }
        sleep_until(until.min(now + AGAIN)).await;
    }
    true
}

// === impl Handlers ===

impl Handlers {
    /// `most`: the requests that are handled at once.
    pub(super) fn new(
        handler: Arc<dyn Handler>,
        most: usize,
        account: OpenHead,
        metrics: Arc<HttpMetrics>,
    ) -> Arc<Self> {
        let (few, running) = (Arc::new(Semaphore::new(FEW)), Arc::new(Semaphore::new(most.saturating_sub(FEW))));
        Arc::new(Self { handler, few, running, account, metrics })
    }

    /// Answers a request once there is a place for it. If no memory is left for it, it is handled as one that has
    /// [`NoRoom`], and the connection accepts no further requests, so that its client opens another one.
    pub(super) fn handle(self: &Arc<Self>, request: Request<Incoming>, connection: &Arc<Connection>) -> Handled {
        // Clients that are not authenticated have fewer requests, and the handler counts them.
        if connection.newcomer.as_ref().is_some_and(|newcomer| !newcomer.is_authenticated()) {
            return Handled { answer: self.handler.handle(request, connection), place: None };
        }
        let place = self.place();
        let answer = match &place {
            Some(_) => self.handler.handle(request, connection),
            None => Box::pin(Arc::clone(self).handle_later(request, Arc::clone(connection))),
        };
        Handled { answer, place }
    }

    fn place(&self) -> Option<Place> {
        if let Ok(permit) = Arc::clone(&self.few).try_acquire_owned() {
            return Some(Place::Few(permit));
        }
        let permit = Arc::clone(&self.running).try_acquire_owned().ok()?;
        Some(Place::Further(Box::new((permit, self.account.reserved(RUNNING)?))))
    }

    async fn handle_later(self: Arc<Self>, request: Request<Incoming>, connection: Arc<Connection>) -> Response<Body> {
        let headers = request.headers();
        // A header takes more memory than its bytes, and may have come as one byte.
        let takes = WAITING + head::bytes(headers, request.uri()) + headers.len() * HEADER_COST;
        let until = Instant::now() + WAIT;
        let waits = Raised::new(&self.metrics.requests_waiting);
        let mut reserved = self.account.nothing();
        if !in_time(until, || reserved.reserve(takes)).await {
            return self.refuse(request, &connection).await;
        }
        let place = async {
            tokio::select! {
                place = self.few.acquire() => place,
                place = self.running.acquire() => place,
            }
        };
        let _place = timeout_at(until, place).await;
        if !in_time(until, || reserved.reserve(takes + RUNNING)).await {
            return self.refuse(request, &connection).await;
        }
        drop(waits);
        self.handler.handle(request, &connection).await
    }

    fn refuse(&self, mut request: Request<Incoming>, connection: &Arc<Connection>) -> BoxFuture<Response<Body>> {
        connection.close();
        request.extensions_mut().insert(NoRoom);
        self.handler.handle(request, connection)
    }
}

// === impl Handled ===

impl Future for Handled {
    type Output = Response<Body>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.answer.as_mut().poll(cx).map(|answer| {
            this.place = None;
            answer
        })
    }
}

#[cfg(test)]
#[path = "handlers_tests.rs"]
mod tests;
