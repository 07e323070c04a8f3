//! The metrics of a queue, with client-go's names.

use std::time::Duration;

/// The statistics of a queue at one moment. Times are in seconds.
#[derive(Clone, Debug, Default)]
pub struct QueueStats {
    /// `workqueue_depth`: keys that are ready and that no worker holds yet.
    pub depth: usize,
    /// `workqueue_adds_total`.
    pub adds: u64,
    /// `workqueue_queue_duration_seconds`: the time from ready to taken.
    pub queue_duration: Histogram,
    /// `workqueue_work_duration_seconds`: the time from taken to answered.
    pub work_duration: Histogram,
    /// `workqueue_unfinished_work_seconds`: the total time for which the held keys have been held.
    pub unfinished: f64,
    /// `workqueue_longest_running_processor_seconds`.
    pub longest: f64,
    /// `workqueue_retries_total`: keys that were queued again for a retry, including delayed ones, as client-go
    /// counts them.
    pub retries: u64,
    /// Keys that workers hold.
    pub held: usize,
    /// Keys that are delayed.
    pub delayed: usize,
    /// Keys that were returned because their worker disconnected.
    pub returned: u64,
    pub workers: usize,
}

/// A histogram with client-go's buckets for work queues: twelve buckets from 10 ns, each ten times the one before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// The last bucket has no upper bound.
    counts: [u64; Self::BOUNDS.len() + 1],
    sum: f64,
}

// === impl Histogram ===

impl Histogram {
    pub const BOUNDS: [f64; 12] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0];

    pub(super) fn observe(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = Self::BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(Self::BOUNDS.len());
        self.counts[bucket] += 1;
        self.sum += seconds;
    }

    pub fn sum(&self) -> f64 {
        self.sum
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The upper bound and the count of each bucket, not cumulative. The last bucket has no bound.
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        Self::BOUNDS.into_iter().chain([f64::INFINITY]).zip(self.counts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observations_fall_into_their_buckets() {
        let mut histogram = Histogram::default();
        for millis in [0, 1, 2, 5_000, 2_000_000] {
            histogram.observe(Duration::from_millis(millis));
        }
        let filled: Vec<_> = histogram.buckets().into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(1e-8, 1), (1e-3, 1), (1e-2, 1), (10.0, 1), (f64::INFINITY, 1)]);
        assert_eq!(histogram.count(), 5);
        assert!((histogram.sum() - 2005.003).abs() < 1e-9);
    }
}
