//! Who waits for a proof, and how long proofs take.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::telemetry::histogram::Histogram;

/// Counts who waits for a proof, and how long the last proofs took.
#[derive(Debug, Default)]
pub(super) struct Waits {
    now: AtomicUsize,
    /// Microseconds that a word of the store took, as a moving average.
    took: AtomicU64,
    /// A word is being asked for ahead of its readers.
    ahead: AtomicBool,
}

/// How long reads waited for the proof that a cache is fresh enough for them, by what came of it.
#[derive(Debug, Default)]
pub struct Proofs {
    pub proved: Histogram,
    pub failed: Histogram,
}

pub(super) struct Waiting<'a>(&'a AtomicUsize);

// === impl Waits ===

impl Waits {
    pub(super) fn enter(&self) -> Waiting<'_> {
        self.now.fetch_add(1, Ordering::Relaxed);
        Waiting(&self.now)
    }

    pub(super) fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    /// False if a word is being asked for ahead of its readers already.
    pub(super) fn begin_ahead(&self) -> bool {
        !self.ahead.swap(true, Ordering::AcqRel)
    }

    pub(super) fn end_ahead(&self) {
        self.ahead.store(false, Ordering::Release);
    }

    pub(super) fn took(&self, took: Duration) {
        let (before, now) = (self.took.load(Ordering::Relaxed), u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        self.took.store(if before == 0 { now } else { (before * 3 + now) / 4 }, Ordering::Relaxed);
    }

    /// How long before it is needed a word is to be asked for.
    pub(super) fn lead(&self) -> Duration {
        Duration::from_micros(self.took.load(Ordering::Relaxed)) * 2 + Duration::from_millis(1)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
