//! Decodes the items of a list from a stream of chunks. It never holds the whole list.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};

use crate::CodecError;
use crate::error::once;
use informerd_meta::{FieldTable, Object, ResourceVersion};

use super::form::{Style, TypeMeta};
use super::framing::{ValueEnd, leading_spaces};
use super::items::Items;
use super::scan::{Result, Scanner};

/// The data of a list other than its items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListMeta {
    pub rv: ResourceVersion,
    /// Empty on the last page.
    pub continue_token: String,
    pub remaining_item_count: Option<i64>,
    pub list_kind: Arc<str>,
    pub api_version: Arc<str>,
    /// The style of the first item, or of the list itself if it has no items.
    pub style: Style,
    /// Whether the first item begins with its kind and apiVersion. `None` without items.
    pub typed_items: Option<bool>,
    /// The column definitions of a table.
    pub columns: Option<Bytes>,
}

/// Decodes a list body incrementally. Members may come in any order. What is not decoded yet is in a buffer, which
/// begins with the token that `state` expects.
#[derive(Debug)]
pub(crate) struct ListDecoder {
    items: Items,
    table: FieldTable,
    max_item: usize,
    state: State,
    /// The search for the end of the current item or value, if one has started.
    end: Option<ValueEnd>,
    head: Head,
}

/// What the decoder expects next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Start,
    FirstKey,
    Key,
    Colon(Member),
    Value(Member),
    FirstItem,
    Item,
    AfterItem,
    AfterValue,
    /// Only whitespace may follow.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Kind,
    ApiVersion,
    Metadata,
    Items,
    Columns,
    Other,
}

/// What was found so far in the list's own members.
#[derive(Debug, Default)]
struct Head {
    list_kind: Option<Arc<str>>,
    api_version: Option<Arc<str>>,
    metadata: Option<ListMetadata>,
    columns: Option<Bytes>,
    items: bool,
    /// The first member is `kind`, so the list was written from a Go struct.
    kind_first: bool,
    item_style: Option<Style>,
    typed_items: Option<bool>,
}

#[derive(Debug, Default)]
pub(crate) struct ListMetadata {
    pub rv: Option<ResourceVersion>,
    pub continue_token: String,
    pub remaining_item_count: Option<i64>,
}

// === impl ListDecoder ===

impl ListDecoder {
    /// `max_item` limits the size in bytes of one item, and of any member outside the items.
    pub(crate) fn new(items: Items, max_item: usize, table: FieldTable) -> Self {
        Self { items, table, max_item, state: State::Start, end: None, head: Head::default() }
    }

    /// Returns the list's own metadata.
    pub(crate) fn finish(self) -> Result<ListMeta> {
        if self.state != State::End {
            return Err(CodecError::Truncated);
        }
        if !self.head.items {
            return Err(CodecError::Missing(self.items.member()));
        }
        let metadata = self.head.metadata.ok_or(CodecError::Missing("metadata"))?;
        let style = if self.head.kind_first { Style::Stripped } else { Style::Inline };
        Ok(ListMeta {
            rv: metadata.rv.ok_or(CodecError::Missing("metadata.resourceVersion"))?,
            continue_token: metadata.continue_token,
            remaining_item_count: metadata.remaining_item_count,
            list_kind: self.head.list_kind.ok_or(CodecError::Missing("kind"))?,
            api_version: self.head.api_version.ok_or(CodecError::Missing("apiVersion"))?,
            style: self.head.item_style.unwrap_or(style),
            typed_items: self.head.typed_items,
            columns: self.head.columns,
        })
    }

    /// Takes the next complete item from the front of the buffer, or returns `None` when more bytes are needed or the
    /// list is complete.
    pub(crate) fn next(&mut self, buf: &mut BytesMut) -> Result<Option<(Object, TypeMeta)>> {
        loop {
            if self.end.is_none() {
                let spaces = leading_spaces(buf);
                buf.advance(spaces);
            }
            let Some(&byte) = buf.first() else { return Ok(None) };
            self.state = match (self.state, byte) {
                (State::Start, b'{') => step(buf, State::FirstKey),
                (State::FirstKey, b'}') | (State::AfterValue, b'}') => step(buf, State::End),
                (State::FirstKey | State::Key, b'"') => {
                    let Some(len) = self.find_end(buf)? else { return Ok(None) };
                    let member = Member::of(&buf[..len], self.items)?;
                    self.head.kind_first |= self.state == State::FirstKey && member == Member::Kind;
                    buf.advance(len);
                    State::Colon(member)
                }
                (State::Colon(member), b':') => step(buf, State::Value(member)),
                (State::Value(Member::Items), b'[') => {
                    self.head.items()?;
                    step(buf, State::FirstItem)
                }
                (State::Value(member), _) => {
                    let Some(len) = self.find_end(buf)? else { return Ok(None) };
                    self.head.member(member, &buf[..len])?;
                    buf.advance(len);
                    State::AfterValue
                }
                (State::FirstItem | State::AfterItem, b']') => step(buf, State::AfterValue),
                (State::FirstItem | State::Item, _) => {
                    let Some(item) = self.item(buf)? else { return Ok(None) };
                    self.state = State::AfterItem;
                    self.head.item_style.get_or_insert(item.1.style);
                    let is_typed = item.1.style == Style::Stripped && !item.1.kind.is_empty();
                    self.head.typed_items.get_or_insert(is_typed);
                    return Ok(Some(item));
                }
                (State::AfterItem, b',') => step(buf, State::Item),
                (State::AfterValue, b',') => step(buf, State::Key),
                (State::End, _) => return malformed("bytes after the list"),
                (State::Start, _) => return malformed("expected a list"),
                (State::FirstKey | State::Key, _) => return malformed("expected a member"),
                (State::Colon(_), _) => return malformed("expected a colon"),
                (State::AfterItem | State::AfterValue, _) => return malformed("expected a comma or an end"),
            };
        }
    }

