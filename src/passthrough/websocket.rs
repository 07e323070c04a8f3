//! Just enough of WebSockets (RFC 6455) to write messages, and to end a stream between two of them.

/// The position within the frames of a server.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    head: Vec<u8>,
    /// The bytes of the payload that are still missing.
    left: u64,
    /// A message has begun, and another frame continues it.
    open: bool,
    text: Option<bool>,
}

const FINAL: u8 = 0x80;
pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PONG: u8 = 10;
/// A bit in the second byte of a frame's header.
pub(crate) const MASKED: u8 = 0x80;
const NORMAL: u16 = 1000;
const POLICY: u16 = 1008;

// === impl Messages ===

impl Messages {
    /// Consumes the next data from the server.
    pub(crate) fn follow(&mut self, data: &[u8]) {
        let mut rest = data;
        while !rest.is_empty() {
            rest = &rest[self.step(rest)..];
        }
    }

    /// Consumes the next data from the server up to the end of the current message. Returns how many bytes that is.
    pub(crate) fn follow_to_end(&mut self, data: &[u8]) -> usize {
        let mut at = 0;
        while at < data.len() && !self.is_between() {
            at += self.step(&data[at..]);
        }
        at
    }

    /// Whether no message is in progress.
    pub(crate) fn is_between(&self) -> bool {
        self.head.is_empty() && self.left == 0 && !self.open
    }

    /// Whether the messages are text. True if there were none.
    pub(crate) fn are_text(&self) -> bool {
        self.text.unwrap_or(true)
    }

    /// Consumes one byte of a frame's header, or the available bytes of its payload. Returns 0 for empty data.
    fn step(&mut self, data: &[u8]) -> usize {
        if self.left > 0 {
            let taken = usize::try_from(self.left).unwrap_or(usize::MAX).min(data.len());
            self.left -= taken as u64;
            return taken;
        }
        let Some(byte) = data.first() else { return 0 };
        self.head.push(*byte);
        if let Some(length) = self.payload() {
            self.left = length;
            let (kind, is_final) = (self.head[0] & 0x0f, self.head[0] & FINAL != 0);
            // Control frames may occur between the frames of a message.
            if kind < CLOSE {
                self.open = !is_final;
            }
            if matches!(kind, TEXT | BINARY) {
                self.text.get_or_insert(kind == TEXT);
            }
            self.head.clear();
        }
        1
    }

    /// The length of the payload, once the header is complete.
    fn payload(&self) -> Option<u64> {
        let second = *self.head.get(1)?;
        let (short, wide) = match second & !MASKED {
            126 => (0, 2),
            127 => (0, 8),
            short => (u64::from(short), 0),
        };
        let mask = if second & MASKED == 0 { 0 } else { 4 };
        if self.head.len() < 2 + wide + mask {
            return None;
        }
        Some(self.head[2..2 + wide].iter().fold(short, |length, byte| (length << 8) | u64::from(*byte)))
    }
}

/// The header of a server frame that is a whole message or a control frame.
pub(crate) fn head(kind: u8, length: usize) -> Vec<u8> {
    let mut head = vec![FINAL | kind];
    match u16::try_from(length) {
        Ok(length) if length < 126 => head.push(length.to_be_bytes()[1]),
        Ok(length) => {
            head.push(126);
            head.extend_from_slice(&length.to_be_bytes());
        }
        Err(_) => {
            head.push(127);
            head.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    head
}

/// The last frames of a server: this message, if messages are text, and the close.
pub(crate) fn parting(message: Option<&[u8]>, text: bool) -> Vec<u8> {
    let mut frames = Vec::new();
    if let (Some(message), true) = (message, text) {
        frames.extend_from_slice(&head(TEXT, message.len()));
        frames.extend_from_slice(message);
    }
    let code = if message.is_some() && !text { POLICY } else { NORMAL };
    frames.extend_from_slice(&head(CLOSE, 2));
    frames.extend_from_slice(&code.to_be_bytes());
    frames
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(first: u8, payload: usize, masked: bool) -> Vec<u8> {
        let mask = if masked { MASKED } else { 0 };
        let mut frame = vec![first];
        match payload {
            0..126 => frame.push(mask | u8::try_from(payload).unwrap()),
            126..=65535 => {
                frame.push(mask | 126);
                frame.extend_from_slice(&u16::try_from(payload).unwrap().to_be_bytes());
            }
            _ => {
                frame.push(mask | 127);
                frame.extend_from_slice(&(payload as u64).to_be_bytes());
            }
        }
        frame.extend_from_slice(if masked { &[1, 2, 3, 4] } else { &[] });
        frame.extend(std::iter::repeat_n(FINAL | TEXT, payload));
        frame
    }

    proptest! {
        /// The bytes may be split anywhere. `is_between` is true exactly where a message ends, or a control frame
        /// outside of a message.
        #[test]
        fn knows_where_messages_end(
            frames in prop::collection::vec((any::<bool>(), any::<bool>(), any::<bool>(), prop::sample::select(vec![0, 1, 5, 125, 126, 300, 70_000])), 1..8),
            cut in 1_usize..5000,
        ) {
            let (mut stream, mut ends, mut open) = (Vec::new(), vec![0], false);
            for (is_final, control, masked, payload) in frames {
                let kind = if control { 9 } else if open { 0 } else { TEXT };
                let is_final = is_final || control;
                stream.extend(frame(kind | if is_final { FINAL } else { 0 }, payload.min(if control { 125 } else { payload }), masked));
                open = if control { open } else { !is_final };
                if !open {
                    ends.push(stream.len());
                }
            }
            let mut messages = Messages::default();
            let mut at = 0;
            for piece in stream.chunks(cut) {
                messages.follow(piece);
                at += piece.len();
                prop_assert_eq!(messages.is_between(), ends.contains(&at), "{}", at);
            }
            // The rest of the current message has the right length.
            let mut messages = Messages::default();
            let cut = cut.min(stream.len());
            messages.follow(&stream[..cut]);
            let rest = messages.follow_to_end(&stream[cut..]);
            let end = ends.iter().find(|end| **end >= cut).copied().unwrap_or(stream.len());
            prop_assert_eq!(cut + rest, end);
        }
    }

    #[test]
    fn the_last_frames() {
        assert_eq!(parting(None, true), [0x88, 2, 3, 0xe8]);
        assert_eq!(parting(Some(b"{}\n"), true), b"\x81\x03{}\n\x88\x02\x03\xe8");
        assert_eq!(parting(Some(b"{}\n"), false), [0x88, 2, 3, 0xf0]);
        for length in [125, 126, 65_535, 65_536] {
            let frames = parting(Some(&vec![b'x'; length]), true);
            let mut messages = Messages::default();
            messages.follow(&frames[..1]);
            assert_eq!(1 + messages.follow_to_end(&frames[1..]), frames.len() - 4, "{length}");
        }
    }
}
