//! What our own requests cost the apiserver, and what single items of its answers cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Counts what some of our own requests have cost the apiserver, and learns prices from the answers. Shared.
#[derive(Debug, Default)]
pub struct Meter {
    requests: AtomicU64,
    wire: AtomicU64,
    prices: Mutex<Prices>,
    /// Counts and learns the same.
    whole: Option<Arc<Meter>>,
}

/// What was asked in all: requests that were answered, and the bytes of the answers as they were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metered {
    pub requests: u64,
    pub wire: u64,
}

/// Mean bytes, as the last answers show them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prices {
    /// Of one object in a list or at the start of a watch, and of its metadata in a digest, before compression.
    object: Mean,
    metadata: Mean,
    /// Of one byte of a compressed list, and of a compressed digest.
    packed: Mean,
    packed_metadata: Mean,
}

/// A mean per item. The weight of an answer is the number of its items, and halves with each later answer.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    bytes: f64,
    items: f64,
}

/// The apiserver compresses answers of more bytes, except for watches.
const COMPRESSED: u64 = 128 << 10;
/// What is assumed until it is measured: the bytes of an object, how many times those of its metadata they are, and the ratio
/// of compression.
const OBJECT: u64 = 4 << 10;
const METADATA: u64 = 2;
const RATIO: u64 = 5;

// === impl Meter ===

impl Meter {
    /// A meter of some of the requests that `whole` counts.
    pub fn of(whole: Arc<Self>) -> Self {
        Self { whole: Some(whole), ..Self::default() }
    }

    /// Counts an answer of any status.
    pub(crate) fn answered(&self) {
        self.each(|meter| _ = meter.requests.fetch_add(1, Ordering::Relaxed));
    }

    pub(crate) fn received(&self, wire: usize) {
        self.each(|meter| _ = meter.wire.fetch_add(wire as u64, Ordering::Relaxed));
    }

    /// Learns from a whole list, or from the state at the start of a watch. `sizes`: its bytes, as it was sent and unpacked.
    pub fn listed(&self, objects: usize, (wire, plain): (u64, u64)) {
        self.each(|meter| {
            let mut prices = meter.prices.lock();
            prices.object.learn(plain, objects as u64);
            if wire < plain {
                prices.packed.learn(wire, plain);
            }
        });
    }

    /// Learns from a list of metadata.
    pub fn digested(&self, objects: usize, (wire, plain): (u64, u64)) {
        self.each(|meter| {
            let mut prices = meter.prices.lock();
            prices.metadata.learn(plain, objects as u64);
            if wire < plain {
                prices.packed_metadata.learn(wire, plain);
            }
        });
    }

    fn each(&self, count: impl Fn(&Self)) {
        count(self);
        if let Some(whole) = &self.whole {
            count(whole);
        }
    }

    pub fn asked(&self) -> Metered {
        let [requests, wire] = [&self.requests, &self.wire].map(|count| count.load(Ordering::Relaxed));
        Metered { requests, wire }
    }

    pub fn prices(&self) -> Prices {
        *self.prices.lock()
    }

    /// What a client that accepts gzip is sent in place of so many bytes of a get or a list.
    pub fn packed(&self, plain: u64) -> u64 {
        self.prices.lock().packed.packs(plain)
    }

    /// The bytes of a compressed list before its compression.
    pub fn unpacked(&self, wire: u64) -> u64 {
        self.prices.lock().packed.unpacks(wire)
    }
}

// === impl Prices ===

impl Prices {
    /// The bytes of so many objects, before compression. The events of a watch are as large.
    pub fn plain(&self, objects: u64) -> u64 {
        self.object.of(objects).unwrap_or(objects.saturating_mul(OBJECT))
    }

    /// What a client is sent of a list of so many objects.
    pub fn list(&self, objects: u64, gzip: bool) -> u64 {
        let plain = self.plain(objects);
        if gzip { self.packed.packs(plain) } else { plain }
    }