    fn find_end(&mut self, buf: &[u8]) -> Result<Option<usize>> {
        let mut end = self.end.take().unwrap_or_default();
        let len = end.find(buf, self.max_item)?;
        if len.is_none() {
            self.end = Some(end);
        }
        Ok(len)
    }

    fn item(&mut self, buf: &mut BytesMut) -> Result<Option<(Object, TypeMeta)>> {
        // Most items are complete in the buffer, so try to parse directly. If that fails, search for the end of the
        // item. The result of the search does not depend on how the bytes are split into chunks.
        if self.end.is_none() {
            let mut scanner = Scanner::new(buf);
            if let Ok(item) = self.items.scan(&mut scanner, &self.table)
                && scanner.position() <= self.max_item
            {
                let len = scanner.position();
                buf.advance(len);
                return Ok(Some(item));
            }
        }
        let Some(len) = self.find_end(buf)? else { return Ok(None) };
        let item = self.items.parse(&buf[..len], &self.table)?;
        buf.advance(len);
        Ok(Some(item))
    }
}

/// Skips one byte.
fn step(buf: &mut BytesMut, next: State) -> State {
    buf.advance(1);
    next
}

fn malformed<T>(what: &'static str) -> Result<T> {
    Err(CodecError::Malformed { offset: 0, what })
}

// === impl Member ===

impl Member {
    fn of(key: &[u8], items: Items) -> Result<Self> {
        let key = Scanner::whole(key, Scanner::string)?;
        let known = [
            ("kind", Self::Kind),
            ("apiVersion", Self::ApiVersion),
            ("metadata", Self::Metadata),
            (items.member(), Self::Items),
            ("columnDefinitions", Self::Columns),
        ];
        Ok(known.iter().find(|(name, _)| key.is(name)).map_or(Self::Other, |(_, member)| *member))
    }
}

// === impl Head ===

impl Head {
    fn items(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.items, true) { Err(CodecError::Duplicate("items")) } else { Ok(()) }
    }

    fn member(&mut self, member: Member, value: &[u8]) -> Result<()> {
        let mut scanner = Scanner::new(value);
        let text = |scanner: &mut Scanner<'_>, name| {
            let text = scanner.string_or_null(name)?.ok_or(CodecError::Invalid(name))?;
            Ok::<_, CodecError>(Arc::from(text.get()))
        };
        match member {
            Member::Kind => once(&mut self.list_kind, text(&mut scanner, "kind")?, "kind")?,
            Member::ApiVersion => once(&mut self.api_version, text(&mut scanner, "apiVersion")?, "apiVersion")?,
            Member::Metadata => once(&mut self.metadata, ListMetadata::scan(&mut scanner)?, "metadata")?,
            Member::Items => {
                // Go writes null for an empty list of some types.
                scanner.literal(b"null")?;
                self.items()?;
            }
            Member::Columns => {
                scanner.skip_value()?;
                self.columns = Some(Bytes::copy_from_slice(value)).filter(|value| value.first() == Some(&b'['));
            }
            Member::Other => scanner.skip_value()?,
        }
        scanner.end()
    }
}

// === impl ListMetadata ===

impl ListMetadata {
    fn scan(scanner: &mut Scanner<'_>) -> Result<Self> {
        let mut found = Self::default();
        scanner.object(|scanner, key| {
            if key.is("resourceVersion") {
                if let Some(text) = scanner.string_or_null("metadata.resourceVersion")? {
                    let rv = ResourceVersion::parse(&text.get());
                    found.rv = Some(rv.ok_or(CodecError::Invalid("metadata.resourceVersion"))?);
                }
                Ok(())
            } else if key.is("continue") {
                if let Some(text) = scanner.string_or_null("metadata.continue")? {
                    found.continue_token = text.get().into_owned();
                }
                Ok(())
            } else if key.is("remainingItemCount") {
                if scanner.peek()? == b'n' {
                    return scanner.literal(b"null");
                }
                let number = std::str::from_utf8(scanner.number()?).ok().and_then(|number| number.parse().ok());
                found.remaining_item_count = Some(number.ok_or(CodecError::Invalid("metadata.remainingItemCount"))?);
                Ok(())
            } else {
                scanner.skip_value()
            }
        })?;
        Ok(found)
    }
}
