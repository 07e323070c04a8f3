//! Connections on which every byte is chosen: requests no client library would send, and WebSockets.

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::access::world::World;
pub(super) use crate::support::client::raw_tls as connect;
use crate::support::within;

/// What the delegated listener answers to these bytes until it ends the connection.
pub(super) async fn raw(world: &World, bytes: impl AsRef<[u8]>) -> String {
    all_of(connect(&world.daemon.url, &world.ca).await, bytes).await
}

/// What the delegated listener answers to a client that ends after these bytes.
pub(super) async fn cut(world: &World, bytes: &[u8]) -> String {
    let mut stream = connect(&world.daemon.url, &world.ca).await;
    stream.write_all(bytes).await.unwrap();
    stream.shutdown().await.unwrap();
    all_of(stream, []).await
}

/// What the apiserver answers to them.
pub(super) async fn direct(world: &World, bytes: impl AsRef<[u8]>) -> String {
    all_of(connect(&world.cluster.info.server, &world.cluster.info.ca).await, bytes).await
}

pub(super) async fn all_of(mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes: impl AsRef<[u8]>) -> String {
    stream.write_all(bytes.as_ref()).await.unwrap();
    let mut answer = Vec::new();
    // A server that closes without TLS's own goodbye has said all it will.
    within("an end", stream.read_to_end(&mut answer)).await.ok();
    String::from_utf8_lossy(&answer).into_owned()
}

pub(super) fn codes(answers: &str) -> Vec<&str> {
    answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect()
}

/// A WebSocket, of which only the server sends.
pub(super) struct Socket {
    pub status: u16,
    stream: TlsStream<TcpStream>,
    pending: Vec<u8>,
}

/// What a server sends on it.
#[derive(Debug)]
pub(super) enum Message {
    Event(Value),
    Close(u16),
    End,
}

impl Socket {
    pub(super) async fn through(world: &World, token: Option<&str>, target: &str) -> Self {
        Self::open(world, token, "", target).await
    }

    /// Asked for in a way that only the apiserver reads.
    pub(super) async fn forwarded(world: &World, token: &str, target: &str) -> Self {
        Self::open(world, Some(token), "Accept: application/json\r\nAccept: application/json\r\n", target).await
    }

    /// With more headers.
    pub(super) async fn open(world: &World, token: Option<&str>, more: &str, target: &str) -> Self {
        let mut stream = connect(&world.daemon.url, &world.ca).await;
        let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: localhost\r\nOrigin: https://localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{authorization}{more}\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut pending = Vec::new();
        let end = loop {
            if let Some(at) = pending.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(stream.read_buf(&mut pending).await.unwrap() > 0, "no head");
        };
        let head = String::from_utf8(pending.drain(..end).collect()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, stream, pending }
    }

    async fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        while self.pending.len() < bytes {
            match within("more of a watch", self.stream.read_buf(&mut self.pending)).await {
                Ok(0) | Err(_) => {
                    assert!(self.pending.is_empty(), "cut within a frame");
                    return None;
                }
                Ok(_) => {}
            }
        }
        Some(self.pending.drain(..bytes).collect())
    }

    pub(super) async fn next(&mut self) -> Message {
        loop {
            let Some(head) = self.take(2).await else { return Message::End };
            assert_eq!(head[0] & 0x80, 0x80, "the apiserver sends whole messages");
            let length = match head[1] {
                126 => u64::from(u16::from_be_bytes(self.take(2).await.unwrap().try_into().unwrap())),
                127 => u64::from_be_bytes(self.take(8).await.unwrap().try_into().unwrap()),
                short => u64::from(short),
            };
            let payload = self.take(usize::try_from(length).unwrap()).await.unwrap_or_default();
            match head[0] & 0x0f {
                1 => return Message::Event(serde_json::from_slice(&payload).unwrap()),
                8 => return Message::Close(payload.try_into().map(u16::from_be_bytes).unwrap_or_default()),
                _ => {}
            }
        }
    }

    /// Until the initial events are over.
    pub(super) async fn settled(&mut self) {
        loop {
            match self.next().await {
                Message::Event(event) if event["type"] == "BOOKMARK" => return,
                Message::Event(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// The ERROR that ends it; after it there is nothing but the end.
    pub(super) async fn ended(&mut self) -> Value {
        loop {
            match self.next().await {
                Message::Event(event) if event["type"] == "ERROR" => {
                    assert!(matches!(self.next().await, Message::Close(1000)));
                    assert!(matches!(self.next().await, Message::End));
                    return event["object"].clone();
                }
                Message::Event(_) => {}
                other => panic!("no error before the end: {other:?}"),
            }
        }
    }
}
