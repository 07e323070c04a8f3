//! Admission control by memory: accounts for that of bodies in flight: forwarded, shared, compressed and kept ones.
//!
//! Some of it is held for as long as a client wants. A client takes three eighths. All that have much take five eighths
//! together, so that those that have little always find room in the rest.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
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
    /// The client in whose share it counts.
    client: OnceLock<u64>,
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
    pub of: Lack,
}

/// Who gets no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The client has its share. Others have nothing to do with it.
    Share,
    /// The client has much, and so have others.
    Much,
    /// Even clients that have little get no more.
    All,
}

/// The bytes that a connected client gets also while memory is short, if they fit.
const FEW: usize = 16 << 10;
/// So many eighths of the limit are for a client, and so many for all together that have more than a sixteenth.
const SHARE: usize = 3;
const MUCH: usize = 5;
const LITTLE: usize = 16;

#[derive(Debug)]
struct Inner {
    limit: usize,
    used: AtomicUsize,
    refused: AtomicU64,
    /// The bytes of each client that has some, by a hash with a secret.
    shares: Mutex<HashMap<u64, usize>>,
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
        let (shares, has_last) = Default::default();
        let inner = Inner { limit, used, refused, shares, has_last, refusal, pressure };
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
        self.empty(Purpose::Needed)
    }

    /// Reserves nothing yet, for what [`Self::lasting`] is for.
    pub fn nothing(&self) -> Reservation {
        self.empty(Purpose::Lasting)
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
        self.empty(Purpose::Copies)
    }

    /// Reserves bytes for a copy for which there is no room. One reservation at a time is granted, however large, so that
    /// large objects can be read while memory is short.
    pub fn last_copy(&self, bytes: usize) -> Option<Reservation> {
        if self.inner.has_last.swap(true, Ordering::AcqRel) {
            return None;
        }
        self.inner.used.fetch_add(bytes, Ordering::Relaxed);
        let mut reservation = self.empty(Purpose::Last);
        reservation.bytes = bytes;
        Some(reservation)
    }

    fn empty(&self, purpose: Purpose) -> Reservation {
        Reservation { ledger: self.clone(), bytes: 0, purpose, client: OnceLock::new() }
    }

    fn begin(&self, bytes: usize, purpose: Purpose) -> Result<Reservation, Short> {
        let mut reservation = self.empty(purpose);
        reservation.grow(bytes)?;
        Ok(reservation)
    }
}

// === impl Inner ===

impl Inner {
    /// Counts bytes in the share of a client. Returns the most that all may have reserved then.
    fn charge(&self, client: u64, bytes: usize) -> Result<usize, Short> {
        let mut shares = self.shares.lock();
        let own = shares.get(&client).map_or(0, |own| *own);
        if own.saturating_add(bytes) > self.limit / 8 * SHARE {
            return Err(Short { need: bytes, of: Lack::Share });
        }
        if bytes > 0 {
            shares.insert(client, own + bytes);
        }
        Ok(if own > self.limit / LITTLE { self.limit / 8 * MUCH } else { usize::MAX })
    }

    fn discharge(&self, client: Option<&u64>, bytes: usize) {
        let Some(client) = client else { return };
        let mut shares = self.shares.lock();
        if let Some(own) = shares.get_mut(client) {
            *own -= bytes;
            if *own == 0 {
                shares.remove(client);
            }
        }
    }
}

// === impl Reservation ===

impl Reservation {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts the bytes in the share of a client from now on, if they count in none yet. `None`: in none. Fails only if there
    /// are bytes.
    ///
    /// # Errors
    /// The client would have more than it may. The reservation counts in no share.
    pub fn charge(&self, client: Option<&impl Hash>) -> Result<(), Short> {
        let Some(client) = client else { return Ok(()) };
        let inner = &self.ledger.inner;
        let client = inner.shares.lock().hasher().hash_one(client);
        let is_over = inner.charge(client, self.bytes)? < self.ledger.used() && self.bytes > 0;
        if is_over || self.client.set(client).is_err() {
            inner.discharge(Some(&client), self.bytes);
        }
        if is_over { Err(Short { need: self.bytes, of: Lack::Much }) } else { Ok(()) }
    }

    /// Adds bytes. Call it before the bytes are received.
    ///
    /// # Errors
    /// There is not enough room for them. The earlier reservation stays.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Short> {
        let grown = self.try_grow(bytes);
        match grown {
            Err(Short { of: Lack::Share, .. }) => self.ledger.count_refused(),
            Err(_) if self.purpose != Purpose::Spare => self.ledger.note_refused(),
            _ => {}
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
        let client = self.client.get();
        let of_client = client.map_or(Ok(usize::MAX), |client| inner.charge(*client, bytes))?;
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= limit.min(of_client));
        let added = inner.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        if added.is_err() {
            inner.discharge(client, bytes);
            return Err(Short { need: bytes, of: if of_client < limit { Lack::Much } else { Lack::All } });
        }
        self.bytes += bytes;
        if inner.pressure.level() > level {
            self.shrink(bytes);
            return Err(Short { need: bytes, of: Lack::All });
        }
        Ok(())
    }

    /// Releases bytes.
    pub fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.ledger.inner.used.fetch_sub(bytes, Ordering::Relaxed);
        self.ledger.inner.discharge(self.client.get(), bytes);
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
        assert_eq!(ledger.reserve(41).unwrap_err(), Short { need: 41, of: Lack::All });
        first.grow(40).unwrap();
        assert_eq!(first.grow(1), Err(Short { need: 1, of: Lack::All }));
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
    fn a_client_takes_its_share_and_who_has_little_finds_room() {
        let ledger = Ledger::new(160, Pressure::default());
        let take = |client: &str| -> Vec<Reservation> {
            let next = || {
                let mut reservation = ledger.nothing();
                reservation.charge(Some(&client)).unwrap();
                reservation.grow(5).map(|()| reservation)
            };
            std::iter::from_fn(|| next().ok()).collect()
        };
        let taken = ["a", "b", "c", "d"].map(take);
        let lengths = taken.each_ref().map(Vec::len);
        assert_eq!(lengths, [4 * SHARE, 4 * MUCH - 4 * SHARE, 3, 1], "what lasts leaves a quarter, whoever asks");
        assert_eq!((ledger.used(), ledger.refused()), (120, 4));
        drop(taken);
        assert!(ledger.inner.shares.lock().is_empty());
        // What is reserved before its client is known.
        let [early, more] = [60, 1].map(|bytes| ledger.lasting(bytes).unwrap());
        assert!(early.charge(Some(&"a")).is_ok() && early.charge(Some(&"b")).is_ok(), "it counts once");
        assert_eq!(more.charge(Some(&"a")), Err(Short { need: 1, of: Lack::Share }));
        let other = ledger.lasting(50).unwrap();
        assert!(more.charge(Some(&"b")).is_ok() && other.charge(Some(&"b")).is_ok(), "it has little");
        let last = ledger.reserve(1).unwrap();
        assert_eq!(last.charge(Some(&"b")), Err(Short { need: 1, of: Lack::Much }), "all have much");
        assert!(last.charge(None::<&str>.as_ref()).is_ok());
        drop((early, more, other, last));
        assert!(ledger.inner.shares.lock().is_empty() && ledger.used() == 0);
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
