//! How a fuzzer's bytes are divided into what is decoded and how it arrives.

use std::borrow::Cow;
use std::fmt::Debug;

use bytes::Bytes;
use informerd::codec::json::{ListMeta, TypeMeta, WatchFrame};
use informerd::codec::{CodecError, ListDecoder, WatchDecoder};
use informerd::meta::{Encoding, Object};
use tikv_jemalloc_ctl::thread::allocatedp;

use super::pods::table;

/// Bytes to decode, and the chunks in which they arrive.
pub struct Input<'a> {
    pub bytes: &'a [u8],
    /// The bound on one item that a decoder is given; far above the input's length for most inputs.
    pub limit: usize,
    /// Lengths of chunks, which are repeated until the end.
    steps: [usize; 3],
}

/// No input reaches this bound.
pub const NO_LIMIT: usize = 64 << 20;

/// A decoder may allocate this much for any input, in bytes.
const ALLOCATED_ALWAYS: u64 = 64 << 10;

/// A decoder may allocate this many times the length of its input, all allocations together.
const ALLOCATED_PER_BYTE: u64 = 64;

/// The last bytes of the data say how the others arrive, so that a recorded answer with four bytes appended is a seed.
pub const TRAILER: usize = 4;

/// Begins a repeat: how many hundreds, how many bytes, and the bytes. JSON has no such byte.
const REPEAT: u8 = 2;

/// No input gets longer by its repeats: two values, each deeper than a decoder reads.
const LONGEST: usize = 96 << 10;

/// The data with its repeats written out, so that what is nested deep is made of a few bytes.
pub fn repeated(data: &[u8]) -> Cow<'_, [u8]> {
    if !data.contains(&REPEAT) {
        return data.into();
    }
    let (mut out, mut rest) = (Vec::new(), data);
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match after {
            [hundreds, len, more @ ..] if *byte == REPEAT && (1..=more.len()).contains(&usize::from(*len)) => {
                let (bytes, after) = more.split_at(usize::from(*len));
                let most = LONGEST.saturating_sub(out.len()) / bytes.len();
                out.extend(bytes.repeat(most.min(usize::from(*hundreds) * 100)));
                rest = after;
            }
            _ => out.push(*byte),
        }
    }
    out.into()
}

impl<'a> Input<'a> {
    /// `None` where the trailer is not whole.
    pub fn of(data: &'a [u8]) -> Option<Self> {
        let (bytes, trailer) = data.split_last_chunk::<TRAILER>()?;
        let [limit, steps @ ..] = trailer;
        // Even numbers, zero among them, leave the decoder without a bound that matters.
        let limit = if limit % 2 == 0 { NO_LIMIT } else { usize::from(*limit) * 4 };
        Some(Self { bytes, limit, steps: steps.map(|step| usize::from(step) + 1) })
    }

    /// What is decoded of the whole and in chunks, which must be the same.
    pub fn decoded<T: Debug, E: Debug + PartialEq>(
        &self,
        decode: impl Fn(&[Bytes], usize) -> (Vec<T>, E),
    ) -> (Vec<T>, E) {
        let whole = [Bytes::copy_from_slice(self.bytes)];
        let (items, end) = measured(self.bytes.len(), || decode(&whole, self.limit));
        let (in_chunks, end_in_chunks) = decode(&self.chunks(), self.limit);
        let shown = |items: &[T]| items.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>();
        assert_eq!((shown(&items), &end), (shown(&in_chunks), &end_in_chunks), "it depends on the chunks");
        (items, end)
    }

    fn chunks(&self) -> Vec<Bytes> {
        let mut rest = self.bytes;
        let mut chunks = Vec::new();
        for step in self.steps.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (chunk, after) = rest.split_at(rest.len().min(*step));
            chunks.push(Bytes::copy_from_slice(chunk));
            rest = after;
        }
        chunks
    }

    pub fn is_bounded(&self) -> bool {
        self.limit < NO_LIMIT
    }
}

/// The items of a list in JSON or of a table, and what it says of itself.
pub type Listed = (Vec<(Object, TypeMeta)>, Result<ListMeta, CodecError>);

pub fn listed(encoding: Encoding, chunks: &[Bytes], limit: usize) -> Listed {
    let mut decoder = ListDecoder::new(encoding, limit, table().clone());
    let (items, end) = all(chunks, |chunk| {
        chunk.into_iter().for_each(|chunk| decoder.push(chunk));
        decoder.next()
    });
    (items, end.and_then(|()| decoder.finish()))
}

/// The frames of a watch, and whether a part of another one is left.
pub type Watched = (Vec<WatchFrame>, Result<bool, CodecError>);

pub fn watched(encoding: Encoding, chunks: &[Bytes], limit: usize) -> Watched {
    let mut decoder = WatchDecoder::new(encoding, limit, table().clone());
    let (frames, end) = all(chunks, |chunk| {
        chunk.into_iter().for_each(|chunk| decoder.push(chunk));
        decoder.next()
    });
    (frames, end.map(|()| decoder.has_partial()))
}

/// All that a decoder makes of chunks, which `step` gives it one by one.
pub fn all<T>(
    chunks: &[Bytes],
    mut step: impl FnMut(Option<Bytes>) -> Result<Option<T>, CodecError>,
) -> (Vec<T>, Result<(), CodecError>) {
    let mut items = Vec::new();
    for chunk in chunks {
        let mut chunk = Some(chunk.clone());
        loop {
            match step(chunk.take()) {
                Ok(Some(item)) => items.push(item),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(step(None).err(), Some(error.clone()), "an error that passes");
                    return (items, Err(error));
                }
            }
        }
    }
    (items, Ok(()))
}

/// Runs a decoder of `len` bytes. All that it allocates, whether it keeps it or not, must be bounded by a multiple of them.
pub fn measured<T>(len: usize, decode: impl FnOnce() -> T) -> T {
    let counter = allocatedp::read().expect("jemalloc counts what it allocates");
    let before = counter.get();
    let result = decode();
    let (allocated, most) = (counter.get() - before, ALLOCATED_ALWAYS + ALLOCATED_PER_BYTE * len as u64);
    assert!(allocated <= most, "{allocated} bytes were allocated to decode {len}");
    result
}
