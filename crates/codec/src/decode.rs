//! Decoders for list and watch responses, in any of the encodings that informerd requests.

use bytes::{Bytes, BytesMut};

use informerd_meta::{Encoding, FieldTable, Object};

use super::json::{self, Items, ListMeta, TypeMeta, WatchFrame};
use super::{CodecError, protobuf};

/// If a frame grew the buffer beyond this size in bytes, the buffer is freed after the frame.
const KEEP_CAPACITY: usize = 256 << 10;

/// The decoder of a list body, which takes it in parts and never holds the whole list. After an error every further
/// call returns the same error. What is decoded depends only on the bytes, not on how they are split into chunks.
#[derive(Debug)]
pub struct ListDecoder {
    /// The bytes that are not decoded yet.
    buf: BytesMut,
    items: ListItems,
    failed: Option<CodecError>,
}

#[derive(Debug)]
enum ListItems {
    Json(Box<json::ListDecoder>),
    Protobuf(Box<protobuf::ListDecoder>),
}

/// The decoder of a watch stream: splits it into frames. After an error every further call returns the same error.
/// The frames depend only on the bytes, not on how they are split into chunks.
#[derive(Debug)]
pub struct WatchDecoder {
    /// Begins with the current frame, or with the whitespace before it.
    buf: BytesMut,
    frames: Frames,
    failed: Option<CodecError>,
}

#[derive(Debug)]
enum Frames {
    Json(json::WatchDecoder),
    Protobuf { max_frame: usize, table: FieldTable },
}

// === impl ListDecoder ===

impl ListDecoder {
    /// `max_item` limits the size in bytes of one item, and of anything outside the items. The decoder buffers at
    /// most that much plus one chunk. `table` lists the field values to extract from the items.
    pub fn new(encoding: Encoding, max_item: usize, table: FieldTable) -> Self {
        let items = match encoding {
            Encoding::Json => ListItems::Json(Box::new(json::ListDecoder::new(Items::Objects, max_item, table))),
            Encoding::Table => ListItems::Json(Box::new(json::ListDecoder::new(Items::Rows, max_item, table))),
            Encoding::Protobuf => ListItems::Protobuf(Box::new(protobuf::ListDecoder::new(max_item, table))),
        };
        Self { buf: BytesMut::new(), items, failed: None }
    }

    /// Appends received bytes. Call [`Self::next`] until it returns `None` before the next push.
    #[expect(clippy::needless_pass_by_value, reason = "callers have a chunk to give away, and it may be kept one day")]
    pub fn push(&mut self, chunk: Bytes) {
        self.buf.extend_from_slice(&chunk);
    }

    /// Returns the next complete item, or `None` when more bytes are needed or the list is complete.
    #[expect(clippy::should_implement_trait, reason = "None is not the end")]
    pub fn next(&mut self) -> Result<Option<(Object, TypeMeta)>, CodecError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let item = match &mut self.items {
            ListItems::Json(decoder) => decoder.next(&mut self.buf),
            ListItems::Protobuf(decoder) => decoder.next(&mut self.buf),
        };
        item.inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// The item that the decoder has failed at, as far as it can be read.
    pub fn odd_object(&self) -> Option<String> {
        self.failed.as_ref()?;
        match &self.items {
            ListItems::Json(_) => json::named(&self.buf),
            ListItems::Protobuf(decoder) => decoder.odd_object(),
        }
    }

    /// Returns the list's own metadata. Call it at the end of the body.
    ///
    /// # Errors
    /// When the body is truncated, is not a list, has no resourceVersion, or still holds an item that was not taken.
    pub fn finish(mut self) -> Result<ListMeta, CodecError> {
        if self.next()?.is_some() || !self.buf.is_empty() {
            return Err(CodecError::Truncated);
        }
        match self.items {
            ListItems::Json(decoder) => decoder.finish(),
            ListItems::Protobuf(decoder) => decoder.finish(),
        }
    }
}

// === impl WatchDecoder ===

impl WatchDecoder {
    /// `max_frame` limits the size in bytes of one frame. The decoder buffers at most that much plus one chunk.
    /// `table` lists the field values to extract from the objects.
    pub fn new(encoding: Encoding, max_frame: usize, table: FieldTable) -> Self {
        let frames = match encoding {
            Encoding::Json => Frames::Json(json::WatchDecoder::new(Items::Objects, max_frame, table)),
            Encoding::Table => Frames::Json(json::WatchDecoder::new(Items::Rows, max_frame, table)),
            Encoding::Protobuf => Frames::Protobuf { max_frame, table },
        };
        Self { buf: BytesMut::new(), frames, failed: None }
    }

    /// Appends received bytes. Call [`Self::next`] until it returns `None` before the next push.
    #[expect(clippy::needless_pass_by_value, reason = "as in a list")]
    pub fn push(&mut self, chunk: Bytes) {
        self.buf.extend_from_slice(&chunk);
    }

    /// Returns the next complete frame, or `None` when more bytes are needed.
    #[expect(clippy::should_implement_trait, reason = "None is not the end")]
    pub fn next(&mut self) -> Result<Option<WatchFrame>, CodecError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let frame = match &mut self.frames {
            Frames::Json(decoder) => decoder.next(&mut self.buf),
            Frames::Protobuf { max_frame, table } => protobuf::next_frame(&mut self.buf, *max_frame, table),
        };
        if self.buf.is_empty() && self.buf.capacity() > KEEP_CAPACITY {
            self.buf = BytesMut::new();
        }
        frame.inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// The object that the decoder has failed at, as far as it can be read.
    pub fn odd_object(&self) -> Option<String> {
        self.failed.as_ref()?;
        match &self.frames {
            Frames::Json(_) => json::named(&self.buf),
            Frames::Protobuf { .. } => protobuf::named_in_frame(&self.buf),
        }
    }

    /// Returns the column definitions of a table that a frame carried since the last call. The first frame of a stream
    /// carries them.
    pub fn take_columns(&mut self) -> Option<Bytes> {
        match &mut self.frames {
            Frames::Json(decoder) => decoder.columns.take(),
            Frames::Protobuf { .. } => None,
        }
    }

    /// Whether the buffer holds bytes of an incomplete frame. If the stream ends now, it was truncated.
    pub fn has_partial(&self) -> bool {
        match &self.frames {
            Frames::Json(_) => json::leading_spaces(&self.buf) < self.buf.len(),
            Frames::Protobuf { .. } => !self.buf.is_empty(),
        }
    }
}
