use std::fmt;

use tonic::Code;

/// Trying again does not help against it.
#[derive(thiserror::Error)]
pub enum Error {
    /// An address, a file or a resource that makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// informerd refuses it for good, such as a misspelt resource.
    #[error("informerd at {address}, {what}: {code:?}: {message}{}", hint(reason))]
    Refused {
        address: String,
        what: String,
        code: Code,
        message: String,
        /// Of informerd's `ErrorInfo`, such as `UNKNOWN_RESOURCE`.
        reason: String,
    },
    /// An object that is not of the type that was asked for.
    #[error("{what}, {key}: {source}")]
    Decode {
        what: String,
        /// `namespace/name`, or `name`.
        key: String,
        source: serde_json::Error,
    },
    /// The [`Feed`](crate::Feed) of a cache has ended before the cache had everything.
    #[error("the cache has not synced: {0}")]
    NotSynced(String),
}

/// The same as `Display`: it is what a program prints whose `main` returns the error.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn hint(reason: &str) -> &'static str {
    if reason == "UNKNOWN_RESOURCE" {
        " (is it spelt as in `kubectl api-resources`: group, version, and the plural name in lower case?)"
    } else {
        ""
    }
}
