//! The socket of an HTTP/2 connection, for the library and for the watches.
//!
//! It makes fewer and larger writes. If one event goes to a thousand watches of a connection, a socket write for each
//! would be most of the cost of the event. So the data that the connection writes waits here until the connection is
//! polled again. By then the other streams have run, and all data goes out in one write. Large writes do not wait. A
//! connection that has just run all of its watches is polled again at once, see [`in_turn`].
//!
//! The library is made for few large bodies: it costs more than everything else in the delivery of an event. So a watch
//! writes the frames of its data itself, in between those of the library, see [`Http2Socket::poll_send`]. What the client
//! sends comes to the library through a [`FrameFilter`].

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frame_filter::{FrameFilter, WORN};
use super::frames::{self, DATA, FrameHead, HEAD, LARGEST, Scanner};
use super::io::Bounded;
use super::metrics::HttpMetrics;
use super::open_head::{OpenHead, READ};
use super::parting::Parting;
use super::send_windows::{SendWindows, Way};
use crate::codec::Slices;

/// The most bytes that wait. Further writes wait for the socket.
const MAX_WAITING: usize = 64 << 10;
/// A write of this size gains nothing from waiting.
const LARGE: usize = 16 << 10;
/// So many of them are left to the library by watches, for its answers to pings and settings.
const FOR_LIBRARY: usize = 1 << 10;
/// The most reads at once whose bytes do not concern the library.
const READS: usize = 16;

/// A socket that combines the writes of HTTP/2. Between two frames of the library, watches may write theirs.
#[derive(Debug)]
pub struct Http2Socket<S> {
    inner: Bounded<S>,
    /// The bytes from `written` on wait.
    waiting: Vec<u8>,
    written: usize,
    /// Data was added since the last attempt to write.
    fresh: bool,
    /// Finds the frames of the library.
    scanner: Scanner,
    /// What becomes of the frame of the library that is being scanned.
    frame: Fate,
    filter: FrameFilter,
    windows: SendWindows,
    /// The header block that the client sends.
    head: OpenHead,
    /// What the client has sent, for the next read. The library has the first `given` bytes of it.
    arrived: Vec<u8>,
    given: usize,
    /// The client sends nothing more.
    has_ended: bool,
    /// Present once the client has been refused.
    parting: Option<Parting>,
    /// Wakes the connection.
    connection: Waker,
    metrics: Arc<HttpMetrics>,
}

/// What becomes of a frame of the library.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Sent,
    /// It is not known before the head is complete.
    Open,
    /// Its data goes back to its watch.
    Returned,
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
    /// What is read, before it is filtered.
    static UNFILTERED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
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

// === impl Http2Socket ===

impl<S> Http2Socket<S> {
    /// `connection` wakes the task that polls this.
    pub fn new(inner: Bounded<S>, connection: Waker, metrics: Arc<HttpMetrics>) -> Self {
        let head = OpenHead::unlimited();
        Self {
            inner,
            waiting: Vec::new(),
            written: 0,
            fresh: false,
            scanner: Scanner::default(),
            frame: Fate::Sent,
            filter: FrameFilter::new(head.largest()),
            windows: SendWindows::default(),
            head,
            arrived: Vec::new(),
            given: 0,
            has_ended: false,
            parting: None,
            connection,
            metrics,
        }
    }

