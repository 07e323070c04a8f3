//! One object of a cache: its bytes as the apiserver sent them, and the few attributes reads need without parsing.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::{Encoding, Hole, ObjectKey, ResourceVersion, Row};
use crate::memory::allocated;

/// An object at rest. Immutable: a change is a new object.
#[derive(Debug)]
pub struct Object {
    pub key: ObjectKey,
    pub rv: ResourceVersion,
    pub attributes: Attributes,
    raw: Raw,
    /// What the apiserver printed of it; in caches of tables only.
    row: Option<Box<Row>>,
}

/// uid, labels and selectable field values in one allocation of text and one of offsets: a pod with ten labels costs
/// two small allocations instead of forty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    text: Box<str>,
    /// End offsets into `text`: uid, then key and value of each label sorted by key, then the field values.
    ends: Box<[u32]>,
    labels: u16,
}

/// Builds [`Attributes`]; strings are appended in the order uid, labels, fields.
#[derive(Debug, Default)]
pub struct AttributesBuilder {
    text: String,
    ends: Vec<u32>,
    labels: u16,
}

/// The object's bytes in the one form that every cache keeps, and where the parts reads need stand in them.
///
/// JSON of a built-in type is kept without its `kind` and `apiVersion` members (the form of list items); JSON of a
/// custom resource is kept whole. One comma follows the closing brace. A message of protobuf is kept with the tag and
/// the length of a list's item in front. So a list of items is a sequence of these buffers without anything between
/// them.
#[derive(Clone, Debug)]
pub struct Raw {
    /// The item, and what frames it in a list.
    bytes: Bytes,
    /// How many bytes stand before the item, and after it.
    before: u8,
    after: u8,
    /// The value of `metadata`: in JSON from brace to brace, in protobuf the message.
    metadata: Range<u32>,
    /// The characters of `metadata.resourceVersion`, without quotes.
    rv: Range<u32>,
}

// === impl Object ===

impl Object {
    pub fn new(key: ObjectKey, rv: ResourceVersion, attributes: Attributes, raw: Raw) -> Self {
        Self { key, rv, attributes, raw, row: None }
    }

    /// The only way to an object's bytes; their form at rest may change behind it.
    pub fn raw(&self) -> &Raw {
        &self.raw
    }

    /// The same in this row of a table.
    pub fn with_row(mut self, row: Row) -> Self {
        self.row = Some(Box::new(row));
        self
    }

    /// Where its row tells times relative to now.
    pub fn set_holes(&mut self, holes: SmallVec<[Hole; 2]>) {
        if let Some(row) = &mut self.row {
            row.holes = holes;
        }
    }

    /// Whether both have the same bytes. Another apiserver may write an object of the same revision otherwise, and print
    /// another row of it.
    pub fn is_written_as(&self, other: &Self) -> bool {
        self.raw.bytes == other.raw.bytes && self.row == other.row
    }

    pub fn row(&self) -> Option<&Row> {
        self.row.as_deref()
    }

    /// Bytes this object holds in memory, as the allocator has them, its share of the tree aside.
    pub fn size(&self) -> usize {
        allocated(self.raw.bytes.len())
            + allocated(self.attributes.text.len())
            + allocated(self.attributes.ends.len() * 4)
            + allocated(self.key.as_str().len())
            + std::mem::size_of::<Self>()
            + self.row.as_ref().map_or(0, |row| row.size())
    }
}

// === impl Raw ===

impl Raw {
    /// JSON: `bytes` is the item followed by one comma; the ranges are positions in it.
    pub fn new(bytes: Bytes, metadata: Range<u32>, rv: Range<u32>) -> Self {
        Self { bytes, before: 0, after: 1, metadata, rv }
    }

    /// Protobuf: `bytes` is the item after a header of `before` bytes; the ranges are positions in the item.
    pub fn with_header(bytes: Bytes, before: u8, metadata: Range<u32>, rv: Range<u32>) -> Self {
        Self { bytes, before, after: 0, metadata, rv }
    }

    /// Which encoding the item is in.
    pub fn encoding(&self) -> Encoding {
        if self.after == 0 { Encoding::Protobuf } else { Encoding::Json }
    }

    /// The item alone.
    pub fn item(&self) -> Bytes {
        self.slice(0..self.len())
    }

    /// The item with what frames it in a list: JSON's comma, protobuf's tag and length.
    pub fn framed(&self) -> Bytes {
        self.bytes.clone()
    }

    /// The item's length.
    pub fn len(&self) -> usize {
        self.bytes.len().saturating_sub(usize::from(self.before) + usize::from(self.after))
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A part of the item, by positions in it.
    pub fn slice(&self, range: Range<usize>) -> Bytes {
        let before = usize::from(self.before);
        self.bytes.slice(before + range.start..before + range.end)
    }

    /// Positions of the `metadata` value, braces included.
    pub fn metadata_range(&self) -> Range<usize> {
        self.metadata.start as usize..self.metadata.end as usize
    }

    /// Positions of the digits of `metadata.resourceVersion`.
    pub fn rv_range(&self) -> Range<usize> {
        self.rv.start as usize..self.rv.end as usize
    }

    /// The `metadata` value, braces included.
    pub fn metadata(&self) -> Bytes {
        self.slice(self.metadata_range())
    }
}

// === impl Attributes ===

impl Attributes {
    pub fn uid(&self) -> &str {
        self.part(0)
    }

    /// Labels sorted by key.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        (0..usize::from(self.labels)).map(|i| (self.part(1 + 2 * i), self.part(2 + 2 * i)))
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels().find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    /// The value of the field with this index in the resource's field table, "" when the object was parsed with
    /// another table.
    pub fn field(&self, index: usize) -> &str {
        self.part(1 + 2 * usize::from(self.labels) + index)
    }

    fn part(&self, index: usize) -> &str {
        let Some(&end) = self.ends.get(index) else { return "" };
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        self.text.get(start as usize..end as usize).unwrap_or("")
    }
}

// === impl AttributesBuilder ===

impl AttributesBuilder {
    pub fn new(uid: &str) -> Self {
        let mut builder = Self::default();
        builder.push(uid);
        builder
    }

    /// Labels are to be added sorted by key, and before any field.
    pub fn label(&mut self, key: &str, value: &str) {
        self.push(key);
        self.push(value);
        self.labels += 1;
    }

    pub fn field(&mut self, value: &str) {
        self.push(value);
    }

    pub fn build(self) -> Attributes {
        Attributes { text: self.text.into_boxed_str(), ends: self.ends.into_boxed_slice(), labels: self.labels }
    }

    fn push(&mut self, part: &str) {
        self.text.push_str(part);
        // An object is bounded far below 4 GiB by the codec's limit.
        self.ends.push(u32::try_from(self.text.len()).unwrap_or(u32::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_give_back_what_was_put_in() {
        let mut builder = AttributesBuilder::new("u-1");
        builder.label("app", "web");
        builder.label("tier", "");
        builder.field("node-1");
        builder.field("");
        let attributes = builder.build();
        assert_eq!(attributes.uid(), "u-1");
        assert_eq!(attributes.labels().collect::<Vec<_>>(), [("app", "web"), ("tier", "")]);
        assert_eq!(attributes.label("tier"), Some(""));
        assert_eq!(attributes.label("nope"), None);
        assert_eq!((attributes.field(0), attributes.field(1), attributes.field(2)), ("node-1", "", ""));
    }
}
