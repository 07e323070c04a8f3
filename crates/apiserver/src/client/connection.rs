//! Connections that can take requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hyper::client::conn::{http1, http2};
use tokio::time::Instant;

use super::request_body::ReqBody;
use super::sender::Sender;

/// The connection of a response, stored in its extensions. Ids are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(u64);

#[derive(Debug)]
pub(super) struct Http2 {
    pub(super) id: ConnectionId,
    pub(super) sender: Sender<http2::SendRequest<ReqBody>>,
    pub(super) in_flight: AtomicUsize,
    /// The limit from the server's SETTINGS.
    pub(super) max_streams: Arc<AtomicUsize>,
}

#[derive(Debug)]
pub(super) struct Idle {
    pub(super) id: ConnectionId,
    pub(super) sender: Sender<http1::SendRequest<ReqBody>>,
    pub(super) since: Instant,
}

/// A connection that can take requests.
pub(super) enum Connected {
    Http2(Http2),
    Http1(Idle),
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

// === impl ConnectionId ===

impl ConnectionId {
    pub(super) fn next() -> Self {
        Self(NEXT_ID.fetch_add(1, Ordering::Relaxed))
    }
}
