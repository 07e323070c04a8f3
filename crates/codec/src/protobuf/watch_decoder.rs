//! The decoder of watch frames in protobuf, from a stream of chunks.

use bytes::{Buf, Bytes, BytesMut};

use crate::CodecError;
use crate::json::{Style, TypeMeta, WatchFrame};
use informerd_meta::{EventType, FieldTable};

use super::bookmark::read_bookmark;
use super::envelope::Envelope;
use super::item::parse_item;
use super::odd::named_in_frame;
use super::status::read_status;
use super::wire::{Fields, Result, once};

/// If a frame grew the buffer beyond this size in bytes, the buffer is freed after the frame.
const KEEP_CAPACITY: usize = 256 << 10;

/// The size in bytes of the length in front of a frame. The length is big-endian.
const LENGTH: usize = 4;

/// Splits a watch stream into frames. After an error every further call returns the same error.
#[derive(Debug)]
pub struct WatchDecoder {
    /// Begins with the current frame.
    buf: BytesMut,
    table: FieldTable,
    max_frame: usize,
    failed: Option<CodecError>,
}

// === impl WatchDecoder ===

impl WatchDecoder {
    /// `max_frame` limits the size in bytes of one frame. The decoder buffers at most that much plus one chunk.
    /// `table` lists the field values to extract from the objects.
    pub fn new(max_frame: usize, table: FieldTable) -> Self {
        Self { buf: BytesMut::new(), table, max_frame, failed: None }
    }

    /// Appends received bytes. Call [`Self::next`] until it returns `None` before the next push.
    #[expect(clippy::needless_pass_by_value, reason = "as the decoder of JSON takes it")]
    pub fn push(&mut self, chunk: Bytes) {
        self.buf.extend_from_slice(&chunk);
    }

    /// Returns the next complete frame, or `None` when more bytes are needed.
    #[expect(clippy::should_implement_trait, reason = "None is not the end")]
    pub fn next(&mut self) -> Result<Option<WatchFrame>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.decode().inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// The object that the decoder has failed at, as far as it can be read.
    pub fn odd_object(&self) -> Option<String> {
        self.failed.as_ref().and_then(|_| named_in_frame(self.buf.get(LENGTH..)?))
    }

    /// Whether the buffer holds bytes of an incomplete frame. If the stream ends now, it was truncated.
    pub fn has_partial(&self) -> bool {
        !self.buf.is_empty()
    }

    fn decode(&mut self) -> Result<Option<WatchFrame>> {
        let Some(length) = self.buf.first_chunk::<LENGTH>() else { return Ok(None) };
        let len = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if len > self.max_frame {
            return Err(CodecError::TooLarge { limit: self.max_frame });
        }
        let Some(event) = self.buf.get(LENGTH..LENGTH + len) else { return Ok(None) };
        let frame = parse_frame(event, &self.table)?;
        self.buf.advance(LENGTH + len);
        if self.buf.is_empty() && self.buf.capacity() > KEEP_CAPACITY {
            self.buf = BytesMut::new();
        }
        Ok(Some(frame))
    }
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
