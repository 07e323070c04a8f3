//! What a client sends on an HTTP/2 connection, as the library gets it: with a tag in each request, and with those
//! updates of windows that concern the library.

use smallvec::SmallVec;

use super::frames::{
    ACK, END_HEADERS, FrameHead, HEAD, HEADERS, INITIAL_WINDOW_SIZE, LARGEST, MAX_FRAME_SIZE, MAX_WINDOW, PADDED,
    PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE,
};
use super::io::HTTP2_PREFACE;
use super::send_windows::SendWindows;
use super::stream_tag;

/// Bytes come in pieces of any size.
#[derive(Debug)]
pub(super) struct FrameFilter {
    /// Bytes that are passed on before the next head: of the preface, or of a payload.
    pass: usize,
    /// The head of a frame, and the payload that the filter has to see as a whole. At most the largest frame that the
    /// library accepts.
    held: SmallVec<[u8; 16]>,
    /// A header block goes on in the next frame.
    is_in_block: bool,
}

/// The priority of a stream, before the block of its header fields.
const PRIORITY_LEN: usize = 5;

// === impl FrameFilter ===

impl Default for FrameFilter {
    fn default() -> Self {
        Self { pass: HTTP2_PREFACE.len(), held: SmallVec::new(), is_in_block: false }
    }
}

impl FrameFilter {
    /// Appends to `out` what the library gets.
    pub(super) fn filter(&mut self, mut bytes: &[u8], windows: &mut SendWindows, out: &mut Vec<u8>) {
        while !bytes.is_empty() {
            if self.pass > 0 {
                let now = bytes.split_off(..self.pass.min(bytes.len())).unwrap_or_default();
                self.pass -= now.len();
                out.extend_from_slice(now);
                continue;
            }
            let missing = self.missing(windows) - self.held.len();
            self.held.extend_from_slice(bytes.split_off(..missing.min(bytes.len())).unwrap_or_default());
            if self.held.len() == self.missing(windows) {
                self.complete(windows, out);
            }
        }
        self.lend(windows, out);
    }

    /// Tells the library that it may send more, as if the client had said so.
    pub(super) fn lend(&mut self, windows: &mut SendWindows, out: &mut Vec<u8>) {
        if self.pass > 0 || !self.held.is_empty() || self.is_in_block {
            return;
        }
        let lent = windows.lend();
        if lent > 0 {
            write_update(0, lent, out);
        }
    }

    /// What is held of a frame that will not be complete, because the client is gone.
    pub(super) fn rest(&mut self) -> impl AsRef<[u8]> + use<> {
        std::mem::take(&mut self.held)
    }

    fn head(&self) -> Option<FrameHead> {
        self.held.first_chunk::<HEAD>().map(|head| FrameHead::parse(*head))
    }

    /// The bytes that must be held before the filter can decide.
    fn missing(&self, windows: &SendWindows) -> usize {
        match self.head() {
            Some(head) if is_seen(head, windows) => head.whole(),
            _ => HEAD,
        }
    }

    fn complete(&mut self, windows: &mut SendWindows, out: &mut Vec<u8>) {
        let Some(head) = self.head() else { return };
        let mut held = std::mem::take(&mut self.held);
        self.is_in_block = head.leaves_block_open(self.is_in_block);
        if !is_seen(head, windows) {
            self.pass = head.len;
            match head.kind {
                RST_STREAM => windows.closed(head.stream),
                // This is the first block of a request that is not tagged.
                HEADERS => windows.skipped(head.stream),
                _ => {}
            }
            out.extend_from_slice(&held);
            return;
        }
        let payload = held.get_mut(HEAD..).unwrap_or_default();
        match head.kind {
            WINDOW_UPDATE => {
                let more = payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes) & MAX_WINDOW);
                match windows.grown(head.stream, more) {
                    // The library refuses an update by zero.
                    _ if more == 0 => write_update(head.stream, 0, out),
                    0 => {}
                    told => {
                        // More than a window can hold. The second update exceeds it even if the library has none left.
                        if told > more {
                            write_update(head.stream, told, out);
                        }
                        write_update(head.stream, told, out);
                    }
                }
            }
            SETTINGS => {
                set(payload, windows);
                out.extend_from_slice(&held);
            }
            _ => tag(head, payload, windows, out),
        }
    }
}

/// Notes the settings of the client.
fn set(payload: &mut [u8], windows: &mut SendWindows) {
    for setting in payload.chunks_exact_mut(6) {
        let [a, b, value @ ..] = setting else { continue };
        let Some(value) = value.first_chunk_mut::<4>() else { continue };
        match (u16::from_be_bytes([*a, *b]), u32::from_be_bytes(*value)) {
            (INITIAL_WINDOW_SIZE, initial) => windows.set_initial(initial),
            // A frame that the socket takes only in part is kept in memory.
            (MAX_FRAME_SIZE, 0x4000..=0xff_ffff) => *value = 0x4000_u32.to_be_bytes(),
            _ => {}
        }
    }
}

/// Whether the filter has to see the payload of a frame.
fn is_seen(head: FrameHead, windows: &SendWindows) -> bool {
    match head.kind {
        WINDOW_UPDATE => head.len == 4,
        SETTINGS => !head.has(ACK) && head.len <= LARGEST,
        // The block of a request is complete in its first frame, unless it is very large. Padding is rare.
        HEADERS => head.has(END_HEADERS) && !head.has(PADDED) && head.len < LARGEST && windows.is_new(head.stream),
        _ => false,
    }
}

fn write_update(stream: u32, more: u32, out: &mut Vec<u8>) {
    let head = FrameHead { len: 4, kind: WINDOW_UPDATE, flags: 0, stream };
    out.extend_from_slice(&head.to_bytes());
    out.extend_from_slice(&more.to_be_bytes());
}

/// Passes the header fields of a request on with its tag.
fn tag(head: FrameHead, payload: &[u8], windows: &mut SendWindows, out: &mut Vec<u8>) {
    let priority = if head.has(PRIORITY) { PRIORITY_LEN } else { 0 };
    let field = stream_tag::field(head.stream);
    let len = head.len + field.len();
    let may_tag = len <= LARGEST && payload.get(priority..).is_some_and(stream_tag::is_complete);
    if may_tag && windows.opened(head.stream) {
        out.extend_from_slice(&FrameHead { len, ..head }.to_bytes());
        out.extend_from_slice(payload);
        out.extend_from_slice(&field);
    } else {
        windows.skipped(head.stream);
        out.extend_from_slice(&head.to_bytes());
        out.extend_from_slice(payload);
    }
}

#[cfg(test)]
#[path = "frame_filter_tests.rs"]
mod tests;
