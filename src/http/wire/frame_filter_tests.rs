use proptest::prelude::*;

use super::super::frames::{DATA, END_HEADERS};
use super::*;
use crate::apiserver::raw_testing::frame;

/// Filters the preface and these frames in pieces of one size. Returns what follows the preface.
fn filtered(frames: &[Vec<u8>], size: usize) -> Vec<u8> {
    let (mut filter, mut out) = (FrameFilter::new(usize::MAX), Vec::new());
    for piece in [HTTP2_PREFACE, &frames.concat()].concat().chunks(size) {
        filter.filter(piece, &mut out);
    }
    assert_eq!(out[..HTTP2_PREFACE.len()], *HTTP2_PREFACE);
    out.split_off(HTTP2_PREFACE.len())
}

fn request(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | 1, stream, block)
}

const GET: &[u8] = &[0x82, 0x86, 0x84];

#[test]
fn large_header_blocks_are_counted_however_they_come() {
    let fits = [request(1, &[0x82; LARGE_BLOCK - HEAD]), frame(DATA, 0, 1, &[0; 9_000])].concat();
    let whole = request(3, &[0x82; LARGE_BLOCK + 1 - HEAD]);
    let parts =
        [frame(HEADERS, 0, 5, GET), frame(CONTINUATION, 0, 5, &[0x82; 4_000]), frame(CONTINUATION, 4, 5, &[0x82; 100])];
    let mut filter = FrameFilter::new(usize::MAX);
    let mut count = |bytes: &[u8]| {
        filter.filter(bytes, &mut Vec::new());
        filter.large_blocks
    };
    assert_eq!(count(&[HTTP2_PREFACE, &fits].concat()), 0);
    assert_eq!(count(&whole), 2_049 + BUFFER);
    assert_eq!(count(&parts.concat()), 2_049 + 4_130 + 2 * BUFFER);
    while filter.large_blocks <= MOST_LARGE {
        filter.filter(&whole, &mut Vec::new());
        assert!(!filter.is_too_much);
    }
    filter.filter(&fits, &mut Vec::new());
    assert!(!filter.is_too_much);
    filter.filter(&whole, &mut Vec::new());
    assert!(filter.is_too_much);
}

#[test]
fn a_block_that_is_cut_off_is_passed_on() {
    let (mut filter, mut out) = (FrameFilter::new(usize::MAX), Vec::new());
    filter.filter(&[HTTP2_PREFACE, &request(1, GET)[..11]].concat(), &mut out);
    assert_eq!(out, HTTP2_PREFACE);
    assert_eq!(filter.rest(), &request(1, GET)[..11]);
}

proptest! {
    #[test]
    fn nothing_is_lost_and_the_size_of_the_pieces_does_not_matter(
        kinds in proptest::collection::vec((0..12_u8, any::<u8>(), 0..8_u32, proptest::collection::vec(any::<u8>(), 0..40)), 0..20),
        size in 1..50_usize,
    ) {
        let mut frames: Vec<_> = kinds.iter().map(|(kind, flags, stream, payload)| frame(*kind, *flags, *stream, payload)).collect();
        // The last block is complete.
        frames.push(frame(CONTINUATION, END_HEADERS, 1, &[]));
        prop_assert_eq!(filtered(&frames, usize::MAX), frames.concat());
        prop_assert_eq!(filtered(&frames, size), frames.concat());
    }
}
