//! The command line for manual pages and completions.

use informerd_manual::CommandLine;

use super::clap;
use crate::config::Setting;

/// The command line, with the forms of the settings.
pub fn command_line() -> CommandLine {
    CommandLine { whole: clap(), form: |key| Setting::find(key).map(Setting::form) }
}

#[cfg(test)]
mod tests {
    use clap::ValueHint;
    use clap_complete::Shell;

    use super::*;
    use crate::config::SETTINGS;

    /// The values that are offered for a flag of a command; the empty name is informerd itself.
    fn offered(command: &str, id: &str) -> Vec<String> {
        let all = command_line().offering();
        let command = all.find_subcommand(command).unwrap_or(&all);
        let arg = command.get_arguments().find(|arg| arg.get_id() == id).unwrap();
        arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect()
    }

    #[test]
    fn words_are_offered_and_files_only_for_paths() {
        command_line().offering().debug_assert();
        assert_eq!(offered("", "log.format"), ["text", "json"]);
        assert_eq!(offered("run", "notSynced.then"), ["forward", "429"]);
        assert_eq!(offered("run", "consistentReads"), ["auto", "bounded", "upstream", "probe", "cache"]);
        assert_eq!(offered("run", "log.level"), ["off", "error", "warn", "info", "debug", "trace"]);
        assert_eq!(offered("get", "output"), ["json", "name", "key"]);
        assert_eq!(offered("watch", "output"), ["json", "name", "key"]);
        assert_eq!(offered("status", "output"), ["json"]);
        for open in
            ["access.log", "authentication.clientCa", "limits.memory", "limits.maxInformers", "admin", "kubeconfig"]
        {
            assert!(offered("", open).is_empty(), "{open}");
        }
        let all = command_line().offering();
        let hint = |id: &str| all.get_arguments().find(|arg| arg.get_id() == id).unwrap().get_value_hint();
        assert_eq!(hint("kubeconfig"), ValueHint::FilePath);
        assert_eq!(hint("access.log"), ValueHint::FilePath);
        assert_eq!(hint("stateDir"), ValueHint::DirPath);
        assert_eq!(hint("idleTimeout"), ValueHint::Other);
        let bash = String::from_utf8(command_line().completions(Shell::Bash)).unwrap();
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

    #[test]
    fn each_command_has_a_page_with_its_own_options() {
        let pages = command_line().pages().unwrap();
        let whole = clap();
        let shown = whole.get_subcommands().filter(|command| !command.is_hide_set());
        let names: Vec<_> = shown.map(|command| format!("informerd-{}", command.get_name())).collect();
        assert_eq!(
            pages.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            [vec!["informerd"], names.iter().map(String::as_str).collect()].concat()
        );
        for (name, page) in &pages {
            let text = String::from_utf8(page.clone()).unwrap();
            let title = format!(".TH {name} 1  \"informerd {}\" \"informerd manual\"", env!("CARGO_PKG_VERSION"));
            assert!(text.lines().any(|line| line == title), "{title}\n{text}");
            assert!(text.contains("\n.SH \"EXIT STATUS\"\n"), "{text}");
            // A setting is explained once.
            assert_eq!(text.contains(r"\-\-not\-synced\-wait\fR \fI"), name == "informerd", "{text}");
        }
        let text = |name: &str| {
            let mut out = Vec::new();
            assert!(command_line().print_page(Some(name), &mut out).unwrap());
            String::from_utf8(out).unwrap()
        };
        assert!(text("status").contains(r"\fB\-\-watch\fR"), "{}", text("status"));
        assert!(text("status").contains("\n.SH SETTINGS\n"));
        assert!(!text("completions").contains("\n.SH SETTINGS\n"));
        assert!(!command_line().print_page(Some("nothing"), &mut Vec::new()).unwrap());
    }
}
