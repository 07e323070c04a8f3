//! The bytes of one object.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::amended::Amended;
use super::damaged::{Damaged, damaged};
use super::delta;
use super::dictionary::Packed;
use super::packer::Packer;
use super::reading::Reading;
use informerd_memory::allocated;

/// The bytes of one object. Everybody who holds the object shares its form, and sees the same bytes in either.
pub struct Body {
    state: Mutex<State>,
}

struct State {
    form: Form,
    /// Recent reads, at most [`MOST_READS`]. The packer halves them in each pass.
    reads: u8,
    /// Packing was tried and gained too little.
    gains_nothing: bool,
    /// The length of the longest chain of older versions that are differences from this one.
    older: u8,
}

#[derive(Debug)]
pub(super) enum Form {
    Plain {
        bytes: Bytes,
        /// The packed bytes of this or an earlier version.
        base: Option<Arc<Packed>>,
    },
    Packed(Packed),
    Amended(Amended),
    Patch(Patch),
}

/// The difference from the next version of the object.
pub(super) struct Patch {
    next: Arc<dyn Version>,
    delta: Box<[u8]>,
    len: u32,
}

/// A version of an object, which older ones may be differences from.
pub trait Version: Send + Sync {
    fn body(&self) -> &Body;
}

/// What a visit of the packer did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// The plain bytes are read too often to be packed.
    Hot(usize),
    /// The bytes are too few, or gain too little.
    Plain,
    Packed,
    /// It was plain before the visit: `plain` bytes became `packed` bytes.
    NowPacked {
        plain: usize,
        packed: usize,
    },
}

/// A longer chain of differences would take too long to unpack: each link costs about 2 µs.
const LONGEST_CHAIN: u8 = 32;

/// Reads are counted up to this number.
pub const MOST_READS: u8 = 8;

/// Objects smaller than this stay plain: a packed one needs a dozen bytes for its frame alone.
const LEAST: usize = 256;

// === impl Body ===

impl Body {
    /// Bytes that have just arrived, and are read next by those who watch.
    pub fn new(plain: Bytes) -> Self {
        Self::of(Form::Plain { bytes: plain, base: None })
    }

    /// Bytes that were saved in this form.
    pub(super) fn of(form: Form) -> Self {
        Self { state: Mutex::new(State { form, reads: 0, gains_nothing: false, older: 0 }) }
    }

    pub(super) fn with_form<T>(&self, look: impl FnOnce(&Form) -> T) -> T {
        look(&self.state.lock().form)
    }

    /// The bytes. Packed ones are unpacked, once for all who ask at the same time. They stay plain if answers need them
    /// again before the packer's next pass, and if the budget of such bytes allows it.
    ///
    /// # Errors
    /// They do not come back as they were.
    pub fn bytes(&self, reading: Reading) -> Result<Bytes, Damaged> {
        let mut state = self.state.lock();
        let reads = state.reads;
        if reading == Reading::Answer && reads < MOST_READS {
            state.reads = reads + 1;
        }
        let (bytes, tally, base) = match &state.form {
            Form::Plain { bytes, .. } => return Ok(bytes.clone()),
            Form::Patch(patch) => return patch.unpack(reading),
            Form::Packed(packed) => (packed.unpack(reading)?, packed.tally(), None),
            Form::Amended(amended) => (amended.unpack(reading)?, amended.base().tally(), Some(amended.base())),
        };
        if reading == Reading::Answer && reads > 0 && tally.stays_plain(bytes.len()) {
            state.form = Form::Plain { bytes: bytes.clone(), base: base.cloned() };
        }
        Ok(bytes)
    }

    /// The memory of the bytes in their present form.
    pub fn size(&self) -> usize {
        match &self.state.lock().form {
            Form::Plain { bytes, .. } => allocated(bytes.len()),
            Form::Packed(packed) => packed.size(),
            Form::Amended(amended) => amended.size(),
            Form::Patch(patch) => allocated(patch.delta.len()),
        }
    }

    /// The most memory that the bytes will ever need: they may become plain again, but a difference stays one.
    pub fn most_size(&self) -> usize {
        match &self.state.lock().form {
            Form::Plain { bytes, .. } => allocated(bytes.len()),
            Form::Packed(packed) => allocated(packed.len()),
            Form::Amended(amended) => allocated(amended.len()),
            Form::Patch(patch) => allocated(patch.delta.len()),
        }
    }

