//! The connections of one identity. HTTP/2 connections are shared, and their requests are counted. If the server speaks
//! only HTTP/1.1, each request has its own connection, and idle connections are reused.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout};

use super::connect::{Connector, Wanted};
use super::handshake::Connected;
use super::health::Keeper;
use super::replay::Replay;
use super::sender::{Sender, Unanswered};
use super::{CallOptions, ReqBody, UpstreamBody, UpstreamConfig};
use crate::upstream::error::{Cause, UpstreamError};
use crate::upstream::metrics::{RequestVerb, UpstreamMetrics};

/// The connection of a response, stored in its extensions. Ids are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(u64);

pub(super) struct Pool {
    pub(super) connector: Connector,
    pub(super) config: UpstreamConfig,
    state: Mutex<State>,
    /// Held while connecting, so that a burst of requests makes one connection instead of one each.
    dialing: tokio::sync::Mutex<Option<UpstreamError>>,
    dial_failures: AtomicU64,
    /// Limits forwarded requests, so that there is always room for our own watches.
    forward: Arc<Semaphore>,
    /// Its connections are shared by senders whom the apiserver may not know.
    is_of_strangers: bool,
    pub(super) metrics: Arc<UpstreamMetrics>,
    pub(super) keeper: Arc<Keeper>,
    renewed: watch::Sender<()>,
}

struct State {
    http2: Vec<Arc<Http2>>,
    /// Until then, HTTP/2 is not tried again, because the server has declined it.
    http1_until: Option<Instant>,
    idle: Vec<Idle>,
}

pub(super) struct Http2 {
    pub(super) id: ConnectionId,
    pub(super) sender: Sender<http2::SendRequest<ReqBody>>,
    pub(super) in_flight: AtomicUsize,
    /// The limit from the server's SETTINGS.
    pub(super) max_streams: Arc<AtomicUsize>,
}

pub(super) struct Idle {
    pub(super) id: ConnectionId,
    pub(super) sender: Sender<http1::SendRequest<ReqBody>>,
    pub(super) since: Instant,
}

