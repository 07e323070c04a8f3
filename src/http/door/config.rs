//! Settings of the HTTP side.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::auth::Mode;

#[derive(Clone, Debug)]
pub struct HttpConfig {
    pub listen: Vec<ListenAddr>,
    pub tls: TlsConfig,
    /// Names that a `Host` header may carry besides localhost and loopback addresses.
    pub hosts: Vec<String>,
    /// Connections served at once over all listeners. Any further connection is accepted and closed. Default 10,000.
    pub max_connections: usize,
    /// Whether a further connection of a trusted listener takes the slot of another one: of the address that has the most.
    /// Default no: whoever is trusted keeps its place.
    pub evicts: bool,
    /// A connection that has bytes to send is closed if the client reads none of them for this long. Default 5 min.
    pub write_stall_timeout: Duration,
    /// The age at which a connection with gRPC calls takes no new calls. It varies randomly by 10 % up or down, so that
    /// connections that start together do not end together. After as long again, its streams are told to end. Zero means
    /// no limit. Default 30 min.
    pub age: Duration,
    /// How long a client may take to send a request's headers. It also bounds how long an HTTP/1.1 connection may be
    /// idle between requests, because the HTTP library uses one timer for both. So the default is 90 s, the apiserver's
    /// idle timeout. Once the first bytes of a head have come, it may take 32 s, as in the apiserver.
    pub header_read_timeout: Duration,
    /// How long a client may take to send its first bytes, and to complete the TLS handshake. Default 30 s, several
    /// retransmissions of a slow network.
    pub handshake_timeout: Duration,
    /// When a drain starts, the ends of open watches are spread over this time, so that their clients do not all come to
    /// another replica at once. Default 3 s: a small part of the time that a drain may take.
    pub drain_spread: Duration,
    /// A drain ends connections without a request once they are so old. A younger one may be about to send its first.
    /// Default 5 s, as in Go's server.
    pub drain_patience: Duration,
    /// Whether every answer carries a header of informerd that explains how it was produced. Default no: the apiserver
    /// has no such header.
    pub explain: bool,
    /// Whether clients of `http` and `https` listeners may open sessions in pods (`exec`, `attach`, `port-forward`)
    /// with the daemon's identity, where that identity is lent. Default no. Clients of Unix sockets always may.
    pub lend_sessions: bool,
    /// Permissions of Unix sockets. Default 0600.
    pub unix_mode: u32,
    /// The send buffer of the kernel for a TCP connection. It limits how many bytes the kernel keeps for a client that
    /// does not read them. Default: the kernel decides, up to megabytes.
    pub send_buffer: Option<usize>,
    /// Compressed bytes that are kept for later requests. The least used answer is evicted first. One that is too large to
    /// keep is compressed for its current readers only. Default 64 MiB: a few lists of a large cluster.
    pub gzip_bytes: u64,
    /// Default: those of `protocol.rs`, for clients with hundreds of watches and uploads of any size.
    pub limits: Option<ConnectionLimits>,
}

/// The most that one connection may make this process hold of requests that nobody has looked at yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Requests at once over HTTP/2.
    pub streams: u32,
    /// Bytes of the body of one request, and of those of all requests of the connection.
    pub stream_window: u32,
    pub connection_window: u32,
    /// Bytes of the head of a request.
    pub head: u32,
}

/// Where the certificate of the `https` listeners comes from.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// PEM files. They are read again when they change. Without them, a CA of our own issues the certificate.
    pub files: Option<CertificateFiles>,
    /// The certificate is set later ([`super::tls::Certificates::give`]). Until then who connects is refused, and a client
    /// that was cut off tries again.
    pub given: bool,
    /// Holds the self-issued CA (`ca.crt`, `ca.key`).
    pub state_dir: PathBuf,
    /// DNS names or addresses that a self-issued certificate contains in addition to localhost and the listen
    /// addresses.
    pub names: Vec<String>,
    /// TLS 1.2 is refused.
    pub only_tls13: bool,
    /// Whether delegated listeners request a certificate from their clients.
    pub client_certificates: bool,
    /// How often the files are checked for changes. Default 10 s.
    pub reload_interval: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate and its chain.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// One listener: `http://ADDRESS:PORT`, `https://ADDRESS:PORT`, `delegated+https://ADDRESS:PORT` or `unix:///PATH`.
