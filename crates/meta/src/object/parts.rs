//! Strings one after another in one text, each after its length.

/// The strings of a text.
#[derive(Clone, Debug)]
pub(super) struct Parts<'a> {
    rest: &'a str,
}

/// A length is written in characters of six bits, the lowest first, and this bit in all but the last: one character for
/// almost every label and field.
const MORE: u8 = 0x40;

/// Appends a string.
pub(super) fn push(text: &mut String, part: &str) {
    let mut len = part.len();
    text.reserve(2 + len);
    while len >= usize::from(MORE) {
        text.push(char::from(len as u8 & (MORE - 1) | MORE));
        len >>= 6;
    }
    text.push(char::from(len as u8));
    text.push_str(part);
}

// === impl Parts ===

impl<'a> Parts<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self { rest: text }
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let (mut len, mut shift) = (0, 0);
        for (at, byte) in self.rest.bytes().enumerate() {
            len |= usize::from(byte & (MORE - 1)) << shift;
            shift += 6;
            if byte & MORE == 0 {
                let (part, rest) = self.rest.get(at + 1..)?.split_at_checked(len)?;
                self.rest = rest;
                return Some(part);
            }
        }
        None
    }
}
