//! One object of a cache: its bytes as the apiserver sent them, and the few attributes that reads need without
//! parsing.

mod attributes;
mod parts;
mod saved;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

pub use attributes::{Attributes, AttributesBuilder, LabelSets};

use super::{Encoding, Hole, ObjectKey, ResourceVersion, Row};
use informerd_memory::allocated;
use informerd_packing::{Body, Damaged, Packer, Reading, Version, Visit, damaged};

/// A stored object. It is immutable: a change creates a new object. Only the form of its bytes may change, plain or
/// packed.
#[derive(Debug)]
pub struct Object {
    pub key: ObjectKey,
    pub rv: ResourceVersion,
    /// Versions of an object with the same attributes share them.
    pub attributes: Arc<Attributes>,
    body: Body,
    layout: Layout,
    /// The row that the apiserver printed for it; only in caches of tables.
    row: Option<Box<Row>>,
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
    layout: Layout,
}

/// Where the parts of an object's bytes are.
#[derive(Clone, Debug)]
struct Layout {
    /// The number of all bytes. The codec limits an object to far less than 4 GiB.
    len: u32,
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
    pub fn new(key: ObjectKey, rv: ResourceVersion, attributes: impl Into<Arc<Attributes>>, raw: Raw) -> Self {
        let attributes = attributes.into();
        Self { key, rv, attributes, body: Body::new(raw.bytes), layout: raw.layout, row: None }
    }

    /// The object's bytes, for an answer. Packed bytes are unpacked by each call, so one read calls it once.
    ///
    /// # Errors
    /// They are damaged. The answer must not go on as if they were there.
    pub fn raw(&self) -> Result<Raw, Damaged> {
        self.raw_for(Reading::Answer)
    }

    /// The same for anything else. It says nothing about what is read next.
    ///
    /// # Errors
    /// They are damaged.
    pub fn raw_for_upkeep(&self) -> Result<Raw, Damaged> {
        self.raw_for(Reading::Upkeep)
    }

    fn raw_for(&self, reading: Reading) -> Result<Raw, Damaged> {
        let (bytes, layout) = (self.body.bytes(reading)?, self.layout.clone());
        // All positions are within these. Bytes of another length would be sliced beyond their end.
        if bytes.len() == layout.len as usize {
            return Ok(Raw { bytes, layout });
        }
        Err(damaged(format_args!("{} bytes of {} instead of {}", bytes.len(), self.key.as_str(), layout.len)))
    }

    /// Whether each call of [`Self::raw`] gives bytes of its own. Others share them.
    pub fn is_packed(&self) -> bool {
        self.body.is_packed()
    }

    /// The length of the item without framing.
    pub fn item_len(&self) -> usize {
        self.layout.item_len()
    }

    /// The length of the item with its framing in a list.
    pub fn framed_len(&self) -> usize {
        self.layout.len as usize
    }

    /// The length of the metadata.
    pub fn metadata_len(&self) -> usize {
        self.layout.metadata.len()
    }

    /// The encoding of the item.
    pub fn encoding(&self) -> Encoding {
        self.layout.encoding()
    }

    /// Shares the key, and the attributes or the labels if they are equal, with another version of the same object.
    /// Returns whether the labels are shared.
    pub fn share(&mut self, other: &Self) -> bool {
        self.key = other.key.clone();
        if self.attributes == other.attributes {
            self.attributes = Arc::clone(&other.attributes);
            return true;
        }
        Arc::make_mut(&mut self.attributes).share(&other.attributes)
    }

    /// Shares the labels with objects that have the same ones.
    pub fn share_labels(&mut self, sets: &mut LabelSets) {
        sets.share(Arc::make_mut(&mut self.attributes));
    }

    /// Another version has replaced this one: plain bytes are kept as the difference from it, if that is small, and
    /// packed ones are shared with it.
    pub fn replaced_by(&self, next: &Arc<Self>) {
        self.body.replaced_by(next);
    }

    /// The memory of this object in addition to its next version: as it is now, and the most that it will ever need.
    pub fn size_beside(&self, next: &Self) -> (usize, usize) {
        let shared = Arc::ptr_eq(&self.attributes, &next.attributes);
        let own = self.size_besides_bytes() - if shared { self.attributes.size() } else { 0 } - self.key_size();
        (own + self.body.size(), own + self.body.most_size())
    }

    /// Packs the bytes unless they were read more than `bar` times of late.
    pub fn pack(&self, packer: &Packer, bar: u8) -> Visit {
        self.body.pack(packer, bar)
    }

