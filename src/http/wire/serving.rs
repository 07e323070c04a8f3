//! What the server may ask of a connection, whatever its protocol.

use std::future::Future;
use std::pin::Pin;

use crate::http::answer::BoxError;

/// A connection that is being served.
pub(in crate::http) trait Serving: Future<Output = Result<(), BoxError>> {
    /// Accepts no further requests, and ends when the running ones have ended.
    fn graceful_shutdown(self: Pin<&mut Self>);
}
