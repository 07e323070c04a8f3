//! What shells offer as values of flags.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command as Clap, ValueHint};
use clap_complete::Shell;

use super::clap;
use crate::config::Setting;

/// Forms that a value may have besides the words that it is chosen from.
const OPEN_FORMS: [&str; 5] = ["path", "size", "percentage", "N", "count"];
const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];
/// The settings with the path of a directory.
const DIRECTORIES: [&str; 4] = ["stateDir", "dropInDir", "snapshots.dir", "directory"];
/// The values of `--output` of `get` and `watch`.
const OUTPUTS: &[&str] = &["json", "name", "key"];

/// The script for a shell.
pub fn completions(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut offering(clap()), "informerd", &mut text);
    text
}

/// The same command line, with the values that are known. Command lines are not parsed with it: clap would refuse the
/// first wrong value, and all mistakes are to be reported at once.
fn offering(command: Clap) -> Clap {
    command.mut_args(offer).mut_subcommands(offering)
}

fn offer(arg: Arg) -> Arg {
    if !arg.get_action().takes_values() || !arg.get_possible_values().is_empty() {
        return arg;
    }
    let values = known_values(&arg);
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
fn known_values(arg: &Arg) -> Vec<&'static str> {
    let id = arg.get_id().as_str();
    let Some(setting) = Setting::find(id) else {
        return if id == "output" { OUTPUTS.to_vec() } else { Vec::new() };
    };
    let words: Vec<_> = setting.form().split('|').filter(|word| !word.contains('=')).collect();
    let is_closed = words.len() > 1 && !words.iter().any(|word| OPEN_FORMS.contains(word));
    match id {
        "log.level" => LEVELS.to_vec(),
        _ if is_closed => words,
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SETTINGS;

    /// The values that are offered for a flag of a command; the empty name is informerd itself.
    fn offered(command: &str, id: &str) -> Vec<String> {
        let all = offering(clap());
        let command = all.find_subcommand(command).unwrap_or(&all);
        let arg = command.get_arguments().find(|arg| arg.get_id() == id).unwrap();
        arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect()
    }

    #[test]
    fn words_are_offered_and_files_only_for_paths() {
        offering(clap()).debug_assert();
        assert_eq!(offered("", "log.format"), ["text", "json"]);
        assert_eq!(offered("run", "notSynced.then"), ["forward", "429"]);
        assert_eq!(offered("run", "consistentReads"), ["auto", "bounded", "upstream", "probe", "cache"]);
        assert_eq!(offered("run", "log.level"), LEVELS);
        assert_eq!(offered("get", "output"), OUTPUTS);
        assert_eq!(offered("watch", "output"), OUTPUTS);
        assert_eq!(offered("status", "output"), ["json"]);
        for open in
            ["access.log", "authentication.clientCa", "limits.memory", "limits.maxInformers", "admin", "kubeconfig"]
        {
            assert!(offered("", open).is_empty(), "{open}");
        }
        let all = offering(clap());
        let hint = |id: &str| all.get_arguments().find(|arg| arg.get_id() == id).unwrap().get_value_hint();
        assert_eq!(hint("kubeconfig"), ValueHint::FilePath);
        assert_eq!(hint("access.log"), ValueHint::FilePath);
        assert_eq!(hint("stateDir"), ValueHint::DirPath);
        assert_eq!(hint("idleTimeout"), ValueHint::Other);
        let bash = String::from_utf8(completions(Shell::Bash)).unwrap();
        assert!(bash.contains("COMPREPLY=($(compgen -W \"text json\" -- \"${cur}\"))"), "{bash}");
    }

    #[test]
    fn what_is_offered_is_accepted() {
        use crate::config::{Environment, Flags, load};
        for setting in SETTINGS {
            for word in offered("", setting.key) {
                let flags = Flags::from([(setting.key, vec![word.clone()])]);
                let loaded = load(&flags, &Environment);
                assert!(loaded.is_ok(), "{} {word}: {:?}", setting.key, loaded.err());
            }
        }
    }
}
