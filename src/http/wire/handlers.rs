//! Admission control of requests: how many of one HTTP/2 connection are handled at once. Others wait with nothing but
//! their heads, like those that Go's HTTP/2 server has not started yet: a client that opens all streams of its
//! connections at once would otherwise make the process hold the state of a handler for each.
//!
//! A few of each connection are handled whatever memory there is, one after the other if they must. So no client is refused
//! because of what others do, while it has answers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::http::answer::{Body, BoxFuture, Handler, RequestBody};
use crate::http::door::{Connection, HEADER_COST, OpenHead, Reserved, head_size};
use crate::http::record::HttpMetrics;
use crate::telemetry::gauge::Raised;

/// The most requests of a connection that are handled at once: those whose answer has not begun. As many as the streams
/// that Go's HTTP/2 server allows by default, and a few more.
const MOST_RUNNING: usize = 256;
/// The least number of those where memory is small.
const LEAST_RUNNING: usize = 32;
/// So many of a connection are handled whatever memory there is.
const FEW: usize = 4;
/// How long a request waits for a place. The others may have no answer soon, or may need the answer to this one. It is then
/// handled as well if there is memory for it.
const WAIT: Duration = Duration::from_secs(1);
/// How long it waits for memory, or for one of the few places that need none.
const WAIT_FOR_MEMORY: Duration = Duration::from_secs(10);
/// Who waits for memory looks again after this time.
const AGAIN: Duration = Duration::from_millis(50);
/// So large a part of the memory for answers is for requests that wait without a reservation, at 4 KiB each. Besides, a few of
/// each connection may.
const SHARE: usize = 2;
const UNRESERVED: usize = 4 << 10;
/// What a request takes that waits, without its headers.
const WAITING: usize = 2 << 10;
/// What a handler takes.
const RUNNING: usize = 8 << 10;

/// In the extensions of a request that has to be refused, because there is no memory for it.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct NoRoom;

/// The handlers of one connection.
pub(in crate::http) struct Handlers {
    handler: Arc<dyn Handler>,
    few: Arc<Semaphore>,
    running: Arc<Semaphore>,
    /// For requests of this connection that wait without a reservation.
    few_unreserved: Arc<Semaphore>,
    unreserved: Unreserved,
    account: OpenHead,
    metrics: Arc<HttpMetrics>,
}

/// Places for requests of all connections that wait without a reservation. The library makes the state of a stream before any
/// of its memory can be reserved. Cloning shares them.
#[derive(Clone)]
pub(in crate::http) struct Unreserved(Arc<Semaphore>);

/// An answer that has not begun.
pub(in crate::http) enum Handled {
    Begun(BoxFuture<Response<Body>>, Option<Place>),
    /// There was no place for its request.
    Waits(BoxFuture<(Response<Body>, Option<Place>)>),
}

/// The place of a request, which is given back when its answer has begun.
#[expect(dead_code, reason = "kept, and never looked at")]
pub(in crate::http) enum Place {
    Few(OwnedSemaphorePermit),
    Further(Box<(Option<OwnedSemaphorePermit>, Reserved)>),
}

