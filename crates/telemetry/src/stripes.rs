//! Counts that many threads change all the time.
//!
//! An atomic that two processors change in turn moves between their caches each time, and a delivery to a watch changes
//! several. So each thread has a stripe of its own, and a reader adds the stripes up.

use std::array;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use prometheus_client::metrics::counter::{self, Counter};

/// A counter for what happens with each delivery.
pub type StripedCounter = Counter<u64, Stripes<1>>;

/// `N` sums. The stripes of different threads are on different cache lines.
#[derive(Debug)]
pub struct Stripes<const N: usize>([Stripe<N>; STRIPES]);

#[derive(Debug)]
#[repr(align(64))]
struct Stripe<const N: usize>([AtomicU64; N]);

/// With more threads, some share a stripe, which is only slower.
const STRIPES: usize = 8;

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static STRIPE: usize = THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES;
}

// === impl Stripes ===

impl<const N: usize> Stripes<N> {
    /// Adds to several sums at once.
    pub(super) fn add<const M: usize>(&self, sums: [(usize, u64); M]) {
        let Stripe(stripe) = &self.0[STRIPE.with(|stripe| *stripe)];
        for (index, more) in sums {
            stripe[index].fetch_add(more, Ordering::Relaxed);
        }
    }

    pub(super) fn sum(&self, index: usize) -> u64 {
        // As with one atomic, the sum starts again at zero once it does not fit.
        self.0.iter().fold(0, |sum, Stripe(stripe)| sum.wrapping_add(stripe[index].load(Ordering::Relaxed)))
    }
}

impl<const N: usize> Default for Stripes<N> {
    fn default() -> Self {
        Self(array::from_fn(|_| Stripe(array::from_fn(|_| AtomicU64::new(0)))))
    }
}

impl counter::Atomic<u64> for Stripes<1> {
    fn inc(&self) -> u64 {
        self.inc_by(1)
    }

    fn inc_by(&self, more: u64) -> u64 {
        let Stripe([sum]) = &self.0[STRIPE.with(|stripe| *stripe)];
        // The value of this thread before.
        sum.fetch_add(more, Ordering::Relaxed)
    }

    fn get(&self) -> u64 {
        self.sum(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_count() {
        let (counter, sums) = (StripedCounter::default(), Stripes::<3>::default());
        std::thread::scope(|scope| {
            for _ in 0..2 * STRIPES {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        counter.inc_by(2);
                        sums.add([(0, 1), (2, 5)]);
                    }
                });
            }
        });
        let times = 2_000 * STRIPES as u64;
        assert_eq!(counter.get(), 2 * times);
        assert_eq!([0, 1, 2].map(|index| sums.sum(index)), [times, 0, 5 * times]);
    }
}
