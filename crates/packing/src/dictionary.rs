//! A trained dictionary, and bytes that were packed with it.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use zstd::zstd_safe::{CCtx, CDict, DCtx, DDict};

use super::damaged::{Damaged, damaged};
use super::reading::Reading;
use super::tally::Tally;
use informerd_memory::allocated;

/// What the objects of one cache have in common.
pub(super) struct Dictionary {
    pack: CDict<'static>,
    unpack: DDict<'static>,
    /// What both were made from.
    content: Box<[u8]>,
    size: usize,
    tally: Arc<Tally>,
}

/// Packed bytes, and what is needed to unpack them.
pub(super) struct Packed {
    bytes: Box<[u8]>,
    dictionary: Arc<Dictionary>,
    /// Length of the plain bytes. An object is far below 4 GiB.
    len: u32,
    /// Whether versions of an object share it. Each of them counts the plain bytes that it saves.
    is_shared: bool,
}

/// The level with the best ratio that packs an object of 5 kB in about 10 µs.
const LEVEL: i32 = 3;

/// A larger object would enlarge the buffers that each thread keeps. etcd takes no object over 1.5 MiB by default.
pub(super) const LARGEST: usize = 2 << 20;

/// The working memory of the library, one for each thread: about 1 MiB, and less for threads that only unpack. The buffers
/// grow to the size of the largest object.
struct Workshop {
    pack: CCtx<'static>,
    unpack: DCtx<'static>,
    /// For packed bytes.
    buffer: Vec<u8>,
    /// For plain bytes that are only looked at.
    plain: Vec<u8>,
}

thread_local! {
    static WORKSHOP: RefCell<Workshop> = RefCell::new(Workshop {
        pack: CCtx::create(),
        unpack: DCtx::create(),
        buffer: Vec::new(),
        plain: Vec::new(),
    });
}

// === impl Dictionary ===

impl Dictionary {
    /// Trains a dictionary of at most `size` bytes. This takes about 0.4 ms for each sample. Samples that are too few
    /// or too alike to be trained on become the dictionary themselves.
    pub(super) fn train(samples: &[&[u8]], size: usize, tally: &Arc<Tally>) -> Self {
        let content = zstd::dict::from_samples(samples, size).unwrap_or_else(|_| joined(samples, size));
        let (pack, unpack) = (CDict::create(&content, LEVEL), DDict::create(&content));
        Self::of(content.into(), pack, unpack, tally)
    }

    /// A dictionary that was saved. `None` if it is none.
    pub(super) fn load(content: &[u8], tally: &Arc<Tally>) -> Option<Self> {
        let (pack, unpack) = (CDict::try_create(content, LEVEL)?, DDict::try_create(content)?);
        Some(Self::of(content.into(), pack, unpack, tally))
    }

    fn of(content: Box<[u8]>, pack: CDict<'static>, unpack: DDict<'static>, tally: &Arc<Tally>) -> Self {
        let size = content.len() + pack.sizeof() + unpack.sizeof();
        tally.save(-size_of(size));
        Self { pack, unpack, content, size, tally: Arc::clone(tally) }
    }

    /// What it is made from, to be saved.
    pub(super) fn content(&self) -> &[u8] {
        &self.content
    }

    /// Packs bytes, if they become smaller by at least a quarter.
    pub(super) fn pack(self: &Arc<Self>, plain: &[u8]) -> Option<Packed> {
        if plain.len() > LARGEST {
            return None;
        }
        WORKSHOP.with_borrow_mut(|Workshop { pack, buffer, .. }| {
            // A result that needs more room is of no use.
            buffer.resize(plain.len() - plain.len() / 4, 0);
            let len = pack.compress_using_cdict(&mut buffer[..], plain, &self.pack).ok()?;
            let packed = Packed::new(buffer.get(..len)?.into(), plain.len(), self)?;
            self.tally.count_packed();
            Some(packed)
        })
    }
}

impl Drop for Dictionary {
    fn drop(&mut self) {
        self.tally.save(size_of(self.size));
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary").field("size", &self.size).finish_non_exhaustive()
    }
}

// === impl Packed ===

impl Packed {
    /// Bytes that were saved: `bytes` unpack to `len` bytes. `None` if that is more than any packed object has.
    pub(super) fn load(bytes: &[u8], len: usize, dictionary: &Arc<Dictionary>) -> Option<Self> {
        (len <= LARGEST).then(|| Self::new(bytes.into(), len, dictionary)).flatten()
    }