/// How many requests of a connection are handled at once: one for each MiB that all answers may take.
pub(in crate::http) fn at_once(memory: usize) -> usize {
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

// === impl Unreserved ===

impl Unreserved {
    /// `memory`: what all answers may take.
    pub(in crate::http) fn new(memory: usize) -> Self {
        Self(Arc::new(Semaphore::new(memory / SHARE / UNRESERVED)))
    }
}

// === impl Handlers ===

impl Handlers {
    /// `most`: the requests that are handled at once.
    pub(in crate::http) fn new(
        handler: Arc<dyn Handler>,
        most: usize,
        unreserved: Unreserved,
        account: OpenHead,
        metrics: Arc<HttpMetrics>,
    ) -> Arc<Self> {
        let [few, few_unreserved, running] =
            [FEW, FEW, most.saturating_sub(FEW)].map(|places| Arc::new(Semaphore::new(places)));
        Arc::new(Self { handler, few, running, few_unreserved, unreserved, account, metrics })
    }

    /// Answers a request once there is a place for it. If no memory is left for it, it is handled as one that has
    /// [`NoRoom`], and the connection accepts no further requests, so that its client opens another one. `None` if too many wait
    /// for memory already: its stream has to be reset before anything is made for it. Clients send such a request again.
    pub(in crate::http) fn handle(
        self: &Arc<Self>,
        request: Request<RequestBody>,
        connection: &Arc<Connection>,
    ) -> Option<Handled> {
        // Clients that are not authenticated have fewer requests, and the handler counts them.
        if connection.newcomer.as_ref().is_some_and(|newcomer| !newcomer.is_authenticated()) {
            return Some(Handled::Begun(self.handler.handle(request, connection), None));
        }
        if let Some(place) = self.place() {
            return Some(Handled::Begun(self.handler.handle(request, connection), Some(place)));
        }
        let Some(unreserved) = self.unreserved() else {
            self.metrics.requests_refused.inc();
            return None;
        };
        Some(Handled::Waits(Box::pin(Arc::clone(self).handle_later(request, Arc::clone(connection), unreserved))))
    }

    fn place(&self) -> Option<Place> {
        if let Ok(permit) = Arc::clone(&self.few).try_acquire_owned() {
            return Some(Place::Few(permit));
        }
        let permit = Arc::clone(&self.running).try_acquire_owned().ok()?;
        Some(Place::Further(Box::new((Some(permit), self.account.reserved(RUNNING)?))))
    }

    fn unreserved(&self) -> Option<OwnedSemaphorePermit> {
        let places = [&self.few_unreserved, &self.unreserved.0];
        places.into_iter().find_map(|places| Arc::clone(places).try_acquire_owned().ok())
    }

    async fn handle_later(
        self: Arc<Self>,
        request: Request<RequestBody>,
        connection: Arc<Connection>,
        unreserved: OwnedSemaphorePermit,
    ) -> (Response<Body>, Option<Place>) {
        let headers = request.headers();
        // A header takes more memory than its bytes, and may have come as one byte.
        let takes = WAITING + head_size::bytes(headers, request.uri()) + headers.len() * HEADER_COST;
        let begun = Instant::now();
        let until = begun + WAIT_FOR_MEMORY;
        let waits = Raised::new(&self.metrics.requests_waiting);
        let mut reserved = self.account.nothing();
        let further = async {
            if !in_time(until, || reserved.reserve(takes)).await {
                return None;
            }
            drop(unreserved);
            let place = timeout_at(begun + WAIT, Arc::clone(&self.running).acquire_owned()).await;
            let has_room = in_time(until, || reserved.reserve(takes + RUNNING)).await;
            has_room.then(|| place.ok().and_then(Result::ok))
        };
        let place = tokio::select! {
            biased;
            few = Arc::clone(&self.few).acquire_owned() => Some(few.ok()),
            further = further => further,
        };
        let Some(permit) = place else { return (self.refuse(request, &connection).await, None) };
        drop(waits);
        let answer = self.handler.handle(request, &connection).await;
        (answer, Some(Place::Further(Box::new((permit, reserved)))))
    }

    fn refuse(&self, mut request: Request<RequestBody>, connection: &Arc<Connection>) -> BoxFuture<Response<Body>> {
        connection.close();
        request.extensions_mut().insert(NoRoom);
        self.handler.handle(request, connection)
    }
}

// === impl Handled ===

impl Future for Handled {
    type Output = (Response<Body>, Option<Place>);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Begun(answer, place) => answer.as_mut().poll(cx).map(|answer| (answer, place.take())),
            Self::Waits(handled) => handled.as_mut().poll(cx),
        }
    }
}

#[cfg(test)]
#[path = "handlers_tests.rs"]
mod tests;