    /// The same of their metadata.
    pub fn metadata(&self, objects: u64, gzip: bool) -> u64 {
        // JSON may name the type of each. Apart from that they are parts of the objects.
        let most = self.plain(objects);
        let plain = self.metadata.of(objects).unwrap_or(most / METADATA).min(most);
        if gzip { self.packed_metadata.packs(plain) } else { plain }
    }
}

// === impl Mean ===

impl Mean {
    fn learn(&mut self, bytes: u64, items: u64) {
        if items > 0 {
            // Halves of whole numbers are not rounded: means of single items would grow.
            *self = Self { bytes: self.bytes / 2.0 + bytes as f64, items: self.items / 2.0 + items as f64 };
        }
    }

    /// What is sent of so many bytes, if this is the mean of compressed ones.
    fn packs(self, plain: u64) -> u64 {
        if plain <= COMPRESSED { plain } else { self.of(plain).unwrap_or(plain / RATIO) }
    }

    /// Of how many bytes so many are sent.
    fn unpacks(self, wire: u64) -> u64 {
        if self.bytes > 0.0 { (wire as f64 * self.items / self.bytes) as u64 } else { wire.saturating_mul(RATIO) }
    }

    /// The bytes of so many items; `None` before the first answer.
    fn of(self, items: u64) -> Option<u64> {
        (self.items > 0.0).then(|| (items as f64 * self.bytes / self.items) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_follow_the_last_answers() {
        let meter = Meter::default();
        let prices = meter.prices();
        assert_eq!((prices.plain(2), prices.metadata(2, true)), (2 * OBJECT, 2 * OBJECT / METADATA), "guesses");
        assert_eq!(meter.packed(COMPRESSED), COMPRESSED, "it is not compressed");
        assert_eq!(meter.packed(COMPRESSED + 3), (COMPRESSED + 3) / RATIO, "a guess");
        // Nothing is learned from an empty list, and no ratio from one that is not compressed.
        meter.listed(0, (90, 90));
        meter.listed(100, (1_000, 1_000));
        assert_eq!((meter.prices().plain(1), meter.packed(1 << 20)), (10, (1 << 20) / RATIO));
        meter.listed(1_000, (1 << 20, 8 << 20));
        assert_eq!((meter.packed(8 << 20), meter.unpacked(1 << 20)), (1 << 20, 8 << 20));
        for _ in 0..20 {
            meter.listed(1_000, (500_000, 1_000_000));
            meter.digested(500, (40_000, 200_000));
        }
        let prices = meter.prices();
        assert_eq!((prices.plain(1), prices.metadata(2, true)), (1_000, 800));
        let is_about = |bytes: u64, wanted: u64| bytes.abs_diff(wanted) <= wanted / 500;
        assert!(is_about(meter.packed(1_000_000), 500_000) && is_about(prices.list(2_000, true), 1_000_000));
        assert!(is_about(prices.metadata(1_000, true), 80_000));
        // Whatever metadata was measured, it is in the objects.
        (0..20).for_each(|_| meter.digested(500, (2_000_000, 2_000_000)));
        let prices = meter.prices();
        assert_eq!(prices.metadata(3, false), prices.plain(3));
    }

    #[test]
    fn single_objects_cost_what_they_cost() {
        let meter = Meter::default();
        (0..20).for_each(|_| meter.listed(1, (100, 100)));
        assert_eq!(meter.prices().plain(1), 100);
    }

    #[test]
    fn what_a_part_counts_is_in_the_whole() {
        let whole = Arc::new(Meter::default());
        let [one, other] = [(); 2].map(|()| Meter::of(Arc::clone(&whole)));
        one.answered();
        other.answered();
        one.received(20);
        one.listed(10, (1_000, 1_000));
        other.digested(10, (500, 500));
        let asked = |meter: &Meter| (meter.asked(), meter.prices().plain(1), meter.prices().metadata(1, false));
        let metered = |requests, wire| Metered { requests, wire };
        assert_eq!(asked(&one), (metered(1, 20), 100, 50), "the metadata is a guess");
        assert_eq!(asked(&other), (metered(1, 0), OBJECT, 50), "the objects are");
        assert_eq!(asked(&whole), (metered(2, 20), 100, 50));
    }
}
