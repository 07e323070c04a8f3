//! Decodes watch frames in protobuf from a stream of chunks.

use bytes::{Buf, Bytes, BytesMut};

use crate::CodecError;
use crate::error::once;
use crate::json::{Style, TypeMeta, WatchFrame};
use informerd_meta::{EventType, FieldTable};

use super::bookmark::read_bookmark;
use super::envelope::Envelope;
use super::item::parse_item;
use super::status::read_status;
use super::wire::{Fields, Result};

/// The size in bytes of the length in front of a frame. The length is big-endian.
pub(super) const LENGTH: usize = 4;

/// Takes the next complete frame from the front of the buffer, or returns `None` when more bytes are needed.
pub(crate) fn next_frame(buf: &mut BytesMut, max_frame: usize, table: &FieldTable) -> Result<Option<WatchFrame>> {
    let Some(length) = buf.first_chunk::<LENGTH>() else { return Ok(None) };
    let len = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if len > max_frame {
        return Err(CodecError::TooLarge { limit: max_frame });
    }
    let Some(event) = buf.get(LENGTH..LENGTH + len) else { return Ok(None) };
    let frame = parse_frame(event, table)?;
    buf.advance(LENGTH + len);
    Ok(Some(frame))
}

/// Parses a `WatchEvent`: the type, and a `RawExtension` that contains the envelope of the object.
fn parse_frame(event: &[u8], table: &FieldTable) -> Result<WatchFrame> {
    let (mut kind, mut object) = (None, None);
    let mut fields = Fields::new(event);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => once(&mut kind, field.value.text("type")?, "type")?,
            2 => {
                let mut extension = Fields::new(field.value.bytes("object")?);
                while let Some(field) = extension.next()? {
                    if field.number == 1 {
                        once(&mut object, field.value.bytes("object")?, "object")?;
                    }
                }
            }
            _ => {}
        }
    }
    let kind = kind.ok_or(CodecError::Missing("type"))?;
    let object = object.ok_or(CodecError::Missing("object"))?;
    let kind = match kind {
        "ADDED" => EventType::Added,
        "MODIFIED" => EventType::Modified,
        "DELETED" => EventType::Deleted,
        "BOOKMARK" => return parse_bookmark(object),
        "ERROR" => return read_status(object).map(WatchFrame::Error),
        _ => return Err(CodecError::UnknownEventType(kind.chars().take(64).collect())),
    };
    let envelope = Envelope::read(object)?;
    let type_meta = envelope.type_meta();
    Ok(WatchFrame::Event { kind, object: parse_item(envelope.message, table)?, type_meta })
}

fn parse_bookmark(object: &[u8]) -> Result<WatchFrame> {
    let envelope = Envelope::read(object)?;
    let (rv, initial_events_end) = read_bookmark(envelope.message)?;
    let type_meta = envelope.type_meta();
    Ok(WatchFrame::Bookmark { rv, initial_events_end, object: Bytes::copy_from_slice(envelope.message), type_meta })
}

// === impl Envelope ===

impl Envelope<'_> {
    fn type_meta(&self) -> TypeMeta {
        TypeMeta { style: Style::Stripped, api_version: self.api_version.into(), kind: self.kind.into() }
    }
}
