//! What one call asks of the client besides its request.

use std::sync::Arc;
use std::time::Duration;

use super::{ConnectionId, RequestVerb};

/// What is particular to one call.
#[derive(Clone, Debug)]
pub struct CallOptions {
    /// Names the request in the counters. Anything but `Forward` is ours and gets our User-Agent.
    pub verb: RequestVerb,
    /// Names the request in the counters; empty where it has no resource.
    pub resource: Arc<str>,
    /// For the head of the response, connecting included. Without it a request may wait for ever.
    pub header_timeout: Option<Duration>,
    /// Prefers the connection another response came by, as long as it has room.
    pub connection: Option<ConnectionId>,
}

// === impl CallOptions ===

impl CallOptions {
    pub fn new(verb: RequestVerb, resource: impl Into<Arc<str>>) -> Self {
        Self { verb, resource: resource.into(), header_timeout: None, connection: None }
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
}

impl Default for CallOptions {
    fn default() -> Self {
        Self::new(RequestVerb::Forward, "")
    }
}
