//! Parses numbers like Go's `strconv`, and quotes text like `strconv` and `encoding/json`.

use std::fmt::Write;

/// Parses like `strconv.ParseInt(text, 10, 64)`: an optional sign, then decimal digits.
pub fn parse_int(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Parses like `strconv.ParseUint(text, 10, 64)`: only decimal digits; leading zeros are allowed.
pub fn parse_uint(text: &str) -> Option<u64> {
    if text.starts_with('+') { None } else { text.parse().ok() }
}

/// Quotes like `strconv.Quote` (`%q`). Bytes that are not UTF-8 become `\xff`.
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

/// Quotes a JSON string like `encoding/json`: HTML characters and line separators are escaped.
pub fn json_quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    push_json_string(&mut out, text);
    out
}

/// Appends a JSON string as [`json_quote`] writes it.
pub fn push_json_string(out: &mut String, text: &str) {
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
/// has the same table behind `escape_debug`, which escapes combining marks only at the start of the string.
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
            assert_eq!(parse_int(text.as_bytes()), Some(want), "{text}");
        }
        for text in ["", "-", "+", "--5", "1_0", "0x1", " 1", "1.5", "9223372036854775808", "-9223372036854775809"] {
            assert_eq!(parse_int(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_int(b"\xff"), None);
        assert_eq!((parse_uint("00"), parse_uint("18446744073709551615")), (Some(0), Some(u64::MAX)));
        for text in ["", "+1", "-1", "1 ", "18446744073709551616"] {
            assert_eq!(parse_uint(text), None, "{text}");
        }
    }

    #[test]
    fn quotes_as_go_does() {
        assert_eq!(quote("a\"\\\n\t\x07\x01é\u{301}\u{200b}\u{e000}\u{10ffff}".as_bytes()), {
            "\"a\\\"\\\\\\n\\t\\a\\x01é\u{301}\\u200b\\ue000\\U0010ffff\""
        });
        assert_eq!(quote(b"\xffa\xc3"), "\"\\xffa\\xc3\"");
        assert_eq!(json_quote("a<b>&\u{0}\"\u{2028}é"), "\"a\\u003cb\\u003e\\u0026\\u0000\\\"\\u2028é\"");
        assert_eq!(json_quote("a\\\u{1}\u{8}\n\u{7f}"), "\"a\\\\\\u0001\\b\\n\u{7f}\"");
    }
}
