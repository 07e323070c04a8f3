//! Decoders for list and watch responses, in any of the encodings that informerd requests.

use bytes::Bytes;

use informerd_meta::{Encoding, FieldTable, Object};

use super::json::{self, ListMeta, TypeMeta, WatchFrame};
use super::{CodecError, protobuf};

/// The decoder of a list body, which takes it in parts. After an error every further call returns the same error.
#[derive(Debug)]
pub enum ListDecoder {
    Json(Box<json::ListDecoder>),
    Protobuf(Box<protobuf::ListDecoder>),
}

/// The decoder of a watch stream: splits it into frames. After an error every further call returns the same error.
#[derive(Debug)]
pub enum WatchDecoder {
    Json(json::WatchDecoder),
    Protobuf(protobuf::WatchDecoder),
}

// === impl ListDecoder ===

impl ListDecoder {
    /// `max_item` limits the size in bytes of one item, and of anything outside the items. The decoder buffers at
    /// most that much plus one chunk. `table` lists the field values to extract from the items.
    pub fn new(encoding: Encoding, max_item: usize, table: FieldTable) -> Self {
        match encoding {
            Encoding::Json => Self::Json(Box::new(json::ListDecoder::new(max_item, table))),
            Encoding::Table => Self::Json(Box::new(json::ListDecoder::of_rows(max_item, table))),
            Encoding::Protobuf => Self::Protobuf(Box::new(protobuf::ListDecoder::new(max_item, table))),
        }
    }

    /// Appends received bytes. Call [`Self::next`] until it returns `None` before the next push.
    pub fn push(&mut self, chunk: Bytes) {
        match self {
            Self::Json(decoder) => decoder.push(chunk),
            Self::Protobuf(decoder) => decoder.push(chunk),
        }
    }

    /// Returns the next complete item, or `None` when more bytes are needed or the list is complete.
    #[expect(clippy::should_implement_trait, reason = "None is not the end")]
    pub fn next(&mut self) -> Result<Option<(Object, TypeMeta)>, CodecError> {
        match self {
            Self::Json(decoder) => decoder.next(),
            Self::Protobuf(decoder) => Ok(decoder.next()?.map(|object| (object, protobuf::item_type()))),
        }
    }

    /// The item that the decoder has failed at, as far as it can be read.
    pub fn odd_object(&self) -> Option<String> {
        match self {
            Self::Json(decoder) => decoder.odd_object(),
            Self::Protobuf(decoder) => decoder.odd_object(),
        }
    }

    /// Returns the list's own metadata. Call it at the end of the body.
    ///
    /// # Errors
    /// When the body is truncated, is not a list, has no resourceVersion, or still holds an item that was not taken.
    pub fn finish(self) -> Result<ListMeta, CodecError> {
        match self {
            Self::Json(decoder) => decoder.finish(),
            Self::Protobuf(decoder) => decoder.finish(),
        }
    }
}

// === impl WatchDecoder ===

impl WatchDecoder {
    /// `max_frame` limits the size in bytes of one frame. The decoder buffers at most that much plus one chunk.
    /// `table` lists the field values to extract from the objects.
    pub fn new(encoding: Encoding, max_frame: usize, table: FieldTable) -> Self {
        match encoding {
            Encoding::Json => Self::Json(json::WatchDecoder::new(max_frame, table)),
            Encoding::Table => Self::Json(json::WatchDecoder::of_rows(max_frame, table)),
            Encoding::Protobuf => Self::Protobuf(protobuf::WatchDecoder::new(max_frame, table)),
        }
    }

    /// Appends received bytes. Call [`Self::next`] until it returns `None` before the next push.
    pub fn push(&mut self, chunk: Bytes) {
        match self {
            Self::Json(decoder) => decoder.push(chunk),
            Self::Protobuf(decoder) => decoder.push(chunk),
        }
    }

    /// Returns the next complete frame, or `None` when more bytes are needed.
    #[expect(clippy::should_implement_trait, reason = "None is not the end")]
    pub fn next(&mut self) -> Result<Option<WatchFrame>, CodecError> {
        match self {
            Self::Json(decoder) => decoder.next(),
            Self::Protobuf(decoder) => decoder.next(),
        }
    }

    /// The object that the decoder has failed at, as far as it can be read.
    pub fn odd_object(&self) -> Option<String> {
        match self {
            Self::Json(decoder) => decoder.odd_object(),
            Self::Protobuf(decoder) => decoder.odd_object(),
        }
    }

    /// Returns the column definitions of a table that a frame carried since the last call.
    pub fn take_columns(&mut self) -> Option<Bytes> {
        match self {
            Self::Json(decoder) => decoder.take_columns(),
            Self::Protobuf(_) => None,
        }
    }

    /// Whether the buffer holds bytes of an incomplete frame. If the stream ends now, it was truncated.
    pub fn has_partial(&self) -> bool {
        match self {
            Self::Json(decoder) => decoder.has_partial(),
            Self::Protobuf(decoder) => decoder.has_partial(),
        }
    }
}
