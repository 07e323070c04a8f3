//! The frames of a watch, and the objects in them.

use bytes::Bytes;
use informerd::codec::Shape;
use informerd::meta::Encoding;
use memchr::{memchr, memmem};
use prost::Message as _;

use crate::support::proto::WatchEvent;
use crate::vectors::{Type, accept};

/// A watch of one type, as the apiserver's own code writes it.
pub(super) struct Frames {
    /// One for each object, in the order of their keys.
    pub(super) events: Vec<Bytes>,
    pub(super) bookmark: Bytes,
    /// The bookmark at the end of the state.
    pub(super) end: Bytes,
}

impl Frames {
    pub(super) fn of(of: &Type, encoding: Encoding, shape: Shape) -> Self {
        let stream = of.answer(&format!("{}?watch=1", of.collection), &accept(encoding, shape, ""));
        let mut events = split(encoding, stream);
        let [bookmark, end, _error] = events.last_chunk::<3>().unwrap().clone();
        events.truncate(events.len() - 3);
        Self { events, bookmark, end }
    }
}

fn split(encoding: Encoding, stream: &Bytes) -> Vec<Bytes> {
    let (mut rest, mut frames) = (stream.clone(), Vec::new());
    while !rest.is_empty() {
        let length = match encoding {
            Encoding::Protobuf => 4 + u32::from_be_bytes(*rest.first_chunk().unwrap()) as usize,
            Encoding::Json | Encoding::Table => memchr(b'\n', &rest).unwrap() + 1,
        };
        frames.push(rest.split_to(length));
    }
    frames
}

/// The event as that of a new object.
pub(super) fn added(encoding: Encoding, event: &[u8]) -> Vec<u8> {
    match encoding {
        Encoding::Protobuf => {
            let mut event = WatchEvent::decode(&event[4..]).unwrap();
            event.kind = "ADDED".to_owned();
            let event = event.encode_to_vec();
            [&u32::try_from(event.len()).unwrap().to_be_bytes()[..], &event].concat()
        }
        Encoding::Json | Encoding::Table => {
            [&b"{\"type\":\"ADDED\",\"object\":"[..], &event[object_at(event)..]].concat()
        }
    }
}

/// The object in an event. In JSON, the body of a get has a newline after it.
pub(super) fn object_of(encoding: Encoding, event: &[u8]) -> Vec<u8> {
    match encoding {
        Encoding::Protobuf => WatchEvent::decode(&event[4..]).unwrap().object(),
        Encoding::Json | Encoding::Table => event[object_at(event)..].strip_suffix(b"}\n").unwrap().to_vec(),
    }
}

/// The type stands before it.
fn object_at(event: &[u8]) -> usize {
    const NAME: &[u8] = b",\"object\":";
    memmem::find(event, NAME).unwrap() + NAME.len()
}
