//! Back-pressure by memory: the copies in an answer that its client has not taken yet.
//!
//! The bytes of plain objects are shared, so an unread answer costs next to nothing. The bytes of a packed object are
//! unpacked for one answer, and metadata that is rewritten, rows with times, and indented text are made for one. Such
//! copies live until the connection has written them, and a library may hold several frames of a slow client. So an answer
//! makes a frame with copies only after its last one was taken, and reserves the memory before. Without memory, an answer
//! whose head is not sent yet is refused, and others wait.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::time::{Instant, Sleep, sleep};

use crate::codec::Slices;
use crate::memory::{Lack, Ledger, Level, Reservation, Short};

/// The copies of one answer.
pub(super) struct Copies {
    ledger: Ledger,
    /// `None` before the first frame with copies.
    held: Option<Arc<UntakenFrames>>,
    /// The memory for the copies in the frame that is being made. Boxed, because thousands of idle watches have none.
    reservation: Option<Box<Reservation>>,
}

/// The frames with copies that were made and not taken.
#[derive(Default)]
struct UntakenFrames {
    frames: AtomicUsize,
    taken: AtomicWaker,
}

/// Is dropped with its frame.
struct Frame {
    held: Arc<UntakenFrames>,
    _reservation: Box<Reservation>,
}

/// How long an answer has been waiting for memory.
#[derive(Default)]
pub(super) struct Waiting(Option<Box<Waits>>);

struct Waits {
    since: Instant,
    again: Pin<Box<Sleep>>,
}

/// The most bytes of copies in a frame, unless it has only one.
pub(super) const MOST: usize = 64 << 10;
/// The same if memory is not plentiful. So much is reserved even while it is short.
const FEW: usize = 16 << 10;
/// How long an answer waits for memory, and how long until it tries again.
const PATIENCE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(250);

// === impl Copies ===

