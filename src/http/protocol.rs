//! The two HTTP protocols of connections, each with its limits.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::HttpService;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use super::body::{Body, BoxError};
use super::config::{ConnectionLimits, HttpConfig};
use super::handlers::at_once;
use super::http1::{Handover, Http1};
use super::http2::{Http2, Streams};
use super::http2_socket::Http2Socket;
use super::io::Bounded;
use super::metrics::HttpMetrics;
use super::open_head::OpenHead;
use super::serving::Serving;
use super::stream_tag;
use super::watch_shards::WatchShards;
use super::watch_socket::{SharedSocket, WatchSocket};

/// Clients hold hundreds of watches on one connection, so the library's 200 streams are too few. The HTTP library makes
/// the state of each stream before any limit of ours sees it, so there are fewer where memory is small.
const MAX_CONCURRENT_STREAMS: usize = 2000;
/// The streams for each request that is handled at once.
const STREAMS_FOR_EACH: usize = 8;
/// The most bytes of a request's body that may come before they are read, and the least.
const STREAM_WINDOWS: RangeInclusive<usize> = 64 << 10..=256 << 10;
/// The same for all bodies of a connection. The library keeps them, and some more for frames that are small, so they are
/// fewer where memory is small. The bodies of several requests that nobody reads leave room for others.
const CONNECTION_WINDOWS: RangeInclusive<usize> = 512 << 10..=8 << 20;
/// A connection may use this part of the memory for answers for them.
const WINDOWS: usize = 64;
pub(super) const MAX_HEADER_LIST: u32 = 1 << 20;
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// The most bytes that one HTTP/2 stream may hold of a body that the client does not read.
const MAX_SEND_BUFFER: usize = 128 << 10;
/// The largest request head over HTTP/1, as in Go's server.
pub(super) const MAX_HEAD: usize = (1 << 20) + 4096;
/// The most headers over HTTP/1. A client that impersonates sends each group in its own header. Go's server limits only
/// the bytes.
pub(super) const MAX_HEADERS: usize = 2000;
/// A client that drops all its watches at once resets this many streams before the server has looked at them.
const MAX_PENDING_RESETS: usize = 256;

/// The most bytes of a head that are read. `limits`: `None` for those above.
pub(super) fn largest_head(limits: Option<ConnectionLimits>) -> usize {
    limits.map_or(MAX_HEAD, |limits| limits.head as usize)
}

/// The limits of a connection where the settings have none. `memory`: what all answers may take.
pub(super) fn default_limits(memory: usize) -> ConnectionLimits {
    let within = |value: usize, range: RangeInclusive<usize>| value.clamp(*range.start(), *range.end()) as u32;
    ConnectionLimits {
        streams: (STREAMS_FOR_EACH * at_once(memory)).min(MAX_CONCURRENT_STREAMS) as u32,
        stream_window: within(memory / WINDOWS / 8, STREAM_WINDOWS),
        connection_window: within(memory / WINDOWS, CONNECTION_WINDOWS),
        head: MAX_HEADER_LIST,
    }
}

/// How connections are served.
pub(super) struct Protocols {
    http1: http1::Builder,
    shards: WatchShards,
}

// === impl Protocols ===

impl Protocols {
    pub(super) fn new(config: &HttpConfig) -> Self {
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(config.header_read_timeout)
            .max_buf_size(largest_head(config.limits))
            .max_headers(MAX_HEADERS);
        Self { http1, shards: WatchShards::default() }
    }

    /// The service must pass its answers through `handover`.
    pub(super) fn http1<I, S>(&self, stream: Bounded<I>, handover: Arc<Handover>, service: S) -> impl Serving
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: HttpService<Incoming, ResBody = Body> + Clone + Unpin,
        S::Error: Into<BoxError>,
    {
        Http1::new(&self.http1, &self.shards, stream, handover, service)
    }

    /// The service must pass its requests and answers through what `service` gets.
    pub(super) fn http2<I, S>(
        stream: Bounded<I>,
        head: OpenHead,
        metrics: &Arc<HttpMetrics>,
        limits: ConnectionLimits,
        service: impl FnOnce(WatchSocket) -> S,
    ) -> impl Serving
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: HttpService<Incoming, ResBody = Body>,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
    {
        let streams = Streams::default();
        let mut http2 = http2::Builder::new(streams.clone());
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams)
            .initial_stream_window_size(limits.stream_window)
            .initial_connection_window_size(limits.connection_window)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .max_send_buf_size(MAX_SEND_BUFFER)
            .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
            .max_header_list_size(limits.head + stream_tag::SIZE);
        let socket = Http2Socket::new(stream, streams.waker(), Arc::clone(metrics)).reserving(head);
        let socket = SharedSocket::new(socket);
        let service = service(socket.for_watches(streams.clone()));
        Http2::new(&http2, streams, TokioIo::new(socket), service)
    }
}
