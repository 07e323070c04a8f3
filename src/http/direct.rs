//! The socket of an HTTP/1.1 connection, shared by the library and the body of a watch.
//!
//! The library queues each frame of a body and writes its parts with `writev`. For the small events of a watch this
//! costs about as much as the system call. So the body of a watch writes its chunks itself once the library has written
//! all that it was given, which is the head of the response at first. The library writes the end of the body, and
//! everything else on the connection. Both run in the task of the connection, so they never wait for each other.

use std::cell::RefCell;
use std::io::{self, IoSlice, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::request_record::RequestRecord;
use crate::codec::Slices;

/// The library's side of the socket.
pub(super) struct SharedIo<S> {
    shared: Arc<Mutex<Shared<S>>>,
}

/// The other side.
pub(super) type Socket = Mutex<Shared<dyn AsyncWrite + Send + Unpin>>;

#[derive(Debug)]
pub(super) struct Shared<S: ?Sized> {
    /// The library holds nothing that it has still to write.
    is_flushed: bool,
    /// The socket has not taken all of a chunk.
    is_full: bool,
    io: S,
}

/// Writes the chunks of one body.
pub(super) struct Direct {
    socket: Arc<Socket>,
    /// Counts the bytes.
    record: Arc<RequestRecord>,
    /// The body was polled, so the library has the head of the response.
    begun: bool,
    /// What the socket has not taken of the last chunk.
    rest: Slices,
}

/// A chunk up to this size is joined in the buffer of its thread and written with `write`, which is cheaper.
const JOINED: usize = 16 << 10;
/// The most parts in one `writev`.
const PARTS: usize = 64;
const END_OF_LINE: &[u8] = b"\r\n";

thread_local! {
    static CHUNK: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

// === impl SharedIo ===

impl<S: AsyncWrite + Send + Unpin + 'static> SharedIo<S> {
    pub(super) fn new(io: S) -> Self {
        Self { shared: Arc::new(Mutex::new(Shared { is_flushed: false, is_full: false, io })) }
    }

    pub(super) fn socket(&self) -> Arc<Socket> {
        Arc::clone(&self.shared) as Arc<Socket>
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SharedIo<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.shared.lock().io).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SharedIo<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let mut shared = self.shared.lock();
        shared.is_flushed = false;
        Pin::new(&mut shared.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut shared = self.shared.lock();
        shared.is_flushed = false;
        Pin::new(&mut shared.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.shared.lock().io.is_write_vectored()
    }

    /// The library flushes only what it has written completely.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut shared = self.shared.lock();
        shared.is_flushed = true;
        if shared.is_full {
            // That there is nothing to flush is no progress: the time in which the client must read goes on.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut shared.io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.shared.lock().io).poll_shutdown(cx)
    }
}

// === impl Direct ===

impl Direct {
    /// For the body of a chunked response on this socket.
    pub(super) fn new(socket: Arc<Socket>, record: Arc<RequestRecord>) -> Self {
        Self { socket, record, begun: false, rest: Slices::new() }
    }

    /// Whether the next frame may be written here. The first call must come from the library, which then has the head
    /// of the response. A frame that is given to the library must be announced with [`Self::give`].
    pub(super) fn is_open(&mut self) -> bool {
        if !self.begun {
            self.begun = true;
            self.give();
        }
        self.socket.lock().is_flushed
    }

    /// The library is about to be given something to write.
    pub(super) fn give(&self) {
        self.socket.lock().is_flushed = false;
    }

    /// Ready once the socket has taken the last chunk.
    ///
    /// # Errors
    /// The socket fails, or its client reads nothing for too long.
    pub(super) fn poll_taken(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.rest.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let mut socket = self.socket.lock();
        socket.is_full = true;
        while !self.rest.is_empty() {
            let mut parts = [IoSlice::new(&[]); PARTS];
            let count = self.rest.chunks_vectored(&mut parts);
            let written = ready!(Pin::new(&mut socket.io).poll_write_vectored(cx, &parts[..count]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.rest.advance(written);
        }
        socket.is_full = false;
        Poll::Ready(Ok(()))
    }

    /// Writes a frame as one chunk. Ready once the socket has taken all of it. Must be called only when the last chunk
    /// is taken.
    ///
    /// # Errors
    /// As [`Self::poll_taken`].
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, frame: Slices) -> Poll<io::Result<()>> {
        self.record.sent_directly(frame.len());
        let mut written = 0;
        if frame.len() <= JOINED {
            let joined = CHUNK.with_borrow_mut(|chunk| {
                chunk.clear();
                // Writing to a vector does not fail.
                write!(chunk, "{:x}\r\n", frame.len()).ok();
                frame.iter().for_each(|part| chunk.extend_from_slice(part));
                chunk.extend_from_slice(END_OF_LINE);
                (Pin::new(&mut self.socket.lock().io).poll_write(cx, chunk), chunk.len())
            });
            match joined {
                (Poll::Ready(Ok(all)), len) if all == len => return Poll::Ready(Ok(())),
                (Poll::Ready(Ok(some)), _) => written = some,
                (Poll::Ready(Err(error)), _) => return Poll::Ready(Err(error)),
                (Poll::Pending, _) => {}
            }
        }
        self.rest = Slices::from(Bytes::from(format!("{:x}\r\n", frame.len())));
        self.rest.append(frame);
        self.rest.push_static(END_OF_LINE);
        self.rest.advance(written);
        self.poll_taken(cx)
    }
}

#[cfg(test)]
#[path = "direct_tests.rs"]
mod tests;
