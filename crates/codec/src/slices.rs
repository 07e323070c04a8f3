//! A sequence of shared byte slices that is written without copying the slices into one buffer.

use std::collections::{VecDeque, vec_deque};
use std::io::IoSlice;
use std::{iter, option};

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Bytes in several parts. Cloning and pushing only change reference counts. `remaining` is O(1). `chunks_vectored`
/// passes all parts to one `writev`. Parts are released as soon as they are read.
///
/// Most frames of a watch have one part, which needs no allocation. The type is small, because an HTTP library moves a
/// frame some ten times.
#[derive(Clone, Debug, Default)]
pub struct Slices {
    /// Empty only if all is read.
    first: Bytes,
    /// None of these is empty.
    rest: VecDeque<Bytes>,
    /// The number of unread bytes in all parts.
    len: usize,
}

/// A part, and what is dropped with it.
struct Held<T> {
    part: Bytes,
    _guard: T,
}

// === impl Slices ===

impl Slices {
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a part. An empty part is ignored.
    pub fn push(&mut self, part: Bytes) {
        if part.is_empty() {
            return;
        }
        self.len += part.len();
        if self.first.is_empty() {
            self.first = part;
        } else {
            self.rest.push_back(part);
        }
    }

    /// Appends a static part.
    pub fn push_static(&mut self, part: &'static [u8]) {
        self.push(Bytes::from_static(part));
    }

    /// Drops `guard` once all bytes that are in here now are read.
    pub fn hold(&mut self, guard: impl Send + 'static) {
        if !self.is_empty() {
            let part = self.rest.back_mut().unwrap_or(&mut self.first);
            let held = Held { part: std::mem::take(part), _guard: guard };
            *part = Bytes::from_owner(held);
        }
    }

    /// Appends all parts of `other`.
    pub fn append(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        for part in other {
            self.push(part);
        }
    }

    /// The number of unread bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The unread parts. None of them is empty.
    pub fn iter(&self) -> impl Iterator<Item = &Bytes> {
        (!self.is_empty()).then_some(&self.first).into_iter().chain(&self.rest)
    }

    /// Removes the first `len` bytes and returns them. Panics if there are fewer.
    #[must_use]
    pub fn split_to(&mut self, len: usize) -> Self {
        assert!(len <= self.len, "split past the end: {len} of {}", self.len);
        if len == self.len {
            return std::mem::take(self);
        }
        let mut split = Self::new();
        while split.len < len {
            let part = self.first.len().min(len - split.len);
            split.push(self.copy_to_bytes(part));
        }
        split
    }

    /// Returns all unread bytes in one piece. They are copied unless there is only one part.
    pub fn into_bytes(mut self) -> Bytes {
        let len = self.len;
        self.copy_to_bytes(len)
    }

    fn pop_front(&mut self) -> Option<Bytes> {
        if self.is_empty() {
            return None;
        }
        let part = std::mem::replace(&mut self.first, self.rest.pop_front().unwrap_or_default());
        self.len -= part.len();
        Some(part)
    }
}

impl Buf for Slices {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        &self.first
    }

    fn chunks_vectored<'a>(&'a self, dst: &mut [IoSlice<'a>]) -> usize {
        let mut filled = 0;
        for (slot, part) in dst.iter_mut().zip(self.iter()) {
            *slot = IoSlice::new(part);
            filled += 1;
        }
        filled
    }

    /// Panics when fewer than `count` bytes remain, as `Buf` requires.
    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len, "advance past the end: {count} of {}", self.len);
        while count > 0 {
            if self.first.len() > count {
                self.first.advance(count);
                self.len -= count;
                return;
            }
            count -= self.pop_front().map_or(count, |part| part.len());
        }
    }

    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        assert!(len <= self.len, "copy past the end: {len} of {}", self.len);
        if self.first.len() > len {
            self.len -= len;
            return self.first.split_to(len);
        }
        if self.first.len() == len {
            return self.pop_front().unwrap_or_default();
        }
        let mut joined = BytesMut::with_capacity(len);
        joined.put((&mut *self).take(len));
        joined.freeze()
    }
}

impl From<Bytes> for Slices {
    fn from(part: Bytes) -> Self {
        Self { len: part.len(), first: part, rest: VecDeque::new() }
    }
}

