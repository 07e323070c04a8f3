//! The packer of one cache: its dictionaries, and what they save.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::amended::Amended;
use super::dictionary::{Dictionary, Packed, within};
use super::tally::Tally;
use super::{Packing, PackingForm};

/// Packs the objects of one cache. Clones share the dictionary and the counts.
#[derive(Clone, Debug)]
pub struct Packer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    form: PackingForm,
    /// Objects are packed now, not only when they are visited.
    is_active: AtomicBool,
    tally: Arc<Tally>,
    /// The newest dictionary. Earlier ones live as long as objects that were packed with them.
    dictionary: ArcSwapOption<Dictionary>,
    ratio: Mutex<Ratio>,
}

/// How well the dictionary fits: bytes before and after packing.
#[derive(Debug, Default)]
struct Ratio {
    trained: Option<Instant>,
    /// Parts in a thousand, of the first bytes that were packed with the dictionary.
    first: Option<usize>,
    plain: usize,
    packed: usize,
}

/// The ratio is looked at once this many bytes were packed.
const SPAN: usize = 1 << 20;

/// A dictionary is replaced when the ratio has become this much worse, in parts of 4: half as bad again.
const DRIFT: usize = 6;

/// A dictionary lives at least this long, which bounds the number of dictionaries as well as the time for training.
const LIFE: Duration = Duration::from_secs(600);

/// Samples to train on. More improve the ratio by less than a hundredth.
pub const SAMPLES: usize = 300;

/// Bytes of samples for each byte of the dictionary, at most. The time for training grows with the bytes of the samples,
/// and more of them improve the ratio by less than a hundredth.
const SAMPLED: usize = 19;

/// There is room for this many samples of the average size even so. The library refuses to train on fewer than seven.
const LEAST_SAMPLES: usize = 16;

/// The bytes of all samples, at most.
const SAMPLE_BYTES: usize = LARGEST * SAMPLED;

/// The limits of a dictionary. Its tables need four times its size in addition.
const SMALLEST: usize = 4 << 10;
const LARGEST: usize = 112 << 10;

/// A smaller cache is not packed: its dictionary would need a large part of what it saves.
const LEAST_AUTO: usize = 1 << 20;
const LEAST_PACKED: usize = 16 << 10;

/// A state smaller than this fraction of the threshold is not packed before all of it is there, as long as the caches
/// hold less than one and a half times the threshold. What is read at the start is needed soon, and packing takes time
/// from reading.
const EARLY: usize = 8;

// === impl Packing ===

impl Packing {
    /// Creates the packer of one cache, whose form may differ from that of the process.
    pub fn packer(&self, form: Option<PackingForm>) -> Packer {
        Packer::new(self.clone(), form.unwrap_or(self.inner.config.form))
    }
}

// === impl Packer ===

impl Packer {
    fn new(packing: Packing, form: PackingForm) -> Self {
        let tally = Arc::new(Tally::new(packing));
        let (dictionary, ratio) = (ArcSwapOption::empty(), Mutex::default());
        Self { inner: Arc::new(Inner { form, is_active: AtomicBool::new(false), tally, dictionary, ratio }) }
    }

    pub fn packing(&self) -> &Packing {
        &self.inner.tally.packing
    }

    pub fn form(&self) -> PackingForm {
        self.inner.form
    }

    /// Whether a cache of this size is packed. `used` bytes are held by all caches together.
    pub fn is_wanted(&self, used: usize, bytes: usize) -> bool {
        match self.form() {
            PackingForm::Auto => bytes >= LEAST_AUTO && self.packing().is_above_threshold(used),
            PackingForm::Plain => false,
            PackingForm::Packed => bytes >= LEAST_PACKED,
        }
    }

    /// Whether a state of this size is packed while it is read: if its plain objects would need much memory at once.
    pub fn is_wanted_early(&self, used: usize, bytes: usize) -> bool {
        let threshold = self.packing().config().threshold;
        let is_large = bytes >= threshold / EARLY || used >= threshold.saturating_add(threshold / 2);
        is_large && self.is_wanted(used, bytes) && self.packing().is_above_threshold(used)
    }

    /// Sets whether [`Self::is_active`].
    pub fn set_active(&self, active: bool) {
        self.inner.is_active.store(active, Ordering::Relaxed);
    }

    /// Whether objects that are replaced are packed at once.
    pub fn is_active(&self) -> bool {
        self.inner.is_active.load(Ordering::Relaxed) && self.is_trained()
    }

    /// Bytes that this cache's objects need less than if all were plain. Negative if the dictionaries need more.
    pub fn saved(&self) -> i64 {
        self.inner.tally.saved.load(Ordering::Relaxed)
    }

    /// Whether [`Self::train`] has been called, so that bytes can be packed.
    pub fn is_trained(&self) -> bool {
        self.inner.dictionary.load().is_some()
    }

    /// Whether a new dictionary is needed: there is none, or it has ceased to fit.
    pub fn needs_training(&self) -> bool {
        !self.is_trained() || self.inner.ratio.lock().has_drifted()
    }

    /// Trains a dictionary for a cache of `bytes`. It takes up to a few tenths of a second and waits for the training
    /// of other caches, so it must not run on a thread that serves clients.
    pub fn train(&self, samples: &[Bytes], bytes: usize) {
        let size = (bytes / 128).clamp(SMALLEST, LARGEST);
        let samples = fitting(samples, size * SAMPLED);
        if samples.is_empty() {
            return;
        }
        let one = self.packing().inner.training.lock();
        let dictionary = Dictionary::train(&samples, size, &self.inner.tally);
        drop(one);
        *self.inner.ratio.lock() = Ratio { trained: Some(Instant::now()), ..Ratio::default() };
        self.inner.dictionary.store(Some(Arc::new(dictionary)));
        self.packing().inner.total.trained.fetch_add(1, Ordering::Relaxed);
    }

