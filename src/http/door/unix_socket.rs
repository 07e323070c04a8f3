//! The server's end of a connection over a Unix socket.
//!
//! The kernel reports that a Unix socket can be written each time its client has read something. A fan-out over a
//! thousand sockets would be interrupted by as many reports that nobody waits for, and handling them costs more than the
//! writes. So the process asks for these reports only while a client's buffer is full. TCP reports it only then anyway.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::task::coop;

/// A connected socket. It can be read and written from two tasks, like the sockets of tokio.
#[derive(Debug)]
pub(in crate::http) struct UnixSocket {
    /// `None` if the reports could not be changed. The connection is then broken.
    stream: Option<AsyncFd<UnixStream>>,
    /// The client's buffer is full, so the process is told when it has room.
    is_full: bool,
    /// The task that waits for data. Changing the reports forgets it.
    reader: Option<Waker>,
}

/// The most bytes of one read.
const MOST: usize = 64 << 10;

#[expect(
    deprecated,
    reason = "only the successor is unsafe; the descriptor of a socket does not change while it is open"
)]
fn register(stream: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    AsyncFd::with_interest(stream, interest)
}

// === impl UnixSocket ===

impl UnixSocket {
    /// Must be called inside a runtime.
    ///
    /// # Errors
    /// The system cannot report what happens to the socket.
    pub(super) fn new(stream: tokio::net::UnixStream) -> io::Result<Self> {
        let stream = register(stream.into_std()?, Interest::READABLE)?;
        Ok(Self { stream: Some(stream), is_full: false, reader: None })
    }

    fn set_full(&mut self, is_full: bool) -> io::Result<()> {
        let stream = self.stream.take().ok_or(io::ErrorKind::NotConnected)?.into_inner();
        let interest = if is_full { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        self.stream = Some(register(stream, interest)?);
        self.is_full = is_full;
        // It reads again, and waits for the new reports.
        self.reader.take().into_iter().for_each(Waker::wake);
        Ok(())
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(&mut &UnixStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let Some(stream) = &self.stream else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
            if !self.is_full {
                // The sockets of tokio do the same, so that a task that writes much lets others run.
                let turn = ready!(coop::poll_proceed(cx));
                match write(&mut stream.get_ref()) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.set_full(true)?,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    result => {
                        turn.made_progress();
                        return Poll::Ready(result);
                    }
                }
                continue;
            }
            let mut ready = ready!(stream.poll_write_ready(cx))?;
            let Ok(result) = ready.try_io(|stream| write(&mut stream.get_ref())) else { continue };
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => {
                    self.set_full(false)?;
                    return Poll::Ready(result);
                }
            }
        }
    }
}

