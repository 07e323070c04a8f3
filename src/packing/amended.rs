//! A version of an object as the packed bytes of an earlier version and the difference from them.
//!
//! Most changes of an object are small: a status, a time, a count. To find such a difference takes a third of the time
//! that the compressor needs for the whole object.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::delta;
use super::dictionary::Packed;
use crate::memory::allocated;

/// The packed bytes of an earlier version, and the difference from them.
pub(super) struct Amended {
    base: Arc<Packed>,
    /// Empty in the version whose bytes are `base`.
    delta: Box<[u8]>,
    /// Length of the plain bytes.
    len: u32,
}

/// A difference is at most this part of the packed bytes. A larger one would cost more memory than it saves time.
const PART: usize = 3;

// === impl Amended ===

impl Amended {
    /// The version whose bytes are `base`, which later versions can share.
    pub(super) fn first(base: Packed) -> Self {
        let len = base.len() as u32;
        Self::new(base.into_shared(), Box::default(), len)
    }

    /// A version with these bytes. `None` if they differ too much.
    pub(super) fn from_difference(base: &Arc<Packed>, plain: &[u8]) -> Option<Self> {
        let most = base.size() / PART;
        let delta = base.unpacked(|base| delta::diff(base, plain, most))?;
        Some(Self::new(Arc::clone(base), delta, u32::try_from(plain.len()).ok()?))
    }

    /// A version that was saved. `None` if it is malformed.
    pub(super) fn load(base: Packed, delta: &[u8], len: usize) -> Option<Self> {
        let fits = delta::length(base.len(), delta) == Some(len) && !delta.is_empty();
        let (base, len) = (base.into_shared(), u32::try_from(len).ok()?);
        fits.then(|| Self::new(base, delta.into(), len))
    }

    fn new(base: Arc<Packed>, delta: Box<[u8]>, len: u32) -> Self {
        let amended = Self { base, delta, len };
        amended.base.tally().add(amended.saved());
        amended
    }

    pub(super) fn base(&self) -> &Arc<Packed> {
        &self.base
    }

    pub(super) fn delta(&self) -> &[u8] {
        &self.delta
    }

    /// The plain bytes.
    pub(super) fn unpack(&self) -> Bytes {
        if self.delta.is_empty() {
            return self.base.unpack();
        }
        let plain = self.base.unpacked(|base| delta::apply(base, &self.delta, self.len()));
        self.base.tally().count_unpacked();
        // The difference was made from these very bytes.
        debug_assert!(plain.is_some());
        plain.unwrap_or_default().into()
    }

    /// Length of the plain bytes.
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// The memory of the difference. The version that the others differ from counts what they share.
    pub(super) fn size(&self) -> usize {
        if self.delta.is_empty() { self.base.size() } else { allocated(self.delta.len()) }
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
