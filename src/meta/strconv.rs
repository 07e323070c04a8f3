//! Numbers and quoted text as Go's `strconv` and `encoding/json` word them: they are part of the apiserver's messages.

use std::fmt::Write;

/// Parses as `strconv.ParseInt(text, 10, 64)`: an optional sign, then decimal digits.
///
/// # Errors
/// The text of Go's error.
pub fn parse_int(text: &[u8]) -> Result<i64, String> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let magnitude = unsigned(digits).map_err(|error| describe("ParseInt", text, error))?;
    let value = if negative { 0i64.checked_sub_unsigned(magnitude) } else { 0i64.checked_add_unsigned(magnitude) };
    value.ok_or_else(|| describe("ParseInt", text, NumError::Range))
}

/// Parses as `strconv.ParseUint(text, 10, 64)`: decimal digits only, leading zeros allowed.
///
/// # Errors
/// The text of Go's error.
pub fn parse_uint(text: &[u8]) -> Result<u64, String> {
    unsigned(text).map_err(|error| describe("ParseUint", text, error))
}

/// Quotes as `strconv.Quote` (`%q`) does; bytes that are not UTF-8 appear as `\xff`.
pub fn quote(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            push_quoted(&mut out, c);
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out.push('"');
    out
}

/// Quotes one byte, read as the code point of that number, as the syntax errors of `encoding/json` do.
pub(super) fn quote_byte(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".into(),
        b'"' => "'\"'".into(),
        _ => {
            let mut out = String::from("'");
            push_quoted(&mut out, char::from(byte));
            out.push('\'');
            out
        }
    }
}

/// A JSON string as `encoding/json` writes it: HTML characters and line separators are escaped.
pub fn json_quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\x1f' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[derive(Clone, Copy)]
enum NumError {
    Syntax,
    Range,
}

/// Digit by digit, because what is met first decides between the two errors: `99999999999999999999x` is out of range.
fn unsigned(digits: &[u8]) -> Result<u64, NumError> {
    if digits.is_empty() {
        return Err(NumError::Syntax);
    }
    digits.iter().try_fold(0u64, |n, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10).ok_or(NumError::Syntax)?;
        n.checked_mul(10).and_then(|n| n.checked_add(u64::from(digit))).ok_or(NumError::Range)
    })
}

fn describe(function: &str, text: &[u8], error: NumError) -> String {
    let error = match error {
        NumError::Syntax => "invalid syntax",
        NumError::Range => "value out of range",
    };
    format!("strconv.{function}: parsing {}: {error}", quote(text))
}

fn push_quoted(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\x07' => out.push_str("\\a"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{b}' => out.push_str("\\v"),
        '\0'..='\x1f' | '\x7f' => {
            let _ = write!(out, "\\x{:02x}", u32::from(c));
        }
        c if is_print(c) => out.push(c),
        c if u32::from(c) < 0x1_0000 => {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        }
        c => {
            let _ = write!(out, "\\U{:08x}", u32::from(c));
        }
    }
}

/// Go's `unicode.IsPrint`: letters, marks, numbers, punctuation, symbols and the ASCII space. The standard library
/// keeps the same table behind `escape_debug`, which leaves combining marks alone unless they begin the string.
fn is_print(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    let text: String = ['a', c].into_iter().collect();
    text.escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers() {
        for (text, want) in [("0", 0), ("+5", 5), ("-5", -5), ("007", 7), ("-9223372036854775808", i64::MIN)] {
            assert_eq!(parse_int(text.as_bytes()), Ok(want), "{text}");
        }
        for text in ["", "-", "+", "--5", "1_0", "0x1", " 1", "1.5"] {
            assert_eq!(
                parse_int(text.as_bytes()),
                Err(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax")),
                "{text}"
            );
        }
        for text in ["9223372036854775808", "-9223372036854775809", "99999999999999999999x"] {
            assert_eq!(
                parse_int(text.as_bytes()),
                Err(format!("strconv.ParseInt: parsing \"{text}\": value out of range")),
                "{text}"
            );
        }
        assert_eq!(parse_uint(b"00"), Ok(0));
        assert_eq!(parse_uint(b"18446744073709551615"), Ok(u64::MAX));
        assert!(parse_uint(b"+1").is_err());
    }

    #[test]
    fn quotes_as_go_does() {
        assert_eq!(quote("a\"\\\n\t\x07\x01é\u{301}\u{200b}\u{e000}\u{10ffff}".as_bytes()), {
            "\"a\\\"\\\\\\n\\t\\a\\x01é\u{301}\\u200b\\ue000\\U0010ffff\""
        });
        assert_eq!(quote(b"\xffa\xc3"), "\"\\xffa\\xc3\"");
        assert_eq!(quote_byte(0xb7), "'·'");
        assert_eq!(quote_byte(0x80), "'\\u0080'");
        assert_eq!(json_quote("a<b>&\u{0}\"\u{2028}é"), "\"a\\u003cb\\u003e\\u0026\\u0000\\\"\\u2028é\"");
    }
}
