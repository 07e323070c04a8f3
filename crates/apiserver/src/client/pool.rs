//! The connections of one identity. HTTP/2 connections are shared, and their requests are counted. If the server speaks
//! only HTTP/1.1, each request has its own connection, and idle connections are reused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use super::body::UpstreamBody;
use super::call::CallOptions;
use super::connect::{Connector, Wanted};
use super::connection::{Connected, ConnectionId, Http2};
use super::health::Keeper;
use super::lease::{Connections, Held, Lease};
use super::replay::Replay;
use super::request_body::ReqBody;
use super::sender::{Sender, Unanswered};
use super::settings::UpstreamConfig;
use crate::error::UpstreamError;
use crate::metrics::{RequestVerb, UpstreamMetrics};

pub(super) struct Pool {
    connections: Arc<Connections>,
    /// Held while connecting, so that a burst of requests makes one connection instead of one each.
    dialing: tokio::sync::Mutex<Option<UpstreamError>>,
    dial_failures: AtomicU64,
    /// Limits forwarded requests, so that there is always room for our own watches.
    forward: Arc<Semaphore>,
    /// Its connections are shared by senders whom the apiserver may not know.
    is_of_strangers: bool,
    renewed: watch::Sender<()>,
}

/// How often a request is put on a connection if it was never sent, or if the server refused to begin it.
pub(super) const MAX_MOVES: usize = 8;
/// The same for strangers: where many of them share connections, most connections end before an answer.
pub(super) const MAX_MOVES_OF_STRANGERS: usize = 24;

// === impl Pool ===

impl Pool {
    pub(super) fn new(
        connector: Connector,
        config: &UpstreamConfig,
        is_of_strangers: bool,
        metrics: &Arc<UpstreamMetrics>,
        keeper: &Arc<Keeper>,
    ) -> Self {
        Self {
            connections: Arc::new(Connections::new(connector, config, metrics, keeper)),
            is_of_strangers,
            dialing: tokio::sync::Mutex::new(None),
            dial_failures: AtomicU64::new(0),
            forward: Arc::new(Semaphore::new(config.most_forwarded())),
            renewed: watch::Sender::new(()),
        }
    }

    /// Whether the next request needs a new connection.
    pub(super) fn must_dial(&self, wanted: Wanted) -> bool {
        self.connections.must_dial(wanted)
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
            let (error, lease) = match self.reserve(options).await? {
                Some(connection) => {
                    let lease = self.connections.lease(Held::Http2(Arc::clone(&connection)), permit.take());
                    let replay = match &replay {
                        Some(replay) => replay,
                        None => {
                            let (first, of) =
                                Replay::of(request, &self.connections.metrics, &self.connections.config.ledger);
                            request = first;
                            replay.insert(of)
                        }
                    };
                    let Unanswered { error, unsent, was_refused } = match connection.sender.send(request).await {
                        Ok(response) => return Ok(respond(response, connection.id, lease)),
                        Err(unanswered) => unanswered,
                    };
                    let unsent = unsent.or_else(|| was_refused.then(|| replay.again()).flatten());
                    // Refused, or closed: no more requests are put on this connection. It may still deliver answers to
                    // earlier ones.
                    let Some(unsent) = unsent else {
                        // It was not begun, but its body is no longer kept.
                        return Err(if was_refused { UpstreamError::Busy } else { UpstreamError::Request(error) });
                    };
                    self.connections.forget(connection.id);
                    self.connections.metrics.resends.inc();
                    request = unsent;
                    ((!was_refused).then_some(error), lease)
                }
                None => {
                    let (id, sender) = self.http1().await?;
                    self.connections.connector.address(&mut request);
                    let mut lease = self.connections.lease(Held::Own, permit.take());
                    let result = sender.send(request).await;
                    lease.held = Held::Http1(Some(Box::new((id, sender))));
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
            permit = lease.into_permit();
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

    /// Changes when the connections were replaced.
    pub(super) fn renewed(&self) -> watch::Receiver<()> {
        self.renewed.subscribe()
    }

    /// Whether there are any connections.
    pub(super) fn is_used(&self) -> bool {
        self.connections.is_used()
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, UpstreamError> {
        let acquired =
            timeout(self.connections.config.connect_timeout, Arc::clone(&self.forward).acquire_owned()).await;
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
            match self.add().await {
                Ok(()) => *last = None,
                Err(error) => {
                    *last = Some(error.clone());
                    self.dial_failures.fetch_add(1, Ordering::Release);
                    return Err(error);
                }
            }
        }
    }

    /// Adds a connection, if there is still none to use.
    async fn add(&self) -> Result<(), UpstreamError> {
        if let Some(connected) = self.connections.dial(Wanted::Any).await? {
            self.connections.add(connected);
        }
        Ok(())
    }

    async fn http1(&self) -> Result<(ConnectionId, Sender<http1::SendRequest<ReqBody>>), UpstreamError> {
        loop {
            if let Some(idle) = self.connections.take_idle() {
                return Ok((idle.id, idle.sender));
            }
            if let Some(Connected::Http1(idle)) = self.connections.dial(Wanted::Http1).await? {
                return Ok((idle.id, idle.sender));
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
