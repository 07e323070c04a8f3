//! The socket of an HTTP/2 connection.
//!
//! It makes fewer and larger writes. If one event goes to a thousand watches of a connection, a socket write for each
//! would be most of the cost of the event. So what the library writes waits here until the connection has run all of its
//! watches, and goes out in one write ([`Http2Socket::poll_drain`]). Large writes do not wait.
//!
//! What the client sends comes to the library through a [`FrameFilter`].

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frame_filter::{FrameFilter, WORN};
use super::frames::{self, Scanner};
use super::io::Bounded;
use super::parting::Parting;
use crate::http::door::{OpenHead, READ};
use crate::http::record::HttpMetrics;

/// The most bytes that wait. Further writes wait for the socket.
const MAX_WAITING: usize = 64 << 10;
/// A write of this size gains nothing from waiting.
const LARGE: usize = 16 << 10;
/// The most reads at once whose bytes do not concern the library.
const READS: usize = 16;

/// A socket that combines the writes of HTTP/2, shared with the library. Whoever writes calls [`Self::poll_drain`]
/// afterwards.
#[derive(Debug)]
pub struct Http2Socket<S>(pub(super) Arc<Mutex<Http2SocketInner<S>>>);

#[derive(Debug)]
pub(super) struct Http2SocketInner<S> {
    inner: Bounded<S>,
    /// The bytes from `written` on wait.
    waiting: Vec<u8>,
    written: usize,
    /// Finds the frames of the library.
    scanner: Scanner,
    filter: FrameFilter,
    /// The header block that the client sends.
    head: OpenHead,
    /// What the client has sent, for the next read. The library has the first `given` bytes of it.
    arrived: Vec<u8>,
    given: usize,
    /// The client sends nothing more.
    has_ended: bool,
    /// How often something has come from the client.
    pub(super) reads: u64,
    /// Present once the client has been refused.
    parting: Option<Parting>,
    metrics: Arc<HttpMetrics>,
}

