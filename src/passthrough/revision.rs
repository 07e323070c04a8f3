//! Finds the resourceVersion in a body that passes through, without keeping the body.

use std::io::Write;

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};

use super::protobuf;
use crate::meta::ResourceVersion;

/// The path of the version in an object or a list, and in the events of a watch.
const OF_OBJECT: &[&str] = &["metadata", "resourceVersion"];
const OF_EVENT: &[&str] = &["object", "metadata", "resourceVersion"];
/// No key or value of interest is longer.
const LONGEST: usize = 32;

/// Scans a body as it passes.
pub(super) enum Finder {
    Json(JsonFinder),
    Gzip(Box<MultiGzDecoder<JsonFinder>>),
    Protobuf(protobuf::Prefix),
    /// A format that cannot be parsed here.
    Blind,
}

/// A JSON scanner that looks for one path. It uses constant memory and accepts any chunking. Strings on other paths are
/// skipped with `memchr`.
#[derive(Debug, Default)]
pub(super) struct JsonFinder {
    path: &'static [&'static str],
    /// Report the version of every value in the stream, and not only of the first.
    every: bool,
    /// The number of open objects and arrays.
    depth: usize,
    /// How many of them, from the outermost, are on the path. Keys matter only while this equals `depth`.
    on_path: usize,
    expects_key: bool,
    /// The last key on the path is the one that is looked for.
    key_matches: bool,
    string: Option<Text>,
    escaped: bool,
    text: Vec<u8>,
    found: Option<ResourceVersion>,
    done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Key,
    Value,
    Other,
}

// === impl Finder ===

impl Finder {
    /// Creates a finder for a body with these headers. `watch` means a stream of events.
    pub(super) fn new(headers: &HeaderMap, watch: bool) -> Self {
        let value = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = value(CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
        let json = JsonFinder::new(if watch { OF_EVENT } else { OF_OBJECT }, watch);
        match (media_type, value(CONTENT_ENCODING)) {
            ("application/json", "" | "identity") => Self::Json(json),
            ("application/json", "gzip") => Self::Gzip(Box::new(MultiGzDecoder::new(json))),
            ("application/vnd.kubernetes.protobuf", "" | "identity") if !watch => {
                Self::Protobuf(protobuf::Prefix::new())
            }
            _ => Self::Blind,
        }
    }

    /// Scans the next part. Returns the newest version that the part completed, if any.
    pub(super) fn push(&mut self, part: &Bytes) -> Option<ResourceVersion> {
        match self {
            Self::Json(json) => json.push(part),
            Self::Gzip(decoder) => {
                if decoder.get_ref().done {
                    return None;
                }
                if decoder.write_all(part).and_then(|()| decoder.flush()).is_err() {
                    *self = Self::Blind;
                    return None;
                }
                decoder.get_mut().found.take()
            }
            Self::Protobuf(prefix) => prefix.push(part),
            Self::Blind => None,
        }
    }

    /// Whether nothing can be found, or nothing more.
    pub(super) fn is_blind(&self) -> bool {
        matches!(self, Self::Blind)
    }
}

// === impl JsonFinder ===

/// For what the decompressor writes.
impl Write for JsonFinder {
    fn write(&mut self, part: &[u8]) -> std::io::Result<usize> {
        self.scan(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl JsonFinder {
    fn new(path: &'static [&'static str], every: bool) -> Self {
        Self { path, every, text: Vec::with_capacity(LONGEST), ..Self::default() }
    }

    fn push(&mut self, part: &[u8]) -> Option<ResourceVersion> {
        self.scan(part);
        self.found.take()
    }

    fn scan(&mut self, mut part: &[u8]) {
        while !self.done && !part.is_empty() {
            part = match self.string {
                Some(kind) => self.inside_string(kind, part),
                None => self.outside_string(part),
            };
        }
    }

    fn inside_string<'p>(&mut self, kind: Text, part: &'p [u8]) -> &'p [u8] {
        if self.escaped {
            self.escaped = false;
            self.keep(kind, &part[..1]);
            return &part[1..];
        }
        let Some(at) = memchr::memchr2(b'"', b'\\', part) else {
            self.keep(kind, part);
            return &[];
        };
        self.keep(kind, &part[..at]);
        if part[at] == b'\\' {
            // A key or version with an escape cannot be the one that is looked for. The backslash keeps it from
            // matching.
            self.keep(kind, b"\\");
            self.escaped = true;
        } else {
            self.string = None;
            self.end_string(kind);
        }
        &part[at + 1..]
    }

    fn outside_string<'p>(&mut self, part: &'p [u8]) -> &'p [u8] {
        for (at, byte) in part.iter().enumerate() {
            let live = self.depth == self.on_path;
            match byte {
                b'"' => {
                    self.text.clear();
                    self.string = Some(match live {
                        true if self.depth > 0 && self.expects_key => Text::Key,
                        true if self.key_matches && self.on_path == self.path.len() => Text::Value,
                        _ => Text::Other,
                    });
                    return &part[at + 1..];
                }
                b'{' => {
                    let follows = self.depth == 0 || self.key_matches && self.on_path < self.path.len();
                    if live && follows {
                        self.on_path += 1;
                        self.expects_key = true;
                    }
                    self.key_matches = false;
                    self.depth += 1;
                }
                b'[' => {
                    self.key_matches = false;
                    self.depth += 1;
                }
                b'}' | b']' => {
                    if live {
                        self.on_path = self.on_path.saturating_sub(1);
                    }
                    self.depth = self.depth.saturating_sub(1);
                    self.expects_key = false;
                    self.key_matches = false;
                    if self.depth == 0 && !self.every {
                        self.done = true;
                        return &[];
                    }
                }
                b',' if live => {
                    self.expects_key = true;
                    self.key_matches = false;
                }
                _ => {}
            }
        }
        &[]
    }

    fn keep(&mut self, kind: Text, bytes: &[u8]) {
        if kind != Text::Other && self.text.len() <= LONGEST {
            let room = LONGEST + 1 - self.text.len();
            self.text.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    fn end_string(&mut self, kind: Text) {
        match kind {
            Text::Key => {
                self.expects_key = false;
                self.key_matches = self.path[self.on_path - 1].as_bytes() == self.text;
            }
            Text::Value => {
                if let Some(rv) = std::str::from_utf8(&self.text).ok().and_then(ResourceVersion::parse) {
                    self.found = Some(rv);
                    self.done = !self.every;
                }
            }
            Text::Other => {}
        }
    }
}

#[cfg(test)]
#[path = "revision_tests.rs"]
mod tests;
