//! A rate limit: a burst, and then one event per interval.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A limit on how often something is done.
#[derive(Debug)]
pub(super) struct Allowance {
    every: Duration,
    /// The length of the intervals of a whole burst together.
    burst: Duration,
    /// When the intervals of all that was done are over, one after the other.
    until: Mutex<Instant>,
}

// === impl Allowance ===

impl Allowance {
    pub(super) fn new(most: u32, every: Duration, now: Instant) -> Self {
        Self { every, burst: every * most, until: Mutex::new(now) }
    }

    /// Whether it may be done once more now.
    pub(super) fn take(&self, now: Instant) -> bool {
        let mut until = self.until.lock();
        let next = (*until).max(now) + self.every;
        let may = next <= now + self.burst;
        if may {
            *until = next;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_many_then_one_every_so_often() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let allowance = Allowance::new(3, second, start);
        let granted = |after: f64| allowance.take(start + second.mul_f64(after));
        assert_eq!([granted(0.0), granted(0.1), granted(0.2), granted(0.9)], [true, true, true, false]);
        assert_eq!([granted(1.0), granted(1.5), granted(2.0), granted(2.1)], [true, false, true, false]);
        // The allowance does not grow beyond its maximum.
        let after_long: Vec<bool> = (0..5).map(|_| granted(1000.0)).collect();
        assert_eq!(after_long, [true, true, true, false, false]);
    }
}