thread_local! {
    /// The largest buffer that the connections of this thread do not need now.
    static SPARE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// What is read, before it is filtered.
    static UNFILTERED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn give_back(mut buffer: Vec<u8>) {
    // Buffers double when they grow, up to twice the most that waits.
    let is_larger = SPARE.with_borrow(|spare| spare.capacity() < buffer.capacity());
    if is_larger && buffer.capacity() <= 2 * MAX_WAITING {
        buffer.clear();
        SPARE.set(buffer);
    }
}

// === impl Http2Socket ===

impl<S> Http2Socket<S> {
    pub fn new(inner: Bounded<S>, metrics: Arc<HttpMetrics>) -> Self {
        Self::reserving(inner, OpenHead::unlimited(), metrics)
    }

    /// Has header blocks reserved while they arrive.
    pub(super) fn reserving(inner: Bounded<S>, head: OpenHead, metrics: Arc<HttpMetrics>) -> Self {
        Self(Arc::new(Mutex::new(Http2SocketInner {
            inner,
            waiting: Vec::new(),
            written: 0,
            scanner: Scanner::default(),
            filter: FrameFilter::new(head.largest()),
            head,
            arrived: Vec::new(),
            given: 0,
            has_ended: false,
            reads: 0,
            parting: None,
            metrics,
        })))
    }
}

impl<S: AsyncWrite + Unpin> Http2Socket<S> {
    /// Writes what waits. Pending while the socket takes no more.
    ///
    /// # Errors
    /// The socket fails, or the client takes nothing for too long.
    pub fn poll_drain(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().poll_drain(cx)
    }
}

// === impl Http2SocketInner ===

impl<S> Http2SocketInner<S> {
    /// The connection should take no more requests, because it keeps too much of the earlier ones.
    pub(super) fn is_worn(&self) -> bool {
        self.filter.large_blocks > WORN
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

    /// Makes room at the end of what waits.
    fn reserve(&mut self, size: usize) {
        if self.waiting.capacity() == 0 {
            self.waiting = SPARE.take();
            self.waiting.reserve_exact(size);
        }
        self.waiting.drain(..std::mem::take(&mut self.written));
    }
}

impl<S: AsyncWrite + Unpin> Http2SocketInner<S> {
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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
        if self.waiting.capacity() > 0 {
            give_back(std::mem::take(&mut self.waiting));
            self.written = 0;
        }
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_take(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let size: usize = bufs.iter().map(|buf| buf.len()).sum();
        if !self.waiting().is_empty() && self.waiting().len() + size > MAX_WAITING {
            ready!(self.poll_drain(cx))?;
        }
        self.metrics.http2_pieces.inc();
        let taken = if size >= LARGE && self.waiting().is_empty() {
            self.metrics.http2_writes.inc();
            ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, bufs))?
        } else {
            self.reserve(size);
            bufs.iter().for_each(|buf| self.waiting.extend_from_slice(buf));
            size
        };
        let mut left = taken;
        for buf in bufs {
            let now = left.min(buf.len());
            self.scanner.scan(&buf[..now], |_| ());
            left -= now;
        }
        Poll::Ready(Ok(taken))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Http2SocketInner<S> {
    /// Answers the request whose header block the gate reads no further, in place of the library, which gets nothing of it.
    /// The table of header fields is not known any more, so the connection ends.
    fn refuse(&mut self) {
        let stream = self.inner.open_stream().filter(|_| self.inner.is_refused() && self.scanner.is_between_frames());
        let Some(stream) = stream.filter(|_| self.parting.is_none()) else { return };
        let frames = frames::large_head(stream);
        self.reserve(frames.len());
        self.waiting.extend(frames);
        self.parting = Some(Parting::default());
    }

    /// Ready once the client that was refused can have read why.
    fn poll_parted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(mut parting) = self.parting.take() else { return Poll::Ready(()) };
        let written = self.poll_drain(cx);
        let parted = parting.poll(&mut self.inner, written, cx);
        self.parting = Some(parting);
        parted
    }
}

impl<S: AsyncRead + Unpin> Http2SocketInner<S> {
    /// Reads what the library gets.
    fn poll_arrived(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        for _ in 0..READS {
            if !self.arrived.is_empty() {
                let rest = &self.arrived[self.given..];
                let fits = rest.len().min(buf.remaining());
                buf.put_slice(&rest[..fits]);
                self.given += fits;
                if self.given == self.arrived.len() {
                    (self.arrived, self.given) = (Vec::new(), 0);
                }
                return Poll::Ready(Ok(()));
            }
            if self.has_ended {
                return Poll::Ready(Ok(()));
            }
            let size = ready!(self.head.poll_room(cx, self.filter.open_head()))?;
            let has_ended = UNFILTERED.with_borrow_mut(|unfiltered| {
                unfiltered.resize(READ, 0);
                let mut read = ReadBuf::new(&mut unfiltered[..size]);
                ready!(Pin::new(&mut self.inner).poll_read(cx, &mut read))?;
                self.reads += u64::from(!read.filled().is_empty());
                let (blocks, large) = (self.filter.blocks, self.filter.large_blocks);
                self.filter.filter(read.filled(), &mut self.arrived);
                // The time of the next head begins now, also if a part of it has come already.
                match self.filter.large_blocks > large {
                    true => self.head.keep(),
                    false if self.filter.blocks > blocks => self.head.close(),
                    false => {}
                }
                if self.filter.is_too_much {
                    let error = "the client has sent too many large headers on one connection";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
                }
                Poll::Ready(io::Result::Ok(read.filled().is_empty()))
            });
            self.has_ended = ready!(has_ended)?;
            if self.has_ended {
                // A frame that is not complete is an error, which the library finds.
                self.arrived.append(&mut self.filter.rest());
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Http2Socket<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut socket = self.0.lock();
        let arrived = socket.poll_arrived(cx, buf);
        if matches!(arrived, Poll::Ready(Err(_))) {
            socket.refuse();
            ready!(socket.poll_parted(cx));
        }
        arrived
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Http2Socket<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.0.lock().poll_take(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().poll_take(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// What waits is written by [`Self::poll_drain`].
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut socket = self.0.lock();
        ready!(socket.poll_drain(cx))?;
        Pin::new(&mut socket.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
#[path = "http2_socket_tests.rs"]
mod tests;
