//! A watch over a WebSocket: each event is one message, text for JSON and binary for protobuf. Messages from the client
//! are read and ignored, except for pings and the close, as in the apiserver.

use std::future::poll_fn;
use std::io;

use bytes::Buf;
use http_body_util::BodyExt as _;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};

use super::watch_body::WatchBody;
use crate::passthrough::websocket::{CLOSE, MASKED, PONG, head};
use crate::reads::Rent;

const PING: u8 = 9;
const NORMAL: u16 = 1000;
const PROTOCOL_ERROR: u16 = 1002;
/// The most bytes of a ping that a pong returns.
const LONGEST_PONG: usize = 125;
/// The apiserver accepts no longer message and closes the connection.
const LONGEST_MESSAGE: u64 = 32 << 20;
/// The most bytes per read.
const BUFFER: usize = 4 << 10;

/// Parses the frames of a client.
#[derive(Debug, Default)]
struct Frames {
    /// The bytes of a frame's header until it is complete. At most 14.
    head: Vec<u8>,
    frame: Option<Frame>,
}

#[derive(Debug)]
struct Frame {
    ping: bool,
    mask: [u8; 4],
    /// The bytes of the payload that were read, and those that are still to come.
    read: usize,
    left: u64,
    /// The payload of a ping, which the pong returns. At most [`LONGEST_PONG`] bytes.
    pong: Vec<u8>,
}

/// What a message of the client is answered with.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Pong(Vec<u8>),
    /// To close. A protocol error is answered with its code first.
    End(Option<u16>),
}

/// Starts once the answer to the handshake was sent, and runs until the watch ends or the client disconnects. If the
/// client reads nothing, the connection's write timeout applies. `rent` books what is sent.
///
/// # Errors
/// The connection broke, or was never upgraded.
pub(in crate::http) async fn serve(client: OnUpgrade, events: WatchBody, rent: Option<Rent>) -> io::Result<()> {
    let client = client.await.map_err(|error| io::Error::other(error.to_string()))?;
    let cut = events.cut();
    tokio::select! {
        result = run(TokioIo::new(client), events, rent) => result,
        () = poll_fn(|cx| cut.poll_cut(cx)) => Err(io::ErrorKind::TimedOut.into()),
    }
}

async fn run(client: impl AsyncRead + AsyncWrite, mut events: WatchBody, rent: Option<Rent>) -> io::Result<()> {
    let (mut from, mut to) = split(client);
    let (mut frames, mut buffer) = (Frames::default(), vec![0; BUFFER]);
    'open: loop {
        tokio::select! {
            event = events.frame() => {
                let Some(Ok(Ok(mut messages))) = event.map(|event| event.map(http_body::Frame::into_data)) else { break };
                if !messages.has_remaining() {
                    tokio::task::yield_now().await;
                    continue;
                }
                if let Some(rent) = &rent {
                    rent.sent(messages.remaining());
                }
                while messages.has_remaining() {
                    to.write_all_buf(&mut messages).await?;
                }
            }
            read = from.read(&mut buffer) => {
                let mut said = &buffer[..read?];
                if said.is_empty() {
                    break;
                }
                while let Some(asked) = frames.next(&mut said) {
                    match asked {
                        Reply::Pong(payload) => {
                            to.write_all(&[head(PONG, payload.len()), payload].concat()).await?;
                        }
                        Reply::End(mistake) => {
                            if let Some(code) = mistake {
                                to.write_all(&close(code)).await?;
                            }
                            break 'open;
                        }
                    }
                }
            }
        }
        to.flush().await?;
    }
    to.write_all(&close(NORMAL)).await?;
    to.shutdown().await
}

fn close(code: u16) -> Vec<u8> {
    [head(CLOSE, 2), code.to_be_bytes().to_vec()].concat()
}

// === impl Frames ===

impl Frames {
    /// Consumes the bytes of `said` up to a frame that needs an answer; `None` once all are consumed. Must not be
    /// called again after [`Reply::End`].
    fn next(&mut self, said: &mut &[u8]) -> Option<Reply> {
        while let [byte, rest @ ..] = *said {
            let frame = match &mut self.frame {
                Some(frame) => {
                    let taken = frame.take(said);
                    *said = &said[taken..];
                    frame
                }
                None => {
                    *said = rest;
                    self.head.push(*byte);
                    match Frame::of(&self.head) {
                        None => continue,
                        Some(Err(end)) => return Some(end),
                        Some(Ok(frame)) => {
                            self.head.clear();
                            self.frame.insert(frame)
                        }
                    }
                }
            };
            if frame.left == 0
                && let Some(frame) = self.frame.take_if(|frame| frame.left == 0)
                && frame.ping
            {
                return Some(Reply::Pong(frame.pong));
            }
        }
        None
    }
}

// === impl Frame ===

impl Frame {
    /// `None` while the header is incomplete.
    fn of(head: &[u8]) -> Option<Result<Self, Reply>> {
        let [first, second, rest @ ..] = head else { return None };
        let masked = second & MASKED != 0;
        let (short, wide) = match second & !MASKED {
            126 => (0, 2),
            127 => (0, 8),
            short => (u64::from(short), 0),
        };
        let mask = if masked { 4 } else { 0 };
        if rest.len() < wide + mask {
            return None;
        }
        // The highest bit of a 64-bit length is ignored.
        let length = rest[..wide].iter().fold(short, |length, byte| (length << 8) | u64::from(*byte)) & (u64::MAX >> 1);
        let kind = first & 0x0f;
        Some(match rest[wide..].try_into() {
            Err(_) => Err(Reply::End(Some(PROTOCOL_ERROR))),
            Ok(_) if kind == CLOSE => Err(Reply::End(None)),
            Ok(_) if length > LONGEST_MESSAGE && !matches!(kind, PING | PONG) => Err(Reply::End(None)),
            Ok(mask) => Ok(Self { ping: kind == PING, mask, read: 0, left: length, pong: Vec::new() }),
        })
    }

    /// Consumes the bytes that belong to the payload.
    fn take(&mut self, said: &[u8]) -> usize {
        let taken = usize::try_from(self.left).unwrap_or(usize::MAX).min(said.len());
        if self.ping {
            let kept = said[..taken].iter().take(LONGEST_PONG - self.pong.len());
            self.pong.extend(kept.enumerate().map(|(at, byte)| byte ^ self.mask[(self.read + at) % 4]));
        }
        self.read += taken;
        self.left -= taken as u64;
        taken
    }
}

#[cfg(test)]
#[path = "websocket_tests.rs"]
mod tests;
