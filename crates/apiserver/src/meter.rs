//! What our own requests cost the apiserver, and what single items of its answers cost.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Counts what some of our own requests have cost the apiserver, and learns prices from the answers. Shared.
#[derive(Debug, Default)]
pub struct Meter {
    requests: AtomicU64,
    wire: AtomicU64,
    plain: AtomicU64,
    prices: Mutex<Prices>,
}

/// What was asked in all: requests that were answered, and the bytes of the answers, as they were sent and unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metered {
    pub requests: u64,
    pub wire: u64,
    pub plain: u64,
}

/// Mean bytes, as the last answers show them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prices {
    /// Of one object in a list or at the start of a watch, before compression. The events of a watch are as large.
    pub object: Mean,
    /// Of one object in a digest, as it is sent.
    pub digest: Mean,
    /// Of one byte of a compressed list.
    packed: Mean,
}

/// A mean per item. The weight of an answer is the number of its items, and halves with each later answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mean {
    bytes: u64,
    items: u64,
}

/// The apiserver compresses answers of more bytes, except for watches.
const COMPRESSED: u64 = 128 << 10;
/// The assumed ratio of compression until one is measured.
const RATIO: u64 = 5;

// === impl Meter ===

impl Meter {
    /// Counts an answer of any status.
    pub(crate) fn answered(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, wire: usize) {
        self.wire.fetch_add(wire as u64, Ordering::Relaxed);
    }

    pub(crate) fn unpacked(&self, plain: usize) {
        self.plain.fetch_add(plain as u64, Ordering::Relaxed);
    }

    /// Learns from a whole list, or from the state at the start of a watch. `sizes`: its bytes, as it was sent and unpacked.
    pub fn listed(&self, objects: usize, (wire, plain): (u64, u64)) {
        let mut prices = self.prices.lock();
        prices.object.learn(plain, objects as u64);
        if wire < plain {
            prices.packed.learn(wire, plain);
        }
    }

    /// Learns from a list of metadata.
    pub fn digested(&self, objects: usize, wire: u64) {
        self.prices.lock().digest.learn(wire, objects as u64);
    }

    pub fn asked(&self) -> Metered {
        let [requests, wire, plain] =
            [&self.requests, &self.wire, &self.plain].map(|count| count.load(Ordering::Relaxed));
        Metered { requests, wire, plain }
    }

    pub fn prices(&self) -> Prices {
        *self.prices.lock()
    }

    /// What a client that accepts gzip is sent in place of so many bytes of a get or a list.
    pub fn packed(&self, plain: u64) -> u64 {
        if plain <= COMPRESSED { plain } else { self.prices.lock().packed.of(plain).unwrap_or(plain / RATIO) }
    }
}

// === impl Mean ===

impl Mean {
    fn learn(&mut self, bytes: u64, items: u64) {
        if items > 0 {
            *self = Self { bytes: self.bytes / 2 + bytes, items: self.items / 2 + items };
        }
    }

    /// The bytes of so many items; `None` before the first answer.
    pub fn of(self, items: u64) -> Option<u64> {
        let bytes = u128::from(items) * u128::from(self.bytes);
        u64::try_from(bytes.checked_div(u128::from(self.items))?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_follow_the_last_answers() {
        let meter = Meter::default();
        assert_eq!(meter.prices().object.of(1), None);
        assert_eq!(meter.packed(COMPRESSED), COMPRESSED, "it is not compressed");
        assert_eq!(meter.packed(COMPRESSED + 3), COMPRESSED / RATIO, "a guess");
        // Nothing is learned from an empty list, and no ratio from one that is not compressed.
        meter.listed(0, (90, 90));
        meter.listed(100, (1_000, 1_000));
        assert_eq!((meter.prices().object.of(1), meter.packed(1 << 20)), (Some(10), (1 << 20) / RATIO));
        meter.listed(1_000, (1 << 20, 8 << 20));
        assert_eq!(meter.packed(8 << 20), 1 << 20);
        for _ in 0..20 {
            meter.listed(1_000, (500_000, 1_000_000));
            meter.digested(500, 100_000);
        }
        let Prices { object, digest, .. } = meter.prices();
        assert_eq!((object.of(1), digest.of(2)), (Some(1_000), Some(400)));
        assert!((499_000..=501_000).contains(&meter.packed(1_000_000)));
    }
}