impl Copies {
    pub(super) fn new(ledger: &Ledger) -> Self {
        Self { ledger: ledger.clone(), held: None, reservation: None }
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

    /// Whether there was a frame with copies.
    pub(super) fn any(&self) -> bool {
        self.held.is_some()
    }

    /// Whether the frame that is being made has none.
    pub(super) fn is_empty(&self) -> bool {
        self.reservation.is_none()
    }

    /// Reserves the memory for a copy that is about to be made for a frame.
    ///
    /// # Errors
    /// The frame must end before this copy, or there is no memory for it.
    pub(super) fn reserve(&mut self, bytes: usize) -> Result<(), Short> {
        if bytes == 0 {
            return Ok(());
        }
        let before = self.bytes();
        if before > 0 {
            let fits = before + bytes <= self.most() && self.grow(bytes);
            return if fits { Ok(()) } else { Err(Short { need: bytes, of: Lack::All }) };
        }
        if !self.grow(bytes) {
            self.reservation = self.ledger.last_copy(bytes).map(Box::new);
        }
        if self.reservation.is_none() {
            // Those who take nothing of their answers make room.
            self.ledger.ask_for_room();
            return Err(Short { need: bytes, of: Lack::All });
        }
        Ok(())
    }

    /// Reserves the memory of a whole frame. Returns its size.
    ///
    /// # Errors
    /// There is no memory.
    pub(super) fn reserve_frame(&mut self) -> Result<usize, Short> {
        if self.most() == MOST && self.grow(MOST) {
            return Ok(MOST);
        }
        self.reserve(FEW)?;
        Ok(FEW)
    }

    /// The frame that is being made has no more copies than this.
    pub(super) fn settle(&mut self, bytes: usize) {
        if let Some(reservation) = &mut self.reservation {
            reservation.shrink(reservation.bytes().saturating_sub(bytes));
        }
    }

    /// Counts the copies until this frame, which contains them, is taken.
    pub(super) fn hold(&mut self, mut frame: Slices) -> Slices {
        if let Some(reservation) = self.reservation.take() {
            let held = self.held.get_or_insert_default();
            held.frames.fetch_add(1, Ordering::Relaxed);
            frame.hold(Frame { held: Arc::clone(held), _reservation: reservation });
        }
        frame
    }

    /// Counts the copies as long as these bytes are here, from which frames are still to be made.
    pub(super) fn keep(&mut self, mut bytes: Slices) -> Slices {
        if let Some(reservation) = self.reservation.take() {
            bytes.hold(reservation);
        }
        bytes
    }

    fn bytes(&self) -> usize {
        self.reservation.as_ref().map_or(0, |reservation| reservation.bytes())
    }

    fn most(&self) -> usize {
        if self.ledger.pressure().level() == Level::Calm { MOST } else { FEW }
    }

    fn grow(&mut self, bytes: usize) -> bool {
        let reservation = self.reservation.get_or_insert_with(|| Box::new(self.ledger.copies()));
        let has_grown = reservation.try_grow(bytes).is_ok();
        self.reservation.take_if(|reservation| reservation.bytes() == 0);
        has_grown
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

// === impl Waiting ===

impl Waiting {
    /// It has got the memory.
    pub(super) fn end(&mut self) {
        self.0 = None;
    }

    /// Ready if it has waited too long. The task is woken when it is time to try again.
    pub(super) fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let waits = self.0.get_or_insert_with(|| {
            let (since, again) = (Instant::now(), Box::pin(sleep(AGAIN)));
            Box::new(Waits { since, again })
        });
        while waits.again.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if now >= waits.since + PATIENCE {
                return Poll::Ready(());
            }
            waits.again.as_mut().reset(now + AGAIN);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use bytes::{Buf as _, Bytes};

    use super::*;
    use crate::lifecycle::testing::Wakes;
    use crate::memory::Pressure;

    fn frame() -> Slices {
        [Bytes::from(vec![1; 100]), Bytes::from(vec![2; 100])].into_iter().collect()
    }

    #[test]
    fn a_frame_is_counted_until_its_last_byte_is_taken() {
        let ledger = Ledger::new(4 * MOST, Pressure::default());
        let mut copies = Copies::new(&ledger);
        let (woken, waker) = Wakes::new();
        let mut cx = Context::from_waker(&waker);
        assert!(copies.poll_taken(&mut cx).is_ready());
        copies.reserve(200).unwrap();
        let mut frame = copies.hold(frame());
        assert!(copies.poll_taken(&mut cx).is_pending());
        frame.advance(199);
        assert!(copies.poll_taken(&mut cx).is_pending() && woken.count() == 0);
        assert_eq!((frame.chunk(), ledger.used()), (&[2][..], 200));
        frame.advance(1);
        assert!(copies.poll_taken(&mut cx).is_ready() && woken.count() == 1);
        assert_eq!(ledger.used(), 0);
        let _without_copies = copies.hold(self::frame());
        assert!(copies.poll_taken(&mut cx).is_ready());
        assert_eq!(ledger.used(), 0);
    }

    #[test]
    fn frames_are_small_without_memory() {
        let full = |level| {
            let ledger = Ledger::new(4 * MOST, Pressure::default());
            ledger.pressure().set(level);
            let mut copies = Copies::new(&ledger);
            while copies.reserve(1 << 10).is_ok() {}
            assert_eq!(ledger.used(), copies.bytes());
            copies.bytes()
        };
        assert_eq!([Level::Calm, Level::Tight, Level::Short].map(full), [MOST, FEW, FEW]);
    }

    /// However many answers there are, and whatever they have: none has a copy without its memory.
    #[test]
    fn nothing_is_made_without_memory() {
        let ledger = Ledger::new(8 * MOST, Pressure::default());
        let made = |bytes: usize| -> Vec<_> {
            let one = || {
                let mut copies = Copies::new(&ledger);
                copies.reserve(bytes).ok().map(|()| copies.hold(frame()))
            };
            std::iter::from_fn(one).take(1000).collect()
        };
        let large = made(3 * MOST);
        assert_eq!((large.len(), ledger.used()), (2, 6 * MOST), "one, and the last one");
        drop(large);
        let (large, small) = (made(MOST), made(FEW));
        assert_eq!((large.len(), small.len()), (5, 4), "a quarter is for small ones");
        drop((large, small));
        ledger.pressure().set(Level::Short);
        assert_eq!(made(20 * MOST).len(), 1, "while memory is short, one can be read");
        assert_eq!(ledger.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_memory_without_end() {
        let (mut waiting, began) = (Waiting::default(), Instant::now());
        std::future::poll_fn(|cx| waiting.poll_late(cx)).await;
        assert!((PATIENCE..PATIENCE + 2 * AGAIN).contains(&began.elapsed()));
        waiting.end();
        assert!(waiting.poll_late(&mut Context::from_waker(Waker::noop())).is_pending());
    }
}
