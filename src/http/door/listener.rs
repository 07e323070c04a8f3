//! Listening sockets: TCP and Unix.

use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use rustix::fs::Mode;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener};

use super::config::{HttpConfig, ListenAddr};
use super::socket::Accepted;
use super::unix_socket::UnixSocket;

/// The most connections that the kernel keeps until they are accepted.
pub(in crate::http) const BACKLOG: u32 = 1024;
/// A dead peer on an idle connection is detected after the idle time and five unanswered probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 5;

#[derive(Debug)]
pub(in crate::http) enum Listener {
    /// The address is taken, and who connects is refused.
    Bound {
        socket: TcpSocket,
        address: ListenAddr,
    },
    Tcp {
        socket: TcpListener,
        address: ListenAddr,
    },
    Unix {
        socket: UnixListener,
        file: SocketFile,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("listening on {address}: {error}")]
    Socket { address: ListenAddr, error: io::Error },
    #[error("listening on {0}: there is a file that is no socket")]
    NotASocket(ListenAddr),
    #[error("listening on {0}: another process listens there")]
    InUse(ListenAddr),
    #[error("certificate of the https listeners: {0}")]
    Tls(#[from] super::certified_key::TlsError),
}

/// A socket in the file system. It is removed with its listener, unless another file took its place.
#[derive(Debug)]
pub(in crate::http) struct SocketFile {
    path: PathBuf,
    inode: u64,
}

// === impl Listener ===

impl Listener {
    /// Binds the socket. Over TCP, nobody can connect before [`Self::listen`]. Must be called inside a runtime.
    ///
    /// # Errors
    /// The address is in use or does not belong to this machine, or the path of a Unix socket is taken by something
    /// other than a stale socket.
    pub(in crate::http) fn bind(address: &ListenAddr, config: &HttpConfig) -> Result<Self, BindError> {
        let failed = |error| BindError::Socket { address: address.clone(), error };
        match address {
            ListenAddr::Http(at) | ListenAddr::Https(at) | ListenAddr::Delegated(at) => {
                let socket = bind_tcp(*at, config.send_buffer).map_err(failed)?;
                let bound = socket.local_addr().map_err(failed)?;
                let address = match address {
                    ListenAddr::Https(_) => ListenAddr::Https(bound),
                    ListenAddr::Delegated(_) => ListenAddr::Delegated(bound),
                    _ => ListenAddr::Http(bound),
                };
                Ok(Self::Bound { socket, address })
            }
            ListenAddr::Unix(path) => {
                remove_stale(address, path)?;
                // The socket is created with its final permissions, so other users can never connect in between.
                let before = rustix::process::umask(Mode::from_raw_mode(!config.unix_mode & 0o777));
                let socket = UnixListener::bind(path);
                rustix::process::umask(before);
                let socket = socket.map_err(failed)?;
                let inode = fs::symlink_metadata(path).map_err(failed)?.ino();
                Ok(Self::Unix { socket, file: SocketFile { path: path.clone(), inode } })
            }
        }
    }

    /// From now on clients can connect, and wait until they are accepted.
    ///
    /// # Errors
    /// Another process has bound the address as well, and listens.
    pub(in crate::http) fn listen(self) -> Result<Self, BindError> {
        let Self::Bound { socket, address } = self else { return Ok(self) };
        match socket.listen(BACKLOG) {
            Ok(socket) => Ok(Self::Tcp { socket, address }),
            Err(error) => Err(BindError::Socket { address, error }),
        }
    }

    /// The address it actually listens on, with the port that was assigned.
    pub(in crate::http) fn address(&self) -> ListenAddr {
        match self {
            Self::Bound { address, .. } | Self::Tcp { address, .. } => address.clone(),
            Self::Unix { file, .. } => ListenAddr::Unix(file.path.clone()),
        }
    }

    /// A connection, and the address of its client: `None` on a Unix socket.
    pub(in crate::http) async fn accept(&self) -> io::Result<(Accepted, Option<SocketAddr>)> {
        match self {
            Self::Bound { .. } => std::future::pending().await,
            Self::Tcp { socket, .. } => {
                let (stream, peer) = socket.accept().await?;
                tune(&stream);
                Ok((Accepted::Left(stream), Some(peer)))
            }
            Self::Unix { socket, .. } => Ok((Accepted::Right(UnixSocket::new(socket.accept().await?.0)?), None)),
        }
    }
}

fn bind_tcp(address: SocketAddr, send_buffer: Option<usize>) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart must not wait until the kernel has released the old connections.
    socket.set_reuseaddr(true)?;
    if let Some(bytes) = send_buffer {
        // Accepted connections inherit it.
        socket.set_send_buffer_size(u32::try_from(bytes).unwrap_or(u32::MAX))?;
    }
    socket.bind(address)?;
    Ok(socket)
}

/// Small frames must not wait for acknowledgements, and dead peers must be detected. A failure to set the options is
/// not fatal.
fn tune(stream: &TcpStream) {
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    if let Err(error) =
        stream.set_nodelay(true).and_then(|()| socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive))
    {
        tracing::debug!(%error, "socket options not set");
    }
}

/// Removes a socket without a listener: a crashed process left it behind.
fn remove_stale(address: &ListenAddr, path: &Path) -> Result<(), BindError> {
    let failed = |error| BindError::Socket { address: address.clone(), error };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
        Ok(found) if !found.file_type().is_socket() => Err(BindError::NotASocket(address.clone())),
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => Err(BindError::InUse(address.clone())),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(failed),
            Err(error) => Err(failed(error)),
        },
    }
}

// === impl SocketFile ===

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            fs::remove_file(&self.path).ok();
        }
    }
}

/// Whether an error concerns only the connection that was to be accepted, and not the listener.
pub(in crate::http) fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn config() -> HttpConfig {
        HttpConfig::new(Vec::new(), std::path::PathBuf::new())
    }

    #[tokio::test]
    async fn connections_have_the_send_buffer_of_their_listener() {
        let config = HttpConfig { send_buffer: Some(64 << 10), ..config() };
        let listener = Listener::bind(&"http://127.0.0.1:0".parse().unwrap(), &config).unwrap().listen().unwrap();
        let ListenAddr::Http(address) = listener.address() else { panic!("http") };
        let (_client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (Accepted::Left(stream), Some(_)) = accepted.unwrap() else { panic!("tcp") };
        // Linux doubles the size, for its own bookkeeping.
        let size = socket2::SockRef::from(&stream).send_buffer_size().unwrap();
        assert!((64 << 10..=128 << 10).contains(&size), "{size}");
    }

    #[tokio::test]
    async fn a_unix_socket_is_private_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let address = ListenAddr::Unix(path.clone());
        let listener = Listener::bind(&address, &config()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(Listener::bind(&address, &config()), Err(BindError::InUse(_))));
        drop(listener);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_anything_else_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "left behind");
        let address = ListenAddr::Unix(path.clone());
        let listener = Listener::bind(&address, &config()).unwrap();
        // Another file in its place is not ours, so it must not be removed.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "x").unwrap();
        drop(listener);
        assert!(path.exists());
        assert!(matches!(Listener::bind(&address, &config()), Err(BindError::NotASocket(_))));
    }
}
