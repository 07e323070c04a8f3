//! Settings of the client.

use std::time::Duration;

use informerd_memory::Ledger;

const PING_INTERVAL: Duration = Duration::from_secs(4);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// The User-Agent of our own requests; a forwarded request keeps that of its client.
pub(super) const AGENT: &str = concat!("informerd/", env!("CARGO_PKG_VERSION"));

/// After this time a dead connection has been closed, unless [`UpstreamConfig`] has other PINGs.
pub const DEAD_AFTER: Duration = PING_INTERVAL.saturating_add(PING_TIMEOUT);

/// Settings of the client.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// Timeout for TCP and TLS together.
    pub connect_timeout: Duration,
    /// Maximum number of connections of each identity.
    pub max_connections: usize,
    /// Places that forwarded requests never take, in addition to their share: the watches of informers.
    pub informers: usize,
    /// Number of streams on one connection before another is opened; less if the server allows less. The kube-apiserver
    /// allows 100.
    pub streams_per_connection: usize,
    /// Flow control: the unread bytes that one stream may have. A connection may have 100 times as many, so that unread
    /// streams never block the others.
    pub stream_window: u32,
    /// Read-ahead bytes of an HTTP/1.1 body, and the maximum size of the head of an answer.
    pub http1_buffer: usize,
    /// Receive buffer of the kernel for each connection, in bytes. `None`, the default, leaves the size to the kernel.
    pub recv_buffer: Option<usize>,
    /// Accounts for the request bodies that are kept until their answer.
    pub ledger: Ledger,
    /// HTTP/2 PING: sent after this much silence. The connection is closed if nothing arrives within `ping_timeout`, so
    /// a dead connection is found after the sum of both.
    pub ping_interval: Duration,
    pub ping_timeout: Duration,
    /// How often the kubeconfig, the token file and the other files that it names are checked for changes.
    pub check_interval: Duration,
    /// Minimum time between two reads of refused credentials.
    pub reload_interval: Duration,
}

// === impl UpstreamConfig ===

impl UpstreamConfig {
    /// The places of forwarded requests. The rest is for our own.
    pub(super) fn most_forwarded(&self) -> usize {
        let places = (self.max_connections * self.streams_per_connection).saturating_sub(self.informers);
        (places - places / 8).max(1)
    }
}

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            max_connections: 32,
            informers: 0,
            streams_per_connection: 90,
            stream_window: 1 << 20,
            http1_buffer: 1 << 20,
            recv_buffer: None,
            ledger: Ledger::default(),
            ping_interval: PING_INTERVAL,
            ping_timeout: PING_TIMEOUT,
            check_interval: Duration::from_secs(1),
            reload_interval: Duration::from_secs(5),
        }
    }
}
