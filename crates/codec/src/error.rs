//! Errors in bytes received from a Kubernetes API.

use thiserror::Error;

/// The bytes are not what the protocol requires. The sender of the bytes causes all of these errors. Decoding the
/// same bytes again fails again, so a retry needs new bytes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CodecError {
    /// The input ends in the middle of a value.
    #[error("input ends inside a value")]
    Truncated,
    /// The input violates the JSON grammar. The offset counts from the start of the item or frame.
    #[error("malformed JSON at byte {offset}: {what}")]
    Malformed { offset: usize, what: &'static str },
    #[error("not UTF-8")]
    NotUtf8,
    /// A frame, an item or a member outside the items is longer than the limit, in bytes.
    #[error("larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("nested deeper than {limit}")]
    TooDeep { limit: usize },
    /// A member is missing that every object, list or frame of its kind has.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A member occurs twice that must be unique, because its meaning would be ambiguous.
    #[error("{0} occurs twice")]
    Duplicate(&'static str),
    /// A member has the wrong type or an impossible value.
    #[error("{0} is invalid")]
    Invalid(&'static str),
    /// A watch event has a type other than ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.
    #[error("unknown watch event type {0:?}")]
    UnknownEventType(String),
    /// The object of an ERROR event is not a Status.
    #[error("error event without a status: {0}")]
    NotAStatus(String),
}

/// Sets a slot that may be set only once.
///
/// # Errors
/// When it is already set.
pub(crate) fn once<T>(slot: &mut Option<T>, value: T, name: &'static str) -> Result<(), CodecError> {
    if slot.replace(value).is_some() { Err(CodecError::Duplicate(name)) } else { Ok(()) }
}
