//! Establishes connections, and runs the task of each connection.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tokio_util::io::InspectReader;

use super::connect::{Protocol, Wanted};
use super::connection::{Connected, ConnectionId, Http2, Idle};
use super::io::Io;
use super::lease::Connections;
use super::request_body::ReqBody;
use super::sender::Sender;
use crate::error::{Cause, UpstreamError};
use informerd_lifecycle::{self as lifecycle, tied::Knot};

/// Runs hyper's own tasks with the daemon's task spawner.
#[derive(Clone, Copy)]
struct Executor;

/// The assumed limit of concurrent streams before the server's SETTINGS arrive.
const DEFAULT_STREAMS: usize = 100;

/// The window of a connection, in stream windows. It is larger than all unread streams together can use.
const WINDOW_STREAMS: u32 = 100;

/// The largest head of an answer. The apiserver repeats the longest headers of a request, which the largest of those have
/// room for.
pub(super) const MAX_HEADER_LIST: u32 = (1 << 20) + (64 << 10);

/// A connection attempt that takes longer counts as slow.
const SLOW: Duration = Duration::from_secs(1);

/// Maximum number of concurrent attempts to make one connection.
const ATTEMPTS: usize = 3;

// === impl Connections ===

impl Connections {
    /// Makes a connection. An attempt may hang or just be slow. So it continues, and another one begins in parallel
    /// whenever the apiserver answers on another connection; the first one that succeeds is used.
    ///
    /// Returns `None` if there is a usable connection by then.
    ///
    /// # Errors
    /// The error of the last attempt, once none is running.
    pub(super) async fn dial(&self, wanted: Wanted) -> Result<Option<Connected>, UpstreamError> {
        let mut found = self.keeper.found.subscribe();
        let attempt = || Box::pin(self.connect(wanted));
        let mut attempts = FuturesUnordered::from_iter([attempt()]);
        loop {
            tokio::select! {
                Some(result) = attempts.next() => match result {
                    Err(_) if !attempts.is_empty() => {}
                    result => return result.map(Some),
                },
                // The sender is owned by the keeper.
                _ = found.changed() => {
                    if !self.must_dial(wanted) {
                        return Ok(None);
                    }
                    if attempts.len() < ATTEMPTS {
                        attempts.push(attempt());
                    }
                }
            }
        }
    }

    /// Connects. If that takes longer than [`SLOW`], the client also looks for the apiserver.
    async fn connect(&self, wanted: Wanted) -> Result<Connected, UpstreamError> {
        let mut connecting = pin!(self.establish(wanted));
        if let Ok(connected) = timeout(SLOW, &mut connecting).await {
            return connected;
        }
        self.keeper.doubt();
        connecting.await
    }

    /// Connects and negotiates the protocol.
    pub(super) async fn establish(&self, wanted: Wanted) -> Result<Connected, UpstreamError> {
        let (io, protocol) = self.connector.connect(wanted).await?;
        match protocol {
            Protocol::Http1 => self.handshake1(io).await.map(Connected::Http1),
            Protocol::Http2 => self.handshake2(io).await.map(Connected::Http2),
        }
    }

    /// Returns once the server has sent something; its first bytes are its SETTINGS (RFC 9113, 3.4). TLS counts as
    /// established as soon as our last bytes of the handshake are written, and these may be lost.
    async fn handshake2(&self, io: Io) -> Result<Http2, UpstreamError> {
        let (speak, spoken) = oneshot::channel();
        let mut speak = Some(speak);
        let io = TokioIo::new(InspectReader::new(io.into_inner(), move |bytes: &[u8]| {
            if !bytes.is_empty()
                && let Some(speak) = speak.take()
            {
                speak.send(()).ok();
            }
        }));
        let config = &self.connector.config;
        let (sender, connection) = http2::Builder::new(Executor)
            .timer(TokioTimer::new())
            .initial_stream_window_size(config.stream_window)
            .initial_connection_window_size(config.stream_window.saturating_mul(WINDOW_STREAMS).min((1 << 31) - 1))
            .initial_max_send_streams(DEFAULT_STREAMS)
            .keep_alive_interval(config.ping_interval)
            .keep_alive_timeout(config.ping_timeout)
            .keep_alive_while_idle(true)
            .max_header_list_size(MAX_HEADER_LIST)
            .handshake(io)
            .await
            .map_err(|error| UpstreamError::Request(Cause::new(error)))?;
        let max_streams = Arc::new(AtomicUsize::new(DEFAULT_STREAMS));
        let allowed = Arc::clone(&max_streams);
        let (sender, knot) = Sender::new(sender);
        let connection = async move {
            let mut connection = Box::pin(connection);
            poll_fn(|cx| {
                let done = connection.as_mut().poll(cx);
                allowed.store(connection.current_max_send_streams(), Ordering::Relaxed);
                done
            })
            .await
        };
        self.run("upstream-connection", connection, knot);
        let after = config.connect_timeout;
        let late = |_elapsed| UpstreamError::Timeout { what: "waiting for the apiserver to speak HTTP/2", after };
        let ended =
            |_dropped| UpstreamError::Request(Cause::new("the connection ended before the apiserver spoke HTTP/2"));
        timeout(after, spoken).await.map_err(late)?.map_err(ended)?;
        Ok(Http2 { id: ConnectionId::next(), sender, in_flight: AtomicUsize::new(0), max_streams })
    }

    async fn handshake1(&self, io: Io) -> Result<Idle, UpstreamError> {
        let handshake = http1::Builder::new().max_buf_size(self.connector.config.http1_buffer).handshake(io).await;
        let (sender, connection) = handshake.map_err(|error| UpstreamError::Request(Cause::new(error)))?;
        let (sender, knot) = Sender::new(sender);
        self.run("upstream-connection", connection, knot);
        // An HTTP/1.1 connection is ready only after its task has run, and an idle one must be ready.
        sender.ready().await.map_err(UpstreamError::Request)?;
        Ok(Idle { id: ConnectionId::next(), sender, since: Instant::now() })
    }

    /// Connects for a session, which outlives its request.
    pub(super) async fn session(&self) -> Result<Sender<http1::SendRequest<ReqBody>>, UpstreamError> {
        let (io, _protocol) = self.connector.connect(Wanted::Session).await?;
        let handshake = http1::Builder::new().max_buf_size(self.connector.config.http1_buffer).handshake(io).await;
        let (sender, connection) = handshake.map_err(|error| UpstreamError::Request(Cause::new(error)))?;
        let (sender, knot) = Sender::new(sender);
        // How it ends says nothing about the apiserver: perhaps a pod behind that has ended it.
        self.run("upstream-upgrade", async move { connection.with_upgrades().await.or(Ok(())) }, knot);
        Ok(sender)
    }

    /// Runs a connection until it ends, and counts it while it is open. `knot` is that of its sender.
    fn run<S: Send + 'static>(
        &self,
        name: &'static str,
        connection: impl Future<Output = hyper::Result<()>> + Send + 'static,
        knot: Knot<S>,
    ) {
        let metrics = Arc::clone(&self.connector.metrics);
        let authority = Arc::clone(&self.connector.endpoint.authority);
        let keeper = Arc::clone(&self.keeper);
        metrics.connections.inc();
        lifecycle::spawn(name, async move {
            let result = connection.await;
            drop(knot);
            if let Err(error) = result.map_err(Cause::new) {
                tracing::debug!(%authority, %error, "connection to the apiserver broke");
                if !error.is_of_peer() {
                    keeper.doubt();
                }
            }
            metrics.connections.dec();
        });
    }
}

// === impl Executor ===

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        lifecycle::spawn("upstream-stream", future);
    }
}