    fn new(bytes: Box<[u8]>, len: usize, dictionary: &Arc<Dictionary>) -> Option<Self> {
        let (dictionary, len) = (Arc::clone(dictionary), u32::try_from(len).ok()?);
        let packed = Self { bytes, dictionary, len, is_shared: false };
        packed.tally().hold(packed.saved());
        Some(packed)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn dictionary(&self) -> &Arc<Dictionary> {
        &self.dictionary
    }

    /// What versions of an object share.
    pub(super) fn into_shared(mut self) -> Arc<Self> {
        self.tally().remove(self.saved());
        self.is_shared = true;
        self.tally().save(self.saved());
        Arc::new(self)
    }

    /// The plain bytes.
    ///
    /// # Errors
    /// They do not come back.
    pub(super) fn unpack(&self, reading: Reading) -> Result<Bytes, Damaged> {
        let mut plain = Vec::with_capacity(self.len());
        WORKSHOP.with_borrow_mut(|workshop| self.unpack_into(&mut plain, &mut workshop.unpack))?;
        self.tally().count_unpacked(reading);
        Ok(plain.into())
    }

    /// Calls `look` with the plain bytes, which are in a buffer of the thread. `look` must not pack or unpack others.
    ///
    /// # Errors
    /// They do not come back.
    pub(super) fn unpacked<T>(&self, look: impl FnOnce(&[u8]) -> T) -> Result<T, Damaged> {
        self.try_unpacked(look).ok_or_else(|| self.report())
    }

    /// The same for bytes that this process has not packed. `None` if they do not come back, which is no news then.
    pub(super) fn try_unpacked<T>(&self, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        WORKSHOP.with_borrow_mut(|workshop| {
            workshop.plain.clear();
            workshop.plain.reserve(self.len());
            self.comes_back(&mut workshop.plain, &mut workshop.unpack).then(|| look(&workshop.plain))
        })
    }

    fn unpack_into(&self, plain: &mut Vec<u8>, context: &mut DCtx<'static>) -> Result<(), Damaged> {
        if self.comes_back(plain, context) { Ok(()) } else { Err(self.report()) }
    }

    /// Whether these are bytes that were packed with this dictionary, and were as many. `plain` has room for them.
    fn comes_back(&self, plain: &mut Vec<u8>, context: &mut DCtx<'static>) -> bool {
        let unpacked = context.decompress_using_ddict(plain, &self.bytes, &self.dictionary.unpack);
        unpacked == Ok(self.len()) && plain.len() == self.len()
    }

    #[cold]
    fn report(&self) -> Damaged {
        damaged(format_args!("{self:?}"))
    }

    /// Bytes that do not come back, for tests of what follows.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn spoil(&mut self) {
        self.bytes.iter_mut().for_each(|byte| *byte = !*byte);
    }

    /// Length of the plain bytes.
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// The memory of the packed bytes.
    pub(super) fn size(&self) -> usize {
        allocated(self.bytes.len())
    }

    pub(super) fn tally(&self) -> &Arc<Tally> {
        &self.dictionary.tally
    }

    fn saved(&self) -> i64 {
        if self.is_shared {
            let own = allocated(std::mem::size_of::<Self>() + 2 * std::mem::size_of::<usize>());
            return -size_of(self.size() + own);
        }
        size_of(allocated(self.len())) - size_of(self.size())
    }
}

impl Drop for Packed {
    fn drop(&mut self) {
        let tally = self.tally();
        if self.is_shared { tally.save(-self.saved()) } else { tally.remove(self.saved()) }
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed({} of {})", self.bytes.len(), self.len)
    }
}

fn size_of(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// The last bytes of a dictionary are found with the shortest offsets, so the first samples come last.
fn joined(samples: &[&[u8]], size: usize) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = within(samples.iter().copied(), size).collect();
    parts.reverse();
    parts.concat()
}

/// The samples that fit into `room` bytes, each if it fits beside those before it.
pub(super) fn within<'s>(samples: impl Iterator<Item = &'s [u8]>, mut room: usize) -> impl Iterator<Item = &'s [u8]> {
    samples.filter(move |sample| {
        let fits = sample.len() <= room;
        room -= if fits { sample.len() } else { 0 };
        fits
    })
}
