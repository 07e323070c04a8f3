//! The memory of requests over HTTP/2 whose answer has not begun. A client that opens all streams of its connections at
//! once would otherwise make the process hold the state of a handler for each.
//!
//! A few requests of a connection are always handled. Memory is reserved for any further one, and it is refused if there is
//! none. A client may not even read refusals: the connection is cut if there is no memory for one more of them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::body::{self, Body};
use super::connection::Connection;
use super::head;
use super::metrics::HttpMetrics;
use super::newcomer::HEADER_COST;
use super::open_head::{OpenHead, Reserved};
use super::server::{BoxFuture, Handler};

/// The requests of a connection that are handled without a reservation. What they take is part of what a connection
/// takes.
const FREE: usize = 4;
/// All further requests together may take this part of the memory for answers.
pub(super) const OF_REQUESTS: usize = 4;
/// What a handler takes, with its stream and without the headers of its request.
const RUNNING: usize = 12 << 10;
/// What a refusal takes that the client does not read, with its stream.
const REFUSED: usize = 4 << 10;

/// The handlers of one connection.
pub(super) struct Handlers {
    handler: Arc<dyn Handler>,
    free: Arc<Semaphore>,
    running: OpenHead,
    refused: OpenHead,
    metrics: Arc<HttpMetrics>,
}

/// An answer that has not begun. It is small, because hyper keeps room for it until the stream ends.
pub(super) struct Handled {
    answer: BoxFuture<Response<Body>>,
    /// Given back when the answer has begun.
    place: Option<Place>,
}

/// The right to handle a request.
#[expect(dead_code, reason = "kept, and never looked at")]
enum Place {
    Free(OwnedSemaphorePermit),
    Reserved(Box<Reserved>),
}

/// In the extensions of a request that has to be refused, because there is no memory for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoRoom;

// === impl Handlers ===

impl Handlers {
    /// `running`, `refused`: reserve what requests take that are handled, and that are refused.
    pub(super) fn new(
        handler: Arc<dyn Handler>,
        running: OpenHead,
        refused: OpenHead,
        metrics: Arc<HttpMetrics>,
    ) -> Self {
        Self { handler, free: Arc::new(Semaphore::new(FREE)), running, refused, metrics }
    }

    /// Handles a request, or has it refused: it then has [`NoRoom`], and the connection accepts no further requests, so that
    /// its client opens another one.
    pub(super) fn handle(&self, request: Request<Incoming>, connection: &Arc<Connection>) -> Handled {
        // Clients that are not authenticated have fewer requests, and the handler counts them.
        if connection.newcomer.as_ref().is_some_and(|newcomer| !newcomer.is_authenticated()) {
            return Handled { answer: self.handler.handle(request, connection), place: None };
        }
        match self.place(&request) {
            Some(place) => Handled { answer: self.handler.handle(request, connection), place: Some(place) },
            None => Handled { answer: self.refuse(request, connection), place: None },
        }
    }

    fn place(&self, request: &Request<Incoming>) -> Option<Place> {
        if let Ok(free) = Arc::clone(&self.free).try_acquire_owned() {
            return Some(Place::Free(free));
        }
        let headers = request.headers();
        // A header takes more memory than its bytes, and may have come as one byte.
        let takes = RUNNING + head::bytes(headers, request.uri()) + headers.len() * HEADER_COST;
        self.running.reserved(takes).map(|reserved| Place::Reserved(Box::new(reserved)))
    }

    fn refuse(&self, mut request: Request<Incoming>, connection: &Arc<Connection>) -> BoxFuture<Response<Body>> {
        connection.close();
        let Some(reserved) = self.refused.reserved(REFUSED) else {
            self.metrics.heads_cut.inc();
            connection.cut();
            return Box::pin(std::future::pending());
        };
        request.extensions_mut().insert(NoRoom);
        let answer = self.handler.handle(request, connection);
        Box::pin(async move { answer.await.map(|body| body::with(body, Some(reserved))) })
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
