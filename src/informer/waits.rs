//! Tracks how many reads wait for a proof, how often such reads arrive, and how long proofs take.

use std::f64::consts::LN_2;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::ledger::{Cost, Fading};
use crate::telemetry::histogram::Histogram;

/// Counts the reads that wait for a proof, how often they arrive, and how long the last proofs took.
#[derive(Debug, Default)]
pub(super) struct Waits {
    now: AtomicUsize,
    arrivals: Mutex<Fading>,
    /// How many microseconds a question for the store's revision took, as a moving average.
    took: AtomicU64,
    /// Whether the store's revision is already being asked for in advance.
    ahead: AtomicBool,
}

/// How long reads waited for the proof that a cache is fresh enough, by outcome.
#[derive(Debug, Default)]
pub struct Proofs {
    pub proved: Histogram,
    pub failed: Histogram,
}

pub(super) struct Waiting<'a>(&'a AtomicUsize);

/// The weight of an arrival decreases by half in this time, and to a third in a second.
const LATELY: Duration = Duration::from_millis(693);

// === impl Waits ===

impl Waits {
    pub(super) fn enter(&self, now: Instant) -> Waiting<'_> {
        self.now.fetch_add(1, Ordering::Relaxed);
        self.arrivals.lock().add(Cost { work: 1.0, bytes: 0.0 }, now, LATELY);
        Waiting(&self.now)
    }

    pub(super) fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    /// The expected number of arrivals within this time.
    pub(super) fn within(&self, time: Duration) -> usize {
        let lately = self.arrivals.lock().at(Instant::now(), LATELY).work;
        (lately * LN_2 * time.as_secs_f64() / LATELY.as_secs_f64()) as usize
    }

    /// Returns false if the store's revision is already being asked for in advance.
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

    /// How long before it is needed the store's revision must be asked for.
    pub(super) fn lead(&self) -> Duration {
        Duration::from_micros(self.took.load(Ordering::Relaxed)) * 2 + Duration::from_millis(1)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn as_many_will_come_as_came() {
        let (waits, tenth) = (Waits::default(), Duration::from_millis(100));
        let comes = || drop(waits.enter(Instant::now()));
        assert_eq!(waits.within(tenth * 10), 0);
        comes();
        assert_eq!(waits.within(tenth), 0, "one is no crowd");
        for _ in 0..300 {
            advance(tenth / 10).await;
            comes();
        }
        assert!((9..=10).contains(&waits.within(tenth)));
        assert_eq!(waits.within(Duration::ZERO), 0);
        advance(tenth * 30).await;
        assert_eq!(waits.within(tenth), 0, "nobody came for long");
    }
}
