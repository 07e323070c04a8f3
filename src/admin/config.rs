//! Settings of the admin side.

use std::net::SocketAddr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Port 0 picks a free port.
    pub listen: SocketAddr,
    /// Serves only health and metrics, for every client that the network admits.
    pub probes: Option<SocketAddr>,
}
