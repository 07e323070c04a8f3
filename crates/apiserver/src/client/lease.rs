//! The connections of one identity, and the places of requests on them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::call::CallOptions;
use super::connect::{Connector, Wanted};
use super::connection::{Connected, ConnectionId, Http2, Idle};
use super::health::Keeper;
use crate::metrics::UpstreamMetrics;

pub(super) struct Connections {
    pub(super) connector: Connector,
    state: Mutex<State>,
    pub(super) keeper: Arc<Keeper>,
}

#[derive(Default)]
struct State {
    http2: Vec<Arc<Http2>>,
    /// Until then, HTTP/2 is not tried again, because the server has declined it.
    http1_until: Option<Instant>,
    idle: Vec<Idle>,
}

/// The place of one request on its connection.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) held: Held,
    connections: Weak<Connections>,
    pub(super) metrics: Arc<UpstreamMetrics>,
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
pub(super) enum Held {
    Http2(Arc<Http2>),
    /// Taken out when the body has ended and the connection can be reused.
    Http1(Option<Box<Idle>>),
    Own,
}

enum Pick {
    Connection(Arc<Http2>),
    Http1,
    Dial,
}

/// The kube-apiserver closes connections that were idle for 90 s; ours close earlier.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// A server that has declined HTTP/2 may have been one of several behind a load balancer, or an old version of it.
const DECLINED_FOR: Duration = Duration::from_secs(30);
pub(super) const MAX_IDLE: usize = 32;

// === impl Connections ===

impl Connections {
    pub(super) fn new(connector: Connector, keeper: &Arc<Keeper>) -> Self {
        Self { connector, state: Mutex::default(), keeper: Arc::clone(keeper) }
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

    /// Whether there are any.
    pub(super) fn is_used(&self) -> bool {
        let state = self.state.lock();
        !(state.http2.is_empty() && state.idle.is_empty())
    }

    pub(super) fn add(&self, connected: Connected) {
        self.state.lock().add(connected);
    }

    /// Replaces all by this one.
    pub(super) fn replace(&self, connected: Connected) {
        let mut only = State::default();
        only.add(connected);
        *self.state.lock() = only;
    }

    /// Reserves a place on an HTTP/2 connection; it is already counted. `Some(None)` if the server speaks only HTTP/1.1,
    /// and `None` if there must be another connection first.
    pub(super) fn try_reserve(&self, options: &CallOptions) -> Option<Option<Arc<Http2>>> {
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
        let is_full = state.http2.len() >= self.connector.config.max_connections;
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
        self.connector.config.streams_per_connection.min(allowed - allowed / 10).max(1)
    }

    pub(super) fn take_idle(&self) -> Option<Idle> {
        let mut state = self.state.lock();
        let ready = state.ready()?;
        Some(state.idle.remove(ready))
    }

    pub(super) fn lease(self: &Arc<Self>, held: Held, permit: Option<OwnedSemaphorePermit>) -> Lease {
        self.connector.metrics.in_flight.inc();
        Lease { held, connections: Arc::downgrade(self), metrics: Arc::clone(&self.connector.metrics), permit }
    }

    pub(super) fn forget(&self, id: ConnectionId) {
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

    /// How many there are over HTTP/2, how many idle ones over HTTP/1.1, and whether the server has declined HTTP/2.
    #[cfg(test)]
    pub(super) fn numbers(&self) -> (usize, usize, bool) {
        let state = self.state.lock();
        (state.http2.len(), state.idle.len(), state.http1_until.is_some())
    }
}

// === impl State ===

impl State {
    fn add(&mut self, connected: Connected) {
        match connected {
            Connected::Http1(idle) => {
                self.http1_until = Some(Instant::now() + DECLINED_FOR);
                self.idle.push(idle);
            }
            Connected::Http2(connection) => self.http2.push(Arc::new(connection)),
        }
    }

    /// The newest idle connection that takes a request, so that surplus connections become old. One that is not ready still
    /// reads the end of its last body.
    fn ready(&mut self) -> Option<usize> {
        self.idle.retain(|idle| !idle.sender.is_closed() && idle.since.elapsed() < IDLE_TIMEOUT);
        self.idle.iter().rposition(|idle| idle.sender.is_ready())
    }
}

// === impl Lease ===

impl Lease {
    /// Records that the response was read to its end: its HTTP/1.1 connection may be reused.
    pub(super) fn finished(mut self) {
        let Held::Http1(connection) = &mut self.held else { return };
        if let (Some(mut idle), Some(connections)) = (connection.take(), self.connections.upgrade()) {
            idle.since = Instant::now();
            let mut state = connections.state.lock();
            if state.idle.len() < MAX_IDLE && !idle.sender.is_closed() {
                state.idle.push(*idle);
            }
        }
    }

    /// Records that the response broke off. Over HTTP/1.1 its connection did; a connection over HTTP/2 tells so itself.
    pub(super) fn broke(self) {
        if let (Held::Http1(_), Some(connections)) = (&self.held, self.connections.upgrade()) {
            connections.keeper.doubt();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
        if let Held::Http2(connection) = &self.held
            && connection.in_flight.fetch_sub(1, Ordering::Relaxed) == 1
            && let Some(connections) = self.connections.upgrade()
        {
            connections.retire(connection);
        }
    }
}
