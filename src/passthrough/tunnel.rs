//! Two upgraded connections as one pipe.

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

/// What one direction may have under way.
const BUFFER: usize = 32 << 10;
/// How long the message that is on its way may take, and the last word to a client that reads nothing.
const PARTING: Duration = Duration::from_secs(5);

/// Runs once the 101 is on its way to the client. It has no time limit of its own: a session may stand still for hours.
#[must_use = "the session starts when it is run"]
#[derive(Debug)]
pub struct Tunnel {
    pub(super) client: OnUpgrade,
    pub(super) upstream: OnUpgrade,
    /// A watch over a WebSocket shows revisions.
    pub(super) _observation: Option<Observation>,
}

// === impl Tunnel ===

impl Tunnel {
    /// Copies both ways until both sides are done. When one says that it will send no more, the other is told so and
    /// may go on sending.
    ///
    /// # Errors
    /// One of the connections broke, or was never upgraded.
    pub async fn run(self) -> io::Result<()> {
        let (client, upstream) = upgraded(self.client, self.upstream).await?;
        let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
        copy_bidirectional_with_sizes(&mut client, &mut upstream, BUFFER, BUFFER).await.map(|_| ())
    }

    /// [`Self::run`] for a watch over a WebSocket, until it is `over`: the client gets the message that is on its way, the
    /// one that `over` names, if it takes text, and the end.
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

/// Who ended the events.
enum End {
    Upstreams,
    Ours,
}

/// Copies what the apiserver sends, and ends between two messages when it is to end.
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
