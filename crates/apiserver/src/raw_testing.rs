//! A server on a real socket that answers requests with prepared bytes, also such that no library would send.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::testing::{Certificates, config};
use informerd_lifecycle::spawn;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
const ACK: u8 = 1;
const PREFACE: usize = 24;

/// An answer, and what the server does after it.
pub struct Raw {
    bytes: Vec<u8>,
    then: Then,
    gate: Option<Arc<Semaphore>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Stays,
    /// Ends the TLS session, and the connection.
    Closes,
    /// Ends the connection only.
    Breaks,
}

/// The answer to a request on this stream. Over HTTP/1.1, the number is 0.
type Script = Arc<dyn Fn(u32) -> Raw + Send + Sync>;

pub struct RawServer {
    address: SocketAddr,
    certificates: Option<Certificates>,
    accepting: JoinHandle<()>,
}

/// One HTTP/2 frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The head of an answer over HTTP/2, with literal fields.
pub fn head(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend(text.as_bytes());
        }
    }
    frame(HEADERS, END_HEADERS | flags, stream, &block)
}

impl Raw {
    pub fn new(bytes: Vec<u8>, then: Then) -> Self {
        Self { bytes, then, gate: None }
    }

    /// The answer waits for a permit.
    pub fn after(self, gate: &Arc<Semaphore>) -> Self {
        Self { gate: Some(Arc::clone(gate)), ..self }
    }
}

impl RawServer {
    /// With TLS, if a protocol is named.
    pub async fn start(alpn: Option<&str>, script: impl Fn(u32) -> Raw + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let certificates = alpn.map(|_| Certificates::new());
        let acceptor = certificates.as_ref().zip(alpn).map(|(known, alpn)| known.acceptor(vec![alpn.into()]));
        let (script, is_http2): (Script, bool) = (Arc::new(script), alpn == Some("h2"));
        let accepting = spawn("raw-accept", async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, script) = (acceptor.clone(), Arc::clone(&script));
                spawn("raw-connection", async move {
                    match acceptor {
                        None => _ = serve(tcp, is_http2, &script).await,
                        Some(acceptor) => {
                            let Ok(tls) = acceptor.accept(tcp).await else { return };
                            serve(tls, is_http2, &script).await;
                        }
                    }
                });
            }
        });
        Self { address, certificates, accepting }
    }

    pub fn config(&self) -> kube::Config {
        config(self.address, self.certificates.as_ref())
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(mut io: impl AsyncRead + AsyncWrite + Unpin, is_http2: bool, script: &Script) -> Option<()> {
    if is_http2 {
        io.read_exact(&mut [0; PREFACE]).await.ok()?;
        io.write_all(&frame(SETTINGS, 0, 0, &[])).await.ok()?;
    }
    loop {
        let stream = if is_http2 { request2(&mut io).await } else { request1(&mut io).await }?;
        let Raw { bytes, then, gate } = script(stream);
        if let Some(gate) = gate {
            gate.acquire().await.unwrap().forget();
        }
        io.write_all(&bytes).await.ok()?;
        io.flush().await.ok()?;
        match then {
            Then::Stays => {}
            Then::Closes => return io.shutdown().await.ok(),
            Then::Breaks => return None,
        }
    }
}

/// Reads up to the end of the next head, and returns its stream.
async fn request2(io: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Option<u32> {
    loop {
        let mut head = [0; 9];
        io.read_exact(&mut head).await.ok()?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        io.read_exact(&mut payload).await.ok()?;
        match kind {
            HEADERS => return Some(u32::from_be_bytes(stream)),
            SETTINGS if flags & ACK == 0 => io.write_all(&frame(SETTINGS, ACK, 0, &[])).await.ok()?,
            PING if flags & ACK == 0 => io.write_all(&frame(PING, ACK, 0, &payload)).await.ok()?,
            _ => {}
        }
    }
}

async fn request1(io: &mut (impl AsyncRead + Unpin)) -> Option<u32> {
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        seen.push(io.read_u8().await.ok()?);
    }
    Some(0)
}
