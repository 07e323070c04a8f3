//! Decodes the items of a list from a stream of chunks. It never holds the whole list.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};

use crate::CodecError;
use crate::json::{ListMeta, Style, TypeMeta};
use informerd_meta::{FieldTable, Object, ResourceVersion};

use super::envelope::{MAGIC, plain, type_meta};
use super::item::parse_item;
use super::odd::named;
use super::wire::{Fields, Result, has_length, once, split_tag, varint};

/// Decodes a list body incrementally. After an error every further call returns the same error.
#[derive(Debug)]
pub struct ListDecoder {
    /// Begins with what `state` expects.
    buf: BytesMut,
    table: FieldTable,
    max_item: usize,
    state: State,
    head: Head,
    failed: Option<CodecError>,
    /// The item that could not be decoded.
    item: BytesMut,
}

/// What the decoder expects next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Magic,
    /// Fields of the envelope.
    Envelope,
    /// Fields of the list, which has this many bytes left.
    List(u64),
}

/// What was found so far in the list other than its items.
#[derive(Debug, Default)]
struct Head {
    list_kind: Option<Arc<str>>,
    api_version: Arc<str>,
    metadata: Option<ListMetadata>,
    list: bool,
}

#[derive(Debug, Default)]
struct ListMetadata {
    rv: Option<ResourceVersion>,
    continue_token: String,
    remaining_item_count: Option<i64>,
}

/// A field at the front of the buffer.
struct Next {
    number: u32,
    /// The length in bytes of its tag, and of its length prefix if it has one.
    header: usize,
    /// The number of bytes that follow the header.
    len: u64,
}

// === impl ListDecoder ===

impl ListDecoder {
    /// `max_item` limits the size in bytes of one item, and of any field outside the items. The decoder buffers at
    /// most that much plus one chunk. `table` lists the field values to extract from the items.
    pub fn new(max_item: usize, table: FieldTable) -> Self {
        let (buf, item) = (BytesMut::new(), BytesMut::new());
        Self { buf, table, max_item, state: State::Magic, head: Head::default(), failed: None, item }
    }

    /// Appends received bytes. Call [`Self::next`] until it returns `None` before the next push.
    #[expect(clippy::needless_pass_by_value, reason = "as the decoder of JSON takes it")]
    pub fn push(&mut self, chunk: Bytes) {
        self.buf.extend_from_slice(&chunk);
    }

    /// Returns the next complete item, or `None` when more bytes are needed or the list is complete.
    #[expect(clippy::should_implement_trait, reason = "None is not the end")]
    pub fn next(&mut self) -> Result<Option<Object>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.decode().inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// The item that the decoder has failed at, as far as it can be read.
    pub fn odd_object(&self) -> Option<String> {
        self.failed.as_ref().and_then(|_| named(&self.item))
    }

    /// Returns the list's own metadata. Call it at the end of the body.
    ///
    /// # Errors
    /// When the body is truncated, is not a list, has no resourceVersion, or still holds an item that was not taken.
    pub fn finish(mut self) -> Result<ListMeta> {
        if self.next()?.is_some() || self.state != State::Envelope || !self.buf.is_empty() || !self.head.list {
            return Err(CodecError::Truncated);
        }
        let metadata = self.head.metadata.ok_or(CodecError::Missing("metadata"))?;
        Ok(ListMeta {
            columns: None,
            rv: metadata.rv.ok_or(CodecError::Missing("metadata.resourceVersion"))?,
            continue_token: metadata.continue_token,
            remaining_item_count: metadata.remaining_item_count,
            list_kind: self.head.list_kind.ok_or(CodecError::Missing("kind"))?,
            api_version: self.head.api_version,
            style: Style::Stripped,
            typed_items: None,
        })
    }

    fn decode(&mut self) -> Result<Option<Object>> {
        loop {
            match self.state {
                State::Magic => {
                    let len = self.buf.len().min(MAGIC.len());
                    if self.buf[..len] != MAGIC[..len] {
                        return Err(CodecError::Missing("k8s prefix"));
                    }
                    if len < MAGIC.len() {
                        return Ok(None);
                    }
                    self.buf.advance(len);
                    self.state = State::Envelope;
                }
                State::Envelope => {
                    let Some(next) = self.header()? else { return Ok(None) };
                    if next.number == 2 {
                        if std::mem::replace(&mut self.head.list, true) {
                            return Err(CodecError::Duplicate("raw"));
                        }
                        self.buf.advance(next.header);
                        self.state = State::List(next.len);
                        continue;
                    }
                    let Some(value) = self.whole(&next)? else { return Ok(None) };
                    match next.number {
                        1 => {
                            let (api_version, kind) = type_meta(&value)?;
                            self.head.api_version = api_version.into();
                            self.head.list_kind = Some(kind.into());
                        }
                        3 | 4 => plain(&value)?,
                        _ => {}
                    }
                }
                State::List(0) => self.state = State::Envelope,
                State::List(left) => {
                    let Some(next) = self.header()? else { return Ok(None) };
                    let left = left.checked_sub((next.header as u64).saturating_add(next.len));
                    let left = left.ok_or(CodecError::Invalid("length of a list"))?;
                    let Some(value) = self.whole(&next)? else { return Ok(None) };
                    self.state = State::List(left);
                    match next.number {
                        1 => {
                            once(&mut self.head.metadata, ListMetadata::read(&value)?, "metadata")?;
                        }
                        2 => {
                            let item = parse_item(&value, &self.table);
                            return item.map(Some).inspect_err(|_| self.item = value);
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// Reads the header of the first field, if its tag and length are complete. Consumes nothing.
    fn header(&self) -> Result<Option<Next>> {
        let Some((tag, tag_len)) = varint(&self.buf)? else { return Ok(None) };
        let (number, wire_type) = split_tag(tag)?;
        // Lists and envelopes contain only strings and messages.
        if !has_length(wire_type) {
            return Err(CodecError::Invalid("wire type"));
        }
        let Some((len, len_len)) = varint(&self.buf[tag_len..])? else { return Ok(None) };
        Ok(Some(Next { number, header: tag_len + len_len, len }))
    }

    /// Takes the first field off the buffer if it is complete.
    fn whole(&mut self, next: &Next) -> Result<Option<BytesMut>> {
        let len = usize::try_from(next.len).unwrap_or(usize::MAX);
        if len > self.max_item {
            self.item = self.buf.split_off(next.header.min(self.buf.len()));
            return Err(CodecError::TooLarge { limit: self.max_item });
        }
        if self.buf.len() - next.header < len {
            return Ok(None);
        }
        self.buf.advance(next.header);
        Ok(Some(self.buf.split_to(len)))
    }
}

// === impl ListMetadata ===

impl ListMetadata {
    fn read(message: &[u8]) -> Result<Self> {
        let mut found = Self::default();
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next()? {
            match field.number {
                2 => {
                    let text = field.value.text("metadata.resourceVersion")?;
                    let invalid = CodecError::Invalid("metadata.resourceVersion");
                    found.rv = Some(ResourceVersion::parse(text).ok_or(invalid)?);
                }
                3 => found.continue_token = field.value.text("metadata.continue")?.to_owned(),
                4 => {
                    let count = field.value.varint("metadata.remainingItemCount")?;
                    found.remaining_item_count = Some(count.cast_signed());
                }
                _ => {}
            }
        }
        Ok(found)
    }
}

/// The items of a list have no type of their own: the list states it.
pub fn item_type() -> TypeMeta {
    TypeMeta { style: Style::Stripped, api_version: "".into(), kind: "".into() }
}
