//! Kubernetes protobuf as the apiserver writes it, taken apart and put together by slicing.
//!
//! Only what reads need is known of the messages: ObjectMeta, the selectable fields, and what stands around objects.
//! What an object holds besides is kept as it came.

mod bookmark;
mod envelope;
mod fields;
mod form;
mod item;
mod list_decoder;
mod metadata;
mod owners;
mod status;
mod watch_decoder;
mod wire;
mod without;
mod write;

pub use bookmark::bookmark_frame;
pub use form::Form;
pub use item::parse_item;
pub use list_decoder::{ListDecoder, item_type};
pub use owners::has_owner;
pub use status::{error_frame, read_status, status_body};
pub use watch_decoder::WatchDecoder;
pub use without::Without;
pub use write::{event_frame, item_len, list_head, list_item, list_tail, object_bytes};

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;
