//! The framing of HTTP/2 (RFC 9113, section 4.1).

/// The bytes before the payload of each frame.
pub(super) const HEAD: usize = 9;
/// The largest payload that each peer accepts. The library accepts no larger one.
pub(in crate::http) const LARGEST: usize = 16 << 10;
/// The largest window (section 6.9.1).
pub(super) const MAX_WINDOW: u32 = (1 << 31) - 1;

#[cfg(test)]
pub(super) const DATA: u8 = 0;
pub(in crate::http) const HEADERS: u8 = 1;
pub(in crate::http) const PUSH_PROMISE: u8 = 5;
pub(super) const GOAWAY: u8 = 7;
pub(in crate::http) const CONTINUATION: u8 = 9;

pub(in crate::http) const END_STREAM: u8 = 0x1;
pub(in crate::http) const END_HEADERS: u8 = 0x4;

/// The client sends too much (section 7).
const ENHANCE_YOUR_CALM: u32 = 11;
/// The header block of an answer with 431: `:status` is the eighth field of the static table (RFC 7541, section 6.2.2).
const LARGE_HEAD: [u8; 5] = [8, 3, b'4', b'3', b'1'];

/// The answer to a request whose head is too large, and the end of its connection.
pub(super) fn large_head(stream: u32) -> Vec<u8> {
    let head = FrameHead { len: LARGE_HEAD.len(), kind: HEADERS, flags: END_HEADERS | END_STREAM, stream };
    let goaway = FrameHead { len: 8, kind: GOAWAY, flags: 0, stream: 0 };
    let (last, reason) = (stream.to_be_bytes(), ENHANCE_YOUR_CALM.to_be_bytes());
    [&head.to_bytes()[..], &LARGE_HEAD, &goaway.to_bytes(), &last, &reason].concat()
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) struct FrameHead {
    /// The size of the payload in bytes.
    pub(in crate::http) len: usize,
    pub(in crate::http) kind: u8,
    pub(in crate::http) flags: u8,
    /// Zero for the connection.
    pub(in crate::http) stream: u32,
}

/// Finds the frames in a sequence of bytes that comes in arbitrary pieces.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    head: [u8; HEAD],
    /// The known bytes of `head`.
    filled: usize,
    /// The bytes of the payload that have not come yet.
    payload: usize,
    /// A header block has begun that goes on in further frames. No other frame may come in between (section 4.3).
    is_in_block: bool,
}

// === impl FrameHead ===

impl FrameHead {
    pub(super) fn parse(bytes: [u8; HEAD]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = bytes;
        let len = u32::from_be_bytes([0, a, b, c]) as usize;
        Self { len, kind, flags, stream: u32::from_be_bytes(stream) & MAX_WINDOW }
    }

    /// The payload must be smaller than 16 MiB.
    pub(in crate::http) fn to_bytes(self) -> [u8; HEAD] {
        let [.., a, b, c] = self.len.to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }

    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether a header block goes on after this frame, if one was open before it or not.
    pub(super) fn leaves_block_open(self, is_open: bool) -> bool {
        match self.kind {
            HEADERS | PUSH_PROMISE | CONTINUATION => !self.has(END_HEADERS),
            _ => is_open,
        }
    }

    /// The bytes of the whole frame.
    pub(super) fn whole(self) -> usize {
        HEAD + self.len
    }
}

// === impl Scanner ===

impl Scanner {
    /// Calls `found` with the head of each frame as soon as the head is complete.
    pub(super) fn scan(&mut self, mut bytes: &[u8], mut found: impl FnMut(FrameHead)) {
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(self.missing().min(bytes.len()));
            bytes = rest;
            if self.payload > 0 {
                self.payload -= now.len();
                continue;
            }
            let to = self.filled + now.len();
            self.head[self.filled..to].copy_from_slice(now);
            self.filled = to;
            if self.filled == HEAD {
                let head = FrameHead::parse(self.head);
                (self.filled, self.payload) = (0, head.len);
                self.is_in_block = head.leaves_block_open(self.is_in_block);
                found(head);
            }
        }
    }

    /// The bytes up to the end of the head, or of the payload, that is being scanned.
    fn missing(&self) -> usize {
        if self.payload > 0 { self.payload } else { HEAD - self.filled }
    }

    /// Whether the last frame is complete, and any other may follow.
    pub(super) fn is_between_frames(&self) -> bool {
        self.filled == 0 && self.payload == 0 && !self.is_in_block
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head() -> impl Strategy<Value = FrameHead> {
        (0..100_usize, any::<u8>(), any::<u8>(), 0..=MAX_WINDOW).prop_map(|(len, kind, flags, stream)| FrameHead {
            len,
            kind,
            flags,
            stream,
        })
    }

    proptest! {
        #[test]
        fn frames_are_found_in_pieces_of_any_size(
            heads in proptest::collection::vec(head(), 0..10),
            size in 1..40_usize,
        ) {
            let mut bytes = Vec::new();
            for head in &heads {
                bytes.extend(head.to_bytes());
                bytes.resize(bytes.len() + head.len, 0xff);
            }
            let (mut scanner, mut found) = (Scanner::default(), Vec::new());
            for piece in bytes.chunks(size) {
                scanner.scan(piece, |head| found.push(head));
            }
            let is_open = heads.iter().fold(false, |is_open, head| head.leaves_block_open(is_open));
            prop_assert_eq!(found, heads);
            prop_assert_eq!(scanner.is_between_frames(), !is_open);
        }
    }

    #[test]
    fn the_reserved_bit_is_ignored() {
        let head = FrameHead::parse([0, 1, 2, 8, 0, 0x80, 0, 0, 5]);
        assert_eq!((head.len, head.stream), (258, 5));
    }
}
