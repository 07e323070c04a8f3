//! The query string of a request, parsed as in the apiserver.

use std::borrow::Cow;

/// With more pairs than this, Go reads none of them.
const MAX_PARAMETERS: usize = 10_000;

/// The decoded parameters of a query string. A pair with an invalid escape or a semicolon is dropped. If a parameter
/// occurs more than once, its first value counts. Names are case-sensitive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

// === impl Query ===

impl Query {
    /// `raw` is the text after the question mark, still escaped.
    pub fn parse(raw: &str) -> Self {
        if Self::is_too_long(raw) {
            return Self::default();
        }
        let raw = raw.as_bytes();
        let pairs = raw
            .split(|byte| *byte == b'&')
            .filter(|pair| !pair.is_empty() && !pair.contains(&b';'))
            .filter_map(|pair| {
                let (name, value) = match memchr::memchr(b'=', pair) {
                    Some(at) => (&pair[..at], &pair[at + 1..]),
                    None => (pair, &[][..]),
                };
                Some((unescape(name, b' ')?, unescape(value, b' ')?))
            })
            .collect();
        Self { pairs }
    }

    /// Whether it has more pairs than are read. Apiservers that were built with an older Go read them.
    pub fn is_too_long(raw: &str) -> bool {
        memchr::memchr_iter(b'&', raw.as_bytes()).count() >= MAX_PARAMETERS
    }

    /// The first value of a parameter. `?name` and `?name=` both give an empty value.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.pairs.iter().find(|(key, _)| key == name.as_bytes()).map(|(_, value)| value.as_slice())
    }

    /// The first value of a parameter as text. Invalid UTF-8 becomes U+FFFD.
    pub fn text(&self, name: &str) -> Option<Cow<'_, str>> {
        self.bytes(name).map(String::from_utf8_lossy)
    }

    /// A boolean, parsed like API options: only `0` and `false`, in any case, are false. An empty value is true.
    pub fn bool(&self, name: &str) -> Option<bool> {
        self.bytes(name).map(|value| value != b"0" && !value.eq_ignore_ascii_case(b"false"))
    }
}

/// Decodes percent-encoding. `plus` is what a plus sign stands for. Returns `None` unless two hexadecimal digits follow
/// every percent sign, as Go does.
pub(super) fn unescape(text: &[u8], plus: u8) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        out.push(match byte {
            b'+' => plus,
            b'%' => (hex(*rest.next()?)? << 4) | hex(*rest.next()?)?,
            byte => *byte,
        });
    }
    Some(out)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_pairs_as_go_does() {
        let query = Query::parse("a=1&a=2&&b=x+y%2Cz&c&d=%zz&e=1;f=2&g=%&h%3D=h&=anonymous&i=%C3%A9&j=%ff&A=9");
        for (name, want) in [
            ("a", Some("1")),
            ("b", Some("x y,z")),
            ("c", Some("")),
            ("d", None),
            ("e", None),
            ("f", None),
            ("g", None),
            ("h=", Some("h")),
            ("", Some("anonymous")),
            ("i", Some("é")),
            ("j", Some("\u{fffd}")),
            ("A", Some("9")),
        ] {
            assert_eq!(query.text(name).as_deref(), want, "{name}");
        }
        assert_eq!(query.bytes("j"), Some(&b"\xff"[..]));
    }

    #[test]
    fn too_many_parameters_are_none() {
        let raw = ["a=1"; MAX_PARAMETERS].join("&");
        assert_eq!(Query::parse(&raw).text("a").as_deref(), Some("1"));
        assert_eq!(Query::parse(&format!("{raw}&b=1")).text("a"), None);
        assert!(!Query::is_too_long(&raw) && Query::is_too_long(&format!("{raw}&b=1")));
    }
}
