use http::HeaderMap;
use proptest::prelude::*;

use super::*;
use crate::http::frames::{CONTINUATION, DATA, Scanner};
use crate::upstream::raw_testing::frame;

fn update(stream: u32, more: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &more.to_be_bytes())
}

fn request(flags: u8, stream: u32, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, flags | END_HEADERS, stream, block)
}

/// Filters the preface and these frames in pieces of one size. Returns what follows the preface.
fn filtered(frames: &[Vec<u8>], size: usize) -> (Vec<u8>, SendWindows) {
    let (mut filter, mut windows, mut out) = (FrameFilter::default(), SendWindows::default(), Vec::new());
    for piece in [HTTP2_PREFACE, &frames.concat()].concat().chunks(size) {
        filter.filter(piece, &mut windows, &mut out);
    }
    assert_eq!(out[..HTTP2_PREFACE.len()], *HTTP2_PREFACE);
    (out.split_off(HTTP2_PREFACE.len()), windows)
}

fn tagged(flags: u8, stream: u32, block: &[u8]) -> Vec<u8> {
    request(flags, stream, &[block, &stream_tag::field(stream)].concat())
}

const GET: &[u8] = &[0x82, 0x86, 0x84];

#[test]
fn requests_are_tagged_and_nothing_else_is() {
    let with_priority = [&[0, 0, 0, 0, 7], GET].concat();
    let padded = frame(HEADERS, END_HEADERS | PADDED, 5, &[&[1][..], GET, &[0]].concat());
    let in_parts = [frame(HEADERS, 0, 7, GET), frame(9, END_HEADERS, 7, &[0x82])].concat();
    let trailers = request(1, 3, GET);
    let broken = request(1, 9, &[0x40]);
    let large = request(1, 11, &[0x82; LARGEST - 5]);
    let rest = [padded, in_parts, trailers, broken, large].concat();
    let (out, _) =
        filtered(&[request(1, 1, GET), frame(HEADERS, END_HEADERS | PRIORITY, 3, &with_priority), rest.clone()], 7);
    let second = [&with_priority[..], &stream_tag::field(3)].concat();
    let expected = [tagged(1, 1, GET), frame(HEADERS, END_HEADERS | PRIORITY, 3, &second), rest].concat();
    assert_eq!(out, expected);
}

#[test]
fn large_header_blocks_are_counted_however_they_come() {
    let fits = [request(1, 1, &[0x82; LARGE_BLOCK - HEAD]), frame(DATA, 0, 1, &[0; 9_000])].concat();
    let whole = request(1, 3, &[0x82; LARGE_BLOCK + 1 - HEAD]);
    let parts =
        [frame(HEADERS, 0, 5, GET), frame(CONTINUATION, 0, 5, &[0x82; 4_000]), frame(CONTINUATION, 4, 5, &[0x82; 100])];
    let mut filter = FrameFilter::default();
    let mut count = |bytes: &[u8]| {
        filter.filter(bytes, &mut SendWindows::default(), &mut Vec::new());
        filter.large_blocks()
    };
    assert_eq!(count(&[HTTP2_PREFACE, &fits].concat()), 0);
    assert_eq!(count(&whole), 2_049 + BUFFER);
    assert_eq!(count(&parts.concat()), 2_049 + 4_130 + 2 * BUFFER);
    while filter.large_blocks() <= MOST_LARGE {
        filter.filter(&whole, &mut SendWindows::default(), &mut Vec::new());
        assert!(!filter.is_too_much());
    }
    filter.filter(&fits, &mut SendWindows::default(), &mut Vec::new());
    assert!(!filter.is_too_much());
    filter.filter(&whole, &mut SendWindows::default(), &mut Vec::new());
    assert!(filter.is_too_much());
}

#[test]
fn the_library_gets_its_part_of_the_updates() {
    let settings = frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 9, 0, 4, 0, 0, 0, 100]);
    let frames = [settings.clone(), request(1, 1, GET), update(0, 334_465), update(1, 20), update(5, 0)];
    let (out, mut windows) = filtered(&frames, 1000);
    let expected = [settings, tagged(1, 1, GET), update(0, 34_465), update(1, 20), update(5, 0)].concat();
    assert_eq!(out, expected);
    windows.written(FrameHead { len: 90_000, kind: DATA, flags: 0, stream: 3 });
    let (mut filter, mut out) = (FrameFilter { pass: 0, ..FrameFilter::default() }, Vec::new());
    filter.lend(&mut windows, &mut out);
    assert_eq!(out, update(0, 90_000));
}

#[test]
fn nothing_comes_within_a_header_block() {
    let (mut windows, mut out) = (SendWindows::default(), Vec::new());
    windows.grown(0, 1 << 20);
    windows.written(FrameHead { len: 500_000, kind: DATA, flags: 0, stream: 3 });
    let mut filter = FrameFilter { pass: 0, ..FrameFilter::default() };
    let (begin, end) = (frame(HEADERS, 0, 7, GET), frame(CONTINUATION, END_HEADERS, 7, GET));
    filter.filter(&begin, &mut windows, &mut out);
    assert!(out.is_empty() && windows.must_lend(), "the block is not complete");
    filter.filter(&end, &mut windows, &mut out);
    assert!(out.len() == begin.len() + end.len() + 13 && !windows.must_lend());
}

#[test]
fn an_update_within_a_header_block_is_left_to_the_library() {
    let frames = [frame(HEADERS, 0, 7, GET), update(0, 1), frame(CONTINUATION, END_HEADERS, 7, GET)];
    assert_eq!(filtered(&frames, 5).0, frames.concat());
}

