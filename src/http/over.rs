//! Whether a connection is over.

use std::sync::atomic::{AtomicBool, Ordering};

/// Set before a connection is dropped. The library ends the bodies of HTTP/1.1 that it drops as if they were whole.
#[derive(Debug, Default)]
pub(super) struct Over(AtomicBool);

/// Says that the connection is over when this is dropped.
pub(super) struct UntilOver<'a>(&'a Over);

impl Over {
    /// Whether what ends now ends because the connection does.
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// To be dropped before the connection.
    pub(super) fn guard(&self) -> UntilOver<'_> {
        UntilOver(self)
    }
}

impl Drop for UntilOver<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Release);
    }
}
