//! Parses one object in a single pass. Copies its bytes in the form that caches store, and extracts the attributes
//! that reads need.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::CodecError;
use crate::lossy::object_key;
use informerd_meta::{AttributesBuilder, FieldTable, Object, Raw, ResourceVersion};

use super::fields::Fields;
use super::form::{Style, TypeMeta};
use super::scan::{Result, Scanner};
use super::text::Text;

/// The hard limit for the length of an item, whatever limit the caller sets: positions in an item are 32-bit numbers.
const MAX_ITEM: usize = 1 << 30;

/// The result of one pass over an object. Positions count from the opening brace of the object.
struct Item<'t, 'a> {
    kind: Option<Text<'a>>,
    api_version: Option<Text<'a>>,
    /// The start of the third member, if the first two are kind and apiVersion.
    stripped_at: Option<usize>,
    metadata: Range<usize>,
    meta: Metadata<'a>,
    fields: Fields<'t, 'a>,
}

#[derive(Default)]
struct Metadata<'a> {
    name: Option<Text<'a>>,
    namespace: Option<Text<'a>>,
    uid: Option<Text<'a>>,
    resource_version: Option<Text<'a>>,
    /// `None` until the member is seen.
    labels: Option<SmallVec<[(Text<'a>, Text<'a>); 16]>>,
}

/// Parses one object of a list, of a watch frame or of a GET body, and copies it into its own allocation. `table`
/// lists the field values to extract.
///
/// # Errors
/// When the bytes are not exactly one JSON object with `metadata.name` and a decimal `metadata.resourceVersion`, are
/// nested deeper than 10000 levels, or are longer than 1 GiB. Strings may have bytes that are not UTF-8: the apiserver
/// sends JSON that objects contain as it is.
pub fn parse_item(bytes: &[u8], table: &FieldTable) -> Result<(Object, TypeMeta)> {
    Scanner::whole(bytes, |scanner| scan_item(scanner, table))
}

/// Parses the object at the scanner's position and moves the scanner past it.
pub(crate) fn scan_item(scanner: &mut Scanner<'_>, table: &FieldTable) -> Result<(Object, TypeMeta)> {
    let start = scanner.position();
    // Spaces before and after the object do not belong to it.
    let mut inner = scanner.clone_here();
    let item = Item::scan(&mut inner, table)?;
    scanner.rewind(start + inner.position());
    let bytes = inner.since(0);
    if bytes.len() > MAX_ITEM {
        return Err(CodecError::TooLarge { limit: MAX_ITEM });
    }
    if !inner.saw_spaces() {
        return item.build(bytes);
    }
    let compact = compact(bytes);
    Item::scan(&mut Scanner::new(&compact), table)?.build(&compact)
}

/// Removes the whitespace between the tokens. `bytes` must already be scanned.
pub(crate) fn compact(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let (mut in_string, mut escaped) = (false, false);
    for &byte in bytes {
        if in_string {
            in_string = byte != b'"' || escaped;
            escaped = byte == b'\\' && !escaped;
        } else if byte.is_ascii_whitespace() {
            continue;
        } else {
            in_string = byte == b'"';
        }
        out.push(byte);
    }
    out
}

// === impl Item ===

impl<'t, 'a> Item<'t, 'a> {
    fn scan(scanner: &mut Scanner<'a>, table: &'t FieldTable) -> Result<Self> {
        let (mut kind, mut api_version, mut stripped_at, mut found) = (None, None, None, None);
        let mut fields = Fields::new(table);
        let mut index = 0;
        let mut type_meta_first = true;
        scanner.object(|scanner, key| {
            let start = scanner.position();
            let reserved = if key.is("kind") {
                type_meta_first &= index == 0;
                once(&mut kind, Some(required(scanner, "kind")?), "kind")?;
                true
            } else if key.is("apiVersion") {
                type_meta_first &= index == 1;
                once(&mut api_version, Some(required(scanner, "apiVersion")?), "apiVersion")?;
                true
            } else if key.is("metadata") {
                let meta = Metadata::scan(scanner)?;
                once(&mut found, Some((start..scanner.position(), meta)), "metadata")?;
                true
            } else {
                false
            };
            if index == 2 {
                stripped_at = Some(key.start);
            }
            index += 1;
            let active = fields.enter(&key);
            if reserved && active.is_empty() {
                return Ok(());
            }
            scanner.rewind(start);
            fields.value(scanner, 1, &active)
        })?;
        let (metadata, meta) = found.ok_or(CodecError::Missing("metadata"))?;
        // Stripped means: both come first, in this order, or neither is present.
        let stripped_at = match (kind, api_version) {
            (None, None) => Some(1),
            (Some(_), Some(_)) if type_meta_first => stripped_at,
            _ => None,
        };
        Ok(Self { kind, api_version, stripped_at, metadata, meta, fields })
    }

