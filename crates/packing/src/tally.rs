//! What the dictionaries of one cache have packed, which counts for the process, too.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use super::Packing;
use super::reading::Reading;

/// What the dictionaries of one cache have packed. Objects may outlive the cache, in the hands of its readers.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) packing: Packing,
    pub(super) saved: AtomicI64,
    pub(super) hot: AtomicI64,
    /// Packed objects were read since the last pass of the packer.
    pub(super) is_read: AtomicBool,
}

// === impl Tally ===

impl Tally {
    pub(super) fn new(packing: Packing) -> Self {
        Self { packing, saved: AtomicI64::new(0), hot: AtomicI64::new(0), is_read: AtomicBool::new(false) }
    }

    /// Adds to the bytes that are saved.
    pub(super) fn save(&self, bytes: i64) {
        self.saved.fetch_add(bytes, Ordering::Relaxed);
        self.packing.inner.total.saved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// There is one packed object more.
    pub(super) fn hold(&self, saved: i64) {
        self.save(saved);
        self.packing.inner.total.objects.fetch_add(1, Ordering::Relaxed);
    }

    /// An object was packed.
    pub(super) fn count_packed(&self) {
        self.packing.inner.total.packed.fetch_add(1, Ordering::Relaxed);
    }

    /// A packed object was unpacked.
    pub(super) fn count_unpacked(&self, reading: Reading) {
        if reading == Reading::Upkeep {
            return;
        }
        self.is_read.store(true, Ordering::Relaxed);
        self.packing.inner.total.unpacked.fetch_add(1, Ordering::Relaxed);
    }

    /// A packed object is gone, or became plain.
    pub(super) fn remove(&self, saved: i64) {
        self.save(-saved);
        self.packing.inner.total.objects.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether bytes that were unpacked may stay plain. They are counted then.
    pub(super) fn stays_plain(&self, bytes: usize) -> bool {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let total = &self.packing.inner.total.hot;
        let most = i64::try_from(self.packing.config().hot_bytes).unwrap_or(i64::MAX);
        if total.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > most {
            total.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        self.hot.fetch_add(bytes, Ordering::Relaxed);
        true
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.packing.inner.total.hot.fetch_sub(*self.hot.get_mut(), Ordering::Relaxed);
    }
}
