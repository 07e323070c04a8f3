//! The end of a process that does not run: help was requested, or the command line is wrong.

use crate::config::{Mistake, Mistakes};

/// The exit code for bad configuration, which includes the command line (`EX_USAGE`).
pub const EXIT_USAGE: u8 = 64;

/// The process exits without running: help was requested, or the command line is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    pub code: u8,
    pub text: String,
}

/// # Errors
/// The mistakes, if there are any.
pub(super) fn fail(mistakes: Vec<Mistake>) -> Result<(), Exit> {
    if mistakes.is_empty() {
        return Ok(());
    }
    Err(Exit { code: EXIT_USAGE, text: format!("{}\n", Mistakes(mistakes)) })
}
