//! Limits what is read from a client that is not authenticated yet.
//!
//! A byte of a compressed header block (HPACK) can become a hundred bytes in memory. So the gate passes HTTP/2 header
//! blocks to the library one at a time and only when they are complete. The library never keeps a part of one, and each
//! is examined before the next is passed on. The gate only delays bytes; it never changes them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use super::frames::{CONTINUATION, END_HEADERS, FrameHead, HEAD, HEADERS};
use crate::http::door::{HTTP2_PREFACE, Newcomer, Protocol, Wait};

/// The most bytes that an unauthenticated client may send: headers and bodies of all its requests together.
pub(super) const SAYS: usize = 64 << 10;
/// The most bytes per read.
const PART: usize = 4096;

/// Stands between the socket and the HTTP library until the client is authenticated.
#[derive(Debug)]
pub(super) struct Gate {
    newcomer: Arc<Newcomer>,
    said: usize,
    frames: Option<Frames>,
    /// Bytes that the library may read. It has read the first `read` bytes of them.
    ready: Vec<u8>,
    read: usize,
    /// The bytes behind a header block. They wait until that header block was examined.
    behind: Vec<u8>,
    /// A header block was read and has to be examined.
    look: bool,
    ended: bool,
    /// Nothing more is read.
    pub(super) is_refused: bool,
}

/// Finds the frames in an HTTP/2 byte stream.
#[derive(Debug)]
struct Frames {
    /// The bytes of the preface, or of the current frame's payload, that are still missing.
    payload: usize,
    head: Vec<u8>,
    /// The current frame is part of a header block.
    in_head: bool,
    /// The part of a request's header block that has arrived so far.
    held: Vec<u8>,
    /// The current frame is the last frame of its header block.
    last: bool,
}

// === impl Gate ===

impl Gate {
    pub(super) fn new(newcomer: Arc<Newcomer>) -> Self {
        Self {
            newcomer,
            said: 0,
            frames: None,
            ready: Vec::new(),
            read: 0,
            behind: Vec::new(),
            look: false,
            ended: false,
            is_refused: false,
        }
    }

    /// Sets the protocol of the connection. `bytes` are the bytes that it was detected from; they are read again.
    pub(super) fn open(&mut self, protocol: Protocol, bytes: &[u8]) {
        if protocol == Protocol::Http2 {
            let payload = HTTP2_PREFACE.len();
            self.frames = Some(Frames { payload, head: Vec::new(), in_head: false, held: Vec::new(), last: false });
        }
        self.take(bytes);
    }

    /// Whether the gate holds nothing back and will hold nothing back in the future.
    pub(super) fn is_open(&mut self) -> bool {
        if !self.newcomer.is_authenticated() {
            return false;
        }
        self.release();
        self.read == self.ready.len()
    }

    /// The stream of the header block that is held back.
    pub(super) fn open_stream(&self) -> Option<u32> {
        let head = self.frames.as_ref()?.held.first_chunk()?;
        Some(FrameHead::parse(*head).stream)
    }

    /// Like [`AsyncRead::poll_read`].
    pub(super) fn poll_read(
        &mut self,
        mut inner: Pin<&mut (impl AsyncRead + ?Sized)>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.read < self.ready.len() {
                let some = &self.ready[self.read..];
                let some = &some[..some.len().min(buf.remaining())];
                buf.put_slice(some);
                self.read += some.len();
                return Poll::Ready(Ok(()));
            }
            self.ready.clear();
            self.read = 0;
            if std::mem::take(&mut self.look) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match self.newcomer.reader_may(cx.waker(), self.said >= SAYS) {
                Wait::Over => {}
                Wait::Judged => return Poll::Pending,
                Wait::Never => {
                    self.is_refused = true;
                    let error = "the client has said too much without being authenticated";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::PermissionDenied, error)));
                }
            }
            if !self.behind.is_empty() {
                let behind = std::mem::take(&mut self.behind);
                self.take(&behind);
                continue;
            }
            if self.ended {
                return Poll::Ready(Ok(()));
            }
            let mut bytes = [0; PART];
            let mut part = ReadBuf::new(&mut bytes);
            ready!(inner.as_mut().poll_read(cx, &mut part))?;
            let part = part.filled();
            if part.is_empty() {
                self.ended = true;
                self.release();
            }
            self.said += part.len();
            self.take(part);
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        match &mut self.frames {
            None => self.ready.extend_from_slice(bytes),
            Some(frames) => {
                let taken = frames.take(bytes, &mut self.ready);
                if let Some(taken) = taken {
                    self.look = true;
                    self.behind = bytes[taken..].to_vec();
                }
            }
        }
    }

    /// Releases the bytes that are held back.
    fn release(&mut self) {
        if let Some(frames) = self.frames.take() {
            self.ready.extend(frames.held);
            self.ready.extend(frames.head);
            self.ready.append(&mut self.behind);
        }
    }
}

// === impl Frames ===

impl Frames {
    /// Appends to `ready` what may be read, up to the end of a header block. At the end of a header block it returns
    /// the number of bytes that it consumed.
    fn take(&mut self, mut bytes: &[u8], ready: &mut Vec<u8>) -> Option<usize> {
        let all = bytes.len();
        while !bytes.is_empty() {
            if self.payload > 0 {
                let (some, rest) = bytes.split_at(self.payload.min(bytes.len()));
                self.payload -= some.len();
                bytes = rest;
                if self.in_head { self.held.extend_from_slice(some) } else { ready.extend_from_slice(some) }
            } else {
                let (some, rest) = bytes.split_at((HEAD - self.head.len()).min(bytes.len()));
                self.head.extend_from_slice(some);
                bytes = rest;
                if self.head.len() < HEAD {
                    break;
                }
                self.begin(ready);
            }
            if self.in_head && self.last && self.payload == 0 {
                ready.append(&mut self.held);
                self.in_head = false;
                return Some(all - bytes.len());
            }
        }
        None
    }

    fn begin(&mut self, ready: &mut Vec<u8>) {
        let Some(head) = self.head.first_chunk::<HEAD>().map(|head| FrameHead::parse(*head)) else { return };
        self.payload = head.len;
        self.in_head = matches!(head.kind, HEADERS | CONTINUATION);
        self.last = head.has(END_HEADERS);
        // Another frame inside a header block is a protocol error. The library detects it.
        if !self.in_head {
            ready.append(&mut self.held);
        }
        let into = if self.in_head { &mut self.held } else { ready };
        into.append(&mut self.head);
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
