//! Request bodies.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full};

use crate::error::BoxError;

/// The body of a request to the apiserver.
pub type ReqBody = UnsyncBoxBody<Bytes, BoxError>;

/// An empty body.
pub fn empty() -> ReqBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A body that is complete.
pub fn full(bytes: impl Into<Bytes>) -> ReqBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}
