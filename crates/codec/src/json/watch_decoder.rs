//! The decoder of watch frames in JSON, from a stream of chunks.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;

use crate::error::once;
use crate::lossy::lossy;
use crate::{CodecError, INITIAL_EVENTS_END, table};
use informerd_meta::{EventType, FieldTable, Object, ResourceVersion, Status};

use super::form::{Style, TypeMeta};
use super::framing::{ValueEnd, leading_spaces};
use super::item::compact;
use super::items::Items;
use super::scan::{Result, Scanner};

/// One event of a watch stream.
#[derive(Debug)]
pub enum WatchFrame {
    Event {
        kind: EventType,
        object: Object,
        type_meta: TypeMeta,
    },
    Bookmark {
        rv: ResourceVersion,
        /// Whether the bookmark has the annotation for the end of the initial events.
        initial_events_end: bool,
        /// The whole object, in its own allocation.
        object: Bytes,
        type_meta: TypeMeta,
    },
    /// The apiserver closes the stream after this frame.
    Error(Status),
}

/// Splits a watch stream into frames. Frames are consecutive JSON objects, usually one per line.
#[derive(Debug)]
pub(crate) struct WatchDecoder {
    items: Items,
    table: FieldTable,
    max_frame: usize,
    /// The column definitions of the last frame that had any.
    pub columns: Option<Bytes>,
    /// The search for the end of the current frame, if one has started.
    end: Option<ValueEnd>,
}

// === impl WatchDecoder ===

impl WatchDecoder {
    pub(crate) fn new(items: Items, max_frame: usize, table: FieldTable) -> Self {
        Self { items, table, max_frame, columns: None, end: None }
    }

    /// Takes the next complete frame from the front of the buffer, or returns `None` when more bytes are needed.
    pub(crate) fn next(&mut self, buf: &mut BytesMut) -> Result<Option<WatchFrame>> {
        if self.end.is_none() {
            let spaces = leading_spaces(buf);
            buf.advance(spaces);
            match buf.first() {
                None => return Ok(None),
                Some(b'{') => {}
                Some(_) => return Err(CodecError::Malformed { offset: 0, what: "expected a watch event" }),
            }
            // The usual case is one complete line that holds one frame. If the line does not parse, search for the
            // end of the frame below. The result of the search does not depend on how the bytes are split into
            // chunks.
            if let Some(newline) = memchr(b'\n', buf)
                && newline <= self.max_frame
                && let Ok(frame) = parse_frame(&buf[..newline], self.items, &self.table, &mut self.columns)
            {
                buf.advance(newline + 1);
                return Ok(Some(frame));
            }
        }
        let mut end = self.end.take().unwrap_or_default();
        let Some(len) = end.find(buf, self.max_frame)? else {
            self.end = Some(end);
            return Ok(None);
        };
        let frame = parse_frame(&buf[..len], self.items, &self.table, &mut self.columns)?;
        buf.advance(len);
        Ok(Some(frame))
    }
}

/// The values of the `type` member.
#[derive(Clone, Copy)]
enum FrameType {
    Event(EventType),
    Bookmark,
    Error,
}

