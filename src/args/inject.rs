//! The command lines of `informerd inject` and `informerd injector`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command as Clap};
use informerd_injection::Mode;

use super::headings::INJECTION;

/// The manifests to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectArgs {
    /// Read in this order; `-` is the standard input. Empty: the standard input.
    pub files: Vec<PathBuf>,
    /// The mode of pods without a label. `None`: they stay as they are.
    pub mode: Option<Mode>,
    /// The image of sidecars. `None`: that of this version, as README builds it.
    pub image: Option<String>,
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
        .arg(
            Arg::new("image")
                .long("image")
                .value_name("image")
                .value_parser(parse_image)
                .help("image of the sidecars [default: informerd:vVERSION]"),
        )
}

fn parse_image(text: &str) -> Result<String, String> {
    let valid = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    if valid { Ok(text.to_owned()) } else { Err(format!("{text:?} is no image")) }
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
    let mode = matches.get_one::<String>("mode").and_then(|text| Mode::find(text));
    InjectArgs { files, mode, image: matches.get_one::<String>("image").cloned() }
}

#[cfg(test)]
mod tests {
    use super::super::{Command, parse};
    use super::*;

    #[test]
    fn files_and_a_mode() {
        let parsed = |line: &str| parse(line.split(' ')).map(|invocation| invocation.command);
        let none = InjectArgs { files: Vec::new(), mode: None, image: None };
        assert_eq!(parsed("informerd inject").unwrap(), Command::Inject(none));
        let (files, mode, image) = (vec!["a".into(), "-".into()], Some(Mode::NodeAgent), Some("b".to_owned()));
        let some = Command::Inject(InjectArgs { files, mode, image });
        assert_eq!(parsed("informerd inject -f a -f - -m node-agent --image b").unwrap(), some);
        assert_eq!(parsed("informerd inject --image=").unwrap_err().code, 64);
        assert_eq!(parsed("informerd inject -m sidcar").unwrap_err().code, 64);
        assert_eq!(parsed("informerd injector --inject-listen 127.0.0.1:1").unwrap(), Command::Injector);
    }
}
