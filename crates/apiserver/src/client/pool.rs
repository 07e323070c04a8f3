//! The connections of one identity. HTTP/2 connections are shared, and their requests are counted. If the server speaks
//! only HTTP/1.1, each request has its own connection, and idle connections are reused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use super::body::UpstreamBody;
use super::call::CallOptions;
use super::connect::{Connector, Wanted};
use super::connection::{Connected, ConnectionId, Http2, Idle};
use super::health::Keeper;
use super::lease::{Connections, Held, Lease};
use super::replay::Replay;
use super::request_body::ReqBody;
use super::sender::Unanswered;
use crate::error::UpstreamError;
use crate::metrics::RequestVerb;

pub(super) struct Pool {
    pub(super) connections: Arc<Connections>,
    /// Held while connecting, so that a burst of requests makes one connection instead of one each.
    dialing: tokio::sync::Mutex<Option<UpstreamError>>,
    dial_failures: AtomicU64,
    /// Limits forwarded requests, so that there is always room for our own watches.
    forward: Arc<Semaphore>,
    /// Its connections are shared by senders whom the apiserver may not know.
    is_of_strangers: bool,
    /// Changes when the connections were replaced.
    pub(super) renewed: watch::Sender<()>,
}

/// How often a request is put on a connection if it was never sent, or if the server refused to begin it.
pub(super) const MAX_MOVES: usize = 8;
/// The same for strangers: where many of them share connections, most connections end before an answer.
pub(super) const MAX_MOVES_OF_STRANGERS: usize = 24;

// === impl Pool ===

impl Pool {
    pub(super) fn new(connector: Connector, is_of_strangers: bool, keeper: &Arc<Keeper>) -> Self {
        Self {
            forward: Arc::new(Semaphore::new(connector.config.most_forwarded())),
            connections: Arc::new(Connections::new(connector, keeper)),
            is_of_strangers,
            dialing: tokio::sync::Mutex::new(None),
            dial_failures: AtomicU64::new(0),
            renewed: watch::Sender::new(()),
        }
    }

    pub(super) async fn send(
        &self,
        mut request: Request<ReqBody>,
        options: &CallOptions,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        let mut permit = match options.verb {
            RequestVerb::Forward => Some(self.permit().await?),
            _ => None,
        };
        let (mut replay, mut last) = (None, None);
        let moves = if self.is_of_strangers { MAX_MOVES_OF_STRANGERS } else { MAX_MOVES };
        for _ in 0..moves {
            let (error, mut lease) = match self.reserve(options).await? {
                Some(connection) => {
                    let lease = self.connections.lease(Held::Http2(Arc::clone(&connection)), permit.take());
                    if replay.is_none() {
                        let Connector { metrics, config, .. } = &self.connections.connector;
                        let (first, of) = Replay::of(request, metrics, &config.ledger);
                        (request, replay) = (first, Some(of));
                    }
                    let Unanswered { error, unsent, was_refused } = match connection.sender.send(request).await {
                        Ok(response) => return Ok(respond(response, connection.id, lease)),
                        Err(unanswered) => unanswered,
                    };
                    let unsent = unsent.or_else(|| replay.as_ref().filter(|_| was_refused)?.again());
                    // Refused, or closed: no more requests are put on this connection. It may still deliver answers to
                    // earlier ones.
                    let Some(unsent) = unsent else {
                        // It was not begun, but its body is no longer kept.
                        return Err(if was_refused { UpstreamError::Busy } else { UpstreamError::Request(error) });
                    };
                    self.connections.forget(connection.id);
                    self.connections.connector.metrics.resends.inc();
                    request = unsent;
                    ((!was_refused).then_some(error), lease)
                }
                None => {
                    let idle = self.http1().await?;
                    let id = idle.id;
                    self.connections.connector.address(&mut request);
                    let mut lease = self.connections.lease(Held::Own, permit.take());
                    let result = idle.sender.send(request).await;
                    lease.held = Held::Http1(Some(Box::new(idle)));
                    match result {
                        Ok(response) => return Ok(respond(response, id, lease)),
                        Err(Unanswered { error, unsent: None, .. }) => return Err(UpstreamError::Request(error)),
                        Err(Unanswered { error, unsent: Some(unsent), .. }) => {
                            request = unsent;
                            (Some(error), lease)
                        }
                    }
                }
            };
            permit = lease.permit.take();
            last = error;
        }
        // A server that refuses to begin a request is there, and so is one that ends the connections of strangers.
        Err(last.filter(|_| !self.is_of_strangers).map_or(UpstreamError::Busy, UpstreamError::Request))
    }

    pub(super) async fn upgrade(&self, mut request: Request<ReqBody>) -> Result<Response<UpstreamBody>, UpstreamError> {
        let permit = self.permit().await?;
        let sender = self.connections.session().await?;
        self.connections.connector.address(&mut request);
        let mut lease = self.connections.lease(Held::Own, Some(permit));
        let response = sender.send(request).await.map_err(|unanswered| UpstreamError::Request(unanswered.error))?;
        // A session may last for days, and takes no place of other requests: it has a connection of its own.
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            lease.permit = None;
        }
        Ok(respond(response, ConnectionId::next(), lease))
    }

    /// Makes a connection that replaces all present ones, because they may be dead without anyone noticing. Requests in
    /// flight on them continue.
    pub(super) async fn renew(&self) -> Result<(), UpstreamError> {
        self.replace(self.connections.establish(Wanted::Any).await?);
        Ok(())
    }

    fn replace(&self, connected: Connected) {
        self.connections.replace(connected);
        self.renewed.send_replace(());
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, UpstreamError> {
        let limit = self.connections.connector.config.connect_timeout;
        let acquired = timeout(limit, Arc::clone(&self.forward).acquire_owned()).await;
        acquired.ok().and_then(Result::ok).ok_or(UpstreamError::Busy)
    }

    /// Reserves a place on an HTTP/2 connection; it is already counted. `None` if the server speaks only HTTP/1.1.
    async fn reserve(&self, options: &CallOptions) -> Result<Option<Arc<Http2>>, UpstreamError> {
        loop {
            if let Some(picked) = self.connections.try_reserve(options) {
                return Ok(picked);
            }
            let failures = self.dial_failures.load(Ordering::Acquire);
            let mut last = self.dialing.lock().await;
            // Callers that waited for a failed attempt share its error, so that the attempts of a burst do not queue
            // up.
            if self.dial_failures.load(Ordering::Acquire) != failures
                && let Some(error) = &*last
            {
                return Err(error.clone());
            }
            if let Some(picked) = self.connections.try_reserve(options) {
                return Ok(picked);
            }
            let added = self.add().await;
            *last = added.clone().err();
            added.inspect_err(|_| _ = self.dial_failures.fetch_add(1, Ordering::Release))?;
        }
    }

    /// Adds a connection, if there is still none to use.
    async fn add(&self) -> Result<(), UpstreamError> {
        if let Some(connected) = self.connections.dial(Wanted::Any).await? {
            self.connections.add(connected);
        }
        Ok(())
    }

    async fn http1(&self) -> Result<Idle, UpstreamError> {
        loop {
            if let Some(idle) = self.connections.take_idle() {
                return Ok(idle);
            }
            if let Some(Connected::Http1(idle)) = self.connections.dial(Wanted::Http1).await? {
                return Ok(idle);
            }
        }
    }
}

fn respond(response: Response<Incoming>, id: ConnectionId, lease: Lease) -> Response<UpstreamBody> {
    let version = response.version();
    let mut response = response.map(|body| UpstreamBody::new(body, version, lease));
    response.extensions_mut().insert(id);
    response
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
