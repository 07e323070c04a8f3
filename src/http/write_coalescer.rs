//! Fewer, larger writes on HTTP/2 connections. When something happens that a thousand watches of one connection are
//! told, their streams wake one after the other, and a socket write for each would be most of what an event costs. So
//! what the connection writes waits here until it is polled again, by when the other streams have had their turn, and
//! goes out at once. Large writes do not wait. On HTTP/1.1, where a connection is one stream, there is nothing to gather.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::io::Bounded;
use super::metrics::HttpMetrics;

/// Waits at most; what comes beyond waits for the socket.
const MAX_WAITING: usize = 64 << 10;
/// A write of this size gains nothing by waiting.
const LARGE: usize = 16 << 10;

/// A socket that gathers what HTTP/2 writes.
#[derive(Debug)]
pub struct WriteCoalescer<S> {
    inner: Bounded<S>,
    waiting: BytesMut,
    /// Something came since the last try to write.
    fresh: bool,
    metrics: Arc<HttpMetrics>,
}

// === impl WriteCoalescer ===

impl<S> WriteCoalescer<S> {
    pub fn new(inner: Bounded<S>, metrics: Arc<HttpMetrics>) -> Self {
        Self { inner, waiting: BytesMut::new(), fresh: false, metrics }
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

    /// Whether these bytes are to wait. If not, they are to be written now.
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
        for buf in bufs {
            self.waiting.extend_from_slice(buf);
        }
        self.fresh = true;
        Poll::Ready(Ok(Some(size)))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WriteCoalescer<S> {
    /// A connection reads first whenever it is polled: the others have had their turn.
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.waiting.is_empty()
            && let Poll::Ready(Err(error)) = self.poll_drain(cx)
        {
            // Where the peer takes nothing any more, nothing but this might ever tell.
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

    /// What came since the last try is promised, not written: the task is woken to do it. What was tried in vain is a
    /// flush that waits, as of any socket.
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