#[test]
fn the_library_can_send_more_while_a_frame_is_not_complete() {
    for begun in [&update(0, 1)[..5], &frame(DATA, 0, 3, b"an upload")[..12]] {
        let (mut windows, mut out) = (SendWindows::default(), Vec::new());
        windows.grown(0, 1 << 20);
        let mut filter = FrameFilter { pass: 0, ..FrameFilter::default() };
        filter.filter(begun, &mut windows, &mut out);
        assert!(out.is_empty());
        windows.written(FrameHead { len: 500_000, kind: DATA, flags: 0, stream: 3 });
        filter.lend(&mut windows, &mut out);
        assert!(out.len() == 13 && !windows.must_lend());
    }
}

#[test]
fn the_library_writes_no_large_frames() {
    let settings = |size: u32| frame(SETTINGS, 0, 0, &[&[0, 5][..], &size.to_be_bytes()].concat());
    let (out, _) = filtered(&[settings(1 << 20), settings(7)], 3);
    assert_eq!(out, [settings(1 << 14), settings(7)].concat());
}

/// The last value of a frame counts. The library gets all of them, and refuses a wrong one.
#[test]
fn a_setting_that_comes_many_times_counts_once() {
    let entry = |value: u32| [&[0, 4][..], &value.to_be_bytes()].concat();
    for wrong in [None, Some(0), Some(1000), Some(2729)] {
        let mut entries: Vec<_> = (0..2730).map(|n| entry(if n % 2 == 0 { 0 } else { 1 << 20 })).collect();
        entries[2729] = entry(77);
        if let Some(wrong) = wrong {
            entries[wrong] = entry(MAX_WINDOW + 1);
        }
        let settings = frame(SETTINGS, 0, 0, &entries.concat());
        let (out, mut windows) = filtered(&[request(1, 1, GET), settings.clone()], 5000);
        assert_eq!(out, [tagged(1, 1, GET), settings].concat());
        // One frame is one change, which counts once it is acknowledged. A wrong one never is.
        if wrong.is_none() {
            windows.written(FrameHead { len: 0, kind: HEADERS, flags: 0, stream: 1 });
            for room in [65_535, 77] {
                let taken = windows.take(1, 100_000, true, std::task::Waker::noop());
                assert_eq!(taken, crate::http::send_windows::Way::Library(room), "of what is left");
                windows.written(FrameHead { len: 0, kind: SETTINGS, flags: ACK, stream: 0 });
                windows.grown(1, 65_535);
            }
        }
    }
}

#[test]
fn a_window_that_becomes_too_large_ends_the_connection_and_another_one_does_not() {
    let settings = |initial: u32| frame(SETTINGS, 0, 0, &[&[0, 4][..], &initial.to_be_bytes()].concat());
    let begin = [request(1, 1, GET), update(1, 1000)];
    let expected = [tagged(1, 1, GET), update(1, 1000)].concat();
    for (initial, told) in [(MAX_WINDOW - 1000, MOST_TOLD), (MOST_TOLD + 1, MOST_TOLD), (MOST_TOLD, MOST_TOLD), (7, 7)]
    {
        let (out, _) = filtered(&[begin.concat(), settings(initial)], 100);
        assert_eq!(out, [expected.clone(), settings(told)].concat(), "{initial}");
    }
    let too_much = [settings(MOST_TOLD), update(0, MAX_WINDOW), update(0, MAX_WINDOW)].concat();
    let (out, _) = filtered(&[begin.concat(), settings(MAX_WINDOW - 999)], 100);
    assert_eq!(out, [expected.clone(), too_much].concat());
    let (out, _) = filtered(&[begin.concat(), settings(MAX_WINDOW + 1)], 100);
    assert_eq!(out, [expected, settings(MAX_WINDOW + 1)].concat(), "the library refuses it");
}

#[test]
fn a_frame_that_is_cut_off_is_passed_on() {
    let (mut filter, mut windows, mut out) = (FrameFilter::default(), SendWindows::default(), Vec::new());
    filter.filter(&[HTTP2_PREFACE, &update(0, 7)[..11]].concat(), &mut windows, &mut out);
    assert_eq!(out, HTTP2_PREFACE);
    assert_eq!(filter.rest(), &update(0, 7)[..11]);
}

proptest! {
    #[test]
    fn the_size_of_the_pieces_does_not_matter(
        kinds in proptest::collection::vec((0..12_u8, any::<u8>(), 0..8_u32, proptest::collection::vec(any::<u8>(), 0..40)), 0..20),
        size in 1..50_usize,
    ) {
        let frames: Vec<_> = kinds.iter().map(|(kind, flags, stream, payload)| frame(*kind, *flags, *stream, payload)).collect();
        let (whole, _) = filtered(&frames, usize::MAX);
        let (pieces, _) = filtered(&frames, size);
        // More can be lent to the library between two pieces.
        let without_lent = |bytes: &[u8]| {
            let mut scanner = Scanner::default();
            let mut heads = Vec::new();
            scanner.scan(bytes, |head| if (head.kind, head.stream) != (WINDOW_UPDATE, 0) { heads.push(head) });
            heads
        };
        prop_assert_eq!(without_lent(&whole), without_lent(&pieces));
    }

    #[test]
    fn a_tagged_block_has_all_fields(names in proptest::collection::vec("[a-z]{1,200}", 0..20)) {
        let mut block = GET.to_vec();
        for name in &names {
            block.push(0x40);
            for text in [name, name] {
                match u8::try_from(text.len()) {
                    Ok(len) if len < 127 => block.push(len),
                    _ => block.extend([127, u8::try_from(text.len() - 127).unwrap()]),
                }
                block.extend(text.as_bytes());
            }
        }
        prop_assert!(stream_tag::is_complete(&block));
        prop_assert_eq!(stream_tag::take(&mut HeaderMap::new()), None);
    }
}
