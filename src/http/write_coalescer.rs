//! Fewer and larger writes on HTTP/2 connections. If one event goes to a thousand watches of a connection, the library
//! writes each frame by itself, and a socket write for each would be most of the cost of the event. So the data that the
//! connection writes waits here until the connection is polled again. By then the other streams have run, and all data
//! goes out in one write. Large writes do not wait. An HTTP/1.1 connection is one stream, so there is nothing to combine.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
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
    waiting: BytesMut,
    /// How much waited last time, in bytes. The buffer begins with this size, so that it need not grow step by step.
    last: usize,
    /// Data was added since the last attempt to write.
    fresh: bool,
    metrics: Arc<HttpMetrics>,
}

// === impl WriteCoalescer ===

impl<S> WriteCoalescer<S> {
    pub fn new(inner: Bounded<S>, metrics: Arc<HttpMetrics>) -> Self {
        Self { inner, waiting: BytesMut::new(), last: 0, fresh: false, metrics }
    }
}

impl<S: AsyncWrite + Unpin> WriteCoalescer<S> {
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.waiting.is_empty() {
            return Pin::new(&mut self.inner).poll_flush(cx);
        }
        self.fresh = false;
        while !self.waiting.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.waiting))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.metrics.http2_writes.inc();
            self.waiting.advance(written);
        }
        // An idle connection keeps no buffer.
        self.waiting = BytesMut::new();
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    /// Returns the number of bytes that were buffered, or `None` if the caller has to write them now.
    fn poll_wait(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<Option<usize>>> {
        let size: usize = bufs.iter().map(|buf| buf.len()).sum();
        if !self.waiting.is_empty() && self.waiting.len() + size > MAX_WAITING {
            ready!(self.poll_drain(cx))?;
        }
        self.metrics.http2_pieces.inc();
        if self.waiting.is_empty() && size >= LARGE {
            self.metrics.http2_writes.inc();
            return Poll::Ready(Ok(None));
        }
        if self.waiting.is_empty() {
            self.waiting.reserve(size.max(self.last));
            self.last = 0;
        }
        for buf in bufs {
            self.waiting.extend_from_slice(buf);
        }
        self.last = self.last.max(self.waiting.len());
        self.fresh = true;
        Poll::Ready(Ok(Some(size)))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WriteCoalescer<S> {
    /// A connection reads first whenever it is polled. By then the other streams have run.
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.waiting.is_empty()
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

    /// Data that was added since the last attempt is not written yet: the task is woken to write it. If an attempt to
    /// write was already made, the flush waits for the socket, as for any socket.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.fresh {
            self.fresh = false;
            cx.waker().wake_by_ref();
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
