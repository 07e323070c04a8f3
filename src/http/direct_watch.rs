//! A watch over HTTP/2 that writes the frames of its data itself. The library keeps the stream: it writes the head of the
//! response and its end, and notices when the client cancels it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};

use bytes::Buf as _;
use http::{Request, Response};
use http_body::Body as _;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::body::Body;
use super::clients::IsWatch;
use super::http2::Streams;
use super::http2_socket::Http2Socket;
use super::library_body::{LibraryBody, ToLibrary};
use super::{stream_tag, turn};
use crate::codec::Slices;
use crate::lifecycle::contained;
use crate::lifecycle::rounds::after_others;

/// The socket of a connection, for the library.
pub(super) struct SharedSocket<S>(Arc<Mutex<Http2Socket<S>>>);

/// The socket for the watches of the connection.
trait SendFrames: Send + Sync {
    /// See [`Http2Socket::poll_send`].
    fn poll_send(&self, waker: &Waker, stream: u32, data: &mut Slices) -> Poll<io::Result<Option<Slices>>>;

    /// See [`Http2Socket::poll_written`].
    fn poll_written(&self, waker: &Waker, stream: u32) -> Poll<usize>;

    /// See [`Http2Socket::is_worn`].
    fn is_worn(&self) -> bool;
}

/// Watches hold an [`Arc`] of this. That takes one pointer, and an `Arc` of a trait object takes two.
type Socket = Arc<dyn SendFrames>;

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

/// A watch on a stream. It asks its body for more only when the last frame was sent (back-pressure). Ready when the watch
/// has ended. Its connection must run it, and drop it when it ends.
pub(super) struct DirectWatch {
    body: Body,
    /// What was not sent of the last frame of `body`. Boxed, because it is seldom there, and an idle watch should be small.
    rest: Option<Box<Rest>>,
    socket: Arc<Socket>,
    library: ToLibrary,
}

/// One of both is not empty.
#[derive(Default)]
struct Rest {
    /// What the library was given and may not have written yet. Nothing else is sent before.
    given: Slices,
    unsent: Slices,
}

/// The most frames that a watch writes before others have their turn. How many bytes they have together, a [`turn`] bounds.
const FRAMES: usize = 8;

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
            self.streams.run(DirectWatch { body, rest: None, socket, library });
            Body::new(end)
        })
    }
}

// === impl DirectWatch ===

impl DirectWatch {
    /// The next data of the body. `None` if the watch has ended, and the library will send its end.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Slices>> {
        if let Some(rest) = self.rest.take() {
            return Poll::Ready(Some(rest.unsent));
        }
        // The other streams of the connection go on.
        let polled = contained("watch", || Pin::new(&mut self.body).poll_frame(cx));
        let panicked = || Poll::Ready(Some(Err("the watch has panicked".into())));
        let last = match ready!(polled.unwrap_or_else(panicked)) {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => return Poll::Ready(Some(data)),
                Err(trailers) => Some(Ok(trailers)),
            },
            other => other,
        };
        self.library.end(last);
        Poll::Ready(None)
    }

    /// Ready when the library has written what it was given. What it must not write any more is sent again.
    fn poll_written(&mut self, cx: &Context<'_>) -> Poll<()> {
        let Some(rest) = self.rest.as_mut().filter(|rest| !rest.given.is_empty()) else { return Poll::Ready(()) };
        let returned = ready!(self.socket.poll_written(cx.waker(), self.library.stream()));
        let mut unsent = std::mem::take(&mut rest.given);
        unsent.advance(unsent.len() - returned);
        unsent.append(std::mem::take(&mut rest.unsent));
        self.rest = Rest::of(Slices::new(), unsent);
        Poll::Ready(())
    }

    fn poll_frames(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..FRAMES {
            ready!(self.poll_written(cx));
            let most = turn::left();
            if most == 0 {
                break;
            }
            let Some(mut data) = ready!(self.poll_data(cx)) else { return Poll::Ready(()) };
            let mut now = data.split_to(most.min(data.len()));
            let len = now.len();
            let sent = self.socket.poll_send(cx.waker(), self.library.stream(), &mut now);
            turn::wrote(len - now.len());
            now.append(data);
            let (sent, given) = match sent {
                Poll::Ready(Ok(Some(given))) => (Poll::Ready(Ok(())), given),
                other => (other.map_ok(|_| ()), Slices::new()),
            };
            if !given.is_empty() {
                self.library.give(given.clone());
            }
            self.rest = Rest::of(given, now);
            if let Err(error) = ready!(sent) {
                self.library.end(Some(Err(error.into())));
                return Poll::Ready(());
            }
        }
        after_others(cx.waker());
        Poll::Pending
    }
}

impl Rest {
    fn of(given: Slices, unsent: Slices) -> Option<Box<Self>> {
        (!given.is_empty() || !unsent.is_empty()).then(|| Box::new(Self { given, unsent }))
    }
}

impl Future for DirectWatch {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.poll_frames(cx).is_ready() || self.library.is_gone(cx) {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

#[cfg(test)]
#[path = "direct_watch_tests.rs"]
mod tests;
