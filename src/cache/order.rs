//! The order of moments in this process.

use std::sync::atomic::{AtomicU64, Ordering};

/// A moment. The earlier one of two moments is less. No two are equal, which clocks do not guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order(u64);

// === impl Order ===

impl Order {
    pub fn now() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::SeqCst))
    }
}
