//! A validating JSON scanner. It checks the grammar, skips values that are not requested and builds no tree.

use crate::CodecError;

use super::text::Text;

/// The maximum nesting depth. The apiserver's own decoder has the same limit.
pub(super) const MAX_DEPTH: usize = 10_000;

pub(super) type Result<T> = std::result::Result<T, CodecError>;

type Scan<T> = std::result::Result<T, Fault>;

/// A position in a buffer that may hold more than the value being scanned. The scanner does not check for UTF-8; that
/// is done by the code that knows where the value ends.
#[derive(Clone, Debug)]
pub(crate) struct Scanner<'a> {
    buf: &'a [u8],
    pos: usize,
    /// Whether whitespace was skipped between tokens.
    spaced: bool,
}

/// The error at the scanner's position. It is one byte long so that results fit in registers: the scanner is on the
/// hot path of all upstream data.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Truncated,
    TooDeep,
    Object,
    Array,
    Text,
    Value,
    Colon,
    CommaOrEnd,
    Digit,
    HexDigit,
    Escape,
    Control,
    Trailing,
}

/// The open containers, innermost last. It uses one bit each and needs no allocation at usual depths.
#[derive(Default)]
struct Nesting {
    bits: smallvec::SmallVec<[u64; 4]>,
    len: usize,
}

// === impl Scanner ===

impl<'a> Scanner<'a> {
    pub(crate) fn new(buf: &'a [u8]) -> Self {
        Self { buf, pos: 0, spaced: false }
    }

    /// Reads bytes that are exactly one value, possibly with spaces around it.
    pub(crate) fn whole<T>(buf: &'a [u8], read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let mut scanner = Self::new(buf);
        scanner.skip_spaces();
        let value = read(&mut scanner)?;
        scanner.end()?;
        Ok(value)
    }

    /// Returns a scanner whose buffer begins at the current position.
    pub(crate) fn clone_here(&self) -> Self {
        Self::new(self.buf.get(self.pos..).unwrap_or(&[]))
    }

    pub(crate) fn position(&self) -> usize {
        self.pos
    }

    /// Moves back to a position that [`Self::position`] returned.
    pub(crate) fn rewind(&mut self, position: usize) {
        self.pos = position;
    }

    pub(crate) fn saw_spaces(&self) -> bool {
        self.spaced
    }

