//! JSON read as Go's `encoding/json` reads it, for the one place where its error texts reach clients: continue tokens.
//! (What a strict parser refuses differs too: Go matches member names without regard to case and lets the last of a
//! repeated one win.)

use super::strconv::quote_byte;

const MAX_DEPTH: usize = 10_000;

/// A member of a top-level object; nested values are checked but not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Null,
    Bool,
    Number(String),
    String(String),
    Array,
    Object,
}

/// What stands at the top level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Document {
    Members(Vec<(String, Value)>),
    Other(Value),
}

/// Parses one document.
///
/// # Errors
/// The text of Go's `SyntaxError`.
pub(super) fn parse(text: &[u8]) -> Result<Document, String> {
    let mut scanner = Scanner { text, at: 0 };
    let document = scanner.document()?;
    scanner.skip_space();
    match scanner.peek() {
        None => Ok(document),
        Some(_) => Err(scanner.invalid("after top-level value")),
    }
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

/// An array or an object whose end has not been seen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Array,
    Object,
}

// === impl Value ===

impl Value {
    /// As Go's type errors name the value.
    pub(super) fn describe(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Number(_) => "number",
            Self::String(_) => "string",
            Self::Array => "array",
            Self::Object => "object",
        }
    }
}

// === impl Scanner ===

impl Scanner<'_> {
    fn document(&mut self) -> Result<Document, String> {
        self.skip_space();
        if self.peek() != Some(b'{') {
            return self.value(0).map(Document::Other);
        }
        self.at += 1;
        let mut members = Vec::new();
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Document::Members(members));
        }
        loop {
            let name = self.member_name()?;
            members.push((name, self.value(1)?));
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Document::Members(members));
                }
                _ => return Err(self.invalid("after object key:value pair")),
            }
        }
    }

    /// Walks one value of any depth without recursion: a token is a client's text.
    fn value(&mut self, outer: usize) -> Result<Value, String> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            // At the beginning of a value.
            self.skip_space();
            let mut done = match self.peek() {
                Some(bracket @ (b'[' | b'{')) => {
                    if open.len() + outer >= MAX_DEPTH {
                        return Err(self.invalid("exceeded max depth"));
                    }
                    self.at += 1;
                    self.skip_space();
                    let (container, close, value) = match bracket {
                        b'[' => (Open::Array, b']', Value::Array),
                        _ => (Open::Object, b'}', Value::Object),
                    };
                    if self.peek() == Some(close) {
                        self.at += 1;
                        value
                    } else {
                        if container == Open::Object {
                            self.member_name()?;
                        }
                        open.push(container);
                        continue;
                    }
                }
                Some(b'"') => Value::String(self.string()?),
                Some(b'-' | b'0'..=b'9') => Value::Number(self.number()?),
                Some(b't') => self.literal("true", Value::Bool)?,
                Some(b'f') => self.literal("false", Value::Bool)?,
                Some(b'n') => self.literal("null", Value::Null)?,
                _ => return Err(self.invalid("looking for beginning of value")),
            };
            // After a value: close what it ends.
            loop {
                let Some(container) = open.last().copied() else { return Ok(done) };
                self.skip_space();
                match (self.peek(), container) {
                    (Some(b','), Open::Array) => {
                        self.at += 1;
                        break;
                    }
                    (Some(b','), Open::Object) => {
                        self.at += 1;
                        self.member_name()?;
                        break;
                    }
                    (Some(b']'), Open::Array) => done = Value::Array,
                    (Some(b'}'), Open::Object) => done = Value::Object,
                    (_, Open::Array) => return Err(self.invalid("after array element")),
                    (_, Open::Object) => return Err(self.invalid("after object key:value pair")),
                }
                self.at += 1;
                open.pop();
            }
        }
    }

    /// A member's name and the colon after it.
    fn member_name(&mut self) -> Result<String, String> {
        self.skip_space();
        if self.peek() != Some(b'"') {
            return Err(self.invalid("looking for beginning of object key string"));
        }
        let name = self.string()?;
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(self.invalid("after object key"));
        }
        self.at += 1;
        Ok(name)
    }

    /// A string; what is not UTF-8, and halves of surrogate pairs, become U+FFFD.
    fn string(&mut self) -> Result<String, String> {
        self.at += 1;
        let mut out = Vec::new();
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(go_lossy(&out));
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape(&mut out)?;
                }
                Some(byte) if byte >= b' ' => {
                    self.at += 1;
                    out.push(byte);
                }
                _ => return Err(self.invalid("in string literal")),
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        let plain = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => byte,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => {
                self.at += 1;
                let mut unit = self.hex4()?;
                if (0xd800..0xdc00).contains(&unit) && self.text[self.at..].starts_with(b"\\u") {
                    let back = self.at;
                    self.at += 2;
                    let low = self.hex4()?;
                    if (0xdc00..0xe000).contains(&low) {
                        unit = 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                    } else {
                        self.at = back;
                    }
                }
                let c = char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER);
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(self.invalid_within("in string escape code")),
        };
        self.at += 1;
        out.push(plain);
        Ok(())
    }

    fn hex4(&mut self) -> Result<u32, String> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else { return Err(self.invalid_within("in \\u hexadecimal character escape")) };
            unit = unit << 4 | digit;
            self.at += 1;
        }
        Ok(unit)
    }

    fn number(&mut self) -> Result<String, String> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.invalid_within("in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.some_digits("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.some_digits("in exponent of numeric literal")?;
        }
        Ok(String::from_utf8_lossy(&self.text[start..self.at]).into_owned())
    }

    fn some_digits(&mut self, context: &str) -> Result<(), String> {
        match self.peek() {
            Some(b'0'..=b'9') => {
                self.digits();
                Ok(())
            }
            _ => Err(self.invalid_within(context)),
        }
    }

    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
    }

    fn literal(&mut self, word: &str, value: Value) -> Result<Value, String> {
        for want in word.bytes() {
            if self.peek() != Some(want) {
                return Err(self.invalid_within(&format!("in literal {word} (expecting '{}')", char::from(want))));
            }
            self.at += 1;
        }
        Ok(value)
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// The error for the byte at hand, or for the end of the text, where a blank would be allowed.
    fn invalid(&self, context: &str) -> String {
        match self.peek() {
            Some(_) => self.invalid_within(context),
            None => "unexpected end of JSON input".into(),
        }
    }

    /// The error for the byte at hand, or for the end of the text within a literal, which Go reads as a blank.
    fn invalid_within(&self, context: &str) -> String {
        format!("invalid character {} {context}", quote_byte(self.peek().unwrap_or(b' ')))
    }
}

