//! One connection of a client: what its requests may know of it, and how it ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use http::{HeaderMap, Request};
use rustls::pki_types::CertificateDer;
use tokio::sync::Notify;

use super::config::ListenAddr;
use super::newcomer::{Heard, Lasting, Newcomer, Stage, TooMuch};
use super::places::Place;
use crate::auth::Caller;
use crate::http::record::{Age, Last};
use crate::lifecycle::slots::Slot;

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// What is known about the connection of a request.
#[derive(Debug)]
pub struct Connection {
    pub listener: ListenAddr,
    /// `None` on a Unix socket.
    pub peer: Option<SocketAddr>,
    /// Tells it from all others.
    pub id: u64,
    /// The certificates that the client presented in the handshake of a delegated listener. Only possession of the key
    /// is proven.
    pub(in crate::http) certificates: Option<Arc<[CertificateDer<'static>]>>,
    /// Determines when long calls have to end.
    pub age: Age,
    pub(in crate::http) upgraded: Arc<AtomicBool>,
    /// The client of the last request.
    pub(in crate::http) last: Last,
    /// On a delegated listener: whether the client is authenticated yet.
    pub(in crate::http) newcomer: Option<Arc<Newcomer>>,
    /// Notified when the connection must accept no further requests.
    pub(in crate::http) closing: Notify,
    /// The place of this connection. It counts also while the connection is a pipe after an upgrade.
    pub(in crate::http) place: Option<Place>,
}

// === impl Connection ===

impl Connection {
    /// Creates a connection that is not counted.
    pub fn new(listener: ListenAddr, peer: Option<SocketAddr>) -> Self {
        Self {
            listener,
            peer,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            certificates: None,
            age: Age::default(),
            upgraded: Arc::default(),
            last: Last::default(),
            newcomer: None,
            closing: Notify::new(),
            place: None,
        }
    }

    /// The caller that sends a request with these headers, as far as the connection identifies it.
    pub fn caller<'a>(&'a self, headers: &'a HeaderMap) -> Caller<'a> {
        Caller { mode: self.listener.mode(), certificates: self.certificates.as_ref(), headers, may_impersonate: true }
    }

    /// Registers a request before anything else is checked. The guard is kept until the request is answered.
    ///
    /// # Errors
    /// The request exceeds a limit for clients that are not authenticated.
    pub(in crate::http) fn hear<B>(&self, request: &Request<B>) -> Result<Option<Heard>, TooMuch> {
        self.newcomer.as_ref().map_or(Ok(None), |newcomer| newcomer.hear(request))
    }

    /// Registers a gRPC call. The guard is kept until its answer ends. Health and reflection need no authentication and
    /// last as long as the client wants; all other services authenticate the client.
    ///
    /// # Errors
    /// There is one call too many for a client that is not authenticated. The connection then accepts no further
    /// requests.
    pub(in crate::http) fn lasting(&self, path: &str) -> Result<Option<Lasting>, TooMuch> {
        let newcomer = self.newcomer.as_ref().filter(|_| !path.starts_with("/informerd."));
        newcomer.map_or(Ok(None), Newcomer::lasting).inspect_err(|_| self.close())
    }

    pub(in crate::http) fn reached(&self, stage: Stage) {
        if let Some(newcomer) = &self.newcomer {
            newcomer.reached(stage);
        }
    }

    /// The apiserver has accepted a token of the client that could not be judged here: there were no reviews, or the
    /// token is for the apiserver alone. The request must be one that is refused to whoever has no valid token. The
    /// apiserver answers others, such as for its version, to everybody.
    pub fn confirmed(&self) {
        if let Some(newcomer) = &self.newcomer {
            newcomer.authenticated();
        }
    }

    /// Makes the connection accept no further requests. It ends when the running ones have ended.
    pub fn close(&self) {
        self.closing.notify_one();
    }

    /// Waits until a newcomer has to leave, or another connection has the slot of this one. Never returns for others.
    pub(in crate::http) async fn sent_away(&self) {
        match (&self.newcomer, self.slot()) {
            (Some(newcomer), _) => newcomer.sent_away().await,
            (None, Some(slot)) => slot.lost().await,
            (None, None) => std::future::pending().await,
        }
    }

    /// There is a request. Others lose their slots first.
    pub(in crate::http) fn used(&self) {
        if let Some(slot) = self.slot() {
            slot.used();
        }
    }

    fn slot(&self) -> Option<&Slot> {
        self.place.as_ref()?.slot.as_ref()
    }

    /// Removes the write timeout of the connection: it becomes a pipe, and both ends may be idle.
    pub fn set_upgraded(&self) {
        self.upgraded.store(true, Ordering::Relaxed);
    }
}