    /// The next version has replaced this one. Plain bytes are kept as the difference from it, if that is small; every
    /// [`LONGEST_CHAIN`] versions, one is kept as it is. Packed bytes are shared with it, for when it is packed itself.
    pub fn replaced_by(&self, next: &Arc<impl Version + 'static>) {
        let mut state = self.state.lock();
        // The next version never needs this one to be unpacked, so the locks are always taken in this order.
        let mut after = next.body().state.lock();
        let Form::Plain { bytes: new, base: shared } = &mut after.form else { return };
        (state.form, *shared) = std::mem::take(&mut state.form).shared();
        let Form::Plain { bytes: old, .. } = &state.form else { return };
        if old.len() < LEAST || state.older >= LONGEST_CHAIN {
            return;
        }
        let (Some(delta), Ok(len)) = (delta::diff(new, old, old.len() / 2), u32::try_from(old.len())) else { return };
        after.older = after.older.max(state.older + 1);
        drop(after);
        let next: Arc<dyn Version> = next.clone();
        state.form = Form::Patch(Patch { next, delta, len });
    }

    /// Packs the bytes, unless they were read more than `bar` times of late.
    pub fn pack(&self, packer: &Packer, bar: u8) -> Visit {
        let mut state = self.state.lock();
        let reads = std::mem::replace(&mut state.reads, 0);
        state.reads = reads / 2;
        let State { form, gains_nothing, .. } = &mut *state;
        let Form::Plain { bytes, base } = form else { return Visit::Packed };
        if bytes.len() < LEAST || *gains_nothing {
            *base = None;
            return Visit::Plain;
        }
        let plain = bytes.len();
        if reads > bar {
            return Visit::Hot(plain);
        }
        let (packed, size) = if let Some(amended) = base.as_ref().and_then(|base| packer.amend(base, bytes)) {
            let size = amended.size();
            (Form::Amended(amended), size)
        } else if let Some(packed) = packer.pack(bytes) {
            let size = packed.size();
            (Form::Packed(packed), size)
        } else {
            (*gains_nothing, *base) = (packer.is_trained(), None);
            return Visit::Plain;
        };
        *form = packed;
        Visit::NowPacked { plain, packed: size }
    }

    /// Makes packed bytes such that they do not come back, for tests of what follows.
    #[cfg(any(test, feature = "testing"))]
    #[allow(clippy::panic, reason = "a test fails by panicking")]
    pub fn spoil(&self) {
        super::expect_damage();
        match &mut self.state.lock().form {
            Form::Packed(packed) => packed.spoil(),
            other => panic!("only packed bytes can be spoilt: {other:?}"),
        }
    }

    /// Whether each read has bytes of its own.
    pub fn is_packed(&self) -> bool {
        !matches!(self.state.lock().form, Form::Plain { .. })
    }
}

// === impl Form ===

impl Form {
    /// The same bytes so that a later version can share them, if they are packed, and what it shares.
    fn shared(self) -> (Self, Option<Arc<Packed>>) {
        let amended = match self {
            Self::Plain { ref base, .. } => {
                let base = base.clone();
                return (self, base);
            }
            Self::Packed(packed) => Amended::first(packed),
            Self::Amended(amended) => amended,
            Self::Patch(_) => return (self, None),
        };
        let base = Arc::clone(amended.base());
        (Self::Amended(amended), Some(base))
    }
}

impl Default for Form {
    fn default() -> Self {
        Self::Plain { bytes: Bytes::new(), base: None }
    }
}

// === impl Patch ===

impl Patch {
    fn unpack(&self, reading: Reading) -> Result<Bytes, Damaged> {
        let plain = delta::apply(&self.next.body().bytes(reading)?, &self.delta, self.len as usize);
        // The difference was made from these very bytes.
        plain.map(Bytes::from).ok_or_else(|| damaged(format_args!("{self:?}")))
    }
}

impl fmt::Debug for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Patch({} of {})", self.delta.len(), self.len)
    }
}

impl fmt::Debug for Body {
    /// The same for bodies that show the same: without how often they were read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.lock().form.fmt(f)
    }
}
