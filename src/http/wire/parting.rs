//! The end of a connection whose client may still send. The kernel resets a connection that is closed before all of that is
//! read, and the client may then not get to read its answer. So it is read and dropped for a while, as Go's server waits.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep_until};

use super::io::Bounded;

/// How long, at most.
const PATIENCE: Duration = Duration::from_millis(500);
/// The most bytes that are dropped.
const MOST: usize = 8 << 20;

/// The last answer over HTTP/1.1, and what follows it.
#[derive(Debug)]
pub(super) struct LastAnswer<S> {
    io: Bounded<S>,
    /// What is left of it.
    answer: Bytes,
    parting: Parting,
}

#[derive(Debug)]
pub(super) struct Parting {
    until: Pin<Box<Sleep>>,
    left: usize,
    is_shut: bool,
}

// === impl Parting ===

impl Default for Parting {
    fn default() -> Self {
        Self { until: Box::pin(sleep_until(Instant::now() + PATIENCE)), left: MOST, is_shut: false }
    }
}

impl Parting {
    /// Ready when the connection can be closed. `written`: whether the client has been sent everything.
    pub(super) fn poll<S>(
        &mut self,
        io: &mut Bounded<S>,
        written: Poll<io::Result<()>>,
        cx: &mut Context<'_>,
    ) -> Poll<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        if self.until.as_mut().poll(cx).is_ready() || ready!(written).is_err() {
            return Poll::Ready(());
        }
        if !self.is_shut && ready!(Pin::new(&mut *io).poll_shutdown(cx)).is_err() {
            return Poll::Ready(());
        }
        self.is_shut = true;
        while self.left > 0 {
            match ready!(io.poll_drop(cx)) {
                Ok(dropped @ 1..) => self.left = self.left.saturating_sub(dropped),
                Ok(0) | Err(_) => break,
            }
        }
        Poll::Ready(())
    }
}

// === impl LastAnswer ===

impl<S: AsyncRead + AsyncWrite + Unpin> LastAnswer<S> {
    pub(super) fn new(io: Bounded<S>, answer: Bytes) -> Self {
        Self { io, answer, parting: Parting::default() }
    }

    /// Ready when the connection can be closed.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let written = self.poll_answer(cx);
        self.parting.poll(&mut self.io, written, cx)
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.answer.is_empty() {
            match ready!(Pin::new(&mut self.io).poll_write(cx, &self.answer))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.answer.advance(written),
            }
        }
        Pin::new(&mut self.io).poll_flush(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// Bytes that the client could send, and how long the connection lasted.
    async fn parts(sends: usize, leaves: bool) -> (usize, Duration) {
        let (ours, mut theirs) = duplex(1 << 10);
        let mut ours = Bounded::new(ours, 1000 * PATIENCE, Arc::default(), None);
        let (mut parting, begun) = (Parting::default(), Instant::now());
        let client = async {
            let mut sent = 0;
            while sent < sends && theirs.write_all(&[0; 1 << 10]).await.is_ok() {
                sent += 1 << 10;
            }
            assert_eq!(theirs.read(&mut [0]).await.unwrap(), 0, "nothing more comes");
            (sent, if leaves { None } else { Some(theirs) })
        };
        let server = async {
            poll_fn(|cx| parting.poll(&mut ours, Poll::Ready(Ok(())), cx)).await;
            drop(ours);
            begun.elapsed()
        };
        let ((sent, _theirs), lasted) =
            tokio::join!(async { tokio::time::timeout(1000 * PATIENCE, client).await.unwrap() }, server);
        (sent, lasted)
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_client_still_sends_is_dropped_within_bounds() {
        assert_eq!(parts(3 << 20, true).await, (3 << 20, Duration::ZERO));
        assert_eq!(parts(3 << 20, false).await, (3 << 20, PATIENCE));
        let (sent, lasted) = parts(2 * MOST, true).await;
        assert!((MOST..MOST + (8 << 10)).contains(&sent) && lasted.is_zero(), "{sent} in {lasted:?}");
    }
}
