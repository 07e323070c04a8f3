//! Objects at rest: their bytes plain, packed with a dictionary that was trained on other objects of the same
//! resource, as the difference from an earlier version that is packed, or for a replaced version, as the difference from
//! the version that replaced it.
//!
//! [`Packing`] has the settings and the counts of the whole process. Each cache has a [`Packer`], which trains its
//! dictionaries. An object keeps its bytes in a [`Body`], which gives the same bytes in either form.

mod amended;
mod body;
mod damaged;
mod delta;
mod dictionary;
mod metrics;
pub mod numbers;
mod packer;
mod reading;
mod saved;
mod tally;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

pub use body::{Body, MOST_READS, Version, Visit};
#[cfg(any(test, feature = "testing"))]
pub use damaged::expect_damage;
pub use damaged::{Damaged, damaged, damaged_total};
pub use packer::{Packer, SAMPLES};
pub use reading::Reading;
pub use saved::{Dictionaries, Library};

/// Which objects are packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PackingForm {
    /// Objects that nobody has read for a while, once the caches of the process have grown.
    #[default]
    Auto,
    /// None.
    Plain,
    /// All objects that nobody has read for a while.
    Packed,
}

/// Settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackingConfig {
    pub form: PackingForm,
    /// While all caches together would hold less than this if every object were plain, `Auto` packs nothing.
    pub threshold: usize,
    /// Bytes of plain bodies that may stay plain because they are read, in all caches together. Default 64 MiB, as
    /// much as all caches together may hold before `Auto` packs anything.
    pub hot_bytes: usize,
}

/// The settings, and what is packed in the whole process. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Packing {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    config: PackingConfig,
    total: Counts,
    /// Held while a dictionary is trained: each needs more than 10 MB at once.
    training: Mutex<()>,
}

/// What is packed, and how often.
#[derive(Debug, Default)]
struct Counts {
    /// Bytes that packed objects would need in addition if they were plain, less the bytes of the dictionaries.
    saved: AtomicI64,
    /// Plain bodies that are kept plain because they are read. As the packer counted them in its last pass, and those
    /// that became plain since.
    hot: AtomicI64,
    /// Objects that are packed now.
    objects: AtomicI64,
    packed: AtomicU64,
    unpacked: AtomicU64,
    trained: AtomicU64,
}

/// The counts of the process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackingStats {
    pub objects: u64,
    /// Negative if the dictionaries need more than they save.
    pub saved_bytes: i64,
    pub hot_bytes: u64,
    pub packed_total: u64,
    pub unpacked_total: u64,
    pub trained_total: u64,
}

// === impl PackingConfig ===

impl PackingConfig {
    /// The settings for caches that may hold `limit` bytes together.
    pub fn of(form: PackingForm, hot_bytes: usize, limit: usize) -> Self {
        let threshold = if limit < LEAST_LIMIT { usize::MAX } else { THRESHOLD.min(limit / 3) };
        Self { form, threshold, hot_bytes: hot_bytes.min(limit / 4) }
    }
}

impl Default for PackingConfig {
    fn default() -> Self {
        Self::of(PackingForm::default(), THRESHOLD, usize::MAX)
    }
}

/// The threshold of `Auto`, unless a third of the limit is less: caches this small are not worth the processor time.
const THRESHOLD: usize = 64 << 20;

/// With less memory for all caches, `Auto` packs nothing: training a dictionary needs 15 MB at once, and each thread
/// that packs needs 1 MB.
const LEAST_LIMIT: usize = 64 << 20;

// === impl Packing ===

impl Packing {
    pub fn new(config: PackingConfig) -> Self {
        Self { inner: Arc::new(Inner { config, total: Counts::default(), training: Mutex::default() }) }
    }

    pub fn config(&self) -> &PackingConfig {
        &self.inner.config
    }

    pub fn stats(&self) -> PackingStats {
        let total = &self.inner.total;
        PackingStats {
            objects: total.objects.load(Ordering::Relaxed).try_into().unwrap_or(0),
            saved_bytes: total.saved.load(Ordering::Relaxed),
            hot_bytes: total.hot.load(Ordering::Relaxed).try_into().unwrap_or(0),
            packed_total: total.packed.load(Ordering::Relaxed),
            unpacked_total: total.unpacked.load(Ordering::Relaxed),
            trained_total: total.trained.load(Ordering::Relaxed),
        }
    }

    /// Whether caches that hold `used` bytes would exceed the threshold if all objects were plain.
    fn is_above_threshold(&self, used: usize) -> bool {
        used.saturating_add_signed(self.inner.total.saved.load(Ordering::Relaxed).try_into().unwrap_or(isize::MAX))
            > self.inner.config.threshold
    }

    /// Whether more bytes are plain because they are read than may be.
    pub fn is_hot(&self) -> bool {
        self.inner.total.hot.load(Ordering::Relaxed) > i64::try_from(self.inner.config.hot_bytes).unwrap_or(i64::MAX)
    }
}
