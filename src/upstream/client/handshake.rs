//! How a connection comes about, and the task that it lives in.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper_util::rt::TokioTimer;
use tokio::time::{Instant, timeout};

use super::connect::{Io, Protocol};
use super::pool::{ConnectionId, Http2, Idle, Pool};
use crate::lifecycle;
use crate::upstream::error::{Cause, UpstreamError};

/// Runs hyper's own tasks where every task is run.
#[derive(Clone, Copy)]
struct Executor;

/// What a server allows before its SETTINGS have come.
const DEFAULT_STREAMS: usize = 100;

/// A connection's window in stream windows: no number of unread streams can use it up.
const WINDOW_STREAMS: u32 = 100;

/// A connection that takes longer than this to come about.
const SLOW: Duration = Duration::from_secs(1);

// === impl Pool ===

impl Pool {
    /// Whoever waits long for a connection is not the only one: the apiserver is looked for.
    pub(super) async fn connect(&self, offer_http2: bool) -> Result<(Io, Protocol), UpstreamError> {
        let mut connecting = pin!(self.connector.connect(offer_http2));
        if let Ok(connected) = timeout(SLOW, &mut connecting).await {
            return connected;
        }
        self.keeper.doubt();
        connecting.await
    }

    pub(super) async fn handshake2(&self, io: Io) -> Result<Http2, UpstreamError> {
        let stream_window = self.config.stream_window;
        let (sender, connection) = http2::Builder::new(Executor)
            .timer(TokioTimer::new())
            .initial_stream_window_size(stream_window)
            .initial_connection_window_size(stream_window.saturating_mul(WINDOW_STREAMS).min((1 << 31) - 1))
            .initial_max_send_streams(DEFAULT_STREAMS)
            .keep_alive_interval(self.config.ping_interval)
            .keep_alive_timeout(self.config.ping_timeout)
            .keep_alive_while_idle(true)
            .max_header_list_size(1 << 20)
            .handshake(io)
            .await
            .map_err(|error| UpstreamError::Request(Cause::new(error)))?;
        let max_streams = Arc::new(AtomicUsize::new(DEFAULT_STREAMS));
        let allowed = Arc::clone(&max_streams);
        self.run("upstream-connection", async move {
            let mut connection = Box::pin(connection);
            poll_fn(|cx| {
                let done = connection.as_mut().poll(cx);
                allowed.store(connection.current_max_send_streams(), Ordering::Relaxed);
                done
            })
            .await
        });
        Ok(Http2 { id: ConnectionId::next(), sender, in_flight: AtomicUsize::new(0), max_streams })
    }

    pub(super) async fn handshake1(&self, io: Io) -> Result<Idle, UpstreamError> {
        let request_error = |error: hyper::Error| UpstreamError::Request(Cause::new(error));
        let (mut sender, connection) =
            http1::Builder::new().max_buf_size(self.config.http1_buffer).handshake(io).await.map_err(request_error)?;
        self.run("upstream-connection", connection);
        // Ready once its task has run, which an idle one must have.
        sender.ready().await.map_err(request_error)?;
        Ok(Idle { id: ConnectionId::next(), sender, since: Instant::now() })
    }

    /// Runs a connection until it ends, and counts it meanwhile.
    pub(super) fn run(&self, name: &'static str, connection: impl Future<Output = hyper::Result<()>> + Send + 'static) {
        let metrics = Arc::clone(&self.metrics);
        let authority = Arc::clone(&self.connector.authority);
        let keeper = Arc::clone(&self.keeper);
        metrics.connections.fetch_add(1, Ordering::Relaxed);
        lifecycle::spawn(name, async move {
            if let Err(error) = connection.await {
                tracing::debug!(%authority, error = %Cause::new(error), "connection to the apiserver broke");
                keeper.doubt();
            }
            metrics.connections.fetch_sub(1, Ordering::Relaxed);
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
