//! The command lines of `informerd inject` and `informerd injector`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command as Clap};

use super::headings::INJECTION;
use crate::injection::Mode;

/// The manifests to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectArgs {
    /// Read in this order; `-` is the standard input. Empty: the standard input.
    pub files: Vec<PathBuf>,
    /// The mode of pods without a label. `None`: they stay as they are.
    pub mode: Option<Mode>,
}

pub(super) fn command() -> Clap {
    Clap::new("inject")
        .about("Configure pods in manifests to use informerd, and print the manifests")
        .arg(
            Arg::new("filename")
                .long("filename")
                .short('f')
                .value_name("path")
                .value_parser(clap::value_parser!(PathBuf))
                .action(ArgAction::Append)
                .help("a file with manifests, - for the standard input [default: -]; may be repeated"),
        )
        .arg(
            Arg::new("mode")
                .long("mode")
                .short('m')
                .value_name("mode")
                .value_parser(Mode::ALL.map(Mode::as_str))
                .help("mode for pods without the label informerd.io/inject; if omitted, they are not changed"),
        )
}

pub(super) fn injector() -> Clap {
    Clap::new("injector").about("Serve the admission webhook that configures labelled pods to use informerd")
}

/// The short help of `inject` has the settings for it alone.
pub(super) fn shown(flag: Arg) -> Arg {
    let is_other = flag.get_help_heading() != Some(INJECTION);
    flag.hide_short_help(is_other)
}

pub(super) fn arguments(matches: &ArgMatches) -> InjectArgs {
    let files = matches.get_many::<PathBuf>("filename").into_iter().flatten().cloned().collect();
    InjectArgs { files, mode: matches.get_one::<String>("mode").and_then(|text| Mode::find(text)) }
}

#[cfg(test)]
mod tests {
    use super::super::{Command, parse};
    use super::*;

    #[test]
    fn files_and_a_mode() {
        let parsed = |line: &str| parse(line.split(' ')).map(|invocation| invocation.command);
        let none = InjectArgs { files: Vec::new(), mode: None };
        assert_eq!(parsed("informerd inject").unwrap(), Command::Inject(none));
        let some = InjectArgs { files: vec!["a".into(), "-".into()], mode: Some(Mode::NodeAgent) };
        assert_eq!(parsed("informerd inject -f a -f - -m node-agent").unwrap(), Command::Inject(some));
        assert_eq!(parsed("informerd inject -m sidcar").unwrap_err().code, 64);
        assert_eq!(parsed("informerd injector --inject-listen 127.0.0.1:1").unwrap(), Command::Injector);
    }
}
