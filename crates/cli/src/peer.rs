//! What answers at the other end of a connection, to tell a wrong address from a fault.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::{Code, Status};

use super::address::Address;

/// Bytes that tell protocols apart: the length and the type of the first frame of HTTP/2, or `HTTP`.
const PREFIX: usize = 4;
/// The type of the frame with which each server of HTTP/2 begins.
const SETTINGS: u8 = 4;

/// The other end of a connection.
#[derive(Debug)]
pub(super) struct Peer {
    address: Address,
    begin: Mutex<Begin>,
    /// Set when it did not answer a call in gRPC.
    foreign: OnceLock<String>,
}

/// The beginning of what it sent.
#[derive(Debug, Default)]
struct Begin {
    prefix: Vec<u8>,
    /// It sends no more, or the connection broke.
    ended: bool,
}

/// A stream whose first received bytes are noted.
pub(super) struct Noted<S> {
    stream: S,
    peer: Arc<Peer>,
}

// === impl Peer ===

impl Peer {
    pub(super) fn new(address: Address) -> Arc<Self> {
        Arc::new(Self { address, begin: Mutex::default(), foreign: OnceLock::new() })
    }

    pub(super) fn note<S>(self: &Arc<Self>, stream: S) -> Noted<S> {
        Noted { stream, peer: Arc::clone(self) }
    }

    /// After a failed call: why the peer is no listener of informerd, in one sentence. `None` if it may be one.
    pub(super) fn stranger(&self) -> Option<String> {
        if let Some(foreign) = self.foreign.get() {
            return Some(foreign.clone());
        }
        let Self { address, .. } = self;
        let begin = self.begin.lock();
        match *begin.prefix {
            [_, _, _, SETTINGS] => None,
            [] if !begin.ended => None,
            [] => Some(format!(
                "what answers at {address} is not informerd's listener, or has no room for another connection: it \
                 closed the connection without an answer"
            )),
            [0x15 | 0x16, 3, ..] => Some(format!(
                "what answers at {address} wants TLS: the address of such a listener begins with https://"
            )),
            _ => Some(format!("what answers at {address} is not informerd's listener: it does not speak HTTP/2")),
        }
    }

    /// Checks the answer to a gRPC call.
    ///
    /// # Errors
    /// It is not in gRPC. The status has the sentence.
    pub(super) fn check<B>(&self, response: &Response<B>) -> Result<(), Status> {
        if is_grpc(response.headers()) {
            return Ok(());
        }
        let (address, status) = (&self.address, response.status());
        let (code, is_refusal) = match status {
            StatusCode::UNAUTHORIZED => (Code::Unauthenticated, true),
            StatusCode::FORBIDDEN => (Code::PermissionDenied, true),
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => (Code::Unavailable, true),
            _ => (Code::Unimplemented, false),
        };
        // informerd, and proxies before it, refuse some clients before their call is read.
        let or = if is_refusal { ", or refuses this client" } else { "" };
        let text = format!(
            "what answers at {address} is not informerd's listener{or}: it answered a gRPC call with HTTP {}",
            status.as_u16()
        );
        Err(Status::new(code, self.foreign.get_or_init(|| text).clone()))
    }
}

/// Whether an answer is one of gRPC: by its content type, or by the status that it begins with.
fn is_grpc(headers: &HeaderMap) -> bool {
    let of_grpc = headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
    of_grpc || headers.contains_key(Status::GRPC_STATUS)
}

// === impl Noted ===

impl<S> Noted<S> {
    /// A peer that closes the connection may be noticed by a write first.
    fn written<T>(&self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.peer.begin.lock().ended |= matches!(polled, Poll::Ready(Err(_)));
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Noted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if polled.is_ready() {
            let mut begin = self.peer.begin.lock();
            let missing = PREFIX.saturating_sub(begin.prefix.len());
            let read = buf.filled().get(before..).unwrap_or_default();
            begin.ended |= read.is_empty();
            begin.prefix.extend(read.iter().take(missing));
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Noted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.written(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.written(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn heard(bytes: &[u8]) -> Option<String> {
        let peer = Peer::new("http://127.0.0.1:1".parse().unwrap());
        // Byte by byte, as a network may deliver them.
        let mut stream = peer.note(bytes);
        assert_eq!(peer.stranger(), None, "it has sent nothing, and may yet");
        while let Ok(1) = stream.read(&mut [0]).await {}
        peer.stranger()
    }

    #[tokio::test]
    async fn protocols_are_told_apart_by_the_first_bytes() {
        assert_eq!(heard(&[0, 0, 18, 4, 0, 0, 0, 0, 0]).await, None);
        for (bytes, words) in [
            (&b""[..], "closed the connection without an answer"),
            (b"HTTP/1.1 400 Bad Request\r\n", "does not speak HTTP/2"),
            (b"SSH-2.0-OpenSSH", "does not speak HTTP/2"),
            (&[0x15, 3, 3, 0, 2, 2, 10], "wants TLS"),
        ] {
            let told = heard(bytes).await.unwrap();
            assert!(told.starts_with("what answers at http://127.0.0.1:1 ") && told.contains(words), "{told}");
        }
    }

    #[tokio::test]
    async fn a_connection_that_breaks_while_it_is_written_to_has_ended() {
        let peer = Peer::new("http://127.0.0.1:1".parse().unwrap());
        let (near, far) = tokio::io::duplex(8);
        let mut stream = peer.note(near);
        stream.write_all(b"PRI").await.unwrap();
        assert_eq!(peer.stranger(), None);
        drop(far);
        stream.write_all(b" * HTTP/2").await.unwrap_err();
        assert!(peer.stranger().unwrap().contains("closed the connection without an answer"));
    }

    #[test]
    fn answers_that_are_not_in_grpc() {
        let peer = || Peer::new("https://a:443".parse().unwrap());
        let answer = |status: u16, header: &str, value: &str| {
            Response::builder().status(status).header(header, value).body(()).unwrap()
        };
        let good = [
            answer(200, "content-type", "application/grpc"),
            answer(200, "content-type", "application/grpc+proto"),
            answer(200, "grpc-status", "14"),
        ];
        for good in &good {
            assert!(peer().check(good).is_ok());
        }
        let stranger = peer();
        let refused = stranger.check(&answer(404, "content-type", "text/plain")).unwrap_err();
        let told = "what answers at https://a:443 is not informerd's listener: it answered a gRPC call with HTTP 404";
        assert_eq!((refused.code(), refused.message()), (Code::Unimplemented, told));
        assert_eq!(stranger.stranger().as_deref(), Some(told));
        let refused = peer().check(&answer(503, "content-type", "application/json")).unwrap_err();
        assert!(refused.code() == Code::Unavailable && refused.message().contains("or refuses this client"));
    }
}