impl AsyncRead for UnixSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let Some(stream) = &this.stream else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
        let room = buf.initialize_unfilled_to(buf.remaining().min(MOST));
        loop {
            let Poll::Ready(ready) = stream.poll_read_ready(cx) else {
                match &mut this.reader {
                    Some(reader) => reader.clone_from(cx.waker()),
                    none => *none = Some(cx.waker().clone()),
                }
                return Poll::Pending;
            };
            let mut ready = ready?;
            match ready.try_io(|stream| stream.get_ref().read(room)) {
                Err(_) => {}
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Ok(Ok(read)) => {
                    if 0 < read && read < room.len() {
                        // There is no more. The next read need not ask the kernel to find that out.
                        ready.clear_ready();
                    }
                    buf.advance(read);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for UnixSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(cx, |stream| stream.write(buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, |stream| stream.write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = self.stream.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        match stream.get_ref().shutdown(std::net::Shutdown::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            result => Poll::Ready(result),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::timeout;

    use super::*;
    use crate::lifecycle::testing::Wakes;

    fn pair() -> (UnixSocket, tokio::net::UnixStream) {
        let (ours, theirs) = tokio::net::UnixStream::pair().unwrap();
        (UnixSocket::new(ours).unwrap(), theirs)
    }

    /// Writes until the client's buffer is full.
    fn fill(ours: &mut UnixSocket) -> usize {
        let (mut cx, mut written) = (Context::from_waker(Waker::noop()), 0);
        while let Poll::Ready(some) = Pin::new(&mut *ours).poll_write(&mut cx, &[7; 10_000]) {
            written += some.unwrap();
        }
        written
    }

    #[tokio::test]
    async fn bytes_pass_both_ways_through_full_buffers() {
        let (mut ours, mut theirs) = pair();
        let all: Vec<u8> = (0..3_000_000_u32).map(|index| (index % 251) as u8).collect();
        let expected = all.clone();
        let echo = crate::lifecycle::spawn("client", async move {
            let (mut seen, mut buf) = (Vec::new(), vec![0; 50_000]);
            while seen.len() < expected.len() {
                let read = theirs.read(&mut buf).await.unwrap();
                seen.extend_from_slice(&buf[..read]);
                tokio::task::yield_now().await;
            }
            assert!(seen == expected);
            theirs.write_all(&seen).await.unwrap();
            theirs.shutdown().await.unwrap();
        });
        let parts = [IoSlice::new(&all[..10]), IoSlice::new(&all[10..30])];
        assert_eq!(ours.write_vectored(&parts).await.unwrap(), 30);
        ours.write_all(&all[30..]).await.unwrap();
        let mut back = Vec::new();
        ours.read_to_end(&mut back).await.unwrap();
        assert!(back == all);
        echo.await.unwrap();
    }

    #[tokio::test]
    async fn a_client_that_reads_is_not_reported() {
        let (mut ours, mut theirs) = pair();
        let (wakes, waker) = Wakes::new();
        let (mut cx, mut room) = (Context::from_waker(&waker), [0; 10]);
        assert!(Pin::new(&mut ours).poll_read(&mut cx, &mut ReadBuf::new(&mut room)).is_pending());
        // A task without budget would be woken for that.
        coop::unconstrained(async {
            for _ in 0..100 {
                ours.write_all(b"event").await.unwrap();
                theirs.read_exact(&mut [0; 5]).await.unwrap();
                assert!(ours.stream.as_ref().unwrap().poll_write_ready(&mut cx).is_pending());
            }
        })
        .await;
        assert_eq!(wakes.count(), 0);
    }

    #[tokio::test]
    async fn writes_use_up_the_budget_of_the_task() {
        let (mut ours, _theirs) = pair();
        let writes = std::future::poll_fn(|cx| {
            let mut writes = 0;
            while writes < 1_000 && Pin::new(&mut ours).poll_write(cx, b"x").is_ready() {
                writes += 1;
            }
            Poll::Ready(writes)
        })
        .await;
        assert!((1..1_000).contains(&writes) && !ours.is_full, "{writes}");
    }

    #[tokio::test]
    async fn whoever_waits_for_data_gets_it_although_the_buffer_was_full() {
        let (ours, mut theirs) = pair();
        let (mut reading, mut writing) = tokio::io::split(ours);
        let reader = crate::lifecycle::spawn("reader", async move {
            let mut said = [0; 5];
            reading.read_exact(&mut said).await.unwrap();
            said
        });
        tokio::task::yield_now().await;
        let writer = crate::lifecycle::spawn("writer", async move { writing.write_all(&vec![1; 2_000_000]).await });
        while !writer.is_finished() {
            theirs.read_exact(&mut [0; 100_000]).await.ok();
        }
        writer.await.unwrap().unwrap();
        theirs.write_all(b"hello").await.unwrap();
        assert_eq!(timeout(Duration::from_secs(60), reader).await.unwrap().unwrap(), *b"hello");
    }

    #[tokio::test]
    async fn a_client_that_leaves_is_noticed_with_a_full_buffer_too() {
        let (mut ours, theirs) = pair();
        assert!(fill(&mut ours) > 10_000 && ours.is_full);
        drop(theirs);
        timeout(Duration::from_secs(60), ours.write_all(b"more")).await.unwrap().unwrap_err();
        let read = timeout(Duration::from_secs(60), ours.read(&mut [0; 10])).await.unwrap();
        assert!(read.is_err() || read.unwrap() == 0);
        ours.shutdown().await.ok();
    }
}
