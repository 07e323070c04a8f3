//! What shells offer as values of flags.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, ValueHint};
use clap_complete::Shell;

use super::{CommandLine, Form};

/// Forms that a value may have besides the words that it is chosen from.
const OPEN_FORMS: [&str; 5] = ["path", "size", "percentage", "N", "count"];
const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];
/// The settings with the path of a directory.
const DIRECTORIES: [&str; 4] = ["stateDir", "dropInDir", "snapshots.dir", "directory"];
/// The values of `--output` of `get` and `watch`.
const OUTPUTS: &[&str] = &["json", "name", "key"];

// === impl CommandLine ===

impl CommandLine {
    /// The script for a shell.
    pub fn completions(&self, shell: Shell) -> Vec<u8> {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut self.offering(), "informerd", &mut text);
        text
    }

    /// The same command line, with the values that are known. Command lines are not parsed with it: clap would refuse the
    /// first wrong value, and all mistakes are to be reported at once.
    pub fn offering(&self) -> Command {
        offering(self.whole.clone(), self.form)
    }
}

fn offering(command: Command, form: Form) -> Command {
    command.mut_args(|arg| offer(arg, form)).mut_subcommands(|command| offering(command, form))
}

fn offer(arg: Arg, form: Form) -> Arg {
    if !arg.get_action().takes_values() || !arg.get_possible_values().is_empty() {
        return arg;
    }
    let values = known_values(&arg, form);
    if !values.is_empty() {
        return arg.value_parser(PossibleValuesParser::new(values));
    }
    let is_directory = DIRECTORIES.contains(&arg.get_id().as_str());
    let takes_path =
        arg.get_value_names().is_some_and(|names| names.iter().any(|name| name.split('|').any(|form| form == "path")));
    arg.value_hint(match takes_path {
        true if is_directory => ValueHint::DirPath,
        true => ValueHint::FilePath,
        // Without a hint, shells offer files.
        false => ValueHint::Other,
    })
}

/// All words that the value may be, but for those with a part of their own (`bounded=DURATION`). Empty if others are
/// allowed.
fn known_values(arg: &Arg, form: Form) -> Vec<&'static str> {
    let id = arg.get_id().as_str();
    let Some(form) = form(id) else {
        return if id == "output" { OUTPUTS.to_vec() } else { Vec::new() };
    };
    let words: Vec<_> = form.split('|').filter(|word| !word.contains('=')).collect();
    let is_closed = words.len() > 1 && !words.iter().any(|word| OPEN_FORMS.contains(word));
    match id {
        "log.level" => LEVELS.to_vec(),
        _ if is_closed => words,
        _ => Vec::new(),
    }
}
