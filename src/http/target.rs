//! Request targets as the apiserver's HTTP library takes them: `curl 'http://…/pods?labelSelector=n>5'` sends the sign
//! as it stands, Go reads it, and our HTTP library refuses the whole request. So what it does not take is
//! percent-encoded in the request line of HTTP/1 before it looks; decoded, it is the same.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Of a header line as much as tells its name and a length.
const LINE: usize = 64;

/// A socket whose request targets are all ones that our HTTP library takes.
#[derive(Debug)]
pub struct Encoded<S> {
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
    pub fn new(inner: S) -> Self {
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
mod tests {
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// What comes out, however the bytes are cut into reads.
    fn passed(pieces: &[&[u8]]) -> String {
        let mut heads = Encoded::new(()).heads;
        let mut out = Vec::new();
        for piece in pieces {
            out.extend(heads.pass(piece).unwrap_or_else(|| piece.to_vec()));
        }
        String::from_utf8(out).unwrap()
    }

    const TWO: &str =
        "POST /a?b>c HTTP/1.1\r\nHost: <h>\r\nContent-Length: 9\r\n\r\nGET /<x> \nGET /#\u{e9} HTTP/1.1\r\n\r\n";
    const TWO_ENCODED: &str =
        "POST /a?b%3Ec HTTP/1.1\r\nHost: <h>\r\nContent-Length: 9\r\n\r\nGET /<x> \nGET /%23%C3%A9 HTTP/1.1\r\n\r\n";

    #[test]
    fn only_targets_are_touched() {
        // The body looks like a request and is none.
        let body = TWO.replace("Content-Length: 9", "Content-Length: 10");
        assert_eq!(passed(&[body.as_bytes()]), TWO_ENCODED.replace("Content-Length: 9", "Content-Length: 10"));
    }

    #[test]
    fn what_cannot_be_followed_is_left_alone() {
        for head in [
            "PRI * HTTP/2.0\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
            "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n",
            // Leading zeros and blanks that push the number out of what is looked at.
            concat!(
                "POST / HTTP/1.1\r\ncontent-length: 0000000000000000000000000000000000000000000000000000000000000009",
                "\r\n\r\n"
            ),
            concat!("POST / HTTP/1.1\r\ncontent-length:                                               12", "\r\n\r\n"),
        ] {
            let text = format!("{head}GET /<x> HTTP/1.1\r\n\r\n");
            assert_eq!(passed(&[text.as_bytes()]), text);
        }
    }

    #[test]
    fn an_upgrade_that_is_refused_leaves_the_connection_as_it_was() {
        let ask = b"GET /<x> HTTP/1.1\r\nUpgrade: websocket\r\n\r\n";
        for (answers, followed) in [
            (&["HTTP/1.1 400 Bad Request\r\n"][..], true),
            (&["HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 200 OK\r\n"], true),
            (&["HTTP/1.1 101 Switching Protocols\r\n", "HTTP/1.1 200 OK\r\n"], false),
            (&[], false),
        ] {
            let mut heads = Encoded::new(()).heads;
            assert!(heads.pass(ask).is_some());
            answers.iter().for_each(|answer| heads.answers(answer.as_bytes()));
            assert_eq!(heads.pass(b"GET /<x> HTTP/1.1\r\n\r\n").is_some(), followed, "{answers:?}");
        }
        // Behind another request: the first answer is not its own.
        let mut heads = Encoded::new(()).heads;
        heads.pass(b"GET / HTTP/1.1\r\n\r\n");
        heads.pass(ask);
        heads.answers(b"HTTP/1.1 200 OK\r\n");
        assert!(heads.pass(b"GET /<x> HTTP/1.1\r\n\r\n").is_none());
        // Sent before the answer: not known for what it is taken.
        let mut heads = Encoded::new(()).heads;
        heads.pass(ask);
        assert!(heads.pass(b"GET /<x>").is_none());
        heads.answers(b"HTTP/1.1 400 Bad Request\r\n");
        assert!(heads.pass(b"GET /<x> HTTP/1.1\r\n\r\n").is_none());
    }

    #[tokio::test]
    async fn what_grows_beyond_a_read_comes_with_the_next() {
        let (mut client, server) = duplex(64);
        client.write_all(b"GET /<<<<<<<<>>>>>>>> HTTP/1.1\r\n\r\n").await.unwrap();
        drop(client);
        let mut server = Encoded::new(server);
        let (mut read, mut small) = (Vec::new(), [0; 8]);
        loop {
            match server.read(&mut small).await.unwrap() {
                0 => break,
                n => read.extend_from_slice(&small[..n]),
            }
        }
        let target = format!("/{}{}", "%3C".repeat(8), "%3E".repeat(8));
        assert_eq!(String::from_utf8(read).unwrap(), format!("GET {target} HTTP/1.1\r\n\r\n"));
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_requests_are_cut(cuts in prop::collection::vec(0..TWO.len(), 0..6)) {
            let mut cuts = cuts;
            cuts.extend([0, TWO.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &TWO.as_bytes()[cut[0]..cut[1]]).collect();
            prop_assert_eq!(passed(&pieces), passed(&[TWO.as_bytes()]));
        }

        #[test]
        fn nothing_that_needs_no_change_is_changed(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut heads = Encoded::new(()).heads;
            let decoded = |bytes: &[u8]| percent_encoding::percent_decode(bytes).collect::<Vec<_>>();
            if let Some(passed) = heads.pass(&bytes) {
                prop_assert_eq!(decoded(&passed), decoded(&bytes));
            }
        }
    }
}