impl FromIterator<Bytes> for Slices {
    fn from_iter<I: IntoIterator<Item = Bytes>>(parts: I) -> Self {
        let mut slices = Self::new();
        parts.into_iter().for_each(|part| slices.push(part));
        slices
    }
}

/// The unread parts. None of them is empty.
impl IntoIterator for Slices {
    type Item = Bytes;
    type IntoIter = iter::Chain<option::IntoIter<Bytes>, vec_deque::IntoIter<Bytes>>;

    fn into_iter(self) -> Self::IntoIter {
        (!self.is_empty()).then_some(self.first).into_iter().chain(self.rest)
    }
}

// === impl Held ===

impl<T> AsRef<[u8]> for Held<T> {
    fn as_ref(&self) -> &[u8] {
        &self.part
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(parts: &[&'static str]) -> Slices {
        parts.iter().map(|part| Bytes::from_static(part.as_bytes())).collect()
    }

    #[test]
    fn shares_instead_of_copying() {
        let bytes = Bytes::from(vec![b'x'; 64]);
        let mut slices = Slices::from(bytes.clone());
        slices.push(bytes.slice(8..16));
        assert_eq!(slices.chunk().as_ptr(), bytes.as_ptr());
        assert_eq!(slices.copy_to_bytes(64).as_ptr(), bytes.as_ptr());
        assert_eq!(slices.copy_to_bytes(4).as_ptr(), bytes[8..].as_ptr());
        assert_eq!(slices.len(), 4);
    }

    #[test]
    fn a_guard_is_dropped_with_the_last_byte() {
        for parts in [&["a", "bc"][..], &["a"; 40]] {
            let guard = std::sync::Arc::new(());
            let mut slices = of(parts);
            slices.hold(std::sync::Arc::clone(&guard));
            let len = slices.len();
            let mut whole = of(&["before"]);
            whole.append(slices);
            whole.push_static(b"after");
            whole.advance(6 + len - 1);
            assert_eq!(std::sync::Arc::strong_count(&guard), 2);
            whole.advance(1);
            assert_eq!(std::sync::Arc::strong_count(&guard), 1);
        }
        let mut empty = Slices::new();
        empty.hold(());
        assert!(empty.is_empty());
    }

    #[test]
    fn offers_all_parts_to_writev() {
        let slices = of(&["a", "", "bc", "d"]);
        let mut io = [IoSlice::new(&[]); 8];
        assert_eq!(slices.chunks_vectored(&mut io), 3);
        assert_eq!(&*io[1], b"bc");
        let mut io = [IoSlice::new(&[]); 2];
        assert_eq!(slices.chunks_vectored(&mut io), 2);
    }

    #[test]
    #[should_panic(expected = "advance past the end")]
    fn advancing_too_far_is_a_bug() {
        of(&["ab"]).advance(3);
    }

    proptest! {
        #[test]
        fn behaves_as_the_joined_bytes(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..40),
            steps in prop::collection::vec((any::<bool>(), 0usize..20), 0..40),
        ) {
            let mut joined: Vec<u8> = parts.concat();
            let mut slices = Slices::new();
            // Some parts are read before the others are pushed.
            for (index, part) in parts.iter().enumerate() {
                slices.push(Bytes::from(part.clone()));
                if let Some((_, step)) = steps.get(index) && index % 3 == 0 {
                    let step = (*step).min(slices.len());
                    slices.advance(step);
                    joined.drain(..step);
                }
            }
            for (copy, step) in steps {
                prop_assert_eq!(slices.remaining(), joined.len());
                prop_assert_eq!(slices.iter().map(Bytes::len).sum::<usize>(), joined.len());
                prop_assert!(slices.iter().all(|part| !part.is_empty()));
                let step = step.min(slices.len());
                if copy {
                    prop_assert_eq!(&slices.copy_to_bytes(step)[..], &joined[..step]);
                } else {
                    slices.advance(step);
                }
                joined.drain(..step);
            }
            prop_assert_eq!(&slices.clone().into_bytes()[..], &joined[..]);
            prop_assert_eq!(slices.into_iter().flat_map(|part| part.to_vec()).collect::<Vec<u8>>(), joined);
        }
    }
}
