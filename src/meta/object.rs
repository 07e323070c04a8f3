//! One object of a cache: its bytes as the apiserver sent them, and the few attributes that reads need without
//! parsing.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::{Encoding, Hole, ObjectKey, ResourceVersion, Row};
use crate::memory::allocated;

/// A stored object. It is immutable: a change creates a new object.
#[derive(Debug)]
pub struct Object {
    pub key: ObjectKey,
    pub rv: ResourceVersion,
    pub attributes: Attributes,
    raw: Raw,
    /// The row that the apiserver printed for it; only in caches of tables.
    row: Option<Box<Row>>,
}

/// uid, labels and selectable field values, in one allocation for text and one for offsets. A pod with ten labels
/// needs two small allocations instead of forty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    text: Box<str>,
    /// End offsets in `text`: first uid, then key and value of each label sorted by key, then the field values.
    ends: Box<[u32]>,
    labels: u16,
}

/// Builds [`Attributes`]. Strings must be appended in the order uid, labels, fields.
#[derive(Debug, Default)]
pub struct AttributesBuilder {
    text: String,
    ends: Vec<u32>,
    labels: u16,
}

/// The object's bytes in the single form that every cache stores, and the positions of the parts that reads need.
///
/// JSON of a built-in type is stored without its `kind` and `apiVersion` members (the form of list items). JSON of a
/// custom resource is stored unchanged. One comma follows the closing brace. A protobuf message is stored after the
/// tag and the length of a list item. So the items of a list are these buffers one after another, with nothing
/// between them.
#[derive(Clone, Debug)]
pub struct Raw {
    /// The item, and its framing in a list.
    bytes: Bytes,
    /// The number of bytes before the item, and after it.
    before: u8,
    after: u8,
    /// The value of `metadata`: for JSON including the braces, for protobuf the message.
    metadata: Range<u32>,
    /// The characters of `metadata.resourceVersion`, without quotes.
    rv: Range<u32>,
}

// === impl Object ===

impl Object {
    pub fn new(key: ObjectKey, rv: ResourceVersion, attributes: Attributes, raw: Raw) -> Self {
        Self { key, rv, attributes, raw, row: None }
    }

    /// The only access to an object's bytes, so that the stored form can change later.
    pub fn raw(&self) -> &Raw {
        &self.raw
    }

    /// Returns the object with this table row.
    pub fn with_row(mut self, row: Row) -> Self {
        self.row = Some(Box::new(row));
        self
    }

    /// Sets the positions of relative times in its row.
    pub fn set_holes(&mut self, holes: SmallVec<[Hole; 2]>) {
        if let Some(row) = &mut self.row {
            row.holes = holes;
        }
    }

    /// Whether both have the same bytes. Another apiserver may write an object of the same revision differently, and
    /// may print another row for it.
    pub fn is_written_as(&self, other: &Self) -> bool {
        self.raw.bytes == other.raw.bytes && self.row == other.row
    }

    pub fn row(&self) -> Option<&Row> {
        self.row.as_deref()
    }

    /// The memory of this object in bytes, as the allocator rounds it. Its share of the tree is not included.
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
    /// For JSON: `bytes` is the item followed by one comma. The ranges are positions in the item.
    pub fn new(bytes: Bytes, metadata: Range<u32>, rv: Range<u32>) -> Self {
        Self { bytes, before: 0, after: 1, metadata, rv }
    }

    /// For protobuf: `bytes` is the item after a header of `before` bytes. The ranges are positions in the item.
    pub fn with_header(bytes: Bytes, before: u8, metadata: Range<u32>, rv: Range<u32>) -> Self {
        Self { bytes, before, after: 0, metadata, rv }
    }

    /// The encoding of the item.
    pub fn encoding(&self) -> Encoding {
        if self.after == 0 { Encoding::Protobuf } else { Encoding::Json }
    }

    /// The item without framing.
    pub fn item(&self) -> Bytes {
        self.slice(0..self.len())
    }

    /// The item with its framing in a list: JSON's comma, or protobuf's tag and length.
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

    /// A part of the item. The range contains positions in the item.
    pub fn slice(&self, range: Range<usize>) -> Bytes {
        let before = usize::from(self.before);
        self.bytes.slice(before + range.start..before + range.end)
    }

    /// The positions of the `metadata` value, including braces.
    pub fn metadata_range(&self) -> Range<usize> {
        self.metadata.start as usize..self.metadata.end as usize
    }

    /// The positions of the digits of `metadata.resourceVersion`.
    pub fn rv_range(&self) -> Range<usize> {
        self.rv.start as usize..self.rv.end as usize
    }

    /// The `metadata` value, including braces.
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

    /// The value of the field with this index in the resource's field table. "" when the object was parsed with
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

    /// Add the labels sorted by key, before any field.
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
        // The codec limits an object to far less than 4 GiB.
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
