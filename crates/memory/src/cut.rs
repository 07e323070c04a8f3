//! What of an answer its client has not taken, and the end of an answer from outside of its body. A body is not asked for
//! more while its client takes nothing, so it cannot end itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

/// In the extensions of an answer: whoever sends the answer drops its stream, or the connection over HTTP/1.1, once this is
/// cut.
#[derive(Clone, Debug, Default)]
pub struct Cut(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_cut: AtomicBool,
    sender: AtomicWaker,
    /// The bytes that were handed out and are still in memory.
    out: AtomicUsize,
    /// Waits until fewer of them are out.
    reader: AtomicWaker,
    /// Waits until none is.
    end: AtomicWaker,
}

// === impl Cut ===

impl Cut {
    pub fn cut(&self) {
        self.0.is_cut.store(true, Ordering::Release);
        self.0.sender.wake();
        self.0.reader.wake();
    }

    pub fn is_cut(&self) -> bool {
        self.0.is_cut.load(Ordering::Acquire)
    }

    pub fn out(&self) -> usize {
        self.0.out.load(Ordering::Acquire)
    }

    /// Bytes are handed out. Returns how many were out before.
    pub fn give(&self, bytes: usize) -> usize {
        self.0.out.fetch_add(bytes, Ordering::AcqRel)
    }

    pub fn taken(&self, bytes: usize) {
        self.0.out.fetch_sub(bytes, Ordering::AcqRel);
        self.0.reader.wake();
        self.0.end.wake();
    }

    /// Ready while fewer bytes than this are out.
    pub fn poll_room(&self, cx: &Context<'_>, window: usize) -> Poll<()> {
        if self.out() < window {
            return Poll::Ready(());
        }
        self.0.reader.register(cx.waker());
        // Check again: they may have gone before the waker was registered.
        if self.out() < window { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Ready once nothing is out.
    pub fn poll_taken(&self, cx: &Context<'_>) -> Poll<()> {
        self.0.end.register(cx.waker());
        if self.out() == 0 { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Ready once it is cut.
    pub fn poll_cut(&self, cx: &Context<'_>) -> Poll<()> {
        self.0.sender.register(cx.waker());
        if self.is_cut() { Poll::Ready(()) } else { Poll::Pending }
    }
}
