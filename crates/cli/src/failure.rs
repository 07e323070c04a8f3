//! Why there is no answer, in words for people.

use std::io;

use tonic::{Code, Status};

/// Why there is no answer, in one line.
#[derive(Debug)]
pub(super) enum Failure {
    Said(String),
    /// The time is up.
    Late(String),
    /// The output is closed.
    Gone,
}

// === impl Failure ===

impl Failure {
    pub(super) fn of(status: &Status) -> Self {
        let message = status.message();
        Self::Said(match status.code() {
            Code::Unknown | Code::Internal | Code::Unavailable if message.is_empty() => "the call failed".to_owned(),
            _ => message.replace('\n', " "),
        })
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Gone,
            _ => Self::Said(format!("writing: {error}")),
        }
    }
}
