//! A relay in front of the kube-apiserver that counts the bytes on the wire, those of TLS among them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use informerd::lifecycle::spawn;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Wire {
    /// `host:port`.
    pub(crate) address: String,
    sent: Arc<AtomicU64>,
}

const BUFFER: usize = 64 * 1024;

// === impl Wire ===

impl Wire {
    pub(crate) async fn before(server: &str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let sent = Arc::new(AtomicU64::new(0));
        let (counted, server) = (sent.clone(), server.to_owned());
        spawn("wire", async move {
            while let Ok((client, _)) = listener.accept().await {
                let (counted, server) = (counted.clone(), server.clone());
                spawn("wire-connection", async move { drop(relay(client, &server, &counted).await) });
            }
        });
        Ok(Self { address, sent })
    }

    /// Bytes that the server has sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

async fn relay(client: TcpStream, server: &str, sent: &AtomicU64) -> std::io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let requests = AtomicU64::new(0);
    tokio::try_join!(copy(from_client, to_server, &requests), copy(from_server, to_client, sent))?;
    Ok(())
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    count: &AtomicU64,
) -> std::io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        count.fetch_add(length as u64, Ordering::Relaxed);
        to.write_all(&buffer[..length]).await?;
    }
}
