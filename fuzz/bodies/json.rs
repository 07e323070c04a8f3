//! JSON as serde_json reads it, in the order of the input and with members that occur twice.
//!
//! Go reads a lone half of a surrogate pair as U+FFFD, and so does informerd, while serde_json refuses to make a string of
//! it. Strings are therefore read as bytes here, which serde_json allows.

use std::fmt;

use informerd::codec::CodecError;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::messages::text;

#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    /// As it is written.
    Number(String),
    /// The text, and whether it is written without escapes.
    Text(String, bool),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
    /// Of any type, as it is written without spaces.
    Deep(String),
}

/// Deeper values are compared as text.
const DEEPEST: usize = 64;

/// informerd reads no deeper value. It counts 10,000 levels from the one at which it passes over a whole value. That is up to the
/// 512th where arrays are pruned, and one of the first otherwise.
const DEEPEST_READ: usize = 10_600;

/// Whether informerd may take these bytes: one JSON value, at a depth that it reads. As in Go, bytes of no character are read as
/// U+FFFD.
pub fn is_valid(bytes: &[u8]) -> bool {
    depth(bytes) <= DEEPEST_READ && serde_json::from_str::<&RawValue>(&text(bytes)).is_ok()
}

impl Json {
    /// `None` for what is no JSON.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Self::of(serde_json::from_str::<&RawValue>(&text(bytes)).ok()?.get(), 0)
    }

    /// Whether nothing of it is only text.
    pub fn is_whole(&self) -> bool {
        match self {
            Self::Array(elements) => elements.iter().all(Self::is_whole),
            Self::Object(members) => members.iter().all(|(_, value)| value.is_whole()),
            other => !matches!(other, Self::Deep(_)),
        }
    }

    fn of(raw: &str, depth: usize) -> Option<Self> {
        if depth > DEEPEST {
            return Some(Self::Deep(raw.split_ascii_whitespace().collect()));
        }
        Some(match raw.as_bytes().first()? {
            b'n' => Self::Null,
            b't' => Self::Bool(true),
            b'f' => Self::Bool(false),
            b'"' => {
                let text = serde_json::from_str::<Lossy>(raw).ok()?.0;
                Self::Text(text, !raw.contains('\\'))
            }
            b'[' => {
                let elements: Vec<&RawValue> = serde_json::from_str(raw).ok()?;
                Self::Array(elements.into_iter().map(|raw| Self::of(raw.get(), depth + 1)).collect::<Option<_>>()?)
            }
            b'{' => {
                let members: Members<'_> = serde_json::from_str(raw).ok()?;
                let member = |(key, raw): (String, &RawValue)| Some((key, Self::of(raw.get(), depth + 1)?));
                Self::Object(members.0.into_iter().map(member).collect::<Option<_>>()?)
            }
            _ => Self::Number(raw.to_owned()),
        })
    }

    pub fn members(&self) -> Option<&[(String, Json)]> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The member of this name; of several the last one counts.
    pub fn get(&self, name: &str) -> Option<&Self> {
        self.members()?.iter().rfind(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// All members of this name, in their order.
    pub fn named<'j>(&'j self, name: &'j str) -> impl Iterator<Item = &'j Self> {
        self.members().unwrap_or_default().iter().filter(move |(key, _)| key == name).map(|(_, value)| value)
    }

    /// The only member of this name.
    ///
    /// # Errors
    /// When there are several.
    pub fn once<'j>(&'j self, name: &'j str) -> Result<Option<&'j Self>, ()> {
        let first = self.named(name).next();
        if self.named(name).nth(1).is_some() { Err(()) } else { Ok(first) }
    }

    /// The same, as if its type were written without escapes. An object's type is read as text and written as Go writes
    /// it, which has escapes for `<`, `>` and `&`.
    pub fn with_plain_type(&self) -> Self {
        let mut plain = self.clone();
        if let Self::Object(members) = &mut plain {
            for (name, value) in members {
                if let ("kind" | "apiVersion", Self::Text(_, is_plain)) = (name.as_str(), value) {
                    *is_plain = true;
                }
            }
        }
        plain
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text, _) => Some(text),
            _ => None,
        }
    }
}

struct Lossy(String);

impl<'de> Deserialize<'de> for Lossy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Lossy;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Lossy, E> {
                let mut bytes = bytes.to_vec();
                // A half of a pair comes as the three bytes that it would have in UTF-8.
                for at in 0..bytes.len().saturating_sub(2) {
                    if bytes[at] == 0xed && bytes[at + 1] >= 0xa0 {
                        bytes[at..at + 3].copy_from_slice("\u{fffd}".as_bytes());
                    }
                }
                String::from_utf8(bytes).map(Lossy).map_err(E::custom)
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some((Lossy(key), value)) = map.next_entry()? {
                    members.push((key, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

/// The first member of this name, as it is written.
pub fn raw_member<'a>(raw: &'a str, name: &str) -> Option<&'a RawValue> {
    let members: Members<'a> = serde_json::from_str(raw).ok()?;
    members.0.into_iter().find(|(key, _)| key == name).map(|(_, raw)| raw)
}

/// Whether these bytes were refused for their depth or their length, which they then have.
pub fn is_beyond<T>(end: &Result<T, CodecError>, bytes: &[u8]) -> bool {
    let (has, limit) = match end {
        Err(CodecError::TooDeep { limit }) => (depth(bytes), limit),
        Err(CodecError::TooLarge { limit }) => (bytes.len(), limit),
        _ => return false,
    };
    assert!(has > *limit, "{has} is not beyond {limit}");
    true
}

/// How many containers are open at once. Where the bytes are no JSON, what follows may count for more.
fn depth(bytes: &[u8]) -> usize {
    let (mut open, mut most, mut in_text, mut is_escaped) = (0_usize, 0, false, false);
    for byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_text,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                open += 1;
                most = most.max(open);
            }
            b']' | b'}' if !in_text => open = open.saturating_sub(1),
            _ => {}
        }
    }
    most
}
