//! What the server may ask of a connection, whatever its protocol.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

/// A connection that is being served.
pub(in crate::http) trait Serving: Future<Output = Result<(), <Self as Serving>::Error>> {
    type Error: fmt::Display + Send;

    /// Accepts no further requests, and ends when the running ones have ended.
    fn graceful_shutdown(self: Pin<&mut Self>);
}