/// One U+FFFD for each byte that is no UTF-8, as Go decodes it.
fn go_lossy(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents() {
        let text = br#" {"a" : [1,{"b":[]},[[]]] ,"b":{"c":null},"c":-1.5e+3,"d":"\u00e9\ud83d\ude00\ud83d\n/","e":true,"f":null} "#;
        let Ok(Document::Members(members)) = parse(text) else { panic!("is an object") };
        let members: Vec<_> = members.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        assert_eq!(
            members,
            [
                ("a", Value::Array),
                ("b", Value::Object),
                ("c", Value::Number("-1.5e+3".into())),
                ("d", Value::String("é😀\u{fffd}\n/".into())),
                ("e", Value::Bool),
                ("f", Value::Null),
            ]
        );
        assert_eq!(parse(b"[]"), Ok(Document::Other(Value::Array)));
        assert_eq!(parse(b"{}"), Ok(Document::Members(Vec::new())));
    }

    #[test]
    fn syntax_errors_are_gos() {
        for (text, want) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("{\"a\":1", "unexpected end of JSON input"),
            ("i", "invalid character 'i' looking for beginning of value"),
            ("notjson", "invalid character 'o' in literal null (expecting 'u')"),
            ("nulx", "invalid character 'x' in literal null (expecting 'l')"),
            ("{a", "invalid character 'a' looking for beginning of object key string"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 1}", "invalid character '1' after object key:value pair"),
            ("{\"a\":{\"b\":1]}", "invalid character ']' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("01", "invalid character '1' after top-level value"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1ex", "invalid character 'x' in exponent of numeric literal"),
            ("\"\n\"", "invalid character '\\n' in string literal"),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            ("\"\\u00g0\"", "invalid character 'g' in \\u hexadecimal character escape"),
            ("nul", "invalid character ' ' in literal null (expecting 'l')"),
            ("-", "invalid character ' ' in numeric literal"),
            ("1.", "invalid character ' ' after decimal point in numeric literal"),
            ("1e", "invalid character ' ' in exponent of numeric literal"),
            ("\"\\", "invalid character ' ' in string escape code"),
            ("\"\\u0", "invalid character ' ' in \\u hexadecimal character escape"),
            ("\"", "unexpected end of JSON input"),
            ("'", "invalid character '\\'' looking for beginning of value"),
        ] {
            assert_eq!(parse(text.as_bytes()), Err(want.into()), "{text}");
        }
        let deep = "[".repeat(MAX_DEPTH + 1);
        assert_eq!(parse(deep.as_bytes()), Err("invalid character '[' exceeded max depth".into()));
    }
}