fn parse_frame(bytes: &[u8], items: Items, fields: &FieldTable, columns: &mut Option<Bytes>) -> Result<WatchFrame> {
    let mut scanner = Scanner::new(bytes);
    let mut kind = None;
    let mut object = None;
    let mut event = None;
    scanner.skip_spaces();
    scanner.object(|scanner, key| {
        if key.is("type") {
            let text = scanner.string_or_null("type")?.ok_or(CodecError::Invalid("type"))?;
            return once(&mut kind, frame_type(&text.get())?, "type");
        }
        if !key.is("object") {
            return scanner.skip_value();
        }
        if object.is_some() {
            return Err(CodecError::Duplicate("object"));
        }
        let start = scanner.position();
        // The apiserver writes the type first, so one pass over the object is enough.
        if let (Some(FrameType::Event(_)), Items::Objects) = (kind, items) {
            event = Some(items.scan(scanner, fields)?);
        } else {
            scanner.skip_value()?;
        }
        object = Some(scanner.since(start));
        Ok(())
    })?;
    scanner.end()?;
    let kind = kind.ok_or(CodecError::Missing("type"))?;
    let mut object = object.ok_or(CodecError::Missing("object"))?;
    if items == Items::Rows && !matches!(kind, FrameType::Error) {
        let (named, row) = table::only_row(object)?;
        *columns = named.map(Bytes::copy_from_slice).or(columns.take());
        object = row;
    }
    match kind {
        FrameType::Event(kind) => {
            let (object, type_meta) = match event {
                Some(event) => event,
                None => items.parse(object, fields)?,
            };
            Ok(WatchFrame::Event { kind, object, type_meta })
        }
        FrameType::Bookmark if items == Items::Rows => row_bookmark(object),
        FrameType::Bookmark => parse_bookmark(object),
        FrameType::Error => match serde_json::from_str(&lossy(object)) {
            Ok(status) => Ok(WatchFrame::Error(status)),
            Err(error) => Err(CodecError::NotAStatus(error.to_string())),
        },
    }
}

fn frame_type(text: &str) -> Result<FrameType> {
    Ok(match text {
        "ADDED" => FrameType::Event(EventType::Added),
        "MODIFIED" => FrameType::Event(EventType::Modified),
        "DELETED" => FrameType::Event(EventType::Deleted),
        "BOOKMARK" => FrameType::Bookmark,
        "ERROR" => FrameType::Error,
        _ => return Err(CodecError::UnknownEventType(text.chars().take(64).collect())),
    })
}

/// Reads a bookmark of a table. The frame keeps the whole row.
fn row_bookmark(row: &[u8]) -> Result<WatchFrame> {
    let whole = Bytes::copy_from_slice(row);
    let (_, object, _) = table::split(&whole)?;
    let mut frame = parse_bookmark(&object)?;
    if let WatchFrame::Bookmark { object, .. } = &mut frame {
        *object = whole;
    }
    Ok(frame)
}

fn parse_bookmark(object: &[u8]) -> Result<WatchFrame> {
    let mut scanner = Scanner::new(object);
    let (mut rv, mut initial_events_end) = (None, false);
    let (mut kind, mut api_version): (Arc<str>, Arc<str>) = ("".into(), "".into());
    let (mut index, mut kind_first) = (0, false);
    scanner.object(|scanner, key| {
        if key.is("kind") {
            kind_first = index == 0;
            kind = scanner.string_or_null("kind")?.map_or(kind.clone(), |text| text.get().into());
        } else if key.is("apiVersion") {
            let text = scanner.string_or_null("apiVersion")?;
            api_version = text.map_or(api_version.clone(), |text| text.get().into());
        } else if key.is("metadata") {
            scanner.object(|scanner, key| {
                if key.is("resourceVersion") {
                    let text = scanner.string_or_null("metadata.resourceVersion")?;
                    rv = text.map(|text| text.get()).and_then(|text| ResourceVersion::parse(&text));
                    return Ok(());
                }
                if !key.is("annotations") || scanner.peek()? != b'{' {
                    return scanner.skip_value();
                }
                scanner.object(|scanner, key| {
                    if !key.is(INITIAL_EVENTS_END) {
                        return scanner.skip_value();
                    }
                    let text = scanner.string_or_null("metadata.annotations")?;
                    initial_events_end = text.is_some_and(|text| text.is("true"));
                    Ok(())
                })
            })?;
        } else {
            scanner.skip_value()?;
        }
        index += 1;
        Ok(())
    })?;
    let style = if kind_first { Style::Stripped } else { Style::Inline };
    Ok(WatchFrame::Bookmark {
        rv: rv.ok_or(CodecError::Invalid("metadata.resourceVersion of a bookmark"))?,
        initial_events_end,
        object: if scanner.saw_spaces() { compact(object).into() } else { Bytes::copy_from_slice(object) },
        type_meta: TypeMeta { style, api_version, kind },
    })
}
