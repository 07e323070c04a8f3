//! Decodes and writes Kubernetes protobuf as the apiserver writes it, by slicing the stored bytes.
//!
//! This module knows only the parts of the messages that reads need: ObjectMeta, the selectable fields, and the
//! framing around objects. All other parts of an object are kept as received.

mod bookmark;
mod envelope;
mod fields;
mod form;
mod item;
mod list_decoder;
mod metadata;
mod odd;
mod owners;
mod status;
mod watch_decoder;
mod wire;
mod without;
mod write;

pub use bookmark::bookmark_frame;
pub use form::Form;
pub use item::parse_item;
pub(crate) use list_decoder::ListDecoder;
pub(crate) use odd::named_in_frame;
pub use owners::has_owner;
pub use status::{error_frame, read_status, status_body};
pub(crate) use watch_decoder::next_frame;
pub use without::Without;
pub use write::{event_frame, item_len, list_head, list_item, list_tail, object_bytes};

#[cfg(test)]
mod odd_tests;
