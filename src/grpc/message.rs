//! Messages of watches as bytes. An event is encoded once for all who are told of it, and its length is known with it. Small
//! parts are written into one buffer; large ones go to the transport as they are, shared.

use std::collections::VecDeque;
use std::io::Write as _;

use bytes::{BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use super::pb::v1;
use super::pb::v1::watch_response::Frame;

/// A part of at least this size is handed on as it is. Below, a copy costs less than one more frame of HTTP/2.
const SHARED: usize = 8 << 10;
/// What stands before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// The fields of the messages.
const RESUME_TOKEN: u32 = 1;
const RESOURCE_VERSION: u32 = 2;
const EVENTS: u32 = 4;
const EVENT: u32 = 1;
const OBJECT: u32 = 3;
const WATCH_ID: u32 = 1;
const RESPONSE: u32 = 2;

/// `v1::Event`, encoded. Cloning shares the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EncodedEvent {
    /// All but the object, and the object's length.
    head: Bytes,
    object: Bytes,
}

/// `v1::WatchResponse`.
#[derive(Debug)]
pub(super) struct WatchMessage {
    resume_token: Bytes,
    resource_version: String,
    content: Content,
    /// Bytes of the whole message.
    len: usize,
}

#[derive(Debug)]
pub(super) enum Content {
    Events(Vec<EncodedEvent>),
    Frame(Frame),
}

/// A message of a stream.
#[derive(Debug)]
pub(super) enum Message {
    Watch(WatchMessage),
    /// `v1::SyncResponse`.
    Sync(u64, WatchMessage),
}

/// Messages on their way to the transport.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    ready: VecDeque<Bytes>,
    small: BytesMut,
    len: usize,
}

// === impl EncodedEvent ===

impl EncodedEvent {
    pub(super) fn new(kind: v1::event::Type, key: v1::Key, partial: bool, object: Bytes) -> Self {
        let about = v1::Event { r#type: kind.into(), key: Some(key), object: Bytes::new(), partial };
        let mut head = BytesMut::with_capacity(about.encoded_len() + field_len(OBJECT, object.len()) - object.len());
        // The buffer grows as it must.
        about.encode_raw(&mut head);
        if !object.is_empty() {
            put_field(OBJECT, object.len(), &mut head);
        }
        Self { head: head.freeze(), object }
    }

    /// Bytes of the event.
    pub(super) fn len(&self) -> usize {
        self.head.len() + self.object.len()
    }

    #[cfg(test)]
    pub(super) fn is_shared_with(&self, other: &Self) -> bool {
        self.head.as_ptr() == other.head.as_ptr()
    }
}

// === impl WatchMessage ===

impl WatchMessage {
    pub(super) fn new(resume_token: Bytes, resource_version: String, content: Content) -> Self {
        let optional = |field, len| if len == 0 { 0 } else { field_len(field, len) };
        let len = optional(RESUME_TOKEN, resume_token.len())
            + optional(RESOURCE_VERSION, resource_version.len())
            + match &content {
                Content::Events(events) => field_len(EVENTS, events_len(events)),
                Content::Frame(frame) => frame.encoded_len(),
            };
        Self { resume_token, resource_version, content, len }
    }

    /// Bytes of the message.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn write(self, pieces: &mut Pieces) {
        for (field, value) in
            [(RESUME_TOKEN, &self.resume_token[..]), (RESOURCE_VERSION, self.resource_version.as_bytes())]
        {
            if !value.is_empty() {
                put_field(field, value.len(), &mut pieces.small);
                pieces.small.put_slice(value);
            }
        }
        match self.content {
            Content::Frame(frame) => frame.encode(&mut pieces.small),
            Content::Events(events) => {
                put_field(EVENTS, events_len(&events), &mut pieces.small);
                for event in events {
                    put_field(EVENT, event.len(), &mut pieces.small);
                    pieces.small.put_slice(&event.head);
                    pieces.put(event.object);
                }
            }
        }
    }
}

fn events_len(events: &[EncodedEvent]) -> usize {
    events.iter().map(|event| field_len(EVENT, event.len())).sum()
}

/// A field of so many bytes, with its head.
fn field_len(field: u32, len: usize) -> usize {
    key_len(field) + encoded_len_varint(len as u64) + len
}

fn put_field(field: u32, len: usize, buf: &mut BytesMut) {
    encode_key(field, WireType::LengthDelimited, buf);
    encode_varint(len as u64, buf);
}

// === impl Message ===

impl Message {
    /// Bytes of the message.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Watch(message) => message.len,
            Self::Sync(id, message) => id_len(*id) + field_len(RESPONSE, message.len),
        }
    }

    fn write(self, pieces: &mut Pieces) {
        match self {
            Self::Watch(message) => message.write(pieces),
            Self::Sync(id, message) => {
                if id != 0 {
                    encode_key(WATCH_ID, WireType::Varint, &mut pieces.small);
                    encode_varint(id, &mut pieces.small);
                }
                put_field(RESPONSE, message.len, &mut pieces.small);
                message.write(pieces);
            }
        }
    }
}

fn id_len(id: u64) -> usize {
    if id == 0 { 0 } else { key_len(WATCH_ID) + encoded_len_varint(id) }
}

// === impl Pieces ===

impl Pieces {
    /// Bytes of all of them.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a message.
    pub(super) fn push(&mut self, message: Message) {
        let len = message.len();
        self.len += PREFIX + len;
        self.small.reserve(PREFIX + len.min(SHARED));
        self.put_prefix(0, len);
        message.write(self);
    }

    /// The same, compressed.
    pub(super) fn push_gzip(&mut self, message: Message) -> std::io::Result<()> {
        let mut whole = Self::default();
        message.write(&mut whole);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        for piece in whole.finish() {
            encoder.write_all(&piece)?;
        }
        let compressed = encoder.finish()?;
        self.len += PREFIX + compressed.len();
        self.put_prefix(1, compressed.len());
        self.put(compressed.into());
        Ok(())
    }

    fn put_prefix(&mut self, flag: u8, len: usize) {
        self.small.put_u8(flag);
        // No message is larger than 4 GiB: no object is.
        self.small.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
    }

    fn put(&mut self, bytes: Bytes) {
        if bytes.len() < SHARED {
            return self.small.put_slice(&bytes);
        }
        self.cut();
        self.ready.push_back(bytes);
    }

    fn cut(&mut self) {
        if !self.small.is_empty() {
            self.ready.push_back(self.small.split().freeze());
        }
    }

    pub(super) fn finish(mut self) -> VecDeque<Bytes> {
        self.cut();
        self.ready
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
