//! What can be wrong with bytes of a Kubernetes API.

use thiserror::Error;

/// Bytes that are not what they should be. All of these come from the sender of the bytes; none is worth a retry on
/// the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CodecError {
    /// The input ends inside a value.
    #[error("input ends inside a value")]
    Truncated,
    /// Not the grammar. The offset counts from the start of the item or frame.
    #[error("malformed JSON at byte {offset}: {what}")]
    Malformed { offset: usize, what: &'static str },
    #[error("not UTF-8")]
    NotUtf8,
    /// A frame, an item or a member outside the items is longer than the bound, in bytes.
    #[error("larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("nested deeper than {limit}")]
    TooDeep { limit: usize },
    /// A member that every object, list or frame of its kind carries.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A member which must be unique to be unambiguous occurs twice.
    #[error("{0} occurs twice")]
    Duplicate(&'static str),
    /// A member of the wrong type or with an impossible value.
    #[error("{0} is invalid")]
    Invalid(&'static str),
    /// A watch event of a type that is none of ADDED, MODIFIED, DELETED, BOOKMARK, ERROR.
    #[error("unknown watch event type {0:?}")]
    UnknownEventType(String),
    /// The object of an ERROR event is not a Status.
    #[error("error event without a status: {0}")]
    NotAStatus(String),
}
