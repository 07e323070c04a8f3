//! Whether bytes are read for an answer.

/// What bytes are read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// For an answer. What is read again and again stays plain.
    Answer,
    /// For anything else, which says nothing about what is read next.
    Upkeep,
}
