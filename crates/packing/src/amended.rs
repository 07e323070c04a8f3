//! A version of an object as the packed bytes of an earlier version and the difference from them.
//!
//! Most changes of an object are small: a status, a time, a count. To unpack the earlier version and to find such a
//! difference takes less time than the compressor needs for the whole object.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::damaged::{Damaged, damaged};
use super::delta;
use super::dictionary::{self, Packed};
use super::reading::Reading;
use informerd_memory::allocated;

/// The packed bytes of an earlier version, and the difference from them.
pub(super) struct Amended {
    base: Arc<Packed>,
    /// Empty in the version that was packed.
    delta: Box<[u8]>,
    /// Length of the plain bytes.
    len: u32,
}

/// A difference is at most this part of the packed bytes. A larger one would cost more memory than it saves time.
const PART: usize = 3;

/// The earlier version is at most this many times as long. A larger one is not kept for what is left of the object.
const LONGER: usize = 2;

// === impl Amended ===

impl Amended {
    /// The version whose bytes are `base`, which later versions can share.
    pub(super) fn first(base: Packed) -> Self {
        let len = base.len() as u32;
        Self::new(base.into_shared(), Box::default(), len)
    }

    /// A version with these bytes. `None` if they differ too much, or would not become smaller by a quarter.
    pub(super) fn from_difference(base: &Arc<Packed>, plain: &[u8]) -> Option<Self> {
        let most = (base.size() / PART).min((plain.len() - plain.len() / 4).saturating_sub(base.size()));
        if most == 0 || base.len() > (plain.len() * LONGER).min(delta::LARGEST) || plain.len() > dictionary::LARGEST {
            return None;
        }
        let delta = base.unpacked(|base| delta::diff(base, plain, most)).ok()??;
        base.tally().count_packed();
        Some(Self::new(Arc::clone(base), delta, u32::try_from(plain.len()).ok()?))
    }

    /// A version that was saved. `None` if it is malformed, or does not come back.
    pub(super) fn load(base: Packed, delta: &[u8], len: usize) -> Option<Self> {
        let is_whole = delta::length(base.len(), delta) == Some(len) && !delta.is_empty();
        let fits = is_whole && len <= dictionary::LARGEST && base.try_unpacked(|_| ()).is_some();
        let (base, len) = (base.into_shared(), u32::try_from(len).ok()?);
        fits.then(|| Self::new(base, delta.into(), len))
    }

    fn new(base: Arc<Packed>, delta: Box<[u8]>, len: u32) -> Self {
        let amended = Self { base, delta, len };
        amended.base.tally().hold(amended.saved());
        amended
    }

    pub(super) fn base(&self) -> &Arc<Packed> {
        &self.base
    }

    pub(super) fn delta(&self) -> &[u8] {
        &self.delta
    }

    /// The plain bytes.
    ///
    /// # Errors
    /// They do not come back.
    pub(super) fn unpack(&self, reading: Reading) -> Result<Bytes, Damaged> {
        if self.delta.is_empty() {
            return self.base.unpack(reading);
        }
        let plain = self.base.unpacked(|base| delta::apply(base, &self.delta, self.len()))?;
        self.base.tally().count_unpacked(reading);
        // The difference was made from these very bytes.
        plain.map(Bytes::from).ok_or_else(|| damaged(format_args!("{self:?}")))
    }

    /// Length of the plain bytes.
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// The memory of the difference. What versions share is counted by the one that was packed, or by the last one.
    pub(super) fn size(&self) -> usize {
        let counts_base = self.delta.is_empty() || Arc::strong_count(&self.base) == 1;
        allocated(self.delta.len()) + if counts_base { self.base.size() } else { 0 }
    }

    fn saved(&self) -> i64 {
        allocated(self.len()) as i64 - allocated(self.delta.len()) as i64
    }
}

impl Drop for Amended {
    fn drop(&mut self) {
        self.base.tally().remove(self.saved());
    }
}

impl fmt::Debug for Amended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Amended({} of {})", self.delta.len(), self.len)
    }
}
