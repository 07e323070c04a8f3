//! The two HTTP protocols of connections, each with its limits.

use std::ops::RangeInclusive;
use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::HttpService;
use hyper_util::rt::TokioTimer;
use tokio::io::{AsyncRead, AsyncWrite};

use super::handlers::at_once;
use super::http1::{Handover, Http1};
use super::http2::{Answered, Http2};
use super::http2_socket::Http2Socket;
use super::io::Bounded;
use super::serving::Serving;
use super::watch_shards::WatchShards;
use crate::http::answer::{Body, BoxError, RequestBody};
use crate::http::door::{ConnectionLimits, HttpConfig, OpenHead};
use crate::http::record::HttpMetrics;

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
pub(in crate::http) const MAX_HEADER_LIST: u32 = 1 << 20;
/// The library takes another frame of a body that the client does not read while it holds fewer bytes of the stream than this.
const MAX_SEND_BUFFER: usize = 64 << 10;
/// The largest request head over HTTP/1, as in Go's server.
pub(in crate::http) const MAX_HEAD: usize = (1 << 20) + 4096;
/// The most headers over HTTP/1. A client that impersonates sends each group in its own header. Go's server limits only
/// the bytes.
pub(in crate::http) const MAX_HEADERS: usize = 2000;
/// A client that drops all its watches at once resets this many streams before the server has looked at them.
const MAX_PENDING_RESETS: usize = 256;

/// The most bytes of a head that are read. `limits`: `None` for those above.
pub(in crate::http) fn largest_head(limits: Option<ConnectionLimits>) -> usize {
    limits.map_or(MAX_HEAD, |limits| limits.head as usize)
}

/// The limits of a connection where the settings have none. `memory`: what all answers may take.
pub(in crate::http) fn default_limits(memory: usize) -> ConnectionLimits {
    let within = |value: usize, range: RangeInclusive<usize>| value.clamp(*range.start(), *range.end()) as u32;
    ConnectionLimits {
        streams: (STREAMS_FOR_EACH * at_once(memory)).min(MAX_CONCURRENT_STREAMS) as u32,
        stream_window: within(memory / WINDOWS / 8, STREAM_WINDOWS),
        connection_window: within(memory / WINDOWS, CONNECTION_WINDOWS),
        head: MAX_HEADER_LIST,
    }
}

/// How connections are served.
pub(in crate::http) struct Protocols {
    http1: http1::Builder,
    shards: WatchShards,
}

// === impl Protocols ===

impl Protocols {
    pub(in crate::http) fn new(config: &HttpConfig) -> Self {
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(config.header_read_timeout)
            .max_buf_size(largest_head(config.limits))
            .max_headers(MAX_HEADERS);
        Self { http1, shards: WatchShards::default() }
    }

    /// The service must pass its answers through `handover`.
    pub(in crate::http) fn http1<I, S>(&self, stream: Bounded<I>, handover: Arc<Handover>, service: S) -> impl Serving
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: HttpService<Incoming, ResBody = Body> + Clone + Unpin,
        S::Error: Into<BoxError>,
    {
        Http1::new(&self.http1, &self.shards, stream, handover, service)
    }

    /// See [`Http2::new`].
    pub(in crate::http) fn http2<I, F>(
        stream: Bounded<I>,
        head: OpenHead,
        metrics: &Arc<HttpMetrics>,
        limits: ConnectionLimits,
        begin: F,
    ) -> impl Serving
    where
        I: AsyncRead + AsyncWrite + Unpin,
        F: FnMut(Request<RequestBody>, bool) -> Option<Answered> + Unpin,
    {
        let mut http2 = h2::server::Builder::new();
        http2
            .max_concurrent_streams(limits.streams)
            .initial_window_size(limits.stream_window)
            .initial_connection_window_size(limits.connection_window)
            .max_send_buffer_size(MAX_SEND_BUFFER)
            .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
            .max_header_list_size(limits.head);
        Http2::new(&http2, Http2Socket::reserving(stream, head, Arc::clone(metrics)), begin)
    }
}