    /// Returns the bytes from `start` to the current position.
    pub(crate) fn since(&self, start: usize) -> &'a [u8] {
        self.buf.get(start..self.pos).unwrap_or(&[])
    }

    pub(crate) fn peek(&self) -> Result<u8> {
        self.at().map_err(|fault| self.error(fault))
    }

    #[inline]
    pub(crate) fn skip_spaces(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.buf.get(self.pos) {
            self.pos += 1;
            self.spaced = true;
        }
    }

    /// Checks that only whitespace follows.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.skip_spaces();
        if self.pos < self.buf.len() { Err(self.error(Fault::Trailing)) } else { Ok(()) }
    }

    /// Calls `each` for every member of an object. The scanner is at the value, and `each` must consume it.
    pub(crate) fn object(&mut self, mut each: impl FnMut(&mut Self, Text<'a>) -> Result<()>) -> Result<()> {
        let mut more = self.open(b'{', b'}', Fault::Object).map_err(|fault| self.error(fault))?;
        while more {
            let key = self.key().map_err(|fault| self.error(fault))?;
            each(self, key)?;
            more = self.more(b'}').map_err(|fault| self.error(fault))?;
        }
        Ok(())
    }

    /// Calls `each` with the index of every element of an array. The scanner is at the element, and `each` must
    /// consume it.
    pub(crate) fn array(&mut self, mut each: impl FnMut(&mut Self, usize) -> Result<()>) -> Result<()> {
        let mut more = self.open(b'[', b']', Fault::Array).map_err(|fault| self.error(fault))?;
        let mut index = 0;
        while more {
            each(self, index)?;
            index += 1;
            more = self.more(b']').map_err(|fault| self.error(fault))?;
        }
        Ok(())
    }

    /// Reads a string, or `None` for null.
    pub(crate) fn string_or_null(&mut self, name: &'static str) -> Result<Option<Text<'a>>> {
        match self.peek()? {
            b'"' => self.string().map(Some),
            b'n' => self.literal(b"null").map(|()| None),
            _ => Err(CodecError::Invalid(name)),
        }
    }

    /// Reads a string. The scanner must be at its opening quote.
    pub(crate) fn string(&mut self) -> Result<Text<'a>> {
        self.text().map_err(|fault| self.error(fault))
    }

    /// Reads a number and checks its grammar.
    pub(crate) fn number(&mut self) -> Result<&'a [u8]> {
        let start = self.pos;
        self.skip_number().map_err(|fault| self.error(fault))?;
        Ok(self.since(start))
    }

    pub(crate) fn literal(&mut self, literal: &'static [u8]) -> Result<()> {
        self.skip_literal(literal).map_err(|fault| self.error(fault))
    }

    /// Skips one value of any type, without recursion.
    pub(crate) fn skip_value(&mut self) -> Result<()> {
        self.skip().map_err(|fault| self.error(fault))
    }

    #[cold]
    fn error(&self, fault: Fault) -> CodecError {
        let what = match fault {
            Fault::Truncated => return CodecError::Truncated,
            Fault::TooDeep => return CodecError::TooDeep { limit: MAX_DEPTH },
            Fault::Object => "expected an object",
            Fault::Array => "expected an array",
            Fault::Text => "expected a string",
            Fault::Value => "expected a value",
            Fault::Colon => "expected a colon",
            Fault::CommaOrEnd => "expected a comma or the end of the container",
            Fault::Digit => "expected a digit",
            Fault::HexDigit => "expected a hex digit",
            Fault::Escape => "unknown escape",
            Fault::Control => "control character in a string",
            Fault::Trailing => "bytes after the value",
        };
        CodecError::Malformed { offset: self.pos, what }
    }

    #[inline]
    fn at(&self) -> Scan<u8> {
        self.buf.get(self.pos).copied().ok_or(Fault::Truncated)
    }

    #[inline]
    fn expect(&mut self, byte: u8, fault: Fault) -> Scan<()> {
        if self.at()? != byte {
            return Err(fault);
        }
        self.pos += 1;
        Ok(())
    }

    /// Enters a container. If it is empty, leaves it again and returns false.
    #[inline]
    fn open(&mut self, open: u8, close: u8, fault: Fault) -> Scan<bool> {
        self.expect(open, fault)?;
        self.skip_spaces();
        if self.at()? != close {
            return Ok(true);
        }
        self.pos += 1;
        Ok(false)
    }

    /// Moves from the end of a member or element to the next one, or out of the container.
    #[inline]
    fn more(&mut self, close: u8) -> Scan<bool> {
        self.skip_spaces();
        let byte = self.at()?;
        if byte == b',' {
            self.pos += 1;
            self.skip_spaces();
            Ok(true)
        } else if byte == close {
            self.pos += 1;
            Ok(false)
        } else {
            Err(Fault::CommaOrEnd)
        }
    }

    /// Reads the key of a member and the colon after it.
    fn key(&mut self) -> Scan<Text<'a>> {
        let key = self.text()?;
        self.colon()?;
        Ok(key)
    }

    #[inline]
    fn colon(&mut self) -> Scan<()> {
        self.skip_spaces();
        self.expect(b':', Fault::Colon)?;
        self.skip_spaces();
        Ok(())
    }

    fn text(&mut self) -> Scan<Text<'a>> {
        let start = self.pos;
        let escaped = self.skip_string()?;
        let raw = self.buf.get(start + 1..self.pos - 1).unwrap_or(&[]);
        Ok(Text { raw, escaped, start })
    }

    fn skip(&mut self) -> Scan<()> {
        let mut open = Nesting::default();
        loop {
            // The scanner is at a value.
            match self.at()? {
                b'"' => self.skip_string().map(|_| ())?,
                b'{' => {
                    if self.open(b'{', b'}', Fault::Object)? {
                        open.push(true)?;
                        self.skip_string()?;
                        self.colon()?;
                        continue;
                    }
                }
                b'[' => {
                    if self.open(b'[', b']', Fault::Array)? {
                        open.push(false)?;
                        continue;
                    }
                }
                b't' => self.skip_literal(b"true")?,
                b'f' => self.skip_literal(b"false")?,
                b'n' => self.skip_literal(b"null")?,
                b'-' | b'0'..=b'9' => self.skip_number()?,
                _ => return Err(Fault::Value),
            }
            // The scanner is after a value. Close all containers that end here, then move to the next value.
            loop {
                match open.top() {
                    None => return Ok(()),
                    Some(true) => {
                        if self.more(b'}')? {
                            self.skip_string()?;
                            self.colon()?;
                            break;
                        }
                    }
                    Some(false) => {
                        if self.more(b']')? {
                            break;
                        }
                    }
                }
                open.pop();
            }
        }
    }

    /// Skips a string. Returns whether it has escapes.
    #[inline]
    fn skip_string(&mut self) -> Scan<bool> {
        self.expect(b'"', Fault::Text)?;
        let mut escaped = false;
        loop {
            self.pos += plain_run(self.buf.get(self.pos..).unwrap_or(&[]));
            match self.at()? {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    self.pos += 1;
                    self.skip_escape()?;
                }
                _ => return Err(Fault::Control),
            }
        }
        self.pos += 1;
        Ok(escaped)
    }

    /// Skips the characters after a backslash.
    fn skip_escape(&mut self) -> Scan<()> {
        match self.at()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.pos += 1,
            b'u' => {
                self.pos += 1;
                for _ in 0..4 {
                    if !self.at()?.is_ascii_hexdigit() {
                        return Err(Fault::HexDigit);
                    }
                    self.pos += 1;
                }
            }
            _ => return Err(Fault::Escape),
        }
        Ok(())
    }

    fn skip_literal(&mut self, literal: &'static [u8]) -> Scan<()> {
        for &byte in literal {
            self.expect(byte, Fault::Value)?;
        }
        Ok(())
    }

    fn skip_number(&mut self) -> Scan<()> {
        if self.at()? == b'-' {
            self.pos += 1;
        }
        if self.at()? == b'0' {
            self.pos += 1;
        } else {
            self.skip_digits()?;
        }
        if self.buf.get(self.pos) == Some(&b'.') {
            self.pos += 1;
            self.skip_digits()?;
        }
        if let Some(b'e' | b'E') = self.buf.get(self.pos) {
            self.pos += 1;
            if let b'+' | b'-' = self.at()? {
                self.pos += 1;
            }
            self.skip_digits()?;
        }
        Ok(())
    }

    /// Skips one or more digits.
    fn skip_digits(&mut self) -> Scan<()> {
        if !self.at()?.is_ascii_digit() {
            return Err(Fault::Digit);
        }
        while self.buf.get(self.pos).is_some_and(u8::is_ascii_digit) {
            self.pos += 1;
        }
        Ok(())
    }
}

