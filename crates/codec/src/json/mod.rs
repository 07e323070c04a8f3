//! Decodes and writes Kubernetes JSON as the apiserver writes it, by slicing the stored bytes.

mod annotations;
mod bookmark;
mod fields;
mod form;
mod framing;
mod indent;
mod item;
mod items;
mod list;
mod list_decoder;
mod list_like;
mod metadata;
mod odd;
mod ordered;
mod outline;
mod owners;
mod prune;
mod scan;
mod status;
mod text;
mod watch_decoder;
mod write;

pub use bookmark::bookmark_frame;
pub(crate) use bookmark::bookmark_object;
pub use form::{Form, Style, TypeMeta};
pub(crate) use framing::leading_spaces;
pub use indent::Indenter;
pub(crate) use item::compact;
pub use item::parse_item;
pub(crate) use items::Items;
pub(crate) use list::push_list_meta;
pub use list::{list_head, list_item, list_tail};
pub use list_decoder::ListMeta;
pub(crate) use list_decoder::{ListDecoder, ListMetadata};
pub use list_like::is_list_like;
pub(crate) use odd::named;
pub use outline::Outline;
pub use owners::has_owner;
pub use prune::Prune;
pub(crate) use scan::Scanner;
pub use status::{error_frame, status_body};
pub(crate) use watch_decoder::WatchDecoder;
pub use watch_decoder::WatchFrame;
pub(crate) use write::inline_prefix;
pub use write::{event_frame, object_bytes};

#[cfg(test)]
mod decoder_tests;
#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod item_tests;
