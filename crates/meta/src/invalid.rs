//! The error of options that informerd leaves to the apiserver.

/// The apiserver rejects the request or interprets it in its own way. The request is left to the apiserver, which
/// also writes its own error messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid;
