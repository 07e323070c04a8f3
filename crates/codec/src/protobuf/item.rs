//! Parses one object in a single pass. Copies its message in the form that caches store, and extracts the attributes
//! that reads need.

use std::borrow::Cow;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::CodecError;
use crate::error::once;
use crate::lossy::{lossy, object_key};
use informerd_meta::{AttributesBuilder, FieldTable, Object, Raw, ResourceVersion};

use super::fields::field_value;
use super::wire::{Fields, Result, put_bytes, put_header, varint_len};

/// The field number of ObjectMeta. It is the first field of every object of the Kubernetes API.
const METADATA: u32 = 1;

/// The hard limit for the length of an item, whatever limit the caller sets: positions in an item are 32-bit numbers.
const MAX_ITEM: usize = 1 << 30;

/// The part of ObjectMeta that reads need.
#[derive(Default)]
struct Metadata<'a> {
    name: Cow<'a, str>,
    namespace: Cow<'a, str>,
    uid: Cow<'a, str>,
    resource_version: Option<&'a str>,
    /// The end of the value of `resource_version`, counted from the start of ObjectMeta.
    rv_end: usize,
    labels: SmallVec<[(&'a [u8], &'a [u8]); 16]>,
}

/// Parses the message of one object of a list or an envelope, and copies it into its own allocation. `table` lists
/// the field values to extract.
///
/// # Errors
/// When the bytes are longer than 1 GiB, or are not a message that begins with an ObjectMeta in its usual form, with
/// a name and a decimal resourceVersion.
pub fn parse_item(message: &[u8], table: &FieldTable) -> Result<Object> {
    if message.len() > MAX_ITEM {
        return Err(CodecError::TooLarge { limit: MAX_ITEM });
    }
    let mut fields = Fields::new(message);
    let first = fields.next()?.filter(|field| field.number == METADATA).ok_or(CodecError::Missing("metadata"))?;
    let metadata = first.value.bytes("metadata")?;
    // When the metadata is rewritten with another resourceVersion, its length is written in the shortest form.
    if first.end != 1 + varint_len(metadata.len() as u64) + metadata.len() {
        return Err(CodecError::Invalid("metadata"));
    }
    while let Some(field) = fields.next()? {
        if field.number == METADATA {
            return Err(CodecError::Duplicate("metadata"));
        }
    }
    let meta = Metadata::read(metadata)?;
    let key = object_key(&meta.namespace, &meta.name)?;
    let digits = meta.resource_version.ok_or(CodecError::Missing("metadata.resourceVersion"))?;
    let rv = ResourceVersion::parse(digits).ok_or(CodecError::Invalid("metadata.resourceVersion"))?;

    let mut attributes = AttributesBuilder::new(&meta.uid);
    for (key, value) in meta.sorted_labels() {
        attributes.label(&lossy(key), &lossy(value));
    }
    for field in table.labels.iter() {
        attributes.field(&field_value(message, &field.value)?);
    }

    let mut kept = Vec::with_capacity(message.len() + 6);
    put_header(&mut kept, 2, message.len() as u64);
    // A tag and a length of at most five bytes.
    let before = u8::try_from(kept.len()).unwrap_or(u8::MAX);
    kept.extend_from_slice(message);
    let start = first.end - metadata.len();
    let rv_end = start + meta.rv_end;
    let raw = Raw::with_header(
        Bytes::from(kept),
        before,
        position(start)?..position(first.end)?,
        position(rv_end - digits.len())?..position(rv_end)?,
    );
    Ok(Object::new(key, rv, attributes.build(), raw))
}

/// Writes the beginning of the object's message, up to the end of the metadata, with another resourceVersion. The bytes
/// after the metadata stay unchanged.
pub(super) fn with_resource_version(raw: &Raw, rv: ResourceVersion) -> Vec<u8> {
    let (metadata, digits) = (raw.metadata_range(), raw.rv_range());
    let rv = rv.to_string();
    let len = metadata.len() - digits.len() + rv.len();
    let mut out = Vec::with_capacity(metadata.end + 12);
    put_header(&mut out, 1, len as u64);
    // The tag and the length of the old value take one byte each.
    out.extend_from_slice(&raw.slice(metadata.start..digits.start.saturating_sub(2)));
    put_bytes(&mut out, 6, rv.as_bytes());
    out.extend_from_slice(&raw.slice(digits.end..metadata.end));
    out
}

fn position(at: usize) -> Result<u32> {
    u32::try_from(at).map_err(|_| CodecError::TooLarge { limit: MAX_ITEM })
}

// === impl Metadata ===

impl<'a> Metadata<'a> {
    fn read(message: &'a [u8]) -> Result<Self> {
        let mut found = Self::default();
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next()? {
            match field.number {
                1 => found.name = field.value.lossy("metadata.name")?,
                3 => found.namespace = field.value.lossy("metadata.namespace")?,
                5 => found.uid = field.value.lossy("metadata.uid")?,
                6 => {
                    let text = field.value.text("metadata.resourceVersion")?;
                    once(&mut found.resource_version, text, "metadata.resourceVersion")?;
                    if field.end - field.start != 2 + text.len() {
                        return Err(CodecError::Invalid("metadata.resourceVersion"));
                    }
                    found.rv_end = field.end;
                }
                11 => found.labels.push(entry(field.value.bytes("metadata.labels")?)?),
                _ => {}
            }
        }
        Ok(found)
    }

    /// The labels, sorted by key. If a key occurs more than once, the last value counts.
    fn sorted_labels(&self) -> SmallVec<[(&'a [u8], &'a [u8]); 16]> {
        let mut labels = self.labels.clone();
        if !labels.is_sorted_by(|(a, _), (b, _)| a < b) {
            labels.reverse();
            labels.sort_by_key(|(key, _)| *key);
            labels.dedup_by(|(a, _), (b, _)| a == b);
        }
        labels
    }
}

/// Reads one entry of a map of strings. A user may have put any bytes into the value.
pub(super) fn entry(message: &[u8]) -> Result<(&[u8], &[u8])> {
    let (mut key, mut value) = (&[][..], &[][..]);
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => key = field.value.bytes("key of a map")?,
            2 => value = field.value.bytes("value of a map")?,
            _ => {}
        }
    }
    Ok((key, value))
}
