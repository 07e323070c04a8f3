//! The copies in an answer that its client has not taken yet.
//!
//! The bytes of plain objects are shared, so an unread answer costs next to nothing. The bytes of a packed object are
//! unpacked for one answer, and indented text is made for one. Such copies live until the connection has written them,
//! and a library may hold several frames of a slow client. So an answer makes a frame with copies only after its last
//! one was taken, and the frame is small if memory is not plentiful.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

use crate::codec::Slices;
use crate::memory::{Ledger, Reservation};

/// The copies of one answer.
pub(super) struct Copies {
    ledger: Ledger,
    /// `None` before the first frame with copies.
    held: Option<Arc<Held>>,
    /// The copies in the frame that is being made, and the memory for them.
    bytes: usize,
    /// Boxed, because thousands of idle watches have none.
    reservation: Option<Box<Reservation>>,
}

/// The frames with copies that were made and not taken.
#[derive(Default)]
struct Held {
    frames: AtomicUsize,
    taken: AtomicWaker,
}

/// Is dropped with its frame.
struct Frame {
    held: Arc<Held>,
    _reservation: Option<Box<Reservation>>,
}

/// The most bytes of copies in a frame. The copy that reaches the limit is the last one.
pub(super) const MOST: usize = 64 << 10;

/// The same if memory is not plentiful. So much is not accounted for, and no answer waits for it.
const FEW: usize = 16 << 10;

// === impl Copies ===

impl Copies {
    pub(super) fn new(ledger: &Ledger) -> Self {
        Self { ledger: ledger.clone(), held: None, bytes: 0, reservation: None }
    }

    /// Ready once the frames that were made are taken.
    pub(super) fn poll_taken(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(held) = &self.held else { return Poll::Ready(()) };
        if held.frames.load(Ordering::Acquire) > 0 {
            held.taken.register(cx.waker());
            // The last one may have been taken before the waker was there.
            if held.frames.load(Ordering::Acquire) > 0 {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    /// Counts a copy that is about to be made for a frame.
    pub(super) fn add(&mut self, bytes: usize) {
        if self.bytes == 0 {
            self.reservation = self.ledger.spare(MOST.max(bytes)).ok().map(Box::new);
        }
        self.bytes += bytes;
    }

    /// Whether the frame must end.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= if self.reservation.is_some() || self.bytes == 0 { MOST } else { FEW }
    }

    /// Counts the copies until this frame, which contains them, is taken.
    pub(super) fn hold(&mut self, mut frame: Slices) -> Slices {
        if std::mem::take(&mut self.bytes) > 0 {
            let held = self.held.get_or_insert_default();
            held.frames.fetch_add(1, Ordering::Relaxed);
            frame.hold(Frame { held: Arc::clone(held), _reservation: self.reservation.take() });
        }
        frame
    }
}

// === impl Frame ===

impl Drop for Frame {
    fn drop(&mut self) {
        if self.held.frames.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.held.taken.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::task::{Wake, Waker};

    use bytes::{Buf as _, Bytes};

    use super::*;
    use crate::memory::Pressure;

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn frame() -> Slices {
        [Bytes::from(vec![1; 100]), Bytes::from(vec![2; 100])].into_iter().collect()
    }

    #[test]
    fn a_frame_is_counted_until_its_last_byte_is_taken() {
        let ledger = Ledger::new(4 * MOST, Pressure::default());
        let mut copies = Copies::new(&ledger);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        assert!(copies.poll_taken(&mut cx).is_ready());
        copies.add(200);
        let mut frame = copies.hold(frame());
        assert!(copies.poll_taken(&mut cx).is_pending());
        frame.advance(199);
        assert!(copies.poll_taken(&mut cx).is_pending() && !woken.0.load(Ordering::Relaxed));
        assert_eq!((frame.chunk(), ledger.used()), (&[2][..], MOST));
        frame.advance(1);
        assert!(copies.poll_taken(&mut cx).is_ready() && woken.0.load(Ordering::Relaxed));
        assert_eq!(ledger.used(), 0);
    }

    #[test]
    fn a_frame_without_copies_is_not_counted() {
        let ledger = Ledger::new(4 * MOST, Pressure::default());
        let mut copies = Copies::new(&ledger);
        let _frame = copies.hold(frame());
        assert!(copies.poll_taken(&mut Context::from_waker(Waker::noop())).is_ready());
        assert_eq!(ledger.used(), 0);
    }

    #[test]
    fn frames_are_small_without_memory() {
        let full = |ledger: &Ledger| {
            let mut copies = Copies::new(ledger);
            while !copies.is_full() {
                copies.add(1 << 10);
            }
            copies.bytes
        };
        assert_eq!(full(&Ledger::default()), MOST);
        let short = Ledger::new(2 * MOST - 1, Pressure::default());
        assert_eq!((full(&short), short.refused()), (FEW, 0));
    }
}
