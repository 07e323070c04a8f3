//! The difference between two versions of an object, as pieces of the other version and new bytes.
//!
//! A general compressor needs ten times as long, because it prepares tables for every call. Two versions of one object
//! differ in a revision, a time or a status: what stands before and after is found by comparing, and the rest mostly goes
//! on close to where it was in the other version. Only what does not is searched.

use std::ops::Range;

use super::numbers;

/// A match shorter than this costs as much as the bytes themselves.
const WINDOW: usize = 8;

/// Log2 of the slots of the search table.
const SLOTS: u32 = 12;

/// Nothing is compared with a version larger than this: its positions would not fit into the table.
pub(super) const LARGEST: usize = u16::MAX as usize * STRIDE;

/// Every position of the other version that is a multiple of this is in the table.
const STRIDE: usize = 4;

/// The search tries positions at most this far from the end of the last match. After this many new bytes without a match,
/// it uses the table.
const CLOSE: usize = 8;

/// Writes `target` as a difference from `base`. `None` if it is not smaller than `most` bytes.
pub(super) fn diff(base: &[u8], target: &[u8], most: usize) -> Option<Box<[u8]>> {
    if base.len() > LARGEST {
        return None;
    }
    let mut out = Writer { out: Vec::with_capacity(most.min(256)), most };
    let before = common_prefix(base, target);
    let after = common_prefix_reversed(&base[before..], &target[before..]);
    if before > 0 {
        out.copy(0, before)?;
    }
    search(base, &target[before..target.len() - after], before, &mut out)?;
    if after > 0 {
        out.copy(base.len() - after, after)?;
    }
    Some(out.out.into_boxed_slice())
}

/// The bytes that [`diff`] wrote as `delta`, of which there were `len`. `None` if it is no difference from `base`.
pub(super) fn apply(base: &[u8], mut delta: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(len);
    while !delta.is_empty() {
        let piece = match Piece::take(&mut delta)? {
            Piece::Copied(range) => base.get(range)?,
            Piece::New(bytes) => bytes,
        };
        if piece.len() > len - out.len() {
            return None;
        }
        out.extend_from_slice(piece);
    }
    (out.len() == len).then_some(out)
}

/// The number of bytes that [`apply`] returns for a base of `base` bytes. `None` if it refuses the difference.
pub(super) fn length(base: usize, mut delta: &[u8]) -> Option<usize> {
    let mut len = 0usize;
    while !delta.is_empty() {
        len = len.checked_add(match Piece::take(&mut delta)? {
            Piece::Copied(range) if range.end > base => return None,
            Piece::Copied(range) => range.len(),
            Piece::New(bytes) => bytes.len(),
        })?;
    }
    Some(len)
}

/// A part of a difference.
enum Piece<'a> {
    /// Bytes of the other version.
    Copied(Range<usize>),
    New(&'a [u8]),
}

// === impl Piece ===

impl<'a> Piece<'a> {
    /// Takes the next part from the front. `None` if it is malformed.
    fn take(delta: &mut &'a [u8]) -> Option<Self> {
        let head = numbers::take(delta)?;
        let count = head >> 1;
        if head & 1 == 1 {
            let from = numbers::take(delta)?;
            return Some(Self::Copied(from..from.checked_add(count)?));
        }
        let (bytes, rest) = delta.split_at_checked(count)?;
        *delta = rest;
        Some(Self::New(bytes))
    }
}

/// Looks for parts of `target` in `base`: close to where the last part ended, or else anywhere from `start` on.
fn search(base: &[u8], target: &[u8], start: usize, out: &mut Writer) -> Option<()> {
    let mut table = None;
    let (mut written, mut at, mut end) = (0, 0, start);
    while let Some(bytes) = window(target, at) {
        let new = at - written;
        if new >= out.most {
            return None;
        }
        // Most changes are short, and to fill the table takes longer than all else.
        let found = if new < CLOSE {
            close_to(end + new, base, bytes)
        } else {
            let place = table.get_or_insert_with(|| filled(base, start)).get(slot(bytes)).copied().unwrap_or(0);
            let position = usize::from(place).saturating_sub(1) * STRIDE;
            (place > 0 && window(base, position) == Some(bytes)).then_some(position)
        };
        let Some(position) = found else {
            at += 1;
            continue;
        };
        let back = common_prefix_reversed(&base[..position], &target[written..at]);
        let (from, begin) = (position - back, at - back);
        let len = common_prefix(&base[from..], &target[begin..]);
        out.insert(&target[written..begin])?;
        out.copy(from, len)?;
        (written, at, end) = (begin + len, begin + len, from + len);
    }
    out.insert(&target[written..])
}

/// The position of the same bytes that is the closest one.
fn close_to(position: usize, base: &[u8], bytes: u64) -> Option<usize> {
    let around = (0..=CLOSE).flat_map(|by| [Some(position + by), position.checked_sub(by)]);
    around.flatten().find(|position| window(base, *position) == Some(bytes))
}

