//! One row of a table as the apiserver printed it, without the object it is of.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::Moment;

/// A row: `{"cells":[…],"object":` and `}`, between which the object stands.
#[derive(Clone, Debug)]
pub struct Row {
    /// What comes before the object's value.
    pub head: Bytes,
    /// What comes after it.
    pub tail: Bytes,
    /// Positions of the cells in `head`, brackets included.
    pub cells: Range<u32>,
    /// The parts of `head` that tell a time relative to now, in order; they do not overlap.
    pub holes: SmallVec<[Hole; 2]>,
}

/// A part of a row's text that says how long ago a moment is. What stands there is what it said when it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hole {
    /// Positions in [`Row::head`], within the quotes of a string.
    pub at: Range<u32>,
    pub moment: Moment,
}

// === impl Row ===

impl Row {
    /// Bytes it holds in memory.
    pub fn size(&self) -> usize {
        let spilled = if self.holes.spilled() { self.holes.capacity() * std::mem::size_of::<Hole>() } else { 0 };
        std::mem::size_of::<Self>() + self.head.len() + self.tail.len() + spilled
    }
}
