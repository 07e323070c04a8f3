//! The body of a watch over HTTP/2 that writes the frames of its data itself. The library keeps the stream: it writes the
//! head of the response and its end, and notices when the client cancels it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::body::{Body, BoxError};
use super::clients::IsWatch;
use super::http2;
use super::stream_tag;
use super::write_coalescer::WriteCoalescer;
use crate::codec::Slices;

/// The socket of a connection, for the library.
pub(super) struct SharedSocket<S>(Arc<Mutex<WriteCoalescer<S>>>);

/// The same for the streams of the connection, which do not keep it open.
pub(super) struct WatchSocket<S>(Weak<Mutex<WriteCoalescer<S>>>);

/// A stream, from its request to the head of the response.
pub(super) struct WatchStream<S> {
    socket: Weak<Mutex<WriteCoalescer<S>>>,
    /// `None` if no watch can write to the stream.
    id: Option<u32>,
}

struct DirectBody<S> {
    inner: Body,
    /// What was not sent of the last frame of `inner`.
    rest: Slices,
    socket: Weak<Mutex<WriteCoalescer<S>>>,
    stream: u32,
}

/// The most frames that a watch writes before others have their turn.
const FRAMES: usize = 8;

// === impl SharedSocket ===

impl<S> SharedSocket<S> {
    pub(super) fn new(socket: WriteCoalescer<S>) -> Self {
        Self(Arc::new(Mutex::new(socket)))
    }

    pub(super) fn for_watches(&self) -> WatchSocket<S> {
        WatchSocket(Arc::downgrade(&self.0))
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

// === impl WatchSocket ===

impl<S> WatchSocket<S> {
    /// Must be called with each request, before a handler gets it.
    pub(super) fn stream<B>(&self, request: &mut Request<B>) -> WatchStream<S> {
        WatchStream { socket: Weak::clone(&self.0), id: stream_tag::take(request.headers_mut()) }
    }
}

// === impl WatchStream ===

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> WatchStream<S> {
    /// The response for the library. The connection runs the body of a watch, and the body writes its frames.
    pub(super) fn answer(self, response: Response<Body>) -> Response<Body> {
        if response.extensions().get::<IsWatch>().is_none() {
            return response;
        }
        http2::hand_over();
        let Self { socket, id: Some(stream) } = self else { return response };
        response.map(|inner| Body::new(DirectBody { inner, rest: Slices::new(), socket, stream }))
    }
}

// === impl DirectBody ===

impl<S: AsyncRead + AsyncWrite + Unpin + Send> http_body::Body for DirectBody<S> {
    type Data = Slices;
    type Error = BoxError;

    /// Returns the data that the library has to send. The body ends once all of its data is written.
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Slices>, BoxError>>> {
        let Self { inner, rest, socket, stream } = &mut *self;
        for _ in 0..FRAMES {
            if rest.is_empty() {
                let frame = match ready!(http_body::Body::poll_frame(Pin::new(&mut *inner), cx)) {
                    Some(Ok(frame)) => frame.into_data(),
                    other => return Poll::Ready(other),
                };
                match frame {
                    Ok(data) => *rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                }
            }
            let Some(socket) = socket.upgrade() else { return Poll::Ready(None) };
            let for_library = ready!(socket.lock().poll_send(cx.waker(), *stream, rest));
            if let Some(data) = for_library? {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, rest) = (http_body::Body::size_hint(&self.inner), self.rest.len() as u64);
        let mut with_rest = SizeHint::new();
        with_rest.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            with_rest.set_upper(upper + rest);
        }
        with_rest
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && http_body::Body::is_end_stream(&self.inner)
    }
}

#[cfg(test)]
#[path = "direct_body_tests.rs"]
mod tests;
