//! A socket with deadlines: for a client that sends no first bytes, and for a client that reads none of our bytes.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::task::coop;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::gate::Gate;
use crate::http::door::{HTTP2_PREFACE, Newcomer, Protocol};
use crate::memory::{HURRY, Level, Pressure};

/// Timeouts on a connection's socket. Reads have a timeout until the protocol is known; after that, the protocols
/// themselves limit silence. Writes are limited by progress: any byte that the client reads restarts the timer. An
/// upgraded connection is a pipe between two other parties and has no timeouts of ours.
#[derive(Debug)]
pub struct Bounded<S> {
    inner: S,
    /// Bytes that are read again: those that the protocol was detected from, and those that came during a watch.
    opening: Vec<u8>,
    stall_timeout: Duration,
    upgraded: Arc<AtomicBool>,
    /// Since when the socket accepts no bytes, and when to look again.
    stalled: Option<Box<Stalled>>,
    pressure: Pressure,
    /// Present until the client is authenticated.
    gate: Option<Box<Gate>>,
}

#[derive(Debug)]
struct Stalled {
    since: Instant,
    next_look: Pin<Box<Sleep>>,
}

/// A task that writes much lets others run. The budget that tokio gives a task each time it runs counts writes, and a
/// write can be large: each of so many bytes counts like one more. So a task writes about 4 MiB each time it runs.
const SHARE: usize = 32 << 10;
/// The bytes that are dropped at once.
const DROPPED: usize = 4 << 10;

fn spend(cx: &mut Context<'_>, units: usize) {
    for _ in 0..units {
        match coop::has_budget_remaining().then(|| coop::poll_proceed(cx)) {
            Some(Poll::Ready(turn)) => turn.made_progress(),
            _ => return,
        }
    }
}

// === impl Bounded ===

impl<S> Bounded<S> {
    pub fn new(inner: S, stall_timeout: Duration, upgraded: Arc<AtomicBool>, newcomer: Option<&Arc<Newcomer>>) -> Self {
        let gate = newcomer.map(|newcomer| Box::new(Gate::new(Arc::clone(newcomer))));
        Self { inner, opening: Vec::new(), stall_timeout, upgraded, stalled: None, pressure: Pressure::default(), gate }
    }

    /// While memory is short, a client that takes nothing has less time.
    pub(in crate::http) fn hurries(&mut self, pressure: Pressure) {
        self.pressure = pressure;
    }

    /// `bytes` are read again, before everything else.
    pub(super) fn unread(&mut self, mut bytes: Vec<u8>) {
        bytes.append(&mut self.opening);
        self.opening = bytes;
    }

    /// Whether nothing more is read from the client, because it has said too much without being authenticated.
    pub(super) fn is_refused(&self) -> bool {
        self.gate.as_ref().is_some_and(|gate| gate.is_refused)
    }

    /// The HTTP/2 stream whose header block is not complete, if the gate holds it back.
    pub(super) fn open_stream(&self) -> Option<u32> {
        self.gate.as_ref().and_then(|gate| gate.open_stream())
    }