/// Port 0 picks a free port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddr {
    Http(SocketAddr),
    Https(SocketAddr),
    /// TLS. The cluster authenticates and authorizes every client.
    Delegated(SocketAddr),
    Unix(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenAddrError {
    #[error(
        "{0:?} is no listen address: want http://ADDRESS:PORT, https://ADDRESS:PORT, delegated+https://ADDRESS:PORT or unix:///PATH"
    )]
    Scheme(String),
    #[error("{0:?} is no listen address: want an IP address or localhost, and a port")]
    Address(String),
    #[error("{0:?} is no listen address: the path of a Unix socket must be absolute")]
    Path(String),
}

// === impl HttpConfig ===

impl HttpConfig {
    pub fn new(listen: Vec<ListenAddr>, state_dir: PathBuf) -> Self {
        Self {
            listen,
            tls: TlsConfig {
                files: None,
                given: false,
                state_dir,
                names: Vec::new(),
                only_tls13: false,
                client_certificates: false,
                reload_interval: Duration::from_secs(10),
            },
            hosts: Vec::new(),
            max_connections: 10_000,
            evicts: false,
            write_stall_timeout: Duration::from_secs(300),
            age: Duration::from_secs(1800),
            header_read_timeout: Duration::from_secs(90),
            handshake_timeout: Duration::from_secs(30),
            drain_spread: Duration::from_secs(3),
            drain_patience: Duration::from_secs(5),
            explain: false,
            lend_sessions: false,
            limits: None,
            unix_mode: 0o600,
            send_buffer: None,
            gzip_bytes: 64 << 20,
        }
    }
}

// === impl ListenAddr ===

impl ListenAddr {
    /// The address of a TLS listener.
    pub fn tls_ip(&self) -> Option<IpAddr> {
        match self {
            Self::Https(address) | Self::Delegated(address) => Some(address.ip()),
            Self::Http(_) | Self::Unix(_) => None,
        }
    }

    /// Whether only processes of this machine can reach it.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Http(address) | Self::Https(address) | Self::Delegated(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// How far the listener trusts its clients.
    pub fn mode(&self) -> Mode {
        match self {
            Self::Http(_) | Self::Https(_) | Self::Unix(_) => Mode::Trust,
            Self::Delegated(_) => Mode::Delegated,
        }
    }
}

impl FromStr for ListenAddr {
    type Err = ListenAddrError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| ListenAddrError::Scheme(text.into()))?;
        match scheme {
            "http" => Ok(Self::Http(socket_address(text, rest)?)),
            "https" => Ok(Self::Https(socket_address(text, rest)?)),
            "delegated+https" => Ok(Self::Delegated(socket_address(text, rest)?)),
            "unix" if rest.starts_with('/') && rest.len() > 1 => Ok(Self::Unix(rest.into())),
            "unix" => Err(ListenAddrError::Path(text.into())),
            _ => Err(ListenAddrError::Scheme(text.into())),
        }
    }
}

fn socket_address(text: &str, rest: &str) -> Result<SocketAddr, ListenAddrError> {
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if let Some(port) = rest.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    rest.parse().map_err(|_| ListenAddrError::Address(text.into()))
}

impl fmt::Display for ListenAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(address) => write!(f, "http://{address}"),
            Self::Https(address) => write!(f, "https://{address}"),
            Self::Delegated(address) => write!(f, "delegated+https://{address}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_addresses() {
        for (text, shown, local) in [
            ("http://127.0.0.1:8001", "http://127.0.0.1:8001", true),
            ("http://localhost:0/", "http://127.0.0.1:0", true),
            ("https://[::1]:6443", "https://[::1]:6443", true),
            ("https://0.0.0.0:6443", "https://0.0.0.0:6443", false),
            ("delegated+https://[::]:6443", "delegated+https://[::]:6443", false),
            ("unix:///run/informerd.sock", "unix:///run/informerd.sock", true),
        ] {
            let address: ListenAddr = text.parse().unwrap();
            assert_eq!((address.to_string().as_str(), address.is_local()), (shown, local));
        }
        for text in ["", "127.0.0.1:1", "http://", "http://x:1", "http://127.0.0.1", "unix://a", "unix:///", "ftp://a"]
        {
            assert!(text.parse::<ListenAddr>().is_err(), "{text}");
        }
    }
}