/// The place of one request on its connection.
#[derive(Debug)]
pub(super) struct Lease {
    held: Held,
    pool: Weak<Pool>,
    metrics: Arc<UpstreamMetrics>,
    permit: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
enum Held {
    Http2(Arc<Http2>),
    /// Taken out when the body has ended and the connection can be reused.
    Http1(Option<Box<(ConnectionId, Sender<http1::SendRequest<ReqBody>>)>>),
    Own,
}

enum Pick {
    Connection(Arc<Http2>),
    Http1,
    Dial,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// How often a request is put on a connection if it was never sent, or if the server refused to begin it.
pub(super) const MAX_MOVES: usize = 8;
/// The same for strangers: where many of them share connections, most connections end before an answer.
pub(super) const MAX_MOVES_OF_STRANGERS: usize = 24;

/// The kube-apiserver closes connections that were idle for 90 s; ours close earlier.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// A server that has declined HTTP/2 may have been one of several behind a load balancer, or an old version of it.
const DECLINED_FOR: Duration = Duration::from_secs(30);
const MAX_IDLE: usize = 32;

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
            connector,
            is_of_strangers,
            config: config.clone(),
            state: Mutex::new(State { http2: Vec::new(), http1_until: None, idle: Vec::new() }),
            dialing: tokio::sync::Mutex::new(None),
            dial_failures: AtomicU64::new(0),
            forward: Arc::new(Semaphore::new(config.most_forwarded())),
            metrics: Arc::clone(metrics),
            keeper: Arc::clone(keeper),
            renewed: watch::Sender::new(()),
        }
    }

    /// Whether the next request needs a new connection.
    pub(super) fn must_dial(&self, wanted: Wanted) -> bool {
        let mut state = self.state.lock();
        let picked = if wanted == Wanted::Any { self.pick(&mut state, None, None) } else { Pick::Http1 };
        match picked {
            Pick::Connection(_) => false,
            Pick::Http1 => state.ready().is_none(),
            Pick::Dial => true,
        }
    }

    pub(super) async fn send(
        self: &Arc<Self>,
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
                    let lease = self.lease(Held::Http2(Arc::clone(&connection)), permit.take());
                    let replay = match &replay {
                        Some(replay) => replay,
                        None => {
                            let (first, of) = Replay::of(request, &self.metrics, &self.config.ledger);
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
                    let Some(unsent) = unsent else { return Err(UpstreamError::Request(error)) };
                    self.forget(connection.id);
                    self.metrics.resends.inc();
                    request = unsent;
                    ((!was_refused).then_some(error), lease)
                }
                None => {
                    let (id, sender) = self.http1().await?;
                    self.connector.address(&mut request);
                    let mut lease = self.lease(Held::Own, permit.take());
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

    pub(super) async fn upgrade(
        self: &Arc<Self>,
        mut request: Request<ReqBody>,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        let permit = self.permit().await?;
        let (io, _protocol) = self.connector.connect(Wanted::Session).await?;
        let request_error = |error: hyper::Error| UpstreamError::Request(Cause::new(error));
        let (sender, connection) =
            http1::Builder::new().max_buf_size(self.config.http1_buffer).handshake(io).await.map_err(request_error)?;
        let (sender, knot) = Sender::new(sender);
        // How it ends says nothing about the apiserver: perhaps a pod behind that has ended it.
        self.run("upstream-upgrade", async move { connection.with_upgrades().await.or(Ok(())) }, knot);
        self.connector.address(&mut request);
        let mut lease = self.lease(Held::Own, Some(permit));
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
        self.replace(self.establish(Wanted::Any).await?);
        Ok(())
    }

    fn replace(&self, connected: Connected) {
        *self.state.lock() = match connected {
            Connected::Http1(idle) => State { http2: Vec::new(), http1_until: declined(), idle: vec![idle] },
            Connected::Http2(connection) => {
                State { http2: vec![Arc::new(connection)], http1_until: None, idle: Vec::new() }
            }
        };
        self.renewed.send_replace(());
    }

    /// Changes when the connections were replaced.
    pub(super) fn renewed(&self) -> watch::Receiver<()> {
        self.renewed.subscribe()
    }

    /// Whether there are any connections.
    pub(super) fn is_used(&self) -> bool {
        let state = self.state.lock();
        !(state.http2.is_empty() && state.idle.is_empty())
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, UpstreamError> {
        let acquired = timeout(self.config.connect_timeout, Arc::clone(&self.forward).acquire_owned()).await;
        acquired.ok().and_then(Result::ok).ok_or(UpstreamError::Busy)
    }

    /// Reserves a place on an HTTP/2 connection; it is already counted. `None` if the server speaks only HTTP/1.1.
    async fn reserve(&self, options: &CallOptions) -> Result<Option<Arc<Http2>>, UpstreamError> {
        loop {
            if let Some(picked) = self.try_reserve(options) {
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
            if let Some(picked) = self.try_reserve(options) {
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

    fn try_reserve(&self, options: &CallOptions) -> Option<Option<Arc<Http2>>> {
        let mut state = self.state.lock();
        match self.pick(&mut state, options.connection, options.avoided) {
            Pick::Connection(connection) => {
                // Under the lock, so that two requests cannot both take the last place.
                connection.in_flight.fetch_add(1, Ordering::Relaxed);
                Some(Some(connection))
            }
            Pick::Http1 => Some(None),
            Pick::Dial => None,
        }
    }

    fn pick(&self, state: &mut State, preferred: Option<ConnectionId>, avoided: Option<ConnectionId>) -> Pick {
        let is_declined = state.http1_until.is_some_and(|until| Instant::now() < until);
        if is_declined || !self.connector.offers_http2() {
            return Pick::Http1;
        }
        state.http2.retain(|connection| !connection.sender.is_closed());
        if let Some(connection) = state.http2.iter().find(|c| Some(c.id) == preferred && self.has_room(c)) {
            return Pick::Connection(Arc::clone(connection));
        }
        let least = |avoided| {
            let others = state.http2.iter().filter(|connection| Some(connection.id) != avoided);
            others.min_by_key(|connection| connection.in_flight.load(Ordering::Relaxed))
        };
        let is_full = state.http2.len() >= self.config.max_connections;
        match least(avoided).or_else(|| least(None).filter(|_| is_full)) {
            Some(connection) if self.has_room(connection) || is_full => Pick::Connection(Arc::clone(connection)),
            _ => Pick::Dial,
        }
    }

    fn has_room(&self, connection: &Http2) -> bool {
        connection.in_flight.load(Ordering::Relaxed) < self.room(connection)
    }

    /// Nine tenths of the server's limit: the server still counts streams that were just reset.
    fn room(&self, connection: &Http2) -> usize {
        let allowed = connection.max_streams.load(Ordering::Relaxed);
        self.config.streams_per_connection.min(allowed - allowed / 10).max(1)
    }

    /// Adds a connection, if there is still none to use.
    async fn add(&self) -> Result<(), UpstreamError> {
        match self.dial(Wanted::Any).await? {
            Some(Connected::Http1(idle)) => {
                let mut state = self.state.lock();
                state.http1_until = declined();
                state.idle.push(idle);
            }
            Some(Connected::Http2(connection)) => self.state.lock().http2.push(Arc::new(connection)),
            None => {}
        }
        Ok(())
    }

    async fn http1(&self) -> Result<(ConnectionId, Sender<http1::SendRequest<ReqBody>>), UpstreamError> {
        loop {
            if let Some(idle) = self.take_idle() {
                return Ok((idle.id, idle.sender));
            }
            if let Some(Connected::Http1(idle)) = self.dial(Wanted::Http1).await? {
                return Ok((idle.id, idle.sender));
            }
        }
    }

    fn take_idle(&self) -> Option<Idle> {
        let mut state = self.state.lock();
        let ready = state.ready()?;
        Some(state.idle.remove(ready))
    }

    fn lease(self: &Arc<Self>, held: Held, permit: Option<OwnedSemaphorePermit>) -> Lease {
        self.metrics.in_flight.inc();
        Lease { held, pool: Arc::downgrade(self), metrics: Arc::clone(&self.metrics), permit }
    }

    fn forget(&self, id: ConnectionId) {
        self.state.lock().http2.retain(|connection| connection.id != id);
    }

    /// Drops a connection that has become idle, if the others have enough room for the present requests.
    fn retire(&self, idle: &Http2) {
        let mut state = self.state.lock();
        if idle.in_flight.load(Ordering::Relaxed) > 0 {
            return;
        }
        let others = state.http2.iter().filter(|connection| connection.id != idle.id);
        let (room, in_flight) = others.fold((0, 0), |(room, in_flight), connection| {
            (room + self.room(connection), in_flight + connection.in_flight.load(Ordering::Relaxed))
        });
        if in_flight * 2 < room {
            state.http2.retain(|connection| connection.id != idle.id);
        }
    }
}

// === impl State ===

impl State {
    /// The newest idle connection that takes a request, so that surplus connections become old. One that is not ready still
    /// reads the end of its last body.
    fn ready(&mut self) -> Option<usize> {
        self.idle.retain(|idle| !idle.sender.is_closed() && idle.since.elapsed() < IDLE_TIMEOUT);
        self.idle.iter().rposition(|idle| idle.sender.is_ready())
    }
}

/// See [`State::http1_until`].
fn declined() -> Option<Instant> {
    Some(Instant::now() + DECLINED_FOR)
}

fn respond(response: Response<Incoming>, id: ConnectionId, lease: Lease) -> Response<UpstreamBody> {
    let version = response.version();
    let mut response = response.map(|body| UpstreamBody::new(body, version, lease));
    response.extensions_mut().insert(id);
    response
}

// === impl Lease ===

impl Lease {
    /// Records that the response was read to its end: its HTTP/1.1 connection may be reused.
    pub(super) fn finished(mut self) {
        let Held::Http1(connection) = &mut self.held else { return };
        if let (Some(connection), Some(pool)) = (connection.take(), self.pool.upgrade()) {
            let (id, sender) = *connection;
            let mut state = pool.state.lock();
            if state.idle.len() < MAX_IDLE && !sender.is_closed() {
                state.idle.push(Idle { id, sender, since: Instant::now() });
            }
        }
    }

    /// Records that the response broke off. Over HTTP/1.1 its connection did; a connection over HTTP/2 tells so itself.
    pub(super) fn broke(self) {
        if let (Held::Http1(_), Some(pool)) = (&self.held, self.pool.upgrade()) {
            pool.keeper.doubt();
        }
    }

    pub(super) fn metrics(&self) -> &Arc<UpstreamMetrics> {
        &self.metrics
    }

    fn into_permit(mut self) -> Option<OwnedSemaphorePermit> {
        self.permit.take()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
        if let Held::Http2(connection) = &self.held
            && connection.in_flight.fetch_sub(1, Ordering::Relaxed) == 1
            && let Some(pool) = self.pool.upgrade()
        {
            pool.retire(connection);
        }
    }
}

// === impl ConnectionId ===

impl ConnectionId {
    pub(super) fn next() -> Self {
        Self(NEXT_ID.fetch_add(1, Ordering::Relaxed))
    }
}

// === impl Http2 ===

impl std::fmt::Debug for Http2 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "connection {} ({} in flight)", self.id.0, self.in_flight.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