    /// Makes packed bytes such that they do not come back, for tests of what follows.
    #[cfg(any(test, feature = "testing"))]
    pub fn spoil(&self) {
        self.body.spoil();
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

    /// Whether both have the same bytes, which damaged ones have not. Another apiserver may write an object of the same revision differently, and
    /// may print another row for it.
    pub fn is_written_as(&self, other: &Self) -> bool {
        let bytes = |object: &Self| object.body.bytes(Reading::Upkeep);
        self.layout.len == other.layout.len
            && self.row == other.row
            && matches!((bytes(self), bytes(other)), (Ok(own), Ok(others)) if own == others)
    }

    pub fn row(&self) -> Option<&Row> {
        self.row.as_deref()
    }

    /// The memory of this object if its bytes are plain, as the allocator rounds it. Its share of the tree is not
    /// included, nor are its labels, which [`LabelSets::size`] counts. It is the same for the life of the object.
    pub fn size(&self) -> usize {
        allocated(self.framed_len()) + self.size_besides_bytes()
    }

    /// The memory of this object with its bytes in their present form.
    pub fn present_size(&self) -> usize {
        self.body.size() + self.size_besides_bytes()
    }

    fn key_size(&self) -> usize {
        allocated(self.key.as_str().len())
    }

    fn size_besides_bytes(&self) -> usize {
        self.attributes.size()
            + self.key_size()
            + std::mem::size_of::<Self>()
            + self.row.as_ref().map_or(0, |row| row.size())
    }
}

impl Version for Object {
    fn body(&self) -> &Body {
        &self.body
    }
}

// === impl Raw ===

impl Raw {
    /// For JSON: `bytes` is the item followed by one comma. The ranges are positions in the item.
    pub fn new(bytes: Bytes, metadata: Range<u32>, rv: Range<u32>) -> Self {
        let layout = Layout { len: length(&bytes), before: 0, after: 1, metadata, rv };
        Self { bytes, layout }
    }

    /// For protobuf: `bytes` is the item after a header of `before` bytes. The ranges are positions in the item.
    pub fn with_header(bytes: Bytes, before: u8, metadata: Range<u32>, rv: Range<u32>) -> Self {
        let layout = Layout { len: length(&bytes), before, after: 0, metadata, rv };
        Self { bytes, layout }
    }

    /// The encoding of the item.
    pub fn encoding(&self) -> Encoding {
        self.layout.encoding()
    }

    /// The item without framing.
    pub fn item(&self) -> Bytes {
        self.slice(0..self.len())
    }

    /// The item with its framing in a list: JSON's comma, or protobuf's tag and length.
    pub fn framed(self) -> Bytes {
        self.bytes
    }

    /// The item's length.
    pub fn len(&self) -> usize {
        self.layout.item_len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A part of the item. The range contains positions in the item.
    pub fn slice(&self, range: Range<usize>) -> Bytes {
        let before = usize::from(self.layout.before);
        self.bytes.slice(before + range.start..before + range.end)
    }

    /// The positions of the `metadata` value, including braces.
    pub fn metadata_range(&self) -> Range<usize> {
        self.layout.metadata.start as usize..self.layout.metadata.end as usize
    }

    /// The positions of the digits of `metadata.resourceVersion`.
    pub fn rv_range(&self) -> Range<usize> {
        self.layout.rv.start as usize..self.layout.rv.end as usize
    }

    /// The `metadata` value, including braces.
    pub fn metadata(&self) -> Bytes {
        self.slice(self.metadata_range())
    }
}

// === impl Layout ===

impl Layout {
    fn encoding(&self) -> Encoding {
        if self.after == 0 { Encoding::Protobuf } else { Encoding::Json }
    }

    fn item_len(&self) -> usize {
        (self.len as usize).saturating_sub(usize::from(self.before) + usize::from(self.after))
    }
}

fn length(bytes: &Bytes) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use informerd_packing::damaged_total;

    #[test]
    fn bytes_of_another_length_are_damaged_and_counted() {
        let raw = Raw::new(Bytes::from_static(b"{\"metadata\":{}},"), 12..14, 0..0);
        let (key, attributes) = (ObjectKey::new("a", "b"), AttributesBuilder::default().build());
        let mut object = Object::new(key, ResourceVersion(1), attributes, raw);
        assert!(object.raw().is_ok() && object.raw_for_upkeep().is_ok());
        object.layout.len += 1;
        informerd_packing::expect_damage();
        for read in [Object::raw, Object::raw_for_upkeep] {
            let before = damaged_total();
            assert_eq!(read(&object).err(), Some(Damaged));
            assert!(damaged_total() > before);
        }
    }
}
