//! A watch over HTTP/2 that writes the frames of its data itself. The library keeps the stream: it writes the head of the
//! response and its end, and notices when the client cancels it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Buf as _;
use http_body::Body as _;

use super::body::Body;
use super::library_body::ToLibrary;
use super::turn;
use crate::codec::Slices;
use crate::lifecycle::contained;
use crate::lifecycle::rounds::after_others;

/// The socket for the watches of the connection.
pub(super) trait SendFrames: Send + Sync {
    /// See [`super::Http2Socket::poll_send`].
    fn poll_send(&self, waker: &Waker, stream: u32, data: &mut Slices) -> Poll<io::Result<Option<Slices>>>;

    /// See [`super::Http2Socket::poll_written`].
    fn poll_written(&self, waker: &Waker, stream: u32) -> Poll<usize>;

    /// See [`super::Http2Socket::is_worn`].
    fn is_worn(&self) -> bool;
}

/// Watches hold an [`Arc`] of this. That takes one pointer, and an `Arc` of a trait object takes two.
pub(super) type Socket = Arc<dyn SendFrames>;

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

// === impl DirectWatch ===

impl DirectWatch {
    pub(super) fn new(body: Body, socket: Arc<Socket>, library: ToLibrary) -> Self {
        Self { body, rest: None, socket, library }
    }

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
