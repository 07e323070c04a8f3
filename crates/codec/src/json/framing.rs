//! Finds the end of a JSON value incrementally, as the bytes arrive.

use memchr::memchr2;

use crate::CodecError;

use super::scan::Result;

/// Finds the end of one value. It checks only what that needs: quotes and brackets. The result depends only on the
/// bytes, not on how they are split into chunks. Each byte is examined once.
#[derive(Clone, Debug, Default)]
pub(super) struct ValueEnd {
    /// The number of bytes of the value that were already examined.
    seen: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

// === impl ValueEnd ===

impl ValueEnd {
    /// `buf` begins with the value and holds at least the bytes of the last call. Returns the length of the value
    /// once its end is known. The end of a number or a literal is known only when another byte follows it.
    ///
    /// # Errors
    /// When the value is longer than `limit` bytes.
    pub(super) fn find(&mut self, buf: &[u8], limit: usize) -> Result<Option<usize>> {
        let end = self.advance(buf);
        let len = end.unwrap_or(self.seen);
        if len > limit { Err(CodecError::TooLarge { limit }) } else { Ok(end) }
    }

    fn advance(&mut self, buf: &[u8]) -> Option<usize> {
        while let Some(&byte) = buf.get(self.seen) {
            if self.in_string {
                if self.escaped {
                    self.escaped = false;
                    self.seen += 1;
                    continue;
                }
                let rest = buf.get(self.seen..).unwrap_or(&[]);
                let Some(run) = memchr2(b'"', b'\\', rest) else {
                    self.seen = buf.len();
                    return None;
                };
                self.escaped = rest.get(run) == Some(&b'\\');
                self.seen += run + 1;
                if !self.escaped {
                    self.in_string = false;
                    if self.depth == 0 {
                        return Some(self.seen);
                    }
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' if self.depth == 0 => return Some(self.seen),
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        self.seen += 1;
                        return Some(self.seen);
                    }
                }
                b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' if self.depth == 0 => return Some(self.seen),
                _ => {}
            }
            self.seen += 1;
        }
        None
    }
}

/// Counts the leading whitespace bytes.
pub(crate) fn leading_spaces(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')).count()
}