    /// Has header blocks reserved while they arrive.
    pub(super) fn reserving(self, head: OpenHead) -> Self {
        Self { filter: FrameFilter::new(head.largest()), head, ..self }
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

impl<S: AsyncWrite + Unpin> Http2Socket<S> {
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.waiting().is_empty() {
            self.windows.unblock();
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
        self.windows.unblock();
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    /// Sends the data of a watch: writes frames of its stream, or returns the bytes that the library must send. Pending if
    /// the client or the socket takes no more now.
    pub(super) fn poll_send(
        &mut self,
        waker: &Waker,
        stream: u32,
        data: &mut Slices,
    ) -> Poll<io::Result<Option<Slices>>> {
        while !data.is_empty() {
            let len = data.len().min(LARGEST);
            let has_room = self.waiting().len() + HEAD + len <= MAX_WAITING - FOR_LIBRARY;
            let is_open = has_room && self.scanner.is_between_frames();
            match self.windows.take(stream, len, is_open, waker) {
                Way::Full => return Poll::Pending,
                Way::Library(len) => return Poll::Ready(Ok(Some(data.split_to(len)))),
                Way::Direct(len) => {
                    self.reserve(HEAD + len);
                    self.waiting.extend_from_slice(&FrameHead { len, kind: DATA, flags: 0, stream }.to_bytes());
                    data.copy_to(len, &mut self.waiting);
                    self.metrics.http2_pieces.inc();
                }
                Way::Blocked => {
                    if !self.scanner.is_between_frames() || self.poll_drain_later()?.is_pending() {
                        self.windows.block(stream, waker);
                        return Poll::Pending;
                    }
                }
            }
        }
        Poll::Ready(Ok(None))
    }

    /// The connection should take no more requests, because it keeps too much of the earlier ones.
    pub(super) fn is_worn(&self) -> bool {
        self.filter.large_blocks() > WORN
    }

    /// Ready when the library holds no data of a watch, with the number of bytes at the end of what it was given that are
    /// not sent.
    pub(super) fn poll_written(&mut self, waker: &Waker, stream: u32) -> Poll<usize> {
        self.windows.poll_written(stream, waker)
    }

    /// Wakes the connection when the socket takes more: the watch that has come here may end before.
    fn poll_drain_later(&mut self) -> Poll<io::Result<()>> {
        let connection = self.connection.clone();
        self.poll_drain(&mut Context::from_waker(&connection))
    }

    /// Takes bytes of the library. It is never held up within a frame, because nobody else could write then.
    fn poll_take(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let size: usize = bufs.iter().map(|buf| buf.len()).sum();
        // What waits and is not fresh was refused by the socket. A large write then waits for the socket, too, and is not copied.
        let gains = self.fresh || size < LARGE;
        let has_room = self.waiting().is_empty() || gains && self.waiting().len() + size <= MAX_WAITING;
        if self.scanner.is_between_frames() && !has_room {
            ready!(self.poll_drain(cx))?;
        }
        self.metrics.http2_pieces.inc();
        // What may have to go back must not reach the socket.
        if !self.waiting().is_empty() || size < LARGE || self.must_sift() {
            self.fresh = true;
            return Poll::Ready(Ok(self.wait(bufs, 0, size)));
        }
        let written = match Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)? {
            Poll::Ready(written) => written,
            Poll::Pending if self.scanner.is_between_frames() => return Poll::Pending,
            Poll::Pending => 0,
        };
        self.metrics.http2_writes.inc();
        self.scan(bufs, written);
        Poll::Ready(Ok(written + self.wait(bufs, written, 0)))
    }

    /// Lets bytes wait that follow the first `skip`: at least `least`, and the rest of the frame that has begun. Returns
    /// their number.
    fn wait(&mut self, bufs: &[IoSlice<'_>], mut skip: usize, mut least: usize) -> usize {
        let mut taken = 0;
        for buf in bufs {
            let mut rest = &buf[skip.min(buf.len())..];
            skip -= skip.min(buf.len());
            while !rest.is_empty() {
                let len = match least {
                    0 if self.scanner.is_between_frames() => return taken,
                    0 => self.scanner.missing(),
                    least => least,
                };
                let now = rest.split_off(..len.min(rest.len())).unwrap_or_default();
                self.reserve(now.len());
                if self.must_sift() {
                    self.sift(now);
                } else {
                    self.waiting.extend_from_slice(now);
                    self.scanner.scan(now, |head| self.windows.written(head));
                }
                least = least.saturating_sub(now.len());
                taken += now.len();
            }
        }
        taken
    }

    fn must_sift(&self) -> bool {
        self.frame != Fate::Sent || self.windows.may_return()
    }

    /// Lets the frames wait that may be sent now.
    fn sift(&mut self, mut bytes: &[u8]) {
        while let Some(now) = bytes.split_off(..self.scanner.missing().min(bytes.len()))
            && !now.is_empty()
        {
            if self.scanner.is_at_frame() {
                self.frame = Fate::Open;
            }
            let mut head = None;
            self.scanner.scan(now, |found| head = Some(found));
            match (self.frame, head) {
                (Fate::Open, Some(head)) if self.windows.must_return(head) => self.frame = Fate::Returned,
                (Fate::Open, Some(head)) => {
                    self.frame = Fate::Sent;
                    self.waiting.extend_from_slice(&head.to_bytes());
                    self.windows.written(head);
                }
                // A part of its head was sent before. No acknowledgement can come before its end.
                (Fate::Sent, Some(head)) => {
                    self.waiting.extend_from_slice(now);
                    self.windows.written(head);
                }
                (Fate::Sent, None) => self.waiting.extend_from_slice(now),
                (Fate::Open | Fate::Returned, _) => {}
            }
            if self.scanner.is_at_frame() {
                self.frame = Fate::Sent;
            }
        }
    }

    /// Makes room at the end of what waits.
    fn reserve(&mut self, size: usize) {
        if self.waiting.capacity() == 0 {
            self.waiting = take_buffer(size);
        }
        self.waiting.drain(..std::mem::take(&mut self.written));
    }

    /// The socket has taken the first `len` bytes.
    fn scan(&mut self, bufs: &[IoSlice<'_>], mut len: usize) {
        for buf in bufs {
            let now = &buf[..len.min(buf.len())];
            len -= now.len();
            self.scanner.scan(now, |head| self.windows.written(head));
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Http2Socket<S> {
    /// Answers the request whose header block the gate reads no further, in place of the library, which gets nothing of it.
    /// The table of header fields is not known any more, so the connection ends.
    fn refuse(&mut self) {
        let stream = self.inner.open_stream().filter(|_| self.inner.is_refused() && self.scanner.is_between_frames());
        let Some(stream) = stream.filter(|_| self.parting.is_none() && self.frame == Fate::Sent) else { return };
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

impl<S: AsyncRead + Unpin> Http2Socket<S> {
    /// Reads what the library gets.
    fn poll_arrived(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(last) = self.scanner.take_last() {
            self.windows.end_with(last);
        }
        if !self.has_ended {
            self.filter.lend(&mut self.windows, &mut self.arrived);
        }
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
                let (blocks, large) = (self.filter.blocks(), self.filter.large_blocks());
                self.filter.filter(read.filled(), &mut self.windows, &mut self.arrived);
                // The time of the next head begins now, also if a part of it has come already.
                match self.filter.large_blocks() > large {
                    true => self.head.keep(),
                    false if self.filter.blocks() > blocks => self.head.close(),
                    false => {}
                }
                if self.filter.is_too_much() {
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
    /// A connection reads first whenever it is polled. By then the other streams have run.
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.parting.is_none()
            && !self.waiting().is_empty()
            && let Poll::Ready(Err(error)) = self.poll_drain(cx)
        {
            // If the peer accepts no more data, this may be the only place that sees the error.
            return Poll::Ready(Err(error));
        }
        let arrived = self.poll_arrived(cx, buf);
        if matches!(arrived, Poll::Ready(Err(_))) {
            self.refuse();
            ready!(self.poll_parted(cx));
        }
        arrived
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Http2Socket<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let taken = self.poll_take(cx, bufs);
        // A read tells the library that it may send more. If nothing was written, that did not change.
        if matches!(taken, Poll::Ready(Ok(_))) && self.windows.must_lend() {
            cx.waker().wake_by_ref();
        }
        taken
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
#[path = "http2_socket_tests.rs"]
mod tests;
