//! How likely it is that the watch stream brings the store's revision by itself.

use std::sync::atomic::{AtomicU32, Ordering};

/// The share of proofs, the latest counting most, in which the stream was at the store's revision by the time this was
/// known, or a moment later. It is near one where the store stands still and where the resource changes all the time; it is
/// near zero where the store changes and the resource does not.
#[derive(Debug)]
pub(super) struct Odds(AtomicU32);

/// What one more proof counts, of all before it.
const WEIGHT: f32 = 0.5;

// === impl Odds ===

impl Default for Odds {
    /// One small question costs little: it is tried first.
    fn default() -> Self {
        Self(AtomicU32::new(1.0_f32.to_bits()))
    }
}

impl Odds {
    pub(super) fn get(&self) -> f32 {
        f32::from_bits(self.0.load(Ordering::Relaxed))
    }

    /// Two who learn at once may lose one of the two: it is an estimate.
    pub(super) fn learn(&self, came: bool) {
        let seen = if came { 1.0 } else { 0.0 };
        self.0.store((self.get() * (1.0 - WEIGHT) + seen * WEIGHT).to_bits(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_what_happens() {
        let odds = Odds::default();
        assert!((odds.get() - 1.0).abs() < f32::EPSILON);
        for _ in 0..10 {
            odds.learn(false);
        }
        assert!(odds.get() < 0.1);
        for _ in 0..10 {
            odds.learn(true);
        }
        assert!(odds.get() > 0.9);
    }
}
