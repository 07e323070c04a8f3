//! What the HTTP library sends of a watch that writes its own frames: the end of the stream, and the data that the watch
//! must not send itself.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http_body::{Body, Frame};
use parking_lot::Mutex;

use super::body::BoxError;
use crate::codec::Slices;

/// The library's side.
pub(super) struct LibraryBody(Arc<Mutex<Slot>>);

/// The side of the watch. If it is dropped before the end of the body, the body fails.
pub(super) struct ToLibrary {
    slot: Arc<Mutex<Slot>>,
    stream: u32,
    has_ended: bool,
}

/// Holds one frame. A watch waits until it is written.
#[derive(Default)]
struct Slot {
    /// Boxed, because it is seldom there, and an idle watch should be small.
    next: Option<Box<Next>>,
    library: Option<Waker>,
    watch: Option<Waker>,
    /// The library has dropped its side: the client has cancelled the stream, or the connection ends.
    is_gone: bool,
}

/// What the library polls.
type Next = Option<Result<Frame<Slices>, BoxError>>;

// === impl LibraryBody ===

impl LibraryBody {
    pub(super) fn new(stream: u32) -> (ToLibrary, Self) {
        let slot = Arc::<Mutex<Slot>>::default();
        (ToLibrary { slot: Arc::clone(&slot), stream, has_ended: false }, Self(slot))
    }
}

impl Body for LibraryBody {
    type Data = Slices;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Next> {
        let mut slot = self.0.lock();
        match slot.next.take() {
            Some(next) => Poll::Ready(*next),
            None => {
                slot.library = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for LibraryBody {
    fn drop(&mut self) {
        let mut slot = self.0.lock();
        slot.is_gone = true;
        let watch = slot.watch.take();
        drop(slot);
        watch.into_iter().for_each(Waker::wake);
    }
}

// === impl ToLibrary ===

impl ToLibrary {
    /// The identifier of the stream.
    pub(super) fn stream(&self) -> u32 {
        self.stream
    }

    /// Gives the library data to send. What was given before must be written.
    pub(super) fn give(&self, data: Slices) {
        self.put(Some(Ok(Frame::data(data))));
    }

    /// Ends the body, after what was given is written: with `None`, with trailers, or with an error.
    pub(super) fn end(&mut self, last: Next) {
        self.has_ended = true;
        self.put(last);
    }

    fn put(&self, next: Next) {
        let mut slot = self.slot.lock();
        slot.next = Some(Box::new(next));
        let library = slot.library.take();
        drop(slot);
        library.into_iter().for_each(Waker::wake);
    }

    /// Whether nobody needs the watch any more. The task is woken when that is so.
    pub(super) fn is_gone(&self, cx: &Context<'_>) -> bool {
        let mut slot = self.slot.lock();
        if !slot.watch.as_ref().is_some_and(|watch| watch.will_wake(cx.waker())) {
            slot.watch = Some(cx.waker().clone());
        }
        slot.is_gone
    }
}

impl Drop for ToLibrary {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(Some(Err("the watch was dropped before its end".into())));
        }
    }
}
