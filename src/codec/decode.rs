//! Reading lists and watches in whichever encoding they were asked for.

use bytes::Bytes;

use crate::meta::{Encoding, FieldTable, Object};

use super::json::{self, ListMeta, TypeMeta, WatchFrame};
use super::{CodecError, protobuf};

/// Takes a list body apart as it arrives. After an error every call gives that error.
#[derive(Debug)]
pub enum ListDecoder {
    Json(Box<json::ListDecoder>),
    Protobuf(Box<protobuf::ListDecoder>),
}

/// Cuts a watch stream into frames. After an error every call gives that error.
#[derive(Debug)]
pub enum WatchDecoder {
    Json(json::WatchDecoder),
    Protobuf(protobuf::WatchDecoder),
}

// === impl ListDecoder ===

impl ListDecoder {
    /// `max_item` bounds one item, and anything outside the items, in bytes; at most that much plus one chunk is
    /// buffered. `table` says which field values to take from the items.
    pub fn new(encoding: Encoding, max_item: usize, table: FieldTable) -> Self {
        match encoding {
            Encoding::Json => Self::Json(Box::new(json::ListDecoder::new(max_item, table))),
            Encoding::Table => Self::Json(Box::new(json::ListDecoder::of_rows(max_item, table))),
            Encoding::Protobuf => Self::Protobuf(Box::new(protobuf::ListDecoder::new(max_item, table))),
        }
    }

    /// Adds bytes as they arrived. [`Self::next`] is to be called until it gives nothing before the next push.
    pub fn push(&mut self, chunk: Bytes) {
        match self {
            Self::Json(decoder) => decoder.push(chunk),
            Self::Protobuf(decoder) => decoder.push(chunk),
        }
    }

    /// The next whole item; `None` when more bytes are needed, or the list is complete.
    #[expect(clippy::should_implement_trait, reason = "None is not the end")]
    pub fn next(&mut self) -> Result<Option<(Object, TypeMeta)>, CodecError> {
        match self {
            Self::Json(decoder) => decoder.next(),
            Self::Protobuf(decoder) => Ok(decoder.next()?.map(|object| (object, protobuf::item_type()))),
        }
    }

    /// What the list said of itself, at the end of the body.
    ///
    /// # Errors
    /// When the body was cut, is no list or has no resourceVersion, or an item was left in it.
    pub fn finish(self) -> Result<ListMeta, CodecError> {
        match self {
            Self::Json(decoder) => decoder.finish(),
            Self::Protobuf(decoder) => decoder.finish(),
        }
    }
}

// === impl WatchDecoder ===

impl WatchDecoder {
    /// `max_frame` bounds one frame, in bytes; at most that much plus one chunk is buffered. `table` says which field
    /// values to take from the objects.
    pub fn new(encoding: Encoding, max_frame: usize, table: FieldTable) -> Self {
        match encoding {
            Encoding::Json => Self::Json(json::WatchDecoder::new(max_frame, table)),
            Encoding::Table => Self::Json(json::WatchDecoder::of_rows(max_frame, table)),
            Encoding::Protobuf => Self::Protobuf(protobuf::WatchDecoder::new(max_frame, table)),
        }
    }

    /// Adds bytes as they arrived. [`Self::next`] is to be called until it gives nothing before the next push.
    pub fn push(&mut self, chunk: Bytes) {
        match self {
            Self::Json(decoder) => decoder.push(chunk),
            Self::Protobuf(decoder) => decoder.push(chunk),
        }
    }

    /// The next whole frame; `None` when more bytes are needed.
    #[expect(clippy::should_implement_trait, reason = "None is not the end")]
    pub fn next(&mut self) -> Result<Option<WatchFrame>, CodecError> {
        match self {
            Self::Json(decoder) => decoder.next(),
            Self::Protobuf(decoder) => decoder.next(),
        }
    }

    /// The columns of a table that a frame named since the last call.
    pub fn take_columns(&mut self) -> Option<Bytes> {
        match self {
            Self::Json(decoder) => decoder.take_columns(),
            Self::Protobuf(_) => None,
        }
    }

    /// Bytes of an unfinished frame are there: a stream that ends now was cut.
    pub fn has_partial(&self) -> bool {
        match self {
            Self::Json(decoder) => decoder.has_partial(),
            Self::Protobuf(decoder) => decoder.has_partial(),
        }
    }
}
