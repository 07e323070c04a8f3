//! How many requests of one HTTP/2 connection are handled at once. Others wait with nothing but their heads, like those
//! that Go's HTTP/2 server has not started yet: a client that opens all streams of its connections at once would
//! otherwise make the process hold the state of a handler for each.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::body::Body;
use super::error::{respond, too_many_waiting};
use super::head;
use super::metrics::HttpMetrics;
use super::newcomer::HEADER_COST;
use super::open_head::{OpenHead, Reserved};
use super::server::{Connection, Handler};
use crate::codec::negotiate::StatusForm;
use crate::telemetry::gauge::Raised;

/// The most requests of a connection that are handled at once: those whose answer has not begun. As many as the streams
/// that Go's HTTP/2 server allows by default, and a few more.
const MOST_RUNNING: usize = 256;
/// How long a request waits. The others may have no answer soon, or may need the answer to this one. It is then handled
/// as well if there is memory for it.
const WAIT: Duration = Duration::from_secs(1);
/// What a request takes that waits, without its headers.
const WAITING: usize = 2 << 10;
/// What a handler takes.
const RUNNING: usize = 8 << 10;

/// The handlers of one connection.
pub(super) struct Handlers {
    handler: Arc<dyn Handler>,
    running: Semaphore,
    head: OpenHead,
    metrics: Arc<HttpMetrics>,
}

/// The right to handle a request.
#[expect(dead_code, reason = "kept, and never looked at")]
enum Place<'a> {
    Free(SemaphorePermit<'a>),
    Reserved(Reserved),
}

// === impl Handlers ===

impl Handlers {
    /// `head`: reserves what waits.
    pub(super) fn new(handler: Arc<dyn Handler>, head: OpenHead, metrics: Arc<HttpMetrics>) -> Arc<Self> {
        Arc::new(Self { handler, running: Semaphore::new(MOST_RUNNING), head, metrics })
    }

    /// Answers a request once there is a place for it. There is a 429 if no memory is left for it. The connection then
    /// accepts no further requests, so that its client opens another one.
    pub(super) async fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: Arc<Connection>,
    ) -> Response<Body> {
        // Clients that are not authenticated have fewer requests, and the handler counts them.
        let is_limited = connection.newcomer.as_ref().is_none_or(|newcomer| newcomer.is_authenticated());
        let place = if is_limited { self.place(&request).await.map(Some) } else { Some(None) };
        let Some(_place) = place else {
            connection.close();
            self.metrics.requests_refused.inc();
            return respond(&too_many_waiting(), StatusForm::default());
        };
        self.handler.handle(request, &connection).await
    }

    /// `None` if there is no memory for one more request.
    async fn place(&self, request: &Request<Incoming>) -> Option<Place<'_>> {
        if let Ok(place) = self.running.try_acquire() {
            return Some(Place::Free(place));
        }
        let headers = request.headers();
        // A header takes more memory than its bytes, and may have come as one byte.
        let takes = WAITING + head::bytes(headers, request.uri()) + headers.len() * HEADER_COST;
        let mut reserved = self.head.reserved(takes)?;
        let _waits = Raised::new(&self.metrics.requests_waiting);
        match timeout(WAIT, self.running.acquire()).await {
            Ok(place) => place.ok().map(Place::Free),
            Err(_) => reserved.reserve(takes + RUNNING).then_some(Place::Reserved(reserved)),
        }
    }
}

#[cfg(test)]
#[path = "handlers_tests.rs"]
mod tests;
