//! Writes of HTTP/2 frames that are gathered, in an order that the data chooses, against the bytes that were taken: the peer
//! gets all of them in their order, no more than 64 KiB wait, and none is left after a shutdown.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use informerd::http::{Bounded, Http2Socket, HttpMetrics};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::runtime::block_on;

/// Bytes that may wait.
const MAX_WAITING: usize = 64 << 10;

/// The largest payload of a frame.
const LARGEST: usize = 16 << 10;

/// What a peer has taken, and how much more it takes.
#[derive(Debug, Default)]
struct Taken {
    /// All bytes that are written, in their order.
    expected: Vec<u8>,
    bytes: usize,
    room: usize,
    is_broken: bool,
    is_shut: bool,
}

#[derive(Debug, Clone, Default)]
struct Peer(Arc<Mutex<Taken>>);

pub fn check(data: &[u8]) {
    // Whoever waits for a peer looks at a clock.
    block_on(async { run(data) });
}

fn run(data: &[u8]) {
    let peer = Peer::default();
    let bounded = Bounded::new(peer.clone(), Duration::from_secs(3600), Arc::default(), None);
    let mut socket = Http2Socket::new(bounded, Arc::new(HttpMetrics::default()));
    let waker = Waker::noop();
    let mut accepted = 0;
    let mut operations = data.iter().copied();
    while let Some(operation) = operations.next() {
        let cx = &mut Context::from_waker(waker);
        let argument = usize::from(operations.next().unwrap_or_default());
        let result = match operation % 8 {
            0..=2 => {
                // Small, medium and large.
                let bytes = peer.frames(accepted, argument << (operation % 8 * 4));
                Pin::new(&mut socket).poll_write(cx, &bytes).map_ok(|taken| accepted += taken)
            }
            3 => {
                let bytes = peer.frames(accepted, argument * 100);
                let slices: Vec<_> = bytes.chunks(argument.max(1) * 7).map(IoSlice::new).collect();
                Pin::new(&mut socket).poll_write_vectored(cx, &slices).map_ok(|taken| accepted += taken)
            }
            4 => {
                let drained = socket.poll_drain(cx);
                if matches!(drained, Poll::Ready(Ok(()))) {
                    assert_eq!(peer.taken(), accepted, "drained");
                }
                drained
            }
            5 => Pin::new(&mut socket).poll_read(cx, &mut ReadBuf::new(&mut [0; 8])),
            6 => {
                peer.0.lock().room += argument << (argument % 12);
                Poll::Pending
            }
            _ if argument > 250 => {
                peer.0.lock().is_broken = true;
                Poll::Pending
            }
            _ => Poll::Pending,
        };
        assert!(peer.taken() <= accepted && accepted - peer.taken() <= MAX_WAITING);
        if let Poll::Ready(Err(_)) = result {
            assert!(peer.0.lock().is_broken, "an error that the peer has not made");
            return;
        }
    }
    peer.0.lock().room = usize::MAX;
    let end = Pin::new(&mut socket).poll_shutdown(&mut Context::from_waker(waker));
    let taken = peer.0.lock();
    if !taken.is_broken {
        assert!(matches!(end, Poll::Ready(Ok(()))) && taken.is_shut);
        assert_eq!(taken.bytes, accepted);
    }
}

impl Peer {
    /// What follows the first `accepted` bytes: what was not accepted before, and frames with `len` bytes.
    fn frames(&self, accepted: usize, mut len: usize) -> Vec<u8> {
        let expected = &mut self.0.lock().expected;
        while len > 0 {
            let now = len.min(LARGEST);
            let [.., a, b, c] = now.to_be_bytes();
            expected.extend([a, b, c, 0, 0, 0, 0, 0, 1]);
            let from = expected.len();
            expected.extend((from..from + now).map(|at| (at % 251) as u8));
            len -= now;
        }
        expected[accepted..].to_vec()
    }

    fn taken(&self) -> usize {
        self.0.lock().bytes
    }
}

impl AsyncRead for Peer {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Peer {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(self: Pin<&mut Self>, _: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut taken = self.0.lock();
        assert!(!taken.is_shut, "a write after the shutdown");
        if taken.is_broken {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let size: usize = bufs.iter().map(|buf| buf.len()).sum();
        if taken.room == 0 && size > 0 {
            return Poll::Pending;
        }
        let count = size.min(taken.room);
        let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).take(count).collect();
        assert_eq!(bytes, taken.expected[taken.bytes..][..count], "in their order");
        taken.bytes += count;
        taken.room -= count;
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().is_shut = true;
        Poll::Ready(Ok(()))
    }
}
