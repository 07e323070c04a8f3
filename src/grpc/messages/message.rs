//! Encodes the messages of watches. An event is encoded once for all watches that send it, and its length is stored
//! with it. Small parts are copied into one buffer; large parts are passed to the transport as shared bytes.

use std::io::Write as _;
use std::sync::{Arc, OnceLock};

use bytes::{BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use smallvec::{SmallVec, smallvec};

use super::token::TokenBase;
use crate::codec::Slices;
use crate::grpc::pb::v1;
use crate::grpc::pb::v1::watch_response::Frame;
use crate::memory::Reservation;
use crate::meta::ResourceVersion;

/// The minimum size in bytes of a part that is shared. Below it, a copy costs less than another HTTP/2 frame.
const SHARED: usize = 8 << 10;
/// The length of the prefix of each message: the compression flag and the message length.
const PREFIX: usize = 5;

/// The field numbers of the messages.
const RESUME_TOKEN: u32 = 1;
const RESOURCE_VERSION: u32 = 2;
const EVENTS: u32 = 4;
const EVENT: u32 = 1;
const OBJECT: u32 = 3;
const WATCH_ID: u32 = 1;
const RESPONSE: u32 = 2;

/// An encoded `v1::Event`. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub(in crate::grpc) struct EncodedEvent(Arc<Encoded>);

#[derive(Debug)]
struct Encoded {
    /// Everything except the object, including the object's length.
    head: Bytes,
    object: Bytes,
    single: OnceLock<Single>,
}

/// The message that contains only one event, as the first watch that sends it has encoded it.
#[derive(Debug)]
struct Single {
    tokens: TokenBase,
    complete: ResourceVersion,
    /// Includes the prefix.
    bytes: Bytes,
}

/// `v1::WatchResponse`.
#[derive(Debug)]
pub(in crate::grpc) struct WatchMessage {
    resume_token: Bytes,
    resource_version: String,
    content: Content,
    /// The length of the whole message in bytes.
    len: usize,
    /// The memory of a large message, until the transport has sent it.
    room: Option<Box<Reservation>>,
}

/// Most messages of a live watch have one event.
pub(in crate::grpc) type Events = SmallVec<[EncodedEvent; 2]>;

#[derive(Debug)]
pub(in crate::grpc) enum Content {
    Events(Events),
    /// Boxed, because it is larger than events are, and rare.
    Frame(Box<Frame>),
    /// The whole message, with its prefix.
    Encoded(Bytes),
}

/// A message of a stream.
#[derive(Debug)]
pub(in crate::grpc) enum Message {
    Watch(WatchMessage),
    /// `v1::SyncResponse`.
    Sync(u64, WatchMessage),
}

/// Messages that are ready for the transport.
#[derive(Debug, Default)]
pub(in crate::grpc) struct Pieces {
    ready: Slices,
    small: BytesMut,
    len: usize,
    /// The memory of the large messages among them.
    rooms: Vec<Reservation>,
}

// === impl EncodedEvent ===

impl EncodedEvent {
    pub(super) fn new(kind: v1::event::Type, key: v1::Key, partial: bool, object: Bytes) -> Self {
        let about = v1::Event { r#type: kind.into(), key: Some(key), object: Bytes::new(), partial };
        let mut head = BytesMut::with_capacity(about.encoded_len() + field_len(OBJECT, object.len()) - object.len());
        // `encode_raw` grows the buffer if necessary, so it cannot fail.
        about.encode_raw(&mut head);
        if !object.is_empty() {
            put_field(OBJECT, object.len(), &mut head);
        }
        Self(Arc::new(Encoded { head: head.freeze(), object, single: OnceLock::new() }))
    }

    /// The length of the event in bytes.
    pub(in crate::grpc) fn len(&self) -> usize {
        self.0.head.len() + self.0.object.len()
    }

    /// The memory in bytes that the event may hold.
    pub(super) fn held(&self) -> usize {
        let len = self.len();
        if len < SHARED { 2 * len } else { len }
    }

    /// The same event in memory of its own.
    pub(super) fn copied(&self) -> Self {
        let Encoded { head, object, .. } = &*self.0;
        let [head, object] = [head, object].map(|part| Bytes::copy_from_slice(part));
        Self(Arc::new(Encoded { head, object, single: OnceLock::new() }))
    }

    /// The message that contains only this event. All watches with the same tokens that have delivered the same
    /// changes share it, unless it is large.
    fn single(&self, tokens: TokenBase, complete: ResourceVersion) -> Option<Bytes> {
        if self.len() >= SHARED {
            return None;
        }
        let single = self.0.single.get_or_init(|| {
            let content = Content::Events(smallvec![self.clone()]);
            let mut pieces = Pieces::default();
            pieces.push(Message::Watch(WatchMessage::encode(tokens, complete, content)));
            Single { tokens, complete, bytes: pieces.small.freeze() }
        });
        (single.tokens == tokens && single.complete == complete).then(|| single.bytes.clone())
    }

    #[cfg(test)]
    pub(super) fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    #[cfg(test)]
    pub(super) fn has_bytes_of(&self, other: &Self) -> bool {
        (&self.0.head, &self.0.object) == (&other.0.head, &other.0.object)
    }
}

// === impl WatchMessage ===

impl WatchMessage {
    /// A message to a client that has all changes up to `complete` once it has this message.
    pub(in crate::grpc) fn at(tokens: TokenBase, complete: ResourceVersion, content: Content) -> Self {
        if let Content::Events(events) = &content
            && let [event] = &events[..]
            && let Some(bytes) = event.single(tokens, complete)
        {
            let len = bytes.len() - PREFIX;
            let content = Content::Encoded(bytes);
            return Self { resume_token: Bytes::new(), resource_version: String::new(), content, len, room: None };
        }
        Self::encode(tokens, complete, content)
    }

    fn encode(tokens: TokenBase, complete: ResourceVersion, content: Content) -> Self {
        let resource_version = if complete.is_zero() { String::new() } else { complete.to_string() };
        Self::new(tokens.at(complete), resource_version, content)
    }

    pub(in crate::grpc) fn new(resume_token: Bytes, resource_version: String, content: Content) -> Self {
        let optional = |field, len| if len == 0 { 0 } else { field_len(field, len) };
        let len = optional(RESUME_TOKEN, resume_token.len())
            + optional(RESOURCE_VERSION, resource_version.len())
            + match &content {
                Content::Events(events) => field_len(EVENTS, events_len(events)),
                Content::Frame(frame) => frame.encoded_len(),
                Content::Encoded(bytes) => bytes.len() - PREFIX,
            };
        Self { resume_token, resource_version, content, len, room: None }
    }

    /// The same message. It holds its memory.
    pub(in crate::grpc) fn within(self, room: Option<Box<Reservation>>) -> Self {
        Self { room, ..self }
    }

    /// The length of the message in bytes.
    pub(in crate::grpc) fn len(&self) -> usize {
        self.len
    }

    fn write(self, pieces: &mut Pieces) {
        pieces.rooms.extend(self.room.map(|room| *room));
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
            Content::Encoded(bytes) => pieces.small.put_slice(&bytes[PREFIX..]),
            Content::Events(events) => {
                put_field(EVENTS, events_len(&events), &mut pieces.small);
                for event in events {
                    put_field(EVENT, event.len(), &mut pieces.small);
                    pieces.small.put_slice(&event.0.head);
                    pieces.put(event.0.object.clone());
                }
            }
        }
    }
}

fn events_len(events: &[EncodedEvent]) -> usize {
    events.iter().map(|event| field_len(EVENT, event.len())).sum()
}

/// The length of a field with `len` bytes, including its key and length prefix.
fn field_len(field: u32, len: usize) -> usize {
    key_len(field) + encoded_len_varint(len as u64) + len
}

fn put_field(field: u32, len: usize, buf: &mut BytesMut) {
    encode_key(field, WireType::LengthDelimited, buf);
    encode_varint(len as u64, buf);
}

impl From<Frame> for Content {
    fn from(frame: Frame) -> Self {
        Self::Frame(Box::new(frame))
    }
}

// === impl Message ===

impl Message {
    /// The whole message with its prefix, if it was encoded before.
    pub(super) fn encoded(self) -> Result<Bytes, Self> {
        match self {
            Self::Watch(WatchMessage { content: Content::Encoded(bytes), .. }) => Ok(bytes),
            other => Err(other),
        }
    }

    /// The length of the message in bytes.
    pub(in crate::grpc) fn len(&self) -> usize {
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
    /// The total length in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a message.
    pub(in crate::grpc) fn push(&mut self, message: Message) {
        let len = message.len();
        self.len += PREFIX + len;
        // Messages after the first are joined: a copy costs less than another HTTP/2 frame.
        let message = match message.encoded() {
            Ok(bytes) if self.len == PREFIX + len => return self.ready.push(bytes),
            Ok(bytes) => return self.put(bytes),
            Err(message) => message,
        };
        self.small.reserve(PREFIX + len.min(SHARED));
        self.put_prefix(0, len);
        message.write(self);
    }

    /// Adds a message, compressed with gzip.
    pub(super) fn push_gzip(&mut self, message: Message) -> std::io::Result<()> {
        let mut whole = Self::default();
        message.write(&mut whole);
        self.rooms.append(&mut whole.rooms);
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
        // No object is larger than 4 GiB, so no message is.
        self.small.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
    }

    /// Adds a part of a message, or one that is encoded.
    fn put(&mut self, bytes: Bytes) {
        if bytes.len() < SHARED {
            return self.small.put_slice(&bytes);
        }
        self.cut();
        self.ready.push(bytes);
    }

    fn cut(&mut self) {
        if !self.small.is_empty() {
            self.ready.push(self.small.split().freeze());
        }
    }

    pub(in crate::grpc) fn finish(mut self) -> Slices {
        self.cut();
        if !self.rooms.is_empty() {
            self.ready.hold(self.rooms);
        }
        self.ready
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
