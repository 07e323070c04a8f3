//! The events of a watch in protobuf.

use prost::Message;

use super::streams::Event;
use super::support::proto::{Envelope, Metadata, WatchEvent};

/// A watch event: type, and the envelope of an object.
pub(crate) fn event(frame: &[u8]) -> Option<Event> {
    let event = WatchEvent::decode(frame).ok()?;
    let kind = event.kind.clone();
    let envelope = Envelope::open(&event.object())?;
    let meta = if envelope.is_status() { Metadata::default() } else { envelope.metadata().unwrap_or_default() };
    Some(Event {
        bytes: frame.to_vec(),
        kind,
        key: meta.key(),
        rv: meta.resource_version.parse().unwrap_or(0),
        marks_end: meta.has_annotation(b"k8s.io/initial-events-end", b"true"),
    })
}
