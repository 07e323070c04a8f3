//! `metadata.resourceVersion`: a decimal store revision that can be compared (KEP-5504).

use std::fmt;

/// A store revision. Zero means "unset"; no stored object has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceVersion(pub u64);

impl ResourceVersion {
    /// The revision before any write.
    pub const ZERO: Self = Self(0);

    /// Parses the decimal form in objects and lists. Returns `None` unless the text is ASCII digits that fit in 64
    /// bits.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        text.parse().ok().map(Self)
    }

    pub fn get(self) -> u64 {
        self.0
    }

    /// The next higher revision.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    pub fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
