//! Writes the rest of a watch over HTTP/1.1, after its head.
//!
//! A general HTTP implementation queues each frame of a body, and keeps buffers for a request that comes only after the
//! watch. For the small events of a watch this costs about as much as the system call, and an idle watch holds more
//! memory for the buffers than for everything else.

use std::cell::RefCell;
use std::io::{self, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http_body::Body as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop;
use tokio_util::io::poll_write_buf;

use super::io::Bounded;
use crate::codec::Slices;
use crate::http::answer::{Body, BoxError};
use crate::lifecycle::quiet::Bell;
use crate::lifecycle::turn::{FRAMES, Turn};

/// Writes a watch in chunks, and asks its body for more only when the socket has taken the last one (back-pressure). A
/// future that is ready when the client has got the whole body. The connection can then take the next request.
///
/// # Errors
/// The socket or the body fails, the client disconnects, or it reads nothing for too long. The end of the body is then
/// not written, so the client notices.
pub(super) struct WatchWriter<S> {
    io: Bounded<S>,
    body: Body,
    /// What the client has sent since the request. It is read only while this is empty.
    early: Vec<u8>,
    /// Rings when the client sends something or disconnects.
    heard: Bell,
    /// What the socket has not taken of the last chunk.
    rest: Slices,
    is_flushed: bool,
    /// The socket has taken all that there was to write, and nothing follows before the next event.
    pub(super) waits: bool,
    /// All of the body was written, or is in `rest`.
    has_ended: bool,
}

/// The most bytes that are read before the watch ends.
const EARLY: usize = 512;
/// A chunk up to this size is joined in the buffer of its thread and written with `write`, which is cheaper.
const JOINED: usize = 16 << 10;
const END_OF_LINE: &[u8] = b"\r\n";
const END: &[u8] = b"0\r\n\r\n";

thread_local! {
    static CHUNK: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

// === impl WatchWriter ===

impl<S: AsyncRead + AsyncWrite + Unpin> WatchWriter<S> {
    /// `early` is what the client has sent after its request.
    pub(super) fn new(io: Bounded<S>, body: Body, early: Vec<u8>) -> Self {
        let (heard, rest) = (Bell::default(), Slices::new());
        Self { io, body, early, heard, rest, is_flushed: true, waits: false, has_ended: false }
    }

    /// The socket. What the client has sent in the meantime is read from it again.
    pub(super) fn into_io(self) -> Bounded<S> {
        let mut io = self.io;
        io.unread(self.early);
        io
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> Poll<Result<(), BoxError>> {
        self.waits = false;
        self.poll_client(cx)?;
        for _ in 0..FRAMES {
            ready!(self.poll_taken(cx))?;
            if self.has_ended {
                return Poll::Ready(Ok(()));
            }
            if turn.is_over() {
                break;
            }
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                // Without budget, the body may have been stopped in the middle of its work.
                self.waits = coop::has_budget_remaining();
                return Poll::Pending;
            };
            match frame.transpose()? {
                // A watch has no trailers that a client could want.
                Some(frame) => match frame.into_data() {
                    Ok(data) if data.is_empty() => {
                        turn.pauses();
                        break;
                    }
                    Ok(data) => {
                        turn.wrote(data.len());
                        self.write(cx, data)?;
                    }
                    Err(_) => {}
                },
                None => {
                    self.has_ended = true;
                    self.rest.push_static(END);
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Notices when the client disconnects, unless it has sent something before.
    fn poll_client(&mut self, cx: &Context<'_>) -> io::Result<()> {
        if !self.early.is_empty() {
            return Ok(());
        }
        let Some(waker) = self.heard.rung(cx) else { return Ok(()) };
        let mut bytes = [0; EARLY];
        let mut buf = ReadBuf::new(&mut bytes);
        match Pin::new(&mut self.io).poll_read(&mut Context::from_waker(waker), &mut buf) {
            Poll::Pending => Ok(()),
            Poll::Ready(Ok(())) if buf.filled().is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            Poll::Ready(result) => {
                self.early = buf.filled().to_vec();
                result
            }
        }
    }

    /// Ready once the socket has taken all that was written.
    fn poll_taken(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.rest.is_empty() {
            self.is_flushed = false;
            if ready!(poll_write_buf(Pin::new(&mut self.io), cx, &mut self.rest))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        if !self.is_flushed {
            ready!(Pin::new(&mut self.io).poll_flush(cx))?;
            self.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes a frame as one chunk. What the socket does not take at once stays in `rest`, which must be empty before.
    fn write(&mut self, cx: &mut Context<'_>, frame: Slices) -> io::Result<()> {
        let mut written = 0;
        self.is_flushed = false;
        if frame.len() <= JOINED {
            let (taken, len) = CHUNK.with_borrow_mut(|chunk| {
                chunk.clear();
                // Writing to a vector does not fail.
                write!(chunk, "{:x}\r\n", frame.len()).ok();
                frame.iter().for_each(|part| chunk.extend_from_slice(part));
                chunk.extend_from_slice(END_OF_LINE);
                (Pin::new(&mut self.io).poll_write(cx, chunk), chunk.len())
            });
            match taken {
                Poll::Ready(Ok(all)) if all == len => return Ok(()),
                Poll::Ready(some) => written = some?,
                Poll::Pending => {}
            }
        }
        self.rest = Slices::from(Bytes::from(format!("{:x}\r\n", frame.len())));
        self.rest.append(frame);
        self.rest.push_static(END_OF_LINE);
        self.rest.advance(written);
        Ok(())
    }
}
