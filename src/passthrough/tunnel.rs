//! Connects two upgraded connections to one pipe.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, copy_bidirectional_with_sizes, split};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::observe::Observation;
use super::websocket::{self, Messages};

/// The most bytes in flight per direction.
const BUFFER: usize = 32 << 10;
/// How long the current message may take, and also the last message to a client that reads nothing.
const PARTING: Duration = Duration::from_secs(5);

/// Must be run once the 101 is sent to the client. It has no timeout of its own: a session may be idle for hours.
#[must_use = "the session starts when it is run"]
pub struct Tunnel {
    pub(super) client: OnUpgrade,
    pub(super) upstream: OnUpgrade,
    /// A watch over a WebSocket shows revisions, so it is observed.
    pub(super) _observation: Option<Observation>,
}

// === impl Tunnel ===

impl Tunnel {
    /// Copies in both directions until both sides are done. If one side ends its stream, the other side sees the end
    /// and may go on sending.
    ///
    /// # Errors
    /// One of the connections broke, or was never upgraded.
    pub async fn run(self) -> io::Result<()> {
        let (client, upstream) = upgraded(self.client, self.upstream).await?;
        let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
        copy_bidirectional_with_sizes(&mut client, &mut upstream, BUFFER, BUFFER).await.map(|_| ())
    }

    /// Like [`Self::run`], for a watch over a WebSocket, until `over` completes. Then the client gets the rest of the
    /// current message, the message that `over` returned if the messages are text, and the close.
    ///
    /// # Errors
    /// One of the connections broke, or was never upgraded.
    pub async fn run_until(self, over: impl Future<Output = Option<Bytes>>) -> io::Result<()> {
        let (client, upstream) = upgraded(self.client, self.upstream).await?;
        pipe_until(TokioIo::new(client), TokioIo::new(upstream), over).await
    }
}

async fn upgraded(client: OnUpgrade, upstream: OnUpgrade) -> io::Result<(Upgraded, Upgraded)> {
    tokio::try_join!(client, upstream).map_err(|error| io::Error::other(error.to_string()))
}

async fn pipe_until<C, U>(client: C, upstream: U, over: impl Future<Output = Option<Bytes>>) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite,
    U: AsyncRead + AsyncWrite,
{
    let ((mut from_client, mut to_client), (mut from_upstream, mut to_upstream)) = (split(client), split(upstream));
    let requests = async {
        copy(&mut from_client, &mut to_upstream).await?;
        to_upstream.shutdown().await
    };
    let (mut requests, events) = (pin!(requests), events(&mut from_upstream, &mut to_client, over));
    let mut events = pin!(events);
    tokio::select! {
        ended = &mut events => match ended? {
            End::Upstreams => requests.await,
            End::Ours => Ok(()),
        },
        ended = &mut requests => {
            ended?;
            events.await.map(|_| ())
        }
    }
}

/// The side that ended the events.
enum End {
    Upstreams,
    Ours,
}

/// Copies the data of the apiserver. When `over` completes, it ends between two messages.
async fn events(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    over: impl Future<Output = Option<Bytes>>,
) -> io::Result<End> {
    let mut over = pin!(over);
    let mut messages = Messages::default();
    let mut buffer = vec![0; BUFFER];
    let (last, deadline) = loop {
        let read = tokio::select! {
            biased;
            last = &mut over => break (last, Instant::now() + PARTING),
            read = from.read(&mut buffer) => read?,
        };
        if read == 0 {
            to.shutdown().await?;
            return Ok(End::Upstreams);
        }
        messages.follow(&buffer[..read]);
        let mut writing = pin!(write(to, &buffer[..read]));
        tokio::select! {
            written = &mut writing => written?,
            last = &mut over => {
                let deadline = Instant::now() + PARTING;
                timeout_at(deadline, writing).await??;
                break (last, deadline);
            }
        }
    };
    while !messages.is_between() {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read?,
            () = sleep_until(deadline) => 0,
        };
        if read == 0 {
            return Ok(End::Ours);
        }
        let rest = messages.follow_to_end(&buffer[..read]);
        timeout_at(deadline, write(to, &buffer[..rest])).await??;
    }
    let parting = websocket::parting(last.as_deref(), messages.are_text());
    timeout_at(deadline, async {
        to.write_all(&parting).await?;
        to.shutdown().await
    })
    .await??;
    Ok(End::Ours)
}

async fn write(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}

#[cfg(test)]
#[path = "tunnel_tests.rs"]
mod tests;