    fn written(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = result {
            spend(cx, bytes / SHARE);
        }
        if result.is_ready() || self.upgraded.load(Ordering::Relaxed) {
            self.stalled = None;
            return result;
        }
        let stalled = self.stalled.get_or_insert_with(|| {
            let since = Instant::now();
            Box::new(Stalled { since, next_look: Box::pin(sleep_until(since + HURRY.min(self.stall_timeout))) })
        });
        while stalled.next_look.as_mut().poll(cx).is_ready() {
            let (now, is_short) = (Instant::now(), self.pressure.level() == Level::Short);
            let until = stalled.since + if is_short { self.stall_timeout.min(2 * HURRY) } else { self.stall_timeout };
            if now >= until {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "client takes no bytes")));
            }
            stalled.next_look.as_mut().reset(until.min(now + HURRY));
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> Bounded<S> {
    /// Waits for the bytes that identify the protocol. They are read again later. `None` if the client disconnects
    /// first.
    ///
    /// # Errors
    /// The socket fails, or the client takes longer than `within`.
    pub async fn open(&mut self, within: Duration) -> io::Result<Option<Protocol>> {
        let silent = |_| io::Error::new(io::ErrorKind::TimedOut, "client says nothing");
        timeout(within, self.protocol()).await.map_err(silent)?
    }

    async fn protocol(&mut self) -> io::Result<Option<Protocol>> {
        let mut bytes = [0; HTTP2_PREFACE.len()];
        let mut filled = 0;
        while filled < bytes.len() {
            let read = self.inner.read(&mut bytes[filled..]).await?;
            if read == 0 {
                return Ok(None);
            }
            filled += read;
            if bytes[..filled] != HTTP2_PREFACE[..filled] {
                break;
            }
        }
        let protocol = if bytes == *HTTP2_PREFACE { Protocol::Http2 } else { Protocol::Http1 };
        match &mut self.gate {
            None => self.opening = bytes[..filled].to_vec(),
            Some(gate) => gate.open(protocol, &bytes[..filled]),
        }
        Ok(Some(protocol))
    }

    /// Reads and drops what the client still sends. Returns the number of bytes.
    pub(super) fn poll_drop(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut bytes = [0; DROPPED];
        let mut part = ReadBuf::new(&mut bytes);
        Pin::new(&mut self.inner).poll_read(cx, &mut part).map_ok(|()| part.filled().len())
    }

    /// Reads through the gate while there is one.
    fn poll_inner(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(gate) = &mut self.gate {
            if !gate.is_open() {
                return gate.poll_read(Pin::new(&mut self.inner), cx, buf);
            }
            self.gate = None;
        }
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.opening.is_empty() {
            return self.poll_inner(cx, buf);
        }
        let fits = self.opening.len().min(buf.remaining());
        buf.put_slice(&self.opening[..fits]);
        self.opening.drain(..fits);
        if self.opening.is_empty() {
            self.opening = Vec::new();
            // Return the start of a header together with its rest: HTTP/1 doubles its buffer for a header that comes in
            // two reads. A socket error stays with the socket, so the next read returns it.
            if buf.remaining() > 0
                && let Poll::Ready(Err(error)) = self.poll_inner(cx, buf)
            {
                tracing::debug!(%error, "reading behind a connection's first bytes");
            }
        }
        Poll::Ready(Ok(()))
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
        // TLS writes its buffered data when it is flushed, so a stall may show up only here.
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
    use std::sync::atomic::AtomicUsize;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;
    use crate::http::testing::{counted, largest_turn};

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn while_memory_is_short_it_is_given_up_soon() {
        let (ours, _theirs) = duplex(4);
        let mut ours = Bounded::new(ours, 300 * SECOND, Arc::default(), None);
        let pressure = Pressure::default();
        ours.hurries(pressure.clone());
        let started = Instant::now();
        let (error, ()) = tokio::join!(ours.write_all(b"0123456789"), async {
            tokio::time::sleep(100 * SECOND).await;
            pressure.set(Level::Short);
        });
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() <= 100 * SECOND + HURRY, "{:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_is_not() {
        let (ours, mut theirs) = duplex(1);
        let mut ours = Bounded::new(ours, 5 * SECOND, Arc::default(), None);
        let reader = crate::lifecycle::spawn("reader", async move {
            for _ in 0..10 {
                tokio::time::sleep(4 * SECOND).await;
                theirs.read_u8().await.unwrap();
            }
        });
        ours.write_all(b"0123456789").await.unwrap();
        reader.await.unwrap();
    }

    #[tokio::test]
    async fn a_task_that_writes_much_lets_others_run() {
        const MIB: usize = 1 << 20;
        for size in [100, 10_000, 100_000, MIB] {
            let written = Arc::<AtomicUsize>::default();
            let mut ours = Bounded::new(counted(Arc::clone(&written), true), SECOND, Arc::default(), None);
            let all = 300 * size;
            let writer = crate::lifecycle::spawn("writer", async move {
                let large = vec![0; size];
                for _ in 0..300 {
                    ours.write_all(&large).await.unwrap();
                }
            });
            let largest = largest_turn(&written, all).await;
            writer.await.unwrap();
            assert!(
                largest <= (4 * MIB + size).min(128 * size) && largest >= (3 * MIB).min(100 * size),
                "{largest} of {size}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_upgraded_connection_may_stand_still() {
        let (ours, _theirs) = duplex(4);
        let mut ours = Bounded::new(ours, 5 * SECOND, Arc::new(AtomicBool::new(true)), None);
        assert!(tokio::time::timeout(3600 * SECOND, ours.write_all(b"0123456789")).await.is_err(), "still waiting");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_given_up_until_the_protocol_is_known() {
        let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        for (said, known) in [
            ("", None),
            ("PRI * HT", None),
            ("G", Some(Protocol::Http1)),
            ("PRI * HTTP/1.1\r\n", Some(Protocol::Http1)),
            (preface, Some(Protocol::Http2)),
        ] {
            let (ours, mut theirs) = duplex(64);
            let mut ours = Bounded::new(ours, 5 * SECOND, Arc::default(), None);
            theirs.write_all(said.as_bytes()).await.unwrap();
            let opened = ours.open(5 * SECOND).await;
            let Some(known) = known else {
                assert_eq!(opened.unwrap_err().kind(), io::ErrorKind::TimedOut, "{said:?}");
                continue;
            };
            assert_eq!(opened.unwrap(), Some(known), "{said:?}");
            let mut read = vec![0; said.len()];
            ours.read_exact(&mut read).await.unwrap();
            assert_eq!(read, said.as_bytes());
            assert!(timeout(60 * SECOND, ours.read_u8()).await.is_err(), "{said:?} and silence");
        }
    }

    #[tokio::test]
    async fn what_told_the_protocol_is_read_with_what_follows() {
        let request = b"GET /api/v1/pods HTTP/1.1\r\nHost: a\r\n\r\n";
        for size in [1, 3, 24, 25, 64] {
            let (ours, mut theirs) = duplex(64);
            let mut ours = Bounded::new(ours, SECOND, Arc::default(), None);
            theirs.write_all(request).await.unwrap();
            drop(theirs);
            assert_eq!(ours.open(SECOND).await.unwrap(), Some(Protocol::Http1));
            let (mut all, mut buf) = (Vec::new(), vec![0; size]);
            loop {
                let read = ours.read(&mut buf).await.unwrap();
                assert!(size < 64 || [request.len(), 0].contains(&read), "at once");
                if read == 0 {
                    break;
                }
                all.extend_from_slice(&buf[..read]);
            }
            assert_eq!(all, request);
        }
        let (ours, theirs) = duplex(64);
        drop(theirs);
        assert_eq!(Bounded::new(ours, SECOND, Arc::default(), None).open(SECOND).await.unwrap(), None);
    }
}
