//! Request targets as the apiserver's HTTP library takes them: `curl 'http://…/pods?labelSelector=n>5'` sends the sign
//! as it stands, Go reads it, and our HTTP library refuses the whole request. So what it does not take is
//! percent-encoded in the request line of HTTP/1 before it looks; decoded, it is the same.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The first bytes of a header line: enough for its name and a length.
const LINE: usize = 64;

/// A socket whose request targets are all ones that our HTTP library takes.
#[derive(Debug)]
pub(super) struct Encoded<S> {
    inner: S,
    heads: Heads,
    /// What did not fit into the reader's buffer any more: at most thrice that buffer.
    spill: BytesMut,
}

/// Where in the stream of requests the socket is. Where that is not certain any more nothing is touched.
#[derive(Debug)]
struct Heads {
    at: At,
    /// The beginning of the current line of a head.
    line: Vec<u8>,
    body: u64,
    upgrade: bool,
    last: bool,
    /// Requests whose answers have not begun.
    unanswered: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// In the request line, behind so many spaces.
    Request(u8),
    Headers,
    Body,
    /// Behind a request to upgrade: what comes next, the answer tells.
    Asked,
    /// In HTTP/2, in chunks, or behind an upgrade.
    Opaque,
}

// === impl Encoded ===

impl<S> Encoded<S> {
    pub(super) fn new(inner: S) -> Self {
        let heads = Heads { at: At::Request(0), line: Vec::new(), body: 0, upgrade: false, last: false, unanswered: 0 };
        Self { inner, heads, spill: BytesMut::new() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Encoded<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.spill.is_empty() {
            let fits = this.spill.len().min(buf.remaining());
            buf.put_slice(&this.spill[..fits]);
            this.spill.advance(fits);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let result = Pin::new(&mut this.inner).poll_read(cx, buf);
        if let (Poll::Ready(Ok(())), Some(encoded)) = (&result, this.heads.pass(&buf.filled()[before..])) {
            buf.set_filled(before);
            let fits = encoded.len().min(buf.remaining());
            buf.put_slice(&encoded[..fits]);
            this.spill.extend_from_slice(&encoded[fits..]);
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Encoded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.heads.answers(buf);
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.heads.answers(bufs.first().map_or(&[], |buf| buf));
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

// === impl Heads ===

impl Heads {
    /// Follows these bytes; returns them anew if any of them had to be encoded.
    fn pass(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut encoded: Option<Vec<u8>> = None;
        let mut rest = bytes;
        while let [byte, after @ ..] = rest {
            match self.at {
                At::Asked | At::Opaque => {
                    // Whoever does not wait for the answer is not followed any more.
                    self.at = At::Opaque;
                    if let Some(encoded) = &mut encoded {
                        encoded.extend_from_slice(rest);
                    }
                    return encoded;
                }
                At::Body => {
                    let skipped = rest.len().min(usize::try_from(self.body).unwrap_or(usize::MAX));
                    self.body -= skipped as u64;
                    if let Some(encoded) = &mut encoded {
                        encoded.extend_from_slice(&rest[..skipped]);
                    }
                    rest = &rest[skipped..];
                    if self.body == 0 {
                        self.at = At::Request(0);
                    }
                    continue;
                }
                At::Request(1) if is_refused(*byte) => {
                    let encoded = encoded.get_or_insert_with(|| bytes[..bytes.len() - rest.len()].to_vec());
                    encoded.extend_from_slice(format!("%{byte:02X}").as_bytes());
                    rest = after;
                    continue;
                }
                At::Request(spaces) => self.request(*byte, spaces),
                At::Headers => self.header(*byte),
            }
            if let Some(encoded) = &mut encoded {
                encoded.push(*byte);
            }
            rest = after;
        }
        encoded
    }

    fn request(&mut self, byte: u8, spaces: u8) {
        match byte {
            // Empty lines before a request are skipped.
            b'\r' if self.line.is_empty() => {}
            b'\n' if self.line.is_empty() => {}
            b'\n' => {
                let tunnels = self.line.starts_with(b"PRI ") || self.line.starts_with(b"CONNECT ");
                self.line.clear();
                self.at = if tunnels { At::Opaque } else { At::Headers };
            }
            b' ' => {
                self.keep(byte);
                self.at = At::Request(spaces.saturating_add(1));
            }
            _ => self.keep(byte),
        }
    }

    fn header(&mut self, byte: u8) {
        if byte != b'\n' {
            self.keep(byte);
            return;
        }
        let line = std::mem::take(&mut self.line);
        let cut = line.len() >= LINE;
        let line = line.trim_ascii();
        if line.is_empty() {
            self.unanswered = self.unanswered.saturating_add(1);
            // Sent behind another request, it is not known whose answer comes next.
            let asked = self.upgrade && self.unanswered > 1;
            self.at = match (self.last || asked, self.upgrade, self.body) {
                (true, _, _) | (_, true, 1..) => At::Opaque,
                (false, true, 0) => At::Asked,
                (false, false, 0) => At::Request(0),
                (false, false, _) => At::Body,
            };
            self.upgrade = false;
            return;
        }
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        let (name, value) = (&line[..colon], line.get(colon + 1..).unwrap_or_default());
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = std::str::from_utf8(value).ok().and_then(|value| value.trim().parse().ok());
            // Two lengths that differ, one that is none, or of which the end is not known: our HTTP library decides what
            // comes of it.
            match length.filter(|_| !cut) {
                Some(length) if self.body == 0 || self.body == length => self.body = length,
                _ => self.last = true,
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.last = true;
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            self.upgrade = true;
        }
    }

    /// What goes out: an upgrade that was not granted leaves the connection as it was.
    fn answers(&mut self, bytes: &[u8]) {
        let Some(status) = bytes.strip_prefix(b"HTTP/1.1 ").or_else(|| bytes.strip_prefix(b"HTTP/1.0 ")) else {
            return;
        };
        let is_last = !status.starts_with(b"1");
        self.unanswered = self.unanswered.saturating_sub(is_last.into());
        if self.at == At::Asked {
            self.at = match status {
                [b'1', b'0', b'1', ..] => At::Opaque,
                [b'1', ..] => At::Asked,
                _ => At::Request(0),
            };
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.line.len() < LINE {
            self.line.push(byte);
        }
    }
}

/// What our HTTP library refuses in a target, or takes for a fragment, and Go takes as it stands.
fn is_refused(byte: u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>' | b'#' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}') || byte >= 0x80
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
