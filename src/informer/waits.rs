//! Tracks how many reads wait for a proof, how often such reads arrive, and how long proofs take.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::telemetry::histogram::Histogram;

/// Counts the reads that wait for a proof, how often they arrive, and how long the last proofs took.
#[derive(Debug, Default)]
pub(super) struct Waits {
    now: AtomicUsize,
    arrivals: Mutex<Arrivals>,
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

/// The number of recent arrivals. The weight of each decreases with time.
#[derive(Debug, Default)]
struct Arrivals {
    lately: f64,
    last: Option<Instant>,
}

/// The weight of an arrival decreases to a third in this time.
const LATELY: Duration = Duration::from_secs(1);

// === impl Waits ===

impl Waits {
    pub(super) fn enter(&self, now: Instant) -> Waiting<'_> {
        self.now.fetch_add(1, Ordering::Relaxed);
        self.arrivals.lock().count(now);
        Waiting(&self.now)
    }

    pub(super) fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    /// The expected number of arrivals within this time.
    pub(super) fn within(&self, time: Duration) -> usize {
        if time.is_zero() { 0 } else { self.arrivals.lock().within(time, Instant::now()) }
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

// === impl Arrivals ===

impl Arrivals {
    fn count(&mut self, now: Instant) {
        self.lately = self.at(now) + 1.0;
        self.last = Some(now);
    }

    fn at(&self, now: Instant) -> f64 {
        let ago = self.last.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        self.lately * (-ago.as_secs_f64() / LATELY.as_secs_f64()).exp()
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
    fn within(&self, time: Duration, now: Instant) -> usize {
        (self.at(now) * time.as_secs_f64() / LATELY.as_secs_f64()) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_will_come_as_came() {
        let mut arrivals = Arrivals::default();
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(arrivals.within(LATELY, start), 0);
        arrivals.count(at(0));
        assert_eq!(arrivals.within(LATELY / 10, at(0)), 0, "one is no crowd");
        (0..300).for_each(|n| arrivals.count(at(n * 10)));
        assert!((9..=10).contains(&arrivals.within(LATELY / 10, at(3000))));
        assert_eq!(arrivals.within(LATELY / 10, at(6000)), 0, "nobody came for long");
    }
}
