//! A TCP relay in front of a server: the network that loses what it is given, in one direction or in both.

use std::net::SocketAddr;
use std::sync::Arc;

use informerd::lifecycle;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What becomes of bytes. What a connection has lost it never gets back, so it stays dead when the fault is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Loss {
    #[default]
    None,
    /// What the client sends.
    Up,
    /// What the client sends, but for the first bytes of new connections: TLS looks established to it.
    Late,
    /// What the server sends.
    Down,
    /// Everything, as in a black hole.
    Both,
    /// Connections are closed, new ones too.
    Closed,
}

pub(crate) struct Relay {
    pub address: SocketAddr,
    to: Arc<Mutex<SocketAddr>>,
    loss: Arc<watch::Sender<Loss>>,
}

// === impl Relay ===

impl Relay {
    pub(crate) async fn before(to: SocketAddr) -> Self {
        Self::at("127.0.0.1:0", to).await
    }

    /// Listens at this address.
    pub(crate) async fn at(address: &str, to: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap_or_else(|error| panic!("{address}: {error}"));
        let address = listener.local_addr().unwrap();
        let to = Arc::new(Mutex::new(to));
        let loss = Arc::new(watch::Sender::default());
        let (state, server) = (Arc::clone(&loss), Arc::clone(&to));
        lifecycle::spawn("relay", async move {
            while let Ok((client, _)) = listener.accept().await {
                let (mut losses, to) = (state.subscribe(), *server.lock());
                lifecycle::spawn("relayed", async move {
                    let Ok(server) = TcpStream::connect(to).await else { return };
                    let (client, server) = (client.into_split(), server.into_split());
                    let up = pump(client.0, server.1, losses.clone(), Loss::Up);
                    let down = pump(server.0, client.1, losses.clone(), Loss::Down);
                    tokio::select! {
                        biased;
                        _ = losses.wait_for(|loss| *loss == Loss::Closed) => {}
                        ((), ()) = async { tokio::join!(up, down) } => {}
                    }
                });
            }
        });
        Self { address, to, loss }
    }

    /// New connections go to this server.
    pub(crate) fn lead(&self, to: SocketAddr) {
        *self.to.lock() = to;
    }

    pub(crate) fn lose(&self, loss: Loss) {
        self.loss.send_replace(loss);
    }

    /// Closes all connections for good. Nothing that the server sends after this reaches a client.
    pub(crate) async fn close(&self) {
        self.lose(Loss::Closed);
        self.loss.closed().await;
    }
}

async fn pump(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut losses: watch::Receiver<Loss>,
    direction: Loss,
) {
    let mut buffer = vec![0; 16 << 10];
    let lost = |loss: &Loss| *loss == direction || *loss == Loss::Both || *loss == Loss::Late && direction == Loss::Up;
    let (mut dead, mut first) = (false, *losses.borrow() == Loss::Late);
    loop {
        let read = tokio::select! {
            biased;
            _ = losses.wait_for(lost), if !dead && !first => {
                dead = true;
                continue;
            }
            read = from.read(&mut buffer) => read,
        };
        first = false;
        let Ok(read @ 1..) = read else { break };
        if !dead && to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
    // Does not even pass on the end of the stream.
    if dead {
        std::future::pending::<()>().await;
    }
}
