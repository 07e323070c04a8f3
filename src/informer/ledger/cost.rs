//! What answers cost the apiserver.

use std::ops::Add;
use std::time::Duration;

use tokio::time::Instant;

use crate::apiserver::meter::Prices;

/// CPU time of the apiserver, in objects that it writes into lists, and bytes that it sends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::informer) struct Cost {
    pub work: f64,
    pub bytes: f64,
}

/// A sum of costs that fades: it halves in a given time.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::informer) struct Fading {
    sum: Cost,
    at: Option<Instant>,
}

/// The cost of any question besides what is in its answer. A get costs as much.
pub(super) const QUESTION: Cost = Cost { work: 30.0, bytes: 500.0 };
/// The work for the metadata of an object, whether it is compressed or not.
const METADATA: f64 = 0.25;

// === impl Cost ===

impl Cost {
    pub(in crate::informer) const NOTHING: Self = Self { work: 0.0, bytes: 0.0 };

    /// So many objects in a list.
    pub(super) fn objects(prices: &Prices, objects: usize, gzip: bool) -> Self {
        Self { work: objects as f64, bytes: prices.list(objects as u64, gzip) as f64 }
    }

    /// A digest of so many objects.
    pub(super) fn digest(prices: &Prices, objects: usize) -> Self {
        QUESTION + Self { work: objects as f64 * METADATA, bytes: prices.metadata(objects as u64, true) as f64 }
    }

    pub(super) fn times(self, factor: f64) -> Self {
        Self { work: self.work * factor, bytes: self.bytes * factor }
    }

    pub(super) fn is_within(self, most: Self) -> bool {
        self.work <= most.work && self.bytes <= most.bytes
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { work: self.work + other.work, bytes: self.bytes + other.bytes }
    }
}

/// The bytes of so many answers, with their heads.
pub(in crate::informer) fn bytes(answers: u64, bytes: u64) -> f64 {
    answers as f64 * QUESTION.bytes + bytes as f64
}

// === impl Fading ===

impl Fading {
    pub(in crate::informer) fn at(&self, now: Instant, half_life: Duration) -> Cost {
        let ago = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.sum.times(0.5_f64.powf(ago.as_secs_f64() / half_life.as_secs_f64()))
    }

    pub(in crate::informer) fn add(&mut self, cost: Cost, now: Instant, half_life: Duration) {
        *self = Self { sum: self.at(now, half_life) + cost, at: Some(now) };
    }
}
