//! How long things take: counts in fixed buckets, by plain atomics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Times from a tenth of a millisecond to a minute. Observing one costs two atomic additions.
#[derive(Debug)]
pub struct Histogram {
    /// The last one has no upper bound.
    counts: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

/// Upper bounds, in microseconds.
const BOUNDS: [u64; 18] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// A histogram at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// Seconds.
    pub sum: f64,
    pub count: u64,
    /// Upper bound in seconds and count of each bucket, not cumulated; the last has no bound.
    pub buckets: Vec<(f64, u64)>,
}

// === impl Histogram ===

impl Histogram {
    pub fn observe(&self, duration: Duration) {
        self.observe_many(duration, 1);
    }

    /// So many things that took as long as each other.
    pub fn observe_many(&self, duration: Duration, times: u64) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| bound * 1_000 < nanos);
        self.counts[bucket].fetch_add(times, Ordering::Relaxed);
        self.nanos.fetch_add(nanos.saturating_mul(times), Ordering::Relaxed);
    }

    pub fn read(&self) -> Distribution {
        let bounds = BOUNDS.iter().map(|micros| *micros as f64 / 1e6).chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(self.counts.iter().map(|count| count.load(Ordering::Relaxed))).collect();
        Distribution {
            sum: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)).as_secs_f64(),
            count: buckets.iter().map(|(_, count)| count).sum(),
            buckets,
        }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; BOUNDS.len() + 1], nanos: AtomicU64::new(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_their_buckets() {
        let histogram = Histogram::default();
        for micros in [0, 100, 101, 70_000_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        histogram.observe_many(Duration::from_millis(2), 3);
        let read = histogram.read();
        let filled: Vec<_> = read.buckets.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(0.0001, 2), (0.00025, 1), (0.0025, 3), (f64::INFINITY, 1)]);
        assert_eq!(read.count, 7);
        assert!((read.sum - 70.006_201).abs() < 1e-9, "{}", read.sum);
    }
}
