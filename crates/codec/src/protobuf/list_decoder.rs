//! Decodes the items of a list from a stream of chunks. It never holds the whole list.

use std::sync::Arc;

use bytes::{Buf, BytesMut};

use crate::CodecError;
use crate::error::once;
use crate::json::{ListMeta, ListMetadata, Style, TypeMeta};
use informerd_meta::{FieldTable, Object, ResourceVersion};

use super::envelope::{MAGIC, plain, type_meta};
use super::item::parse_item;
use super::odd::named;
use super::wire::{Fields, Result, has_length, split_tag, varint};

/// Decodes a list body incrementally. What is not decoded yet is in a buffer, which begins with what `state` expects.
#[derive(Debug)]
pub(crate) struct ListDecoder {
    table: FieldTable,
    max_item: usize,
    state: State,
    head: Head,
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
    /// `max_item` limits the size in bytes of one item, and of any field outside the items.
    pub(crate) fn new(max_item: usize, table: FieldTable) -> Self {
        Self { table, max_item, state: State::Magic, head: Head::default(), item: BytesMut::new() }
    }

    /// The item that the decoder has failed at, as far as it can be read.
    pub(crate) fn odd_object(&self) -> Option<String> {
        named(&self.item)
    }

    /// Returns the list's own metadata.
    pub(crate) fn finish(self) -> Result<ListMeta> {
        if self.state != State::Envelope || !self.head.list {
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

    /// Takes the next complete item from the front of the buffer, or returns `None` when more bytes are needed or the
    /// list is complete.
    pub(crate) fn next(&mut self, buf: &mut BytesMut) -> Result<Option<(Object, TypeMeta)>> {
        loop {
            match self.state {
                State::Magic => {
                    let len = buf.len().min(MAGIC.len());
                    if buf[..len] != MAGIC[..len] {
                        return Err(CodecError::Missing("k8s prefix"));
                    }
                    if len < MAGIC.len() {
                        return Ok(None);
                    }
                    buf.advance(len);
                    self.state = State::Envelope;
                }
                State::Envelope => {
                    let Some(next) = header(buf)? else { return Ok(None) };
                    if next.number == 2 {
                        if std::mem::replace(&mut self.head.list, true) {
                            return Err(CodecError::Duplicate("raw"));
                        }
                        buf.advance(next.header);
                        self.state = State::List(next.len);
                        continue;
                    }
                    let Some(value) = self.whole(buf, &next)? else { return Ok(None) };
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
                    let Some(next) = header(buf)? else { return Ok(None) };
                    let left = left.checked_sub((next.header as u64).saturating_add(next.len));
                    let left = left.ok_or(CodecError::Invalid("length of a list"))?;
                    let Some(value) = self.whole(buf, &next)? else { return Ok(None) };
                    self.state = State::List(left);
                    match next.number {
                        1 => once(&mut self.head.metadata, ListMetadata::read(&value)?, "metadata")?,
                        2 => {
                            // The items of a list have no type of their own: the list states it.
                            let (api_version, kind) = (Arc::default(), Arc::default());
                            let untyped = TypeMeta { style: Style::Stripped, api_version, kind };
                            let item = parse_item(&value, &self.table);
                            return item.map(|item| Some((item, untyped))).inspect_err(|_| self.item = value);
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// Takes the first field off the buffer if it is complete.
    fn whole(&mut self, buf: &mut BytesMut, next: &Next) -> Result<Option<BytesMut>> {
        let len = usize::try_from(next.len).unwrap_or(usize::MAX);
        if len > self.max_item {
            self.item = buf.split_off(next.header.min(buf.len()));
            return Err(CodecError::TooLarge { limit: self.max_item });
        }
        if buf.len() - next.header < len {
            return Ok(None);
        }
        buf.advance(next.header);
        Ok(Some(buf.split_to(len)))
    }
}

/// Reads the header of the first field, if its tag and length are complete.
fn header(buf: &[u8]) -> Result<Option<Next>> {
    let Some((tag, tag_len)) = varint(buf)? else { return Ok(None) };
    let (number, wire_type) = split_tag(tag)?;
    // Lists and envelopes contain only strings and messages.
    if !has_length(wire_type) {
        return Err(CodecError::Invalid("wire type"));
    }
    let Some((len, len_len)) = varint(&buf[tag_len..])? else { return Ok(None) };
    Ok(Some(Next { number, header: tag_len + len_len, len }))
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
