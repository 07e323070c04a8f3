//! Bytes in, bytes out: framing, partial parsing and writing of Kubernetes encodings. No I/O.
//!
//! Objects are never parsed into trees and never re-encoded: [`json::parse_item`] walks one once, keeps its bytes and the
//! few attributes that reads need, and every answer is a sequence of shared slices around those bytes.

mod error;
mod form;
mod format;
pub mod json;
pub mod negotiate;
mod slices;

pub use error::CodecError;
pub use form::{Form, ListMetaOut, Shape};
pub use format::Format;
pub use slices::Slices;
