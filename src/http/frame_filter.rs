//! What a client sends on an HTTP/2 connection, as the library gets it: with a tag in each request, and with those
//! updates of windows (flow control) that concern the library.

use smallvec::SmallVec;

use super::frames::{
    ACK, CONTINUATION, END_HEADERS, FrameHead, HEAD, HEADERS, INITIAL_WINDOW_SIZE, LARGEST, MAX_FRAME_SIZE, MAX_WINDOW,
    PADDED, PRIORITY, PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE,
};
use super::preface::HTTP2_PREFACE;
use super::send_windows::{MOST_TOLD, SendWindows};
use super::stream_tag;

/// Bytes come in pieces of any size. Frames are passed on whole, so that an update can be added at any time: the library
/// does nothing with a part of a frame.
///
/// Header blocks are passed on whole, too. The library decodes each frame of a block at once, and a byte can become a
/// hundred. What is kept here is as large as what the client has sent.
#[derive(Debug)]
pub(super) struct FrameFilter {
    /// Bytes that are passed on before the next head: of the preface, or of a payload that the library refuses.
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
    /// What the library may keep of the large header blocks of this connection.
    large: usize,
    /// One of them came although there were too many.
    is_too_much: bool,
    /// The number of header blocks that are complete.
    blocks: u64,
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

/// The priority of a stream, before the block of its header fields.
const PRIORITY_LEN: usize = 5;

// === impl FrameFilter ===

#[cfg(test)]
impl Default for FrameFilter {
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl FrameFilter {
    /// `largest`: the most bytes of a header block that the library accepts.
    pub(super) fn new(largest: usize) -> Self {
        let (held, kept) = Default::default();
        Self {
            pass: HTTP2_PREFACE.len(),
            held,
            is_in_block: false,
            block: 0,
            kept,
            largest,
            large: 0,
            is_too_much: false,
            blocks: 0,
        }
    }

    /// Appends to `out` what the library gets.
    pub(super) fn filter(&mut self, mut bytes: &[u8], windows: &mut SendWindows, out: &mut Vec<u8>) {
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
                self.complete(windows, out);
            }
        }
        self.lend(windows, out);
    }

    /// Tells the library that it may send more, as if the client had said so.
    pub(super) fn lend(&mut self, windows: &mut SendWindows, out: &mut Vec<u8>) {
        if self.pass > 0 || self.is_in_block {
            return;
        }
        for (stream, more) in windows.owed() {
            write_update(stream, more, out);
        }
        let lent = windows.lend();
        if lent > 0 {
            write_update(0, lent, out);
        }
    }

    /// What is held of a frame or a header block that will not be complete, because the client is gone.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.kept);
        rest.extend_from_slice(&std::mem::take(&mut self.held));
        rest
    }

    /// The bytes of a header block that is not complete. 0 if there is none.
    pub(super) fn open_head(&self) -> usize {
        let has_begun = self.head().is_some_and(is_of_block);
        if self.is_in_block || has_begun { (self.block + self.held.len()).min(self.largest) } else { 0 }
    }

    /// What the library may keep of the large header blocks of this connection, in bytes.
    pub(super) fn large_blocks(&self) -> usize {
        self.large
    }

    /// The number of header blocks that are complete.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Whether another large header block came after too many of them.
    pub(super) fn is_too_much(&self) -> bool {
        self.is_too_much
    }

    /// Counts a frame of a header block.
    fn count(&mut self, len: usize) {
        self.block += len;
        if !self.is_in_block {
            let block = std::mem::take(&mut self.block);
            self.blocks += 1;
            if block > LARGE_BLOCK {
                self.is_too_much |= self.large > MOST_LARGE;
                self.large += block + BUFFER;
            }
        }
    }

    fn head(&self) -> Option<FrameHead> {
        self.held.first_chunk::<HEAD>().map(|head| FrameHead::parse(*head))
    }

    /// The bytes that must be held before the filter can decide.
    fn missing(&self) -> usize {
        self.head().filter(|head| head.len <= LARGEST).map_or(HEAD, FrameHead::whole)
    }

    fn complete(&mut self, windows: &mut SendWindows, out: &mut Vec<u8>) {
        let Some(head) = self.head() else { return };
        let mut held = std::mem::take(&mut self.held);
        let was_in_block = self.is_in_block;
        self.is_in_block = head.leaves_block_open(was_in_block);
        if is_of_block(head) {
            self.count(head.whole());
        }
        // What is not allowed goes to the library at once.
        let is_next = is_of_block(head) && was_in_block == (head.kind == CONTINUATION) && head.len <= LARGEST;
        if is_next && self.is_in_block && self.block <= self.largest {
            if head.kind == HEADERS && windows.is_new(head.stream) {
                windows.skipped(head.stream);
            }
            return self.kept.extend_from_slice(&held);
        }
        out.append(&mut std::mem::take(&mut self.kept));
        let payload = held.get_mut(HEAD..).unwrap_or_default();
        match head.kind {
            // The library refuses such a frame, and what is not allowed within a block.
            _ if head.len > LARGEST => self.pass = head.len,
            _ if was_in_block => {}
            WINDOW_UPDATE => {
                if let Ok(more) = <[u8; 4]>::try_from(&*payload) {
                    return update(head.stream, u32::from_be_bytes(more) & MAX_WINDOW, windows, out);
                }
            }
            SETTINGS if !head.has(ACK) => {
                let fits = set(payload, windows);
                out.extend_from_slice(&held);
                if !fits {
                    write_too_much(out);
                }
                return;
            }
            RST_STREAM => windows.closed(head.stream),
            HEADERS if windows.is_new(head.stream) => return open(head, payload, windows, out),
            _ => {}
        }
        out.extend_from_slice(&held);
    }
}

