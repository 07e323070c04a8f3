//! Reads JSON strings, without copying where possible, and prints numbers as Go does.

use std::borrow::Cow;

use crate::lossy::lossy;

/// A string as it is in the input, without its quotes. Its escapes are already validated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'a> {
    pub raw: &'a [u8],
    pub escaped: bool,
    /// The position of the opening quote.
    pub start: usize,
}

// === impl Text ===

impl<'a> Text<'a> {
    /// Whether the unescaped string equals `other`.
    pub(crate) fn is(&self, other: &str) -> bool {
        if self.escaped {
            return self.get() == other;
        }
        self.raw == other.as_bytes()
    }

    /// Returns the unescaped string. As in Go, an unpaired surrogate becomes U+FFFD, and so does a byte that belongs
    /// to no character.
    pub(crate) fn get(&self) -> Cow<'a, str> {
        let raw = lossy(self.raw);
        if self.escaped { Cow::Owned(unescape(&raw)) } else { raw }
    }
}

/// `raw` is already scanned, so a valid escape follows every backslash.
fn unescape(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((plain, tail)) = rest.split_once('\\') {
        out.push_str(plain);
        let mut chars = tail.chars();
        let escape = chars.next();
        rest = chars.as_str();
        match escape {
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('u') => {
                let high = hex4(rest);
                rest = rest.get(4..).unwrap_or("");
                let low = rest.strip_prefix("\\u").map(hex4);
                match (high, low) {
                    (0xd800..=0xdbff, Some(low @ 0xdc00..=0xdfff)) => {
                        rest = rest.get(6..).unwrap_or("");
                        let code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                        out.push(char::from_u32(code).unwrap_or('\u{fffd}'));
                    }
                    _ => out.push(char::from_u32(high).unwrap_or('\u{fffd}')),
                }
            }
            Some(same) => out.push(same),
            None => {}
        }
    }
    out.push_str(rest);
    out
}

/// The value of the first four hex digits. Without them it is 0xd800, which is not a character.
fn hex4(text: &str) -> u32 {
    text.get(..4).and_then(|digits| u32::from_str_radix(digits, 16).ok()).unwrap_or(0xd800)
}

/// Formats a number as Go's `fmt.Sprint` prints it after the apiserver parsed it. An integer that fits in 64 bits is
/// printed in decimal. Any other number is printed as a float with the fewest digits, with an exponent below 1e-4 and
/// from 1e+06 on.
pub(super) fn sprint_number(number: &str) -> Cow<'_, str> {
    if number.parse::<i64>().is_ok() {
        return Cow::Borrowed(if number == "-0" { "0" } else { number });
    }
    let Ok(float) = number.parse::<f64>() else { return Cow::Borrowed(number) };
    let scientific = format!("{float:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific.into() };
    let exponent = exponent.parse::<i32>().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return float.to_string().into();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_numbers_as_go_does() {
        for (json, go) in [
            ("5", "5"),
            ("-7", "-7"),
            ("-0", "0"),
            ("1.5", "1.5"),
            ("1.0", "1"),
            ("1e3", "1000"),
            ("1e6", "1e+06"),
            ("1234567.5", "1.2345675e+06"),
            ("12345678901234567000", "1.2345678901234567e+19"),
            ("1e21", "1e+21"),
            ("1.25e-7", "1.25e-07"),
            ("0.0001", "0.0001"),
            ("9223372036854775807", "9223372036854775807"),
        ] {
            assert_eq!(sprint_number(json), go, "{json}");
        }
    }
}
