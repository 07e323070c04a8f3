//! The messages: from the types of the caches to those of the API, and their encoded form.

pub(super) mod convert;
mod message;
mod message_body;
pub(super) mod render;
mod select;
mod shared_events;
mod token;

#[cfg(test)]
pub(super) use message::Pieces;
pub(super) use message::{Content, Events, Message, WatchMessage};
pub(super) use message_body::{Elsewhere, Messages};
pub(super) use render::Rendering;
pub(super) use select::{Selected, select};
pub(super) use shared_events::{SharedEvents, SharedGroup};
pub use token::TokenBase;
