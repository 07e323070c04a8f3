//! Framing, partial parsing and writing of the Kubernetes encodings. This module does no I/O.
//!
//! Objects are never parsed into trees and never encoded again. [`json::parse_item`] scans an object once and keeps
//! its bytes and the few attributes that reads need. Every response is a sequence of shared slices around those
//! bytes.

mod decode;
mod error;
mod form;
mod format;
pub mod json;
mod lossy;
pub mod negotiate;
mod owners;
pub mod protobuf;
mod shape;
mod slices;
pub mod table;
mod unshown;

pub use decode::{ListDecoder, WatchDecoder};
pub use error::CodecError;
pub use form::Form;
pub use format::Format;
pub(crate) use lossy::odd_name;
pub use owners::has_owner;
pub use shape::{ListMetaOut, Shape};
pub use slices::Slices;

/// The annotation of the bookmark that ends the initial events of a watch (KEP-3157). Its value is "true".
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
