//! The peer of a fan-out over HTTP/1.1: it watches the kube-apiserver once, and writes each event to each client with
//! one system call. It does nothing else: no selectors, no access checks, no window, no slow clients. A fan-out that
//! writes each event to each socket cannot cost less.

use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;

use super::client::{Protocol, Target};

type Client = Box<dyn Write + Send>;

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";

/// Runs until it is killed. `listen` and `from` are as in [`Target::address`].
pub(crate) async fn run(listen: &str, from: &str, ca: &Path) -> anyhow::Result<()> {
    let apiserver =
        Target { address: from.to_owned(), ca: Some(ca.to_owned()), token: Some("admin-token".into()), pid: 0 };
    let mut connection = apiserver.connect(Protocol::Http2).await?;
    let now = connection.get_text("/api/v1/configmaps?limit=1").await?;
    let rv = super::watchers::resource_version(&now)?;
    let path = format!("/api/v1/configmaps?watch=1&resourceVersion={rv}&timeoutSeconds=600");
    let mut events = connection.get(&path).await?.into_body();

    let listener = Listener::bind(listen).await?;
    let (send, mut arrived) = mpsc::channel(64);
    informerd::lifecycle::spawn("accept", async move {
        while let Ok(client) = listener.accept().await {
            // Who looks only whether this program listens asks for nothing.
            let Ok(client) = client else { continue };
            if send.send(client).await.is_err() {
                break;
            }
        }
    });
    let mut clients: Vec<Client> = Vec::new();
    let mut pending = Vec::new();
    loop {
        tokio::select! {
            client = arrived.recv() => clients.push(client.context("the listener has failed")?),
            frame = events.frame() => {
                let frame = frame.context("the watch has ended")??;
                let Some(data) = frame.data_ref() else { continue };
                pending.extend_from_slice(data);
                while let Some(end) = memchr::memchr(b'\n', &pending) {
                    // Events of other namespaces are read, as informerd reads them.
                    if memchr::memmem::find(&pending[..end], br#""namespace":"load""#).is_some() {
                        let mut chunk = format!("{:x}\r\n", end + 1).into_bytes();
                        chunk.extend_from_slice(&pending[..=end]);
                        chunk.extend_from_slice(b"\r\n");
                        broadcast(&chunk, &mut clients)?;
                    }
                    pending.drain(..=end);
                }
            }
        }
    }
}

/// Clients that have left are forgotten.
///
/// # Errors
/// A client is so slow that its socket is full.
fn broadcast(chunk: &[u8], clients: &mut Vec<Client>) -> anyhow::Result<()> {
    let mut index = 0;
    while let Some(client) = clients.get_mut(index) {
        match client.write(chunk) {
            Ok(written) => {
                ensure!(written == chunk.len(), "a client is too slow");
                index += 1;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => bail!("a client is too slow"),
            Err(_) => drop(clients.swap_remove(index)),
        }
    }
    Ok(())
}

/// Reads the request and writes the head of the answer.
async fn greet(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> anyhow::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        ensure!(request.len() < 16 << 10 && stream.read_buf(&mut request).await? > 0, "no request");
    }
    Ok(stream.write_all(HEAD).await?)
}

// === impl Listener ===

impl Listener {
    async fn bind(address: &str) -> anyhow::Result<Self> {
        Ok(match address.strip_prefix("unix:") {
            Some(path) => Self::Unix(UnixListener::bind(path)?),
            None => Self::Tcp(TcpListener::bind(address).await?),
        })
    }

    /// The next client, whose watch is open. Its socket does not block and is known to no event loop.
    async fn accept(&self) -> anyhow::Result<anyhow::Result<Client>> {
        Ok(match self {
            Self::Tcp(listener) => {
                let (mut stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                match greet(&mut stream).await {
                    Ok(()) => Ok(Box::new(stream.into_std()?)),
                    Err(error) => Err(error),
                }
            }
            Self::Unix(listener) => {
                let (mut stream, _) = listener.accept().await?;
                match greet(&mut stream).await {
                    Ok(()) => Ok(Box::new(stream.into_std()?)),
                    Err(error) => Err(error),
                }
            }
        })
    }
}
