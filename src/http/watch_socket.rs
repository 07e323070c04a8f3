//! The socket of a connection over HTTP/2: the library and the watches of the connection share it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use http::{Request, Response};
use http_body::Body as _;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::body::Body;
use super::clients::IsWatch;
use super::direct_watch::{DirectWatch, SendFrames, Socket};
use super::http2::Streams;
use super::http2_socket::Http2Socket;
use super::library_body::LibraryBody;
use super::stream_tag;
use crate::codec::Slices;

/// The socket of a connection, for the library.
pub(super) struct SharedSocket<S>(Arc<Mutex<Http2Socket<S>>>);

/// Finds out which requests are watches.
pub(super) struct WatchSocket {
    socket: Arc<Socket>,
    streams: Streams,
}

/// A stream, from its request to the head of the response. It does not keep the connection open.
pub(super) struct WatchStream {
    socket: Weak<Socket>,
    streams: Streams,
    /// `None` if no watch can write to the stream.
    id: Option<u32>,
}

// === impl SharedSocket ===

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> SharedSocket<S> {
    pub(super) fn new(socket: Http2Socket<S>) -> Self {
        Self(Arc::new(Mutex::new(socket)))
    }

    /// `streams` must be those of the connection.
    pub(super) fn for_watches(&self, streams: Streams) -> WatchSocket {
        let socket = Arc::new(Arc::clone(&self.0) as Socket);
        WatchSocket { socket, streams }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for SharedSocket<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock()).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SharedSocket<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.lock()).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.lock()).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock()).poll_shutdown(cx)
    }
}

impl<S: AsyncWrite + Unpin + Send> SendFrames for Mutex<Http2Socket<S>> {
    fn poll_send(&self, waker: &Waker, stream: u32, data: &mut Slices) -> Poll<io::Result<Option<Slices>>> {
        self.lock().poll_send(waker, stream, data)
    }

    fn poll_written(&self, waker: &Waker, stream: u32) -> Poll<usize> {
        self.lock().poll_written(waker, stream)
    }

    fn is_worn(&self) -> bool {
        self.lock().is_worn()
    }
}

// === impl WatchSocket ===

impl WatchSocket {
    /// Must be called with each request, before a handler gets it.
    pub(super) fn stream<B>(&self, request: &mut Request<B>) -> WatchStream {
        let id = stream_tag::take(request.headers_mut());
        WatchStream { socket: Arc::downgrade(&self.socket), streams: self.streams.clone(), id }
    }

    /// See [`Http2Socket::is_worn`].
    pub(super) fn is_worn(&self) -> bool {
        self.socket.is_worn()
    }
}

// === impl WatchStream ===

impl WatchStream {
    /// The response for the library. The connection runs the body of a watch.
    pub(super) fn answer(self, response: Response<Body>) -> Response<Body> {
        let is_direct = response.extensions().get::<IsWatch>().is_some()
            && !response.body().is_end_stream()
            && response.body().size_hint().exact().is_none();
        let (Some(socket), Some(stream), true) = (self.socket.upgrade(), self.id, is_direct) else { return response };
        response.map(|body| {
            let (library, end) = LibraryBody::new(stream);
            self.streams.run(DirectWatch::new(body, socket, library));
            Body::new(end)
        })
    }
}
