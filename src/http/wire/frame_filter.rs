//! What a client sends on an HTTP/2 connection, as the library gets it.

use smallvec::SmallVec;

use super::frames::{CONTINUATION, FrameHead, HEAD, HEADERS, LARGEST, PUSH_PROMISE};
use crate::http::door::HTTP2_PREFACE;

/// Bytes come in pieces of any size. Header blocks are passed on whole. The library decodes each frame of a block at once,
/// and a byte can become a hundred. What is kept here is as large as what the client has sent.
#[derive(Debug, Default)]
pub(in crate::http) struct FrameFilter {
    /// Bytes that are passed on before the next head: of the preface, or of a payload.
    pass: usize,
    /// A part of a frame. At most the largest frame that the library accepts.
    held: SmallVec<[u8; 16]>,
    /// A header block goes on in the next frame.
    is_in_block: bool,
    /// The bytes of that header block so far, with the heads of its frames.
    block: usize,
    /// The frames of that header block.
    kept: Vec<u8>,
    /// Nothing is kept of a larger header block. The library refuses it.
    largest: usize,
    /// What the library may keep of the large header blocks of this connection, in bytes.
    pub(super) large_blocks: usize,
    /// Another large header block came after too many of them.
    pub(super) is_too_much: bool,
    /// The number of header blocks that are complete.
    pub(super) blocks: u64,
}

/// A larger header block is counted, with the heads of its frames. Several smaller ones share a buffer that the library
/// reads into.
const LARGE_BLOCK: usize = 2 << 10;
/// The size of such a buffer.
const BUFFER: usize = 8 << 10;
/// From so many bytes of large header blocks on, the connection should take no more requests. The library's table of
/// header fields (RFC 7541, section 2.3.2) has up to some 120 fields, and each of them keeps the memory of the whole
/// block that it came in. With the connection, the table goes too.
pub(super) const WORN: usize = 256 << 10;
/// A client that sends another one after so many is cut off.
const MOST_LARGE: usize = 512 << 10;

// === impl FrameFilter ===

impl FrameFilter {
    /// `largest`: the most bytes of a header block that the library accepts.
    pub(in crate::http) fn new(largest: usize) -> Self {
        Self { pass: HTTP2_PREFACE.len(), largest, ..Self::default() }
    }

    /// Appends to `out` what the library gets.
    pub(in crate::http) fn filter(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while !bytes.is_empty() {
            if self.pass > 0 {
                let now = bytes.split_off(..self.pass.min(bytes.len())).unwrap_or_default();
                self.pass -= now.len();
                out.extend_from_slice(now);
                continue;
            }
            let missing = self.missing() - self.held.len();
            self.held.extend_from_slice(bytes.split_off(..missing.min(bytes.len())).unwrap_or_default());
            if self.held.len() == self.missing() {
                self.complete(out);
            }
        }
    }

    /// What is held of a frame or a header block that will not be complete, because the client is gone.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.kept);
        rest.extend_from_slice(&std::mem::take(&mut self.held));
        rest
    }

    /// The bytes of a header block that is not complete. 0 if there is none.
    pub(in crate::http) fn open_head(&self) -> usize {
        let has_begun = self.head().is_some_and(is_of_block);
        if self.is_in_block || has_begun { (self.block + self.held.len()).min(self.largest) } else { 0 }
    }

    /// Counts a frame of a header block.
    fn count(&mut self, len: usize) {
        self.block += len;
        if !self.is_in_block {
            let block = std::mem::take(&mut self.block);
            self.blocks += 1;
            if block > LARGE_BLOCK {
                self.is_too_much |= self.large_blocks > MOST_LARGE;
                self.large_blocks += block + BUFFER;
            }
        }
    }

    fn head(&self) -> Option<FrameHead> {
        self.held.first_chunk::<HEAD>().map(|head| FrameHead::parse(*head))
    }

    /// The bytes that must be held before the filter can decide.
    fn missing(&self) -> usize {
        self.head().filter(|head| is_of_block(*head) && head.len <= LARGEST).map_or(HEAD, FrameHead::whole)
    }

    fn complete(&mut self, out: &mut Vec<u8>) {
        let Some(head) = self.head() else { return };
        let held = std::mem::take(&mut self.held);
        let was_in_block = self.is_in_block;
        self.is_in_block = head.leaves_block_open(was_in_block);
        if is_of_block(head) {
            self.count(head.whole());
        }
        // What is not allowed goes to the library at once.
        let is_next = is_of_block(head) && was_in_block == (head.kind == CONTINUATION) && head.len <= LARGEST;
        if is_next && self.is_in_block && self.block <= self.largest {
            return self.kept.extend_from_slice(&held);
        }
        out.append(&mut std::mem::take(&mut self.kept));
        // The library refuses a block with a larger frame.
        if !is_of_block(head) || head.len > LARGEST {
            self.pass = head.len;
        }
        out.extend_from_slice(&held);
    }
}

/// Whether a frame has a part of a header block. The library reads a PUSH_PROMISE before it refuses it.
fn is_of_block(head: FrameHead) -> bool {
    matches!(head.kind, HEADERS | PUSH_PROMISE | CONTINUATION)
}

#[cfg(test)]
#[path = "frame_filter_tests.rs"]
mod tests;
