//! Indents JSON responses for people. It only inserts the line breaks and spaces of Go's encoder.

use bytes::{Buf, Bytes};
use memchr::memchr2;

use crate::Slices;

/// So much more than a step may write is allocated for its last line break.
const SPARE: usize = 256;

/// Indents JSON that arrives in pieces, split anywhere. It uses two spaces per level, writes empty containers on one
/// line, copies strings and numbers unchanged, and adds no line break at the end. The input must be valid JSON.
/// Whitespace in the input has no effect.
#[derive(Clone, Debug, Default)]
pub struct Indenter {
    at: At,
    /// The number of open containers that are not empty.
    depth: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Tokens,
    /// After the opening bracket of a container that may still be empty.
    Opened,
    Text,
    /// After a backslash.
    Escape,
}

// === impl Indenter ===

impl Indenter {
    /// Consumes `input` until it is empty or `most` bytes are written. The output can exceed `most` by less than one
    /// line break with its indentation, which is 20 kB for the deepest object.
    pub fn step(&mut self, input: &mut Slices, most: usize) -> Bytes {
        let mut out = Vec::with_capacity(most.saturating_add(SPARE).min(2 * input.len() + 64));
        while input.has_remaining() && out.len() < most {
            let taken = self.piece(input.chunk(), most, &mut out);
            input.advance(taken);
        }
        out.into()
    }

    /// Returns how many bytes of the piece were consumed.
    fn piece(&mut self, piece: &[u8], most: usize, out: &mut Vec<u8>) -> usize {
        let mut taken = 0;
        while let Some(rest) = piece.get(taken..).filter(|rest| !rest.is_empty() && out.len() < most) {
            taken += match self.at {
                At::Text => self.text(&rest[..rest.len().min(most - out.len())], out),
                At::Escape => {
                    out.push(rest[0]);
                    self.at = At::Text;
                    1
                }
                At::Tokens | At::Opened => {
                    self.token(rest[0], out);
                    1
                }
            };
        }
        taken
    }

    /// Copies the contents of a string, up to its end or to an escape.
    fn text(&mut self, rest: &[u8], out: &mut Vec<u8>) -> usize {
        let taken = memchr2(b'"', b'\\', rest).map_or(rest.len(), |found| {
            self.at = if rest[found] == b'"' { At::Tokens } else { At::Escape };
            found + 1
        });
        out.extend_from_slice(&rest[..taken]);
        taken
    }

    fn token(&mut self, byte: u8, out: &mut Vec<u8>) {
        if byte.is_ascii_whitespace() {
            return;
        }
        let is_end = matches!(byte, b'}' | b']');
        if self.at == At::Opened && !is_end {
            self.depth += 1;
            self.line(out);
        } else if self.at == At::Tokens && is_end {
            self.depth = self.depth.saturating_sub(1);
            self.line(out);
        }
        out.push(byte);
        self.at = At::Tokens;
        match byte {
            b'{' | b'[' => self.at = At::Opened,
            b'"' => self.at = At::Text,
            b',' => self.line(out),
            b':' => out.push(b' '),
            _ => {}
        }
    }

    fn line(&self, out: &mut Vec<u8>) {
        out.push(b'\n');
        out.resize(out.len() + 2 * self.depth, b' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indented(pieces: &[&[u8]], most: usize) -> String {
        let mut input: Slices = pieces.iter().map(|piece| Bytes::copy_from_slice(piece)).collect();
        let (mut indenter, mut out) = (Indenter::default(), Vec::new());
        while input.has_remaining() {
            let step = indenter.step(&mut input, most);
            assert!(step.len() < most + 2 + 2 * 64, "a step is bounded");
            out.extend_from_slice(&step);
        }
        String::from_utf8(out).unwrap()
    }

    /// The fuzz target `json_item` indents any object.
    #[test]
    fn as_go_indents() {
        for (compact, wanted) in [
            ("{}\n", "{}"),
            ("[]", "[]"),
            ("{ }", "{}"),
            ("null\n", "null"),
            (r#""a\"b""#, r#""a\"b""#),
            (r#"[[],{},[[]]]"#, "[\n  [],\n  {},\n  [\n    []\n  ]\n]"),
            (
                "{\"a\":{\"b\":[1,-2.5e+3,true,null]},\"c\":\"x: {,}[] \\\\\\\" \\u003c é\",\"\":\"\"}\n",
                "{\n  \"a\": {\n    \"b\": [\n      1,\n      -2.5e+3,\n      true,\n      null\n    ]\n  },\n  \"c\": \"x: {,}[] \\\\\\\" \\u003c é\",\n  \"\": \"\"\n}",
            ),
        ] {
            for (piece, most) in [(1 << 20, 1 << 20), (1, 1), (3, 5), (7, 2), (2, 39)] {
                let pieces: Vec<_> = compact.as_bytes().chunks(piece).collect();
                assert_eq!(indented(&pieces, most), wanted, "{compact} in pieces of {piece} and steps of {most}");
            }
        }
    }

    #[test]
    fn deep_ones_are_made_in_steps() {
        let deep = "[".repeat(2000) + &"]".repeat(2000);
        let mut input = Slices::from(Bytes::from(deep));
        let (mut indenter, mut len) = (Indenter::default(), 0);
        while input.has_remaining() {
            let step = indenter.step(&mut input, 100);
            assert!(step.len() < 100 + 4002);
            len += step.len();
        }
        // The innermost container is empty. Around it are 2 * 1999 lines.
        assert_eq!(len, 4000 + 2 * 1999 + 2 * (2000 * 1999 / 2 + 1999 * 1998 / 2));
    }
}
