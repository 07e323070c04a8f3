//! The difference between two versions of an object, as pieces of the other version and new bytes.
//!
//! A general compressor needs ten times as long, because it prepares tables for every call. Two versions of one object
//! differ in a revision, a time or a status: what stands before and after is found by comparing, and only the rest is
//! searched.

use super::numbers;

/// A match shorter than this costs as much as the bytes themselves.
const WINDOW: usize = 8;

/// Log2 of the slots of the search table.
const SLOTS: u32 = 12;

/// Objects larger than this are not compared: their positions would not fit into the table.
const LARGEST: usize = u16::MAX as usize * STRIDE;

/// Every position of the other version that is a multiple of this is in the table.
const STRIDE: usize = 4;

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
        let head = numbers::take(&mut delta)?;
        let count = head >> 1;
        let piece = if head & 1 == 1 {
            let from = numbers::take(&mut delta)?;
            base.get(from..from.checked_add(count)?)?
        } else {
            let (piece, rest) = delta.split_at_checked(count)?;
            delta = rest;
            piece
        };
        if piece.len() > len - out.len() {
            return None;
        }
        out.extend_from_slice(piece);
    }
    (out.len() == len).then_some(out)
}

/// Looks for parts of `target` anywhere in `base`, from `near` on first of all.
fn search(base: &[u8], target: &[u8], near: usize, out: &mut Writer) -> Option<()> {
    let mut table = [0u16; 1 << SLOTS];
    if target.len() >= WINDOW {
        // The later of two equal parts is overwritten by the earlier one, which is closer to the end of the last match.
        for position in (near / STRIDE * STRIDE..base.len().saturating_sub(WINDOW - 1)).step_by(STRIDE).rev() {
            if let Some(slot) = window(base, position).and_then(|window| table.get_mut(slot(window))) {
                // Zero means empty.
                *slot = u16::try_from(position / STRIDE + 1).unwrap_or(0);
            }
        }
    }
    let (mut written, mut at) = (0, 0);
    while let Some(bytes) = window(target, at) {
        let found = table.get(slot(bytes)).copied().map_or(0, usize::from);
        let position = found.saturating_sub(1) * STRIDE;
        if found == 0 || window(base, position) != Some(bytes) {
            at += 1;
            continue;
        }
        let back = common_prefix_reversed(&base[..position], &target[written..at]);
        let (from, start) = (position - back, at - back);
        let len = common_prefix(&base[from..], &target[start..]);
        out.insert(&target[written..start])?;
        out.copy(from, len)?;
        (written, at) = (start + len, start + len);
    }
    out.insert(&target[written..])
}

fn window(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + WINDOW)?.try_into().map(u64::from_le_bytes).ok()
}

fn slot(window: u64) -> usize {
    // The upper bits of the product depend on all bytes.
    (window.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOTS)) as usize
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    const STEP: usize = 32;
    let whole = a.chunks_exact(STEP).zip(b.chunks_exact(STEP)).take_while(|(a, b)| a == b).count() * STEP;
    whole + a[whole..].iter().zip(&b[whole..]).take_while(|(a, b)| a == b).count()
}

fn common_prefix_reversed(a: &[u8], b: &[u8]) -> usize {
    const STEP: usize = 32;
    let whole = a.rchunks_exact(STEP).zip(b.rchunks_exact(STEP)).take_while(|(a, b)| a == b).count() * STEP;
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
            prop_assert_eq!(apply(&base, &delta, target.len() + 1), None);
            prop_assert!(target.is_empty() || apply(&base, &delta, target.len() - 1).is_none());
        }

        #[test]
        fn anything_else_is_refused_or_has_the_length(
            base in prop::collection::vec(any::<u8>(), 0..64),
            delta in prop::collection::vec(any::<u8>(), 0..64),
            len in 0usize..256,
        ) {
            if let Some(out) = apply(&base, &delta, len) {
                prop_assert_eq!(out.len(), len);
            }
        }
    }
}
