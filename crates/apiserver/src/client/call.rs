//! The identity of a call, and its options.

use std::sync::Arc;
use std::time::Duration;

use super::connection::ConnectionId;
use crate::meter::Meter;
use crate::metrics::RequestVerb;

/// The identity of a request to the apiserver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// With our client certificate, token or exec credentials, and the kubeconfig's impersonation.
    Own,
    /// Without our credentials: the request carries its own `Authorization`. It does not even use a connection with our
    /// client certificate, because the apiserver would prefer the certificate to a bearer token.
    Bare,
    /// As [`Self::Bare`], for whom the apiserver may not know: it closes HTTP/2 connections after each request of such senders.
    Stranger,
    /// As [`Self::Bare`], to a server behind the apiserver: the head of its answer may be one that ends the connection.
    Proxied,
}

/// The options of one call.
#[derive(Clone, Debug)]
pub struct CallOptions {
    /// The name of the request in the counters. Every verb but `Forward` is our own request and gets our User-Agent.
    pub verb: RequestVerb,
    /// The resource in the counters; empty if the request has none.
    pub resource: Arc<str>,
    /// Timeout for the head of the response, including connecting. Without it a request may wait forever.
    pub header_timeout: Option<Duration>,
    /// Prefers the connection of an earlier response, as long as it has room.
    pub connection: Option<ConnectionId>,
    /// A connection that is not used, as long as there can be another.
    pub avoided: Option<ConnectionId>,
    /// What counts its answer.
    pub meter: Option<Arc<Meter>>,
}

// === impl CallOptions ===

impl CallOptions {
    pub fn new(verb: RequestVerb, resource: impl Into<Arc<str>>) -> Self {
        let resource = resource.into();
        Self { verb, resource, header_timeout: None, connection: None, avoided: None, meter: None }
    }

    #[must_use]
    pub fn header_timeout(mut self, limit: Duration) -> Self {
        self.header_timeout = Some(limit);
        self
    }

    #[must_use]
    pub fn on(mut self, connection: Option<ConnectionId>) -> Self {
        self.connection = connection;
        self
    }

    #[must_use]
    pub fn off(mut self, connection: Option<ConnectionId>) -> Self {
        self.avoided = connection;
        self
    }
}

impl Default for CallOptions {
    fn default() -> Self {
        Self::new(RequestVerb::Forward, "")
    }
}
