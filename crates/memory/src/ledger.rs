//! Admission control by memory: accounts for that of bodies in flight: forwarded, shared, compressed and kept ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

use super::pressure::{Level, Pressure};

/// The limit in bytes for all bodies in flight together. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Ledger {
    inner: Arc<Inner>,
}

/// A number of these bytes. They are released when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    ledger: Ledger,
    bytes: usize,
    purpose: Purpose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Needed,
    /// Held for as long as a client wants.
    Lasting,
    /// For optional uses: sharing, compressing, keeping.
    Spare,
    /// For what is made for one answer from a cache.
    Copies,
    /// The same, for the only one while there is no memory.
    Last,
}

/// There is not enough memory for this many more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no memory left for {need} bytes more")]
pub struct Short {
    pub need: usize,
}

/// The bytes that a connected client gets also while memory is short, if they fit.
const FEW: usize = 16 << 10;

#[derive(Debug)]
struct Inner {
    limit: usize,
    used: AtomicUsize,
    refused: AtomicU64,
    /// Somebody has a [`Purpose::Last`].
    has_last: AtomicBool,
    /// Wakes whoever makes room.
    refusal: Notify,
    pressure: Pressure,
}

// === impl Ledger ===

impl Default for Ledger {
    /// A ledger without a limit.
    fn default() -> Self {
        Self::new(usize::MAX, Pressure::default())
    }
}

impl Ledger {
    /// `limit` is in bytes.
    pub fn new(limit: usize, pressure: Pressure) -> Self {
        let (used, refused, refusal) = (AtomicUsize::new(0), AtomicU64::new(0), Notify::new());
        let inner = Inner { limit, used, refused, has_last: AtomicBool::new(false), refusal, pressure };
        Self { inner: Arc::new(inner) }
    }

    pub fn limit(&self) -> usize {
        self.inner.limit
    }

    pub fn used(&self) -> usize {
        self.inner.used.load(Ordering::Relaxed)
    }

    /// How many requests were refused because there was no memory for them.
    pub fn refused(&self) -> u64 {
        self.inner.refused.load(Ordering::Relaxed)
    }

    pub fn pressure(&self) -> &Pressure {
        &self.inner.pressure
    }

    /// Reserves bytes that a request needs.
    ///
    /// # Errors
    /// There is not enough room for them, or memory is short.
    pub fn reserve(&self, bytes: usize) -> Result<Reservation, Short> {
        self.begin(bytes, Purpose::Needed)
    }

    /// Reserves bytes that a request needs and that its client may hold for as long as it wants. A quarter of the
    /// limit is left for other uses. Up to 16 KiB are granted even while memory is short.
    ///
    /// # Errors
    /// There is not enough room for them, or memory is short.
    pub fn lasting(&self, bytes: usize) -> Result<Reservation, Short> {
        self.begin(bytes, Purpose::Lasting)
    }

    /// Reserves nothing yet, for what [`Self::reserve`] is for.
    pub fn needed(&self) -> Reservation {
        Reservation { ledger: self.clone(), bytes: 0, purpose: Purpose::Needed }
    }

    /// Reserves nothing yet, for what [`Self::lasting`] is for.
    pub fn nothing(&self) -> Reservation {
        Reservation { ledger: self.clone(), bytes: 0, purpose: Purpose::Lasting }
    }

    /// Counts a request that is refused because memory is short.
    pub fn note_refused(&self) {
        self.count_refused();
        self.ask_for_room();
    }

    /// The same if it has asked for room before, or if nobody else makes room for its client, which has much.
    pub fn count_refused(&self) {
        self.inner.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Asks for room without a refusal.
    pub fn ask_for_room(&self) {
        self.inner.refusal.notify_one();
    }

    /// Waits until a required reservation is refused, or somebody waits for one. For one waiter.
    pub async fn refusal(&self) {
        self.inner.refusal.notified().await;
    }

    /// Reserves bytes for an optional use. Such uses may take only half of the limit, and only while memory is
    /// plentiful.
    ///
    /// # Errors
    /// There is not enough room for them.
    pub fn spare(&self, bytes: usize) -> Result<Reservation, Short> {
        self.begin(bytes, Purpose::Spare)
    }

    /// Reserves nothing yet, for copies in an answer from a cache: half of the limit is for them. The first 16 KiB of a
    /// reservation are granted like those of [`Self::lasting`].
    pub fn copies(&self) -> Reservation {
        Reservation { ledger: self.clone(), bytes: 0, purpose: Purpose::Copies }
    }

    /// Reserves bytes for a copy for which there is no room. One reservation at a time is granted, however large, so that
    /// large objects can be read while memory is short.
    pub fn last_copy(&self, bytes: usize) -> Option<Reservation> {
        if self.inner.has_last.swap(true, Ordering::AcqRel) {
            return None;
        }
        self.inner.used.fetch_add(bytes, Ordering::Relaxed);
        Some(Reservation { ledger: self.clone(), bytes, purpose: Purpose::Last })
    }

    fn begin(&self, bytes: usize, purpose: Purpose) -> Result<Reservation, Short> {
        let mut reservation = Reservation { ledger: self.clone(), bytes: 0, purpose };
        reservation.grow(bytes)?;
        Ok(reservation)
    }
}

// === impl Reservation ===

impl Reservation {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds bytes. Call it before the bytes are received.
    ///
    /// # Errors
    /// There is not enough room for them. The earlier reservation stays.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Short> {
        let grown = self.try_grow(bytes);
        if grown.is_err() && self.purpose != Purpose::Spare {
            self.ledger.note_refused();
        }
        grown
    }

