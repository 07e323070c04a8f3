//! What happens when stored bytes do not come back as they were.

use std::fmt;
#[cfg(any(test, feature = "testing"))]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes of an object cannot be had. An answer that needs them ends with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored bytes of an object are damaged")]
pub struct Damaged;

static FOUND: AtomicU64 = AtomicU64::new(0);

/// Reports bytes that this process has stored and that do not come back: a broken invariant.
///
/// # Panics
/// In debug builds, but for the tests of what follows.
#[cold]
#[expect(clippy::panic, reason = "a broken invariant must not go unnoticed in a debug build")]
pub fn damaged(detail: fmt::Arguments<'_>) -> Damaged {
    FOUND.fetch_add(1, Ordering::Relaxed);
    if cfg!(debug_assertions) && !is_expected() {
        panic!("packed bytes are damaged: {detail}");
    }
    tracing::error!(%detail, "packed bytes are damaged");
    Damaged
}

/// Tests damage bytes to see what follows.
#[cfg(any(test, feature = "testing"))]
static EXPECTED: AtomicBool = AtomicBool::new(false);

/// From now on, bytes may be damaged.
#[cfg(any(test, feature = "testing"))]
pub fn expect_damage() {
    EXPECTED.store(true, Ordering::Relaxed);
}

fn is_expected() -> bool {
    #[cfg(any(test, feature = "testing"))]
    let expected = EXPECTED.load(Ordering::Relaxed);
    #[cfg(not(any(test, feature = "testing")))]
    let expected = false;
    expected
}

/// How often packed bytes were found to be damaged since the start of the process.
pub fn damaged_total() -> u64 {
    FOUND.load(Ordering::Relaxed)
}