/// Whether a frame has a part of a header block. The library reads a PUSH_PROMISE before it refuses it.
fn is_of_block(head: FrameHead) -> bool {
    matches!(head.kind, HEADERS | PUSH_PROMISE | CONTINUATION)
}

/// Passes on as much of an update as concerns the library.
fn update(stream: u32, more: u32, windows: &mut SendWindows, out: &mut Vec<u8>) {
    match windows.grown(stream, more) {
        // The library refuses an update by zero.
        _ if more == 0 => write_update(stream, 0, out),
        0 => {}
        told => {
            // More than a window can hold. The second update exceeds it even if the library has none left.
            if told > more {
                write_update(stream, told, out);
            }
            write_update(stream, told, out);
        }
    }
}

/// Notes the settings of the client. If one comes several times, the last value counts (RFC 9113, section 6.5). If one is
/// wrong, wherever, the library ends the connection. Returns false if it must end it because a window becomes too large.
fn set(payload: &mut [u8], windows: &mut SendWindows) -> bool {
    let mut last = None;
    for setting in payload.chunks_exact_mut(6) {
        let [a, b, value @ ..] = setting else { continue };
        let Some(value) = value.first_chunk_mut::<4>() else { continue };
        match (u16::from_be_bytes([*a, *b]), u32::from_be_bytes(*value)) {
            (INITIAL_WINDOW_SIZE, initial) => {
                last = Some(initial);
                if initial <= MAX_WINDOW {
                    *value = initial.min(MOST_TOLD).to_be_bytes();
                }
            }
            // A frame that the socket takes only in part is kept in memory.
            (MAX_FRAME_SIZE, 0x4000..=0xff_ffff) => *value = 0x4000_u32.to_be_bytes(),
            _ => {}
        }
    }
    windows.set(last)
}

/// Makes the library end the connection because of a window. The second update is too much even if it has none left.
fn write_too_much(out: &mut Vec<u8>) {
    for _ in 0..2 {
        write_update(0, MAX_WINDOW, out);
    }
}

fn write_update(stream: u32, more: u32, out: &mut Vec<u8>) {
    let head = FrameHead { len: 4, kind: WINDOW_UPDATE, flags: 0, stream };
    out.extend_from_slice(&head.to_bytes());
    out.extend_from_slice(&more.to_be_bytes());
}

/// Passes on the header block of a request, with its tag if the block is complete in its first frame. Very large ones are
/// not. Padding is rare.
fn open(head: FrameHead, payload: &[u8], windows: &mut SendWindows, out: &mut Vec<u8>) {
    let priority = if head.has(PRIORITY) { PRIORITY_LEN } else { 0 };
    let mut field = stream_tag::field(head.stream);
    let may_tag = head.has(END_HEADERS)
        && !head.has(PADDED)
        && head.len + field.len() <= LARGEST
        && payload.get(priority..).is_some_and(stream_tag::is_complete);
    if !(may_tag && windows.opened(head.stream)) {
        windows.skipped(head.stream);
        field.clear();
    }
    out.extend_from_slice(&FrameHead { len: head.len + field.len(), ..head }.to_bytes());
    out.extend_from_slice(payload);
    out.extend_from_slice(&field);
}

#[cfg(test)]
#[path = "frame_filter_tests.rs"]
mod tests;