/// The position of each window from `start` on, divided by [`STRIDE`] and plus one. Zero means that there is none.
fn filled(base: &[u8], start: usize) -> [u16; 1 << SLOTS] {
    let mut table = [0; 1 << SLOTS];
    // The later of two equal parts is overwritten by the earlier one.
    for position in (start / STRIDE * STRIDE..base.len().saturating_sub(WINDOW - 1)).step_by(STRIDE).rev() {
        if let Some(place) = window(base, position).and_then(|window| table.get_mut(slot(window))) {
            *place = u16::try_from(position / STRIDE + 1).unwrap_or(0);
        }
    }
    table
}

fn window(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + WINDOW)?.try_into().map(u64::from_le_bytes).ok()
}

fn slot(window: u64) -> usize {
    // The upper bits of the product depend on all bytes.
    (window.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOTS)) as usize
}

/// Bytes that are compared at once.
const STEP: usize = 32;

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let ((a_steps, _), (b_steps, _)) = (a.as_chunks::<STEP>(), b.as_chunks::<STEP>());
    let whole = a_steps.iter().zip(b_steps).take_while(|(a, b)| a == b).count() * STEP;
    whole + a[whole..].iter().zip(&b[whole..]).take_while(|(a, b)| a == b).count()
}

fn common_prefix_reversed(a: &[u8], b: &[u8]) -> usize {
    let ((_, a_steps), (_, b_steps)) = (a.as_rchunks::<STEP>(), b.as_rchunks::<STEP>());
    let whole = a_steps.iter().rev().zip(b_steps.iter().rev()).take_while(|(a, b)| a == b).count() * STEP;
    let (a, b) = (&a[..a.len() - whole], &b[..b.len() - whole]);
    whole + a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

struct Writer {
    out: Vec<u8>,
    most: usize,
}

// === impl Writer ===

impl Writer {
    /// A piece of the other version.
    fn copy(&mut self, from: usize, len: usize) -> Option<()> {
        self.number(len << 1 | 1);
        self.number(from);
        self.fits()
    }

    /// New bytes.
    fn insert(&mut self, bytes: &[u8]) -> Option<()> {
        if !bytes.is_empty() {
            self.number(bytes.len() << 1);
            self.out.extend_from_slice(bytes);
        }
        self.fits()
    }

    fn number(&mut self, number: usize) {
        numbers::put(&mut self.out, number);
    }

    fn fits(&self) -> Option<()> {
        (self.out.len() < self.most).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pod(revision: u32, restarts: u32, ready: bool) -> Vec<u8> {
        let environment: String = (0..60).map(|n| format!("{{\"name\":\"V{n}\",\"value\":\"{}\"}},", n * n)).collect();
        format!(
            "{{\"metadata\":{{\"name\":\"a\",\"resourceVersion\":\"{revision}\"}},\"spec\":{{\"env\":[{environment}null]}},\
             \"status\":{{\"ready\":{ready},\"restarts\":{restarts},\"image\":\"registry.example.com/a:1\"}}}}"
        )
        .into_bytes()
    }

    #[test]
    fn versions_differ_in_few_bytes() {
        let (old, new) = (pod(1_234_567, 9, false), pod(1_234_999, 10, true));
        let delta = diff(&new, &old, old.len() / 2).unwrap();
        assert!(delta.len() < 48, "{} of {}", delta.len(), old.len());
        assert_eq!(apply(&new, &delta, old.len()), Some(old));
    }

    #[test]
    fn parts_that_moved_are_found() {
        let (a, b) = (pod(1, 2, true), vec![b'x'; 3000]);
        let (base, target) = ([&a[..], &b].concat(), [&b[..], &a].concat());
        let delta = diff(&base, &target, target.len() / 2).unwrap();
        assert!(delta.len() < 64, "{}", delta.len());
        assert_eq!(apply(&base, &delta, target.len()), Some(target));
    }

    #[test]
    fn what_gains_too_little_is_left() {
        assert_eq!(diff(&[0; 100], &[1; 100], 50), None);
        assert_eq!(diff(&vec![0; LARGEST + 1], &[1; 100], 1000), None);
        assert_eq!(diff(b"", b"", 1).as_deref(), Some(&[][..]));
    }

    proptest! {
        #[test]
        fn any_version_comes_back(
            base in prop::collection::vec(0u8..4, 0..400),
            edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..20, prop::collection::vec(any::<u8>(), 0..20)), 0..6),
        ) {
            let mut target = base.clone();
            for (at, gone, new) in edits {
                let at = at.index(target.len() + 1);
                let end = (at + gone).min(target.len());
                target.splice(at..end, new);
            }
            let delta = diff(&base, &target, usize::MAX).unwrap();
            prop_assert_eq!(apply(&base, &delta, target.len()), Some(target.clone()));
            prop_assert_eq!(length(base.len(), &delta), Some(target.len()));
            prop_assert_eq!(apply(&base, &delta, target.len() + 1), None);
            prop_assert!(target.is_empty() || apply(&base, &delta, target.len() - 1).is_none());
        }

        #[test]
        fn anything_else_is_refused_or_has_the_length(
            base in prop::collection::vec(any::<u8>(), 0..64),
            delta in prop::collection::vec(any::<u8>(), 0..64),
            len in 0usize..256,
        ) {
            let out = apply(&base, &delta, len).map(|out| out.len());
            prop_assert_eq!(out, length(base.len(), &delta).filter(|it| *it == len));
        }
    }
}
