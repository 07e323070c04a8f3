//! Fewer and larger writes on HTTP/2 connections. If one event goes to a thousand watches of a connection, the library
//! writes each frame by itself, and a socket write for each would be most of the cost of the event. So the data that the
//! connection writes waits here until the connection is polled again. By then the other streams have run, and all data
//! goes out in one write. Large writes do not wait. An HTTP/1.1 connection is one stream, so there is nothing to combine.
//!
//! A connection that has just run all of its watches is polled again at once, see [`in_turn`].

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::io::Bounded;
use super::metrics::HttpMetrics;

/// The most bytes that wait. Further writes wait for the socket.
const MAX_WAITING: usize = 64 << 10;
/// A write of this size gains nothing from waiting.
const LARGE: usize = 16 << 10;

/// A socket that combines the writes of HTTP/2.
#[derive(Debug)]
pub struct WriteCoalescer<S> {
    inner: Bounded<S>,
    /// The bytes from `written` on wait.
    waiting: Vec<u8>,
    written: usize,
    /// Data was added since the last attempt to write.
    fresh: bool,
    metrics: Arc<HttpMetrics>,
}

/// Who comes to write what waits.
#[derive(Clone, Copy, PartialEq)]
enum Comes {
    /// The task of the connection, once it is woken.
    Task,
    /// The caller of [`in_turn`].
    Caller {
        /// Something waits.
        needed: bool,
    },
}

/// Ends the turn, also after a panic.
struct EndOfTurn;

thread_local! {
    /// The largest buffer that the connections of this thread do not need now.
    static SPARE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static COMES: Cell<Comes> = const { Cell::new(Comes::Task) };
}

/// Polls a connection whose streams have all run. Returns true if data waits. The connection must then be polled again,
/// because its task is not woken for that.
pub(super) fn in_turn<T>(poll: impl FnOnce() -> T) -> (T, bool) {
    COMES.set(Comes::Caller { needed: false });
    let _end = EndOfTurn;
    let polled = poll();
    (polled, COMES.get() == Comes::Caller { needed: true })
}

fn take_buffer(size: usize) -> Vec<u8> {
    let mut buffer = SPARE.take();
    buffer.reserve_exact(size);
    buffer
}

fn give_back(mut buffer: Vec<u8>) {
    // Buffers double when they grow, up to twice the most that waits.
    let is_larger = SPARE.with_borrow(|spare| spare.capacity() < buffer.capacity());
    if is_larger && buffer.capacity() <= 2 * MAX_WAITING {
        buffer.clear();
        SPARE.set(buffer);
    }
}

impl Drop for EndOfTurn {
    fn drop(&mut self) {
        COMES.set(Comes::Task);
    }
}

// === impl WriteCoalescer ===

impl<S> WriteCoalescer<S> {
    pub fn new(inner: Bounded<S>, metrics: Arc<HttpMetrics>) -> Self {
        Self { inner, waiting: Vec::new(), written: 0, fresh: false, metrics }
    }

    fn waiting(&self) -> &[u8] {
        &self.waiting[self.written..]
    }

    /// The socket takes no more. A client that reads slowly holds no more memory than what waits for it.
    fn shrink(&mut self) {
        if self.waiting.capacity() > 2 * self.waiting().len() {
            let rest = self.waiting().to_vec();
            give_back(std::mem::replace(&mut self.waiting, rest));
            self.written = 0;
        }
    }
}

impl<S: AsyncWrite + Unpin> WriteCoalescer<S> {
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.waiting().is_empty() {
            return Pin::new(&mut self.inner).poll_flush(cx);
        }
        self.fresh = false;
        while !self.waiting().is_empty() {
            match Pin::new(&mut self.inner).poll_write(cx, &self.waiting[self.written..])? {
                Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(written) => {
                    self.metrics.http2_writes.inc();
                    self.written += written;
                }
                Poll::Pending => {
                    self.shrink();
                    return Poll::Pending;
                }
            }
        }
        // An idle connection keeps no buffer.
        give_back(std::mem::take(&mut self.waiting));
        self.written = 0;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    /// Returns the number of bytes that were buffered, or `None` if the caller has to write them now.
    fn poll_wait(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<Option<usize>>> {
        let size: usize = bufs.iter().map(|buf| buf.len()).sum();
        if !self.waiting().is_empty() && self.waiting().len() + size > MAX_WAITING {
            ready!(self.poll_drain(cx))?;
        }
        self.metrics.http2_pieces.inc();
        if self.waiting().is_empty() && size >= LARGE {
            self.metrics.http2_writes.inc();
            return Poll::Ready(Ok(None));
        }
        if self.waiting.capacity() == 0 {
            self.waiting = take_buffer(size);
        }
        self.waiting.drain(..std::mem::take(&mut self.written));
        for buf in bufs {
            self.waiting.extend_from_slice(buf);
        }
        self.fresh = true;
        Poll::Ready(Ok(Some(size)))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WriteCoalescer<S> {
    /// A connection reads first whenever it is polled. By then the other streams have run.
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.waiting().is_empty()
            && let Poll::Ready(Err(error)) = self.poll_drain(cx)
        {
            // If the peer accepts no more data, this may be the only place that sees the error.
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteCoalescer<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match ready!(self.poll_wait(cx, &[IoSlice::new(buf)]))? {
            Some(size) => Poll::Ready(Ok(size)),
            None => Pin::new(&mut self.inner).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match ready!(self.poll_wait(cx, bufs))? {
            Some(size) => Poll::Ready(Ok(size)),
            None => Pin::new(&mut self.inner).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Data that was added since the last attempt is not written yet: somebody comes to write it. If an attempt to
    /// write was already made, the flush waits for the socket, as for any socket.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.fresh {
            self.fresh = false;
            match COMES.get() {
                Comes::Task => cx.waker().wake_by_ref(),
                Comes::Caller { .. } => COMES.set(Comes::Caller { needed: true }),
            }
            return Poll::Ready(Ok(()));
        }
        self.poll_drain(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
#[path = "write_coalescer_tests.rs"]
mod tests;
