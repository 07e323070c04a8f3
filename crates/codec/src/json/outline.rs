//! Copies a JSON text as it arrives, without what is nested too deep or too long. Callers use it to read a few members
//! near the root of a text of any size in little memory.

use memchr::memchr2;

/// A longer string is replaced. Names, revisions and reasons are shorter.
const LONGEST: usize = 4 << 10;
/// What replaces it. It is not empty, because that may mean something else: no error, or no further page.
const INSTEAD: &[u8] = b"...";

/// The copy. Strings longer than 4 KiB become `...`, and containers inside of more than `depth` others become empty. What
/// is left out is not checked.
#[derive(Debug)]
pub struct Outline {
    depth: usize,
    limit: usize,
    text: Vec<u8>,
    /// The number of containers that are open.
    open: usize,
    within: Within,
    overflows: bool,
}

#[derive(Clone, Copy, Debug)]
enum Within {
    /// Between two strings.
    Structure,
    /// `start`: where the string begins in the copy. `escaped`: the next byte follows a backslash.
    String { start: usize, escaped: bool, kept: Kept },
}

/// What is copied of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Whole,
    /// Its quotes.
    Quotes,
    Nothing,
}

// === impl Outline ===

impl Outline {
    /// `limit`: the most bytes of the copy.
    pub fn new(depth: usize, limit: usize) -> Self {
        Self { depth, limit, text: Vec::new(), open: 0, within: Within::Structure, overflows: false }
    }

    /// Takes the next bytes of the text.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(&first) = rest.first() {
            let len = match self.within {
                Within::Structure => {
                    self.structure(first);
                    1
                }
                Within::String { start, escaped, kept } => {
                    let end = if escaped { Some(0) } else { memchr2(b'"', b'\\', rest) };
                    let len = end.map_or(rest.len(), |end| end + 1);
                    let run = rest.get(..len).unwrap_or(rest);
                    self.string(run, start, escaped, kept);
                    len
                }
            };
            rest = rest.get(len..).unwrap_or(&[]);
        }
    }

    /// The copy, or `None` if it would be longer than the limit.
    pub fn text(&self) -> Option<&[u8]> {
        (!self.overflows).then_some(&*self.text)
    }

    /// Whether nothing but white space has come.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && !self.overflows
    }

    fn is_near(&self) -> bool {
        self.open <= self.depth
    }

    fn structure(&mut self, byte: u8) {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => return,
            b'"' => {
                let kept = if self.is_near() { Kept::Whole } else { Kept::Nothing };
                self.within = Within::String { start: self.text.len(), escaped: false, kept };
            }
            b'}' | b']' => self.open = self.open.saturating_sub(1),
            _ => {}
        }
        if self.is_near() {
            self.keep(&[byte]);
        }
        if matches!(byte, b'{' | b'[') {
            self.open += 1;
        }
    }

    /// Takes a part of a string: up to a quote or a backslash, or all that has come of it.
    fn string(&mut self, part: &[u8], start: usize, escaped: bool, mut kept: Kept) {
        let last = part.last().filter(|_| !escaped);
        let ends = last == Some(&b'"');
        if kept == Kept::Whole {
            // With the opening quote.
            if (self.text.len() + part.len()).saturating_sub(start) <= LONGEST {
                self.keep(part);
            } else {
                kept = Kept::Quotes;
                self.text.truncate(start + 1);
                self.keep(INSTEAD);
            }
        }
        if ends && kept == Kept::Quotes {
            self.keep(b"\"");
        }
        self.within =
            if ends { Within::Structure } else { Within::String { start, escaped: last == Some(&b'\\'), kept } };
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.overflows |= self.text.len() + bytes.len() > self.limit;
        if self.overflows {
            self.text = Vec::new();
        } else {
            self.text.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline(depth: usize, text: &str) -> String {
        let copy = |size: usize| {
            let mut outline = Outline::new(depth, 1 << 20);
            text.as_bytes().chunks(size).for_each(|chunk| outline.push(chunk));
            String::from_utf8(outline.text().unwrap().to_vec()).unwrap()
        };
        let whole = copy(text.len().max(1));
        for size in 1..8 {
            assert_eq!(copy(size), whole, "in pieces of {size} bytes");
        }
        whole
    }

    #[test]
    fn what_is_deep_is_left_out() {
        let text = r#" {"a": [1, {"b": "}\"]", "c": [[2], {"d":3}]}, null], "e":{}, "f\\":"x"} "#;
        assert_eq!(outline(9, text), r#"{"a":[1,{"b":"}\"]","c":[[2],{"d":3}]},null],"e":{},"f\\":"x"}"#);
        assert_eq!(outline(3, text), r#"{"a":[1,{"b":"}\"]","c":[]},null],"e":{},"f\\":"x"}"#);
        assert_eq!(outline(2, text), r#"{"a":[1,{},null],"e":{},"f\\":"x"}"#);
        assert_eq!(outline(1, text), r#"{"a":[],"e":{},"f\\":"x"}"#);
        let deep = format!(r#"{{"a":{}{},"b":1}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(outline(2, &deep), r#"{"a":[[]],"b":1}"#);
    }

    #[test]
    fn what_is_long_is_left_out() {
        let escaped = "\\u003c".repeat(1_000_000);
        assert_eq!(
            outline(2, &format!(r#"{{"a":"{escaped}","{escaped}":["b\\",{{"c":"{escaped}"}}]}}"#)),
            r#"{"a":"...","...":["b\\",{}]}"#
        );
        let (most, more) = ("x".repeat(LONGEST - 2), "x".repeat(LONGEST - 1));
        assert_eq!(outline(1, &format!(r#"["{most}","{more}"]"#)), format!(r#"["{most}","..."]"#));
    }

    #[test]
    fn the_copy_is_bounded() {
        let mut outline = Outline::new(2, 100);
        outline.push(br#"{"a":"#);
        outline.push(&[b'1'; 90]);
        assert!(outline.text().is_some() && !outline.is_empty());
        outline.push(&[b'1'; 10]);
        outline.push(br#","b":"x"#);
        assert!(outline.text().is_none() && !outline.is_empty());
        outline.push(br#"yz"}"#);
        assert!(outline.text().is_none());
    }

    #[test]
    fn broken_text_stays_broken() {
        for broken in ["}", "]}", r#"{"a":"b"#, "{\"a\":1\n", "garbage", "{\"a\\", "[[[["] {
            let copy = outline(3, broken);
            assert!(serde_json::from_str::<serde_json::Value>(&copy).is_err(), "{copy}");
        }
    }
}
