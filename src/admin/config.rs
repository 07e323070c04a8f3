//! What the admin side may be told.

use std::net::SocketAddr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Health and metrics alone, for whoever the network lets through.
    pub probes: Option<SocketAddr>,
}