/// Counts the bytes before the first quote, backslash or control character. It checks eight bytes at a time: most
/// strings of an object are too short for memchr to pay off.
#[inline]
fn plain_run(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES << 7;
    let (chunks, rest) = bytes.as_chunks::<8>();
    let mut run = 0;
    for chunk in chunks {
        let word = u64::from_le_bytes(*chunk);
        let quote = word ^ (ONES * b'"' as u64);
        let backslash = word ^ (ONES * b'\\' as u64);
        // A borrow can mark a wrong byte, but only above a byte that is marked correctly.
        let found = ((quote.wrapping_sub(ONES) & !quote)
            | (backslash.wrapping_sub(ONES) & !backslash)
            | (word.wrapping_sub(ONES * 0x20) & !word))
            & HIGH;
        if found != 0 {
            return run + (found.trailing_zeros() / 8) as usize;
        }
        run += 8;
    }
    run + rest.iter().take_while(|&&b| b != b'"' && b != b'\\' && b >= 0x20).count()
}

// === impl Nesting ===

impl Nesting {
    fn push(&mut self, object: bool) -> Scan<()> {
        if self.len == MAX_DEPTH {
            return Err(Fault::TooDeep);
        }
        let (word, bit) = (self.len / 64, self.len % 64);
        if word == self.bits.len() {
            self.bits.push(0);
        }
        if let Some(bits) = self.bits.get_mut(word) {
            *bits = *bits & !(1 << bit) | u64::from(object) << bit;
        }
        self.len += 1;
        Ok(())
    }

    /// Whether the innermost open container is an object; `None` when none is open.
    fn top(&self) -> Option<bool> {
        let last = self.len.checked_sub(1)?;
        self.bits.get(last / 64).map(|bits| bits >> (last % 64) & 1 == 1)
    }

    fn pop(&mut self) {
        self.len -= 1;
    }
}
