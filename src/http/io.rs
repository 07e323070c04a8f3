//! A socket that does not wait for ever: for a client's first bytes, and for a client that takes none of ours.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// What every HTTP/2 connection with prior knowledge starts with. The protocol is told apart by it, so the wait for
/// the first bytes ends with the first byte that differs or with the last of these.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bounds on a connection's socket. Reads are bounded until the protocol is known; later silence is bounded by the
/// protocols themselves. Writes are bounded by progress: any byte taken starts the clock anew. A connection that was
/// upgraded is a pipe between two others and has no bounds of ours.
#[derive(Debug)]
pub struct Bounded<S> {
    inner: S,
    opening: Option<Opening>,
    http2: bool,
    stall_timeout: Duration,
    upgraded: Arc<AtomicBool>,
    /// Runs while the socket takes no byte.
    stalled: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
struct Opening {
    matched: usize,
    deadline: Pin<Box<Sleep>>,
}

// === impl Bounded ===

impl<S> Bounded<S> {
    pub fn new(inner: S, opening_timeout: Duration, stall_timeout: Duration, upgraded: Arc<AtomicBool>) -> Self {
        let deadline = Box::pin(sleep_until(Instant::now() + opening_timeout));
        Self {
            inner,
            opening: Some(Opening { matched: 0, deadline }),
            http2: false,
            stall_timeout,
            upgraded,
            stalled: None,
        }
    }

    /// Whether the client began with the preface of HTTP/2.
    pub fn is_http2(&self) -> bool {
        self.http2
    }

    fn written(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if result.is_ready() || self.upgraded.load(Ordering::Relaxed) {
            self.stalled = None;
            return result;
        }
        let timeout = self.stall_timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + timeout)));
        match stalled.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "client takes no bytes"))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Opening {
    /// Whether these bytes tell the protocol.
    fn is_over(&mut self, bytes: &[u8]) -> bool {
        for byte in bytes {
            if HTTP2_PREFACE.get(self.matched) != Some(byte) {
                return true;
            }
            self.matched += 1;
        }
        self.matched == HTTP2_PREFACE.len()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let filled = buf.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(cx, buf);
        let Some(opening) = &mut self.opening else { return result };
        match result {
            Poll::Ready(Ok(())) => {
                let read = &buf.filled()[filled..];
                if read.is_empty() || opening.is_over(read) {
                    self.http2 = opening.matched == HTTP2_PREFACE.len();
                    self.opening = None;
                }
                result
            }
            Poll::Ready(Err(_)) => result,
            Poll::Pending => match opening.deadline.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "client says nothing"))),
                Poll::Pending => Poll::Pending,
            },
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.written(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.written(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS writes what it has buffered when it is flushed, so a stall can show here only.
        let result = Pin::new(&mut self.inner).poll_flush(cx).map_ok(|()| 0);
        self.written(cx, result).map_ok(|_| ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_shutdown(cx).map_ok(|()| 0);
        self.written(cx, result).map_ok(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_given_up() {
        let (ours, _theirs) = duplex(4);
        let mut ours = Bounded::new(ours, SECOND, 5 * SECOND, Arc::default());
        let started = Instant::now();
        let error = ours.write_all(b"0123456789").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed(), 5 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_is_not() {
        let (ours, mut theirs) = duplex(1);
        let mut ours = Bounded::new(ours, SECOND, 5 * SECOND, Arc::default());
        let reader = crate::lifecycle::spawn("reader", async move {
            for _ in 0..10 {
                tokio::time::sleep(4 * SECOND).await;
                theirs.read_u8().await.unwrap();
            }
        });
        ours.write_all(b"0123456789").await.unwrap();
        reader.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_upgraded_connection_may_stand_still() {
        let (ours, _theirs) = duplex(4);
        let mut ours = Bounded::new(ours, SECOND, 5 * SECOND, Arc::new(AtomicBool::new(true)));
        assert!(tokio::time::timeout(3600 * SECOND, ours.write_all(b"0123456789")).await.is_err(), "still waiting");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_given_up_until_the_protocol_is_known() {
        for (said, known) in [("", false), ("PRI * HT", false), ("G", true), ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", true)]
        {
            let (ours, mut theirs) = duplex(64);
            let mut ours = Bounded::new(ours, 5 * SECOND, 5 * SECOND, Arc::default());
            theirs.write_all(said.as_bytes()).await.unwrap();
            let mut read = vec![0; said.len()];
            ours.read_exact(&mut read).await.unwrap();
            let next = tokio::time::timeout(60 * SECOND, ours.read_u8()).await;
            assert_eq!(next.is_err(), known, "{said:?}");
        }
    }
}
