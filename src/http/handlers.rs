//! How many requests of one HTTP/2 connection are handled at once. Others wait with nothing but their heads, like those
//! that Go's HTTP/2 server has not started yet: a client that opens all streams of its connections at once would
//! otherwise make the process hold the state of a handler for each.

use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::body::Body;
use super::error::{respond, too_many_waiting};
use super::metrics::HttpMetrics;
use super::open_head::OpenHead;
use super::server::{Connection, Handler};
use crate::codec::negotiate::StatusForm;
use crate::telemetry::gauge::Raised;

/// The most requests of a connection that are handled at once: those whose answer has not begun. As many as the streams
/// that Go's HTTP/2 server allows by default, and a few more.
const MOST_RUNNING: usize = 256;
/// What is reserved for a request that waits. Larger heads are limited where they arrive.
const HEAD: usize = 4 << 10;

/// The handlers of one connection.
pub(super) struct Handlers {
    handler: Arc<dyn Handler>,
    running: Semaphore,
    head: OpenHead,
    metrics: Arc<HttpMetrics>,
}

// === impl Handlers ===

impl Handlers {
    /// `head`: of the connection.
    pub(super) fn new(handler: Arc<dyn Handler>, head: OpenHead, metrics: Arc<HttpMetrics>) -> Arc<Self> {
        Arc::new(Self { handler, running: Semaphore::new(MOST_RUNNING), head, metrics })
    }

    /// Answers a request once there is a place for it. There is a 429 if no memory is left for its head. The connection
    /// then accepts no further requests.
    pub(super) async fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: Arc<Connection>,
    ) -> Response<Body> {
        // Clients that are not authenticated have fewer requests, and the handler counts them.
        let is_limited = connection.newcomer.as_ref().is_none_or(|newcomer| newcomer.is_authenticated());
        let place = if is_limited { self.place().await.map(Some) } else { Ok(None) };
        let Ok(_place) = place else {
            connection.close();
            self.metrics.requests_refused.inc();
            return respond(&too_many_waiting(), StatusForm::default());
        };
        self.handler.handle(request, &connection).await
    }

    /// # Errors
    /// There is no memory for one more head.
    async fn place(&self) -> Result<SemaphorePermit<'_>, ()> {
        if let Ok(place) = self.running.try_acquire() {
            return Ok(place);
        }
        let _head = self.head.another(HEAD).ok_or(())?;
        let _waits = Raised::new(&self.metrics.requests_waiting);
        self.running.acquire().await.map_err(drop)
    }
}

#[cfg(test)]
#[path = "handlers_tests.rs"]
mod tests;
