//! What is made from the definition of the command line: manual pages, and completions for shells.

mod completions;
mod man;

/// The command line of informerd.
#[derive(Clone, Debug)]
pub struct CommandLine {
    pub whole: clap::Command,
    /// The form of the value of a flag, by the id of the flag. `None`: the flag is none of a setting.
    pub form: Form,
}

/// A form is as a setting has it: `path`, or `text|json`.
pub type Form = fn(&str) -> Option<&'static str>;
