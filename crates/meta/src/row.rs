//! One table row as the apiserver printed it, without its object.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::Moment;

/// A row: `{"cells":[…],"object":` and `}`. The object belongs between them.
#[derive(Clone, Debug)]
pub struct Row {
    /// The bytes before the object.
    pub head: Bytes,
    /// The bytes after the object.
    pub tail: Bytes,
    /// The positions of the cells in `head`, including brackets.
    pub cells: Range<u32>,
    /// The parts of `head` with a relative time, in order and without overlap.
    pub holes: SmallVec<[Hole; 2]>,
}

/// A part of a row's text that shows how long ago a moment is. The stored text is the one from when the row was
/// received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hole {
    /// The positions in [`Row::head`], inside the quotes of a string.
    pub at: Range<u32>,
    pub moment: Moment,
}

// === impl Row ===

impl Row {
    /// The parts that do not depend on the time.
    fn fixed(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self.holes.iter().map(|hole| hole.at.start as usize).chain([self.head.len()]);
        let starts = std::iter::once(0).chain(self.holes.iter().map(|hole| hole.at.end as usize));
        starts.zip(ends).map(|(start, end)| self.head.get(start..end).unwrap_or_default())
    }

    /// The memory of the row in bytes.
    pub fn size(&self) -> usize {
        let spilled = if self.holes.spilled() { self.holes.capacity() * std::mem::size_of::<Hole>() } else { 0 };
        std::mem::size_of::<Self>() + self.head.len() + self.tail.len() + spilled
    }
}

/// Rows are equal if they have the same text at the same time.
impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        let moments = |row: &Self| row.holes.iter().map(|hole| hole.moment).collect::<SmallVec<[_; 2]>>();
        self.tail == other.tail && moments(self) == moments(other) && self.fixed().eq(other.fixed())
    }
}

impl Eq for Row {}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(head: &'static str, holes: &[Range<u32>], moment: Moment) -> Row {
        let holes = holes.iter().map(|at| Hole { at: at.clone(), moment }).collect();
        Row { head: Bytes::from_static(head.as_bytes()), tail: Bytes::from_static(b"}"), cells: 0..0, holes }
    }

    #[test]
    fn what_ages_makes_no_difference() {
        let (then, later) = (Moment::default(), Moment::default().plus(1));
        let young = row("a 5s b 1m c", &[2..4, 7..9], then);
        assert_eq!(young, row("a 10s b 70m c", &[2..5, 8..11], then));
        for other in [
            row("a 5s b 1m c", &[2..4, 7..9], later),
            row("a 5s b 1m d", &[2..4, 7..9], then),
            row("a 5s x 1m c", &[2..4, 7..9], then),
            row("a 5s b 1m c", std::slice::from_ref(&(2..4)), then),
        ] {
            assert_ne!(young, other);
        }
    }
}
