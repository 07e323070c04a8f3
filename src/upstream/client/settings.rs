//! Settings of the client.

use std::time::Duration;

use crate::memory::Ledger;

/// Settings of the client.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// The User-Agent of our own requests; a forwarded one keeps what its client sent.
    pub user_agent: String,
    /// For TCP and TLS together.
    pub connect_timeout: Duration,
    /// Connections of each identity.
    pub max_connections: usize,
    /// Streams put on one connection before another is opened; less where the server allows less. The kube-apiserver
    /// allows 100.
    pub streams_per_connection: usize,
    /// Flow control: bytes one stream may have unread. A connection may have 100 times as many, so that streams that
    /// nobody reads never hold up the others.
    pub stream_window: u32,
    /// Bytes that are read ahead of an HTTP/1.1 body, and what the head of an answer may have.
    pub http1_buffer: usize,
    /// What the kernel may keep of a connection's bytes that are not read. `None`, the default, for as much as it sees fit.
    pub recv_buffer: Option<usize>,
    /// What request bodies that are kept until their answer are counted in.
    pub ledger: Ledger,
    /// HTTP/2 PING: sent after so long a silence, and the connection given up when nothing comes within `ping_timeout`. A
    /// dead connection is found after both together.
    pub ping_interval: Duration,
    pub ping_timeout: Duration,
    /// How often the kubeconfig, the token file and the other files it names are looked at for changes.
    pub check_interval: Duration,
    /// How often at most refused credentials are read anew.
    pub reload_interval: Duration,
}

// === impl UpstreamConfig ===

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self {
            user_agent: concat!("informerd/", env!("CARGO_PKG_VERSION")).into(),
            connect_timeout: Duration::from_secs(10),
            max_connections: 32,
            streams_per_connection: 90,
            stream_window: 1 << 20,
            http1_buffer: 1 << 20,
            recv_buffer: None,
            ledger: Ledger::default(),
            ping_interval: Duration::from_secs(4),
            ping_timeout: Duration::from_secs(5),
            check_interval: Duration::from_secs(1),
            reload_interval: Duration::from_secs(5),
        }
    }
}
