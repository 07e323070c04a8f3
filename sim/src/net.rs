//! Connections that can be broken on purpose.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// An instruction for a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Order {
    #[default]
    Serve,
    GoAway,
    Fin,
    Rst,
}

/// The controls of one connection.
#[derive(Debug, Default)]
pub(super) struct Connection {
    order: watch::Sender<Order>,
    silent: AtomicBool,
}

/// The open connections of a server.
#[derive(Debug, Default)]
pub(super) struct Connections {
    open: Mutex<Vec<Arc<Connection>>>,
    blackhole: AtomicBool,
}

/// The socket with its controls.
pub(super) struct Socket {
    stream: TcpStream,
    connection: Arc<Connection>,
}

// === impl Connections ===

impl Connections {
    pub(super) fn add(&self) -> Arc<Connection> {
        let connection = Arc::new(Connection::default());
        connection.silent.store(self.blackhole.load(Ordering::Acquire), Ordering::Release);
        let mut open = self.open.lock();
        // If a connection's task has ended, this is the only remaining reference to it.
        open.retain(|connection| Arc::strong_count(connection) > 1);
        open.push(connection.clone());
        connection
    }

    pub(super) fn order(&self, order: Order) {
        for connection in self.open.lock().iter() {
            connection.order(order);
        }
    }

    pub(super) fn silence(&self) {
        for connection in self.open.lock().iter() {
            connection.silent.store(true, Ordering::Release);
        }
    }

    pub(super) fn blackhole(&self, on: bool) {
        self.blackhole.store(on, Ordering::Release);
    }
}

// === impl Connection ===

impl Connection {
    /// A later order can only be more severe.
    pub(super) fn order(&self, order: Order) {
        self.order.send_modify(|current| *current = order.max(*current));
    }

    pub(super) fn orders(&self) -> watch::Receiver<Order> {
        self.order.subscribe()
    }
}

// === impl Socket ===

impl Socket {
    pub(super) fn new(stream: TcpStream, connection: Arc<Connection>) -> Self {
        Self { stream, connection }
    }

    fn is_silent(&self) -> bool {
        self.connection.silent.load(Ordering::Acquire)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if *self.connection.order.borrow() == Order::Rst {
            // Closing the socket with a zero linger time sends RST.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let before = buf.filled().len();
            let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
            if !self.is_silent() || !matches!(polled, Poll::Ready(Ok(()))) || buf.filled().len() == before {
                return polled;
            }
            buf.set_filled(before);
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_silent() {
            return Poll::Ready(Ok(buf.len()));
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_silent() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