    /// Like [`Self::grow`], for what can wait or go on without: nobody has to make room for it.
    ///
    /// # Errors
    /// There is not enough room for them. The earlier reservation stays.
    pub fn try_grow(&mut self, bytes: usize) -> Result<(), Short> {
        let inner = &self.ledger.inner;
        inner.pressure.grow(bytes);
        let (limit, level) = match self.purpose {
            Purpose::Needed => (inner.limit, Level::Tight),
            Purpose::Lasting | Purpose::Copies if self.bytes + bytes <= FEW => (inner.limit / 4 * 3, Level::Short),
            Purpose::Lasting => (inner.limit / 4 * 3, Level::Tight),
            Purpose::Spare => (inner.limit / 2, Level::Calm),
            Purpose::Copies => (inner.limit / 2, Level::Tight),
            Purpose::Last => (0, Level::Calm),
        };
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= limit);
        let added = inner.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        if added.is_err() {
            return Err(Short { need: bytes });
        }
        self.bytes += bytes;
        if inner.pressure.level() > level {
            self.shrink(bytes);
            return Err(Short { need: bytes });
        }
        Ok(())
    }

    /// Releases bytes.
    pub fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.ledger.inner.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink(self.bytes);
        if self.purpose == Purpose::Last {
            self.ledger.inner.has_last.store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_given_back() {
        let ledger = Ledger::new(100, Pressure::default());
        let mut first = ledger.reserve(60).unwrap();
        assert_eq!(ledger.reserve(41).unwrap_err(), Short { need: 41 });
        first.grow(40).unwrap();
        assert_eq!(first.grow(1), Err(Short { need: 1 }));
        first.shrink(30);
        assert_eq!((ledger.used(), first.bytes(), ledger.refused()), (70, 70, 2));
        drop(first);
        assert_eq!(ledger.used(), 0);
    }

    #[test]
    fn what_can_be_done_without_leaves_half() {
        let ledger = Ledger::new(100, Pressure::default());
        let spare = ledger.spare(50).unwrap();
        assert!(ledger.spare(1).is_err());
        assert!(ledger.reserve(50).is_ok());
        drop(spare);
        let _held = ledger.reserve(40).unwrap();
        assert!(ledger.spare(11).is_err() && ledger.spare(10).is_ok());
        assert_eq!(ledger.refused(), 0);
    }

    #[test]
    fn what_lasts_leaves_a_quarter_and_small_things_go_on() {
        let ledger = Ledger::new(8 * FEW, Pressure::default());
        let mut small = ledger.lasting(FEW / 2).unwrap();
        let large = ledger.lasting(5 * FEW).unwrap();
        assert!(ledger.lasting(FEW).is_err() && ledger.reserve(2 * FEW).is_ok());
        ledger.pressure().set(Level::Short);
        assert!(small.grow(FEW / 2).is_ok() && small.grow(1).is_err());
        drop(large);
        assert!(ledger.lasting(FEW).is_ok() && ledger.lasting(FEW + 1).is_err());
        assert_eq!(ledger.refused(), 3);
    }

    #[test]
    fn copies_leave_half_and_one_is_always_made() {
        let ledger = Ledger::new(8 * FEW, Pressure::default());
        let [mut large, mut small] = [ledger.copies(), ledger.copies()];
        large.grow(4 * FEW).unwrap();
        assert!(large.try_grow(1).is_err() && small.try_grow(FEW).is_ok() && small.try_grow(1).is_err());
        let last = ledger.last_copy(100 * FEW).unwrap();
        assert!(ledger.last_copy(1).is_none());
        assert_eq!(ledger.used(), 105 * FEW);
        drop((large, small, last));
        ledger.pressure().set(Level::Short);
        let mut small = ledger.copies();
        assert!(small.try_grow(FEW).is_ok() && small.try_grow(1).is_err() && ledger.last_copy(1).is_some());
        drop(small);
        assert_eq!(ledger.used(), 0);
    }

    #[test]
    fn pressure_refuses_first_what_can_be_done_without() {
        let ledger = Ledger::new(100, Pressure::default());
        let mut held = ledger.reserve(10).unwrap();
        ledger.pressure().set(Level::Tight);
        assert!(ledger.spare(1).is_err() && ledger.reserve(1).is_ok());
        ledger.pressure().set(Level::Short);
        assert!(ledger.reserve(1).is_err() && held.grow(1).is_err());
        assert_eq!(ledger.used(), 10, "what was taken in stays");
    }
}