    /// Uses a dictionary that was saved, unless there is one already. `None` if it is none.
    pub(super) fn load(&self, content: &[u8]) -> Option<Arc<Dictionary>> {
        if content.len() > LARGEST {
            return None;
        }
        let dictionary = Arc::new(Dictionary::load(content, &self.inner.tally)?);
        if self.form() != PackingForm::Plain && !self.is_trained() {
            *self.inner.ratio.lock() = Ratio { trained: Some(Instant::now()), ..Ratio::default() };
            self.inner.dictionary.store(Some(Arc::clone(&dictionary)));
        }
        Some(dictionary)
    }

    /// Sets how many bytes of this cache stay plain because they are read.
    pub fn set_hot(&self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let before = self.inner.tally.hot.swap(bytes, Ordering::Relaxed);
        self.packing().inner.total.hot.fetch_add(bytes - before, Ordering::Relaxed);
    }

    /// Whether packed objects of this cache were read since [`Self::begin_pass`].
    pub fn is_read(&self) -> bool {
        self.inner.tally.is_read.load(Ordering::Relaxed)
    }

    /// All objects are about to be visited.
    pub fn begin_pass(&self) {
        self.inner.tally.is_read.store(false, Ordering::Relaxed);
    }

    /// Packs bytes as the difference from an earlier version. `None` if they gain too little, or if a newer dictionary is
    /// in use: old ones must go in time.
    pub(super) fn amend(&self, base: &Arc<Packed>, plain: &[u8]) -> Option<Amended> {
        let dictionary = self.inner.dictionary.load();
        let is_new = dictionary.as_ref().is_some_and(|newest| Arc::ptr_eq(newest, base.dictionary()));
        is_new.then(|| Amended::from_difference(base, plain)).flatten()
    }

    /// Packs bytes. `None` if they gain too little, or if there is no dictionary yet.
    pub(super) fn pack(&self, plain: &[u8]) -> Option<Packed> {
        let dictionary = self.inner.dictionary.load();
        let packed = dictionary.as_ref()?.pack(plain)?;
        self.inner.ratio.lock().add(plain.len(), packed.size());
        Some(packed)
    }
}

// === impl Ratio ===

impl Ratio {
    fn add(&mut self, plain: usize, packed: usize) {
        self.plain += plain;
        self.packed += packed;
        if self.first.is_none() && self.plain >= SPAN {
            self.first = Some(self.take());
        }
    }

    /// Whether what was packed since the last look gains clearly less than what was packed first.
    fn has_drifted(&mut self) -> bool {
        let Some(first) = self.first.filter(|_| self.plain >= SPAN) else { return false };
        let old = self.trained.is_none_or(|trained| trained.elapsed() > LIFE);
        old && self.take() * 4 > first * DRIFT
    }

    /// The ratio of what was added, in parts of a thousand; begins anew.
    fn take(&mut self) -> usize {
        let ratio = self.packed.saturating_mul(1000) / self.plain.max(1);
        (self.plain, self.packed) = (0, 0);
        ratio
    }
}

/// Samples from everywhere in `samples`, with about `room` bytes, or [`LEAST_SAMPLES`] if those are larger.
fn fitting(samples: &[Bytes], room: usize) -> Vec<&[u8]> {
    let samples: Vec<&[u8]> = samples.iter().map(|sample| &sample[..]).filter(|it| it.len() <= SAMPLE_BYTES).collect();
    let (all, bytes) = (samples.len(), samples.iter().map(|sample| sample.len()).sum::<usize>());
    let room = room.max(bytes / all.max(1) * LEAST_SAMPLES).min(SAMPLE_BYTES);
    let count = if bytes <= room { all } else { (all * room / bytes).max(1) };
    let spread = (0..count).filter_map(|i| samples.get(i * all / count).copied());
    within(spread, room).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(sizes: impl IntoIterator<Item = usize>, room: usize) -> Vec<usize> {
        let samples: Vec<Bytes> = sizes.into_iter().map(|size| vec![0; size].into()).collect();
        fitting(&samples, room).iter().map(|sample| sample.len()).collect()
    }

    #[test]
    fn samples_come_from_everywhere_and_fit() {
        let sizes = || 951..1051;
        assert_eq!(taken(sizes(), 200_000), sizes().collect::<Vec<_>>());
        let few = taken(sizes(), 20_000);
        assert!((19..=20).contains(&few.len()), "{few:?}");
        assert!(few[0] < 960 && few.windows(2).all(|pair| (5..=6).contains(&(pair[1] - pair[0]))), "{few:?}");
        // Nearly all fit, not half of them.
        assert_eq!(taken([10; 100], 990).len(), 99);
        assert!(taken([], 10).is_empty());
    }

    #[test]
    fn large_samples_leave_room_for_others() {
        let huge = SAMPLE_BYTES + 1;
        assert_eq!(taken([huge, 10, 10, 10], 100), [10; 3]);
        assert!(taken([huge], 100).is_empty());
        // As many as the library needs, within the bound.
        assert_eq!(taken([100 << 10; 30], 4 << 10).len(), LEAST_SAMPLES);
        assert_eq!(taken([700 << 10; 5], 4 << 10).len(), 3);
        assert_eq!(taken([1 << 20, 100 << 10], 4 << 10).len(), 2);
    }
}
