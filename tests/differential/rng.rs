//! Numbers from a seed: the same ones for ever, so that a seed in an old report still names the same requests.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

// === impl Rng ===

impl Rng {
    /// One stream of numbers for each pair.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut rng = Self(seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17));
        rng.next();
        rng.next();
        rng
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap_or(0)
    }

    /// True in so many of a thousand cases.
    pub(crate) fn in_1000(&mut self, cases: usize) -> bool {
        self.below(1000) < cases
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// One of several by their weights.
    pub(crate) fn weighted<'a, T>(&mut self, from: &'a [(usize, T)]) -> &'a T {
        let mut at = self.below(from.iter().map(|(weight, _)| weight).sum());
        for (weight, value) in from {
            if at < *weight {
                return value;
            }
            at -= weight;
        }
        &from[0].1
    }
}
