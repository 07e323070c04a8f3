//! Input that is almost right: made by choices, each of which is a random byte, and then damaged.

use proptest::prelude::*;

/// The choices that are left. When there are none, the first of everything is chosen.
pub(super) struct Choices<'a>(pub &'a [u8]);

/// One change of a byte string: where, and what is put there instead of how many bytes.
pub(super) type Damage = (prop::sample::Index, u8, u8);

/// Bytes that mean something to a parser.
const MEANINGFUL: &[u8] = b"\"\\{}[],: \n\0nt01.-eu\x0a\x12\xff\x80";

// === impl Choices ===

impl Choices<'_> {
    pub(super) fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.next()) % bound
    }

    pub(super) fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == many - 1
    }

    pub(super) fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    /// Up to `most` of these, one after the other.
    pub(super) fn some<T>(&mut self, most: usize, mut each: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| each(self)).collect()
    }
}

pub(super) fn choices() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..160)
}

/// Nothing in most cases.
pub(super) fn damage() -> impl Strategy<Value = Vec<Damage>> {
    prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(any::<Damage>(), 1..4)]
}

pub(super) fn damaged(mut bytes: Vec<u8>, damage: &[Damage]) -> Vec<u8> {
    for (index, byte, how) in damage {
        let at = index.index(bytes.len() + 1);
        let end = bytes.len().min(at + usize::from(how % 3));
        let byte = MEANINGFUL.get(usize::from(*byte)).unwrap_or(byte);
        let put = if how % 5 == 0 { &[] } else { std::slice::from_ref(byte) };
        bytes.splice(at..end, put.iter().copied());
    }
    bytes
}