    fn build(&self, bytes: &[u8]) -> Result<(Object, TypeMeta)> {
        let name = self.meta.name.ok_or(CodecError::Missing("metadata.name"))?.get();
        let key = object_key(&text(self.meta.namespace), &name)?;
        let digits = self.meta.resource_version.ok_or(CodecError::Missing("metadata.resourceVersion"))?;
        let rv = (!digits.escaped)
            .then(|| std::str::from_utf8(digits.raw).ok().and_then(ResourceVersion::parse))
            .flatten()
            .ok_or(CodecError::Invalid("metadata.resourceVersion"))?;

        let mut attributes = AttributesBuilder::new(&text(self.meta.uid));
        self.meta.each_label(|key, value| attributes.label(key, value));
        for value in self.fields.finish() {
            attributes.field(value);
        }

        // The number of leading bytes that the opening brace replaces.
        let (style, cut) = match self.stripped_at {
            Some(at) => (Style::Stripped, at),
            None => (Style::Inline, 1),
        };
        let mut kept = Vec::with_capacity(bytes.len() - cut + 2);
        kept.push(b'{');
        kept.extend_from_slice(bytes.get(cut..).unwrap_or(&[]));
        kept.push(b',');
        let moved = |range: Range<usize>| Ok(position(range.start + 1 - cut)?..position(range.end + 1 - cut)?);
        let digits = digits.start + 1..digits.start + 1 + digits.raw.len();
        let raw = Raw::new(Bytes::from(kept), moved(self.metadata.clone())?, moved(digits)?);

        let type_meta = TypeMeta { style, api_version: text(self.api_version).into(), kind: text(self.kind).into() };
        Ok((Object::new(key, rv, attributes.build(), raw), type_meta))
    }
}

// === impl Metadata ===

impl<'a> Metadata<'a> {
    fn scan(scanner: &mut Scanner<'a>) -> Result<Self> {
        let mut found = Self::default();
        scanner.object(|scanner, key| {
            if key.is("name") {
                once(&mut found.name, scanner.string_or_null("metadata.name")?, "metadata.name")
            } else if key.is("namespace") {
                once(&mut found.namespace, scanner.string_or_null("metadata.namespace")?, "metadata.namespace")
            } else if key.is("uid") {
                once(&mut found.uid, scanner.string_or_null("metadata.uid")?, "metadata.uid")
            } else if key.is("resourceVersion") {
                let name = "metadata.resourceVersion";
                once(&mut found.resource_version, scanner.string_or_null(name)?, name)
            } else if key.is("labels") {
                once(&mut found.labels, Some(labels(scanner)?), "metadata.labels")
            } else {
                scanner.skip_value()
            }
        })?;
        Ok(found)
    }

    /// Calls `each` for the labels, sorted by key. If a key occurs more than once, the last value counts.
    fn each_label(&self, mut each: impl FnMut(&str, &str)) {
        let Some(labels) = &self.labels else { return };
        let mut pairs: SmallVec<[(Cow<'_, str>, Cow<'_, str>); 16]> = SmallVec::with_capacity(labels.len());
        for (key, value) in labels {
            pairs.push((key.get(), value.get()));
        }
        if !pairs.is_sorted_by(|(a, _), (b, _)| a < b) {
            pairs.reverse();
            pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
            pairs.dedup_by(|(a, _), (b, _)| a == b);
        }
        for (key, value) in &pairs {
            each(key, value);
        }
    }
}

fn labels<'a>(scanner: &mut Scanner<'a>) -> Result<SmallVec<[(Text<'a>, Text<'a>); 16]>> {
    let mut labels = SmallVec::new();
    if scanner.peek()? == b'n' {
        scanner.literal(b"null")?;
        return Ok(labels);
    }
    scanner.object(|scanner, key| {
        labels.push((key, required(scanner, "metadata.labels")?));
        Ok(())
    })?;
    Ok(labels)
}

fn required<'a>(scanner: &mut Scanner<'a>, name: &'static str) -> Result<Text<'a>> {
    scanner.string_or_null(name)?.ok_or(CodecError::Invalid(name))
}

fn once<T>(slot: &mut Option<T>, value: Option<T>, name: &'static str) -> Result<()> {
    if slot.is_some() {
        return Err(CodecError::Duplicate(name));
    }
    *slot = value;
    Ok(())
}

fn text(text: Option<Text<'_>>) -> Cow<'_, str> {
    text.map_or(Cow::Borrowed(""), |text| text.get())
}

fn position(at: usize) -> Result<u32> {
    u32::try_from(at).map_err(|_| CodecError::TooLarge { limit: MAX_ITEM })
}
