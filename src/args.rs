//! The command line: subcommands, and one flag for each setting of the configuration.

mod demo;
mod exit;
mod explain;
mod headings;
mod inject;
mod look;
mod manual;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command as Clap};
use clap_complete::Shell;
use informerd_cli::Ask;

pub use demo::DemoArgs;
use demo::NOT_IN_DEMO;
use exit::fail;
pub use exit::{EXIT_USAGE, Exit};
pub use explain::Explained;
pub use inject::InjectArgs;
pub use manual::command_line;

use crate::config::{Flags, Kind, Mistake, Origin, Removed, SETTINGS, Setting};

/// The command, and the settings from the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    pub command: Command,
    pub flags: Flags,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Run,
    Demo(DemoArgs),
    /// Print a kubeconfig for the local endpoint, or write it to this file without merging.
    Kubeconfig {
        write: Option<PathBuf>,
    },
    Check,
    /// Answer the apiserver's admission webhook.
    Injector,
    /// Change manifests.
    Inject(InjectArgs),
    Status(StatusArgs),
    /// Show what a running daemon would do with a request.
    Explain(Explained),
    /// Print objects of a running daemon's cache.
    Get(Ask),
    /// Print the objects, and then every change.
    Watch(Ask),
    Version,
    /// Print a script that completes command lines in this shell.
    Completions(Shell),
    /// Print the manual page of informerd or of one of its commands, or write all of them into this directory.
    Man {
        command: Option<String>,
        directory: Option<PathBuf>,
    },
}

/// How the status is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatusArgs {
    /// Every second, until it is interrupted.
    pub watch: bool,
    /// As the daemon sends it.
    pub json: bool,
}

/// The settings of the short help (`-h`); `--help` has all of them.
const FIRST: [&str; 8] =
    ["config", "kubeconfig", "context", "listen", "admin", "resources", "snapshots.dir", "limits.memory"];

const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// Parses the command line. The first argument is the program's name.
///
/// # Errors
/// Help or version text to print (code 0), or an error (code 64).
pub fn parse(arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Result<Invocation, Exit> {
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    let matches = clap().try_get_matches_from(&arguments).map_err(|error| refused(arguments, error))?;
    let mut flags = Flags::new();
    collect(&matches, &mut flags);
    let command = match matches.subcommand() {
        None => Command::Run,
        Some((name, matches)) => {
            collect(matches, &mut flags);
            match name {
                "demo" => Command::Demo(demo::demo_args(matches)?),
                "kubeconfig" => Command::Kubeconfig { write: matches.get_one::<PathBuf>("write").cloned() },
                "check" => Command::Check,
                "injector" => Command::Injector,
                "inject" => Command::Inject(inject::arguments(matches)),
                "status" => Command::Status(StatusArgs {
                    watch: matches.get_flag("watch"),
                    json: matches.get_one::<String>("output").is_some(),
                }),
                "completions" => Command::Completions(shell(matches)),
                "man" => Command::Man {
                    command: matches.get_one::<String>("command").cloned(),
                    directory: matches.get_one::<PathBuf>("directory").cloned(),
                },
                "explain" => Command::Explain(explain::explained(matches)?),
                "get" => Command::Get(look::ask(matches)?),
                "watch" => Command::Watch(look::ask(matches)?),
                "version" => Command::Version,
                _ => Command::Run,
            }
        }
    };
    if let Command::Demo(_) = command {
        let wrong = NOT_IN_DEMO.iter().filter(|key| flags.contains_key(**key)).map(|key| {
            Mistake::new(Origin::Flag(format!("--{key}")), "the demo has its own apiserver and reads no kubeconfig")
        });
        fail(wrong.collect())?;
    }
    Ok(Invocation { command, flags })
}

/// The complete command line, for the help, and for the test that compares it with the documentation.
pub fn clap() -> Clap {
    let flags =
        |but: &'static [&'static str]| SETTINGS.iter().filter(move |setting| !but.contains(&setting.key)).map(flag);
    Clap::new("informerd")
        .version(env!("CARGO_PKG_VERSION"))
        .about("One shared informer per Kubernetes resource: serves get, list and watch to many clients")
        .after_help(
            "Every flag can also be set in the environment (INFORMERD_...) and in the file of --config; \
             see docs/configuration.md.",
        )
        .subcommand_value_name("COMMAND")
        .max_term_width(110)
        .args(flags(&[]))
        .subcommand(Clap::new("run").about("Serve clients (the default without a command)").args(flags(&[])))
        .subcommand(demo::command().args(flags(NOT_IN_DEMO).map(|flag| flag.hide_short_help(true))))
        .subcommand(
            Clap::new("kubeconfig")
                .about("Print a kubeconfig for the local endpoint")
                .arg(
                    Arg::new("write")
                        .long("write")
                        .value_name("path")
                        .value_parser(clap::value_parser!(PathBuf))
                        .help("write it to this file (mode 0600) instead of standard output"),
                )
                .args(flags(&[])),
        )
        .subcommand(
            Clap::new("check")
                .about("Validate the settings, connect to the apiserver and show what the daemon's identity may list and watch")
                .args(flags(&[])),
        )
        .subcommand(
            Clap::new("status")
                .about("Show the state of the daemon that runs on this machine")
                .arg(
                    Arg::new("watch")
                        .long("watch")
                        .short('w')
                        .action(ArgAction::SetTrue)
                        .conflicts_with("output")
                        .help("repeat every second, until Ctrl-C"),
                )
                .arg(
                    Arg::new("output")
                        .long("output")
                        .short('o')
                        .value_name("json")
                        .value_parser(["json"])
                        .help("json: everything, as the daemon sends it"),
                )
                .args(flags(&[]).map(|flag| flag.hide_short_help(true))),
        )
        .subcommand(inject::injector().args(flags(&[])))
        .subcommand(inject::command().args(flags(&[]).map(inject::shown)))
        .subcommand(explain::command().args(flags(&[]).map(|flag| flag.hide_short_help(true))))
        .subcommand(look::command("get", "Print the objects of a resource from the cache of a running informerd"))
        .subcommand(look::command(
            "watch",
            "Print the objects of a resource from the cache of a running informerd, and then every change",
        ))
        .subcommand(
            Clap::new("completions")
                .about("Print a script that completes command lines in a shell")
                .arg(Arg::new("shell").required(true).value_parser(SHELLS).help("the shell")),
        )
        .subcommand(
            Clap::new("man")
                .about("Print a manual page, for man -l")
                .arg(Arg::new("command").value_name("COMMAND").help("the command; if omitted, informerd itself"))
                .arg(
                    Arg::new("directory")
                        .long("directory")
                        .value_name("path")
                        .value_parser(clap::value_parser!(PathBuf))
                        .conflicts_with("command")
                        .help("write all pages into this directory instead"),
                ),
        )
        .subcommand(Clap::new("version").about("Print the version, the commit and the target"))
}

fn shell(matches: &ArgMatches) -> Shell {
    matches.get_one::<String>("shell").and_then(|name| name.parse().ok()).unwrap_or(Shell::Bash)
}

fn flag(setting: &'static Setting) -> Arg {
    let mut help = setting.help.to_owned();
    if !setting.default.is_empty() {
        help = format!("{help} [default: {}]", setting.default);
    }
    let action = if matches!(setting.kind, Kind::Many(_)) { ArgAction::Append } else { ArgAction::Set };
    let help = if matches!(setting.kind, Kind::Many(_)) { format!("{help}; may be repeated") } else { help };
    Arg::new(setting.key)
        .long(setting.flag())
        .value_name(setting.form())
        .help(help)
        .hide_short_help(!FIRST.contains(&setting.key))
        .action(action)
        .help_heading(headings::heading(setting.key))
}

/// Settings may come before or after the subcommand. The later one wins.
fn collect(matches: &ArgMatches, flags: &mut Flags) {
    for setting in SETTINGS {
        if let Ok(Some(texts)) = matches.try_get_many::<String>(setting.key) {
            flags.insert(setting.key, texts.cloned().collect());
        }
    }
}

/// The errors of the command line. clap stops at the first unknown flag. So each unknown flag is removed and the rest
/// is parsed again, until all of them are found.
fn refused(mut arguments: Vec<OsString>, mut first: clap::Error) -> Exit {
    if matches!(first.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Exit { code: 0, text: first.to_string() };
    }
    let mut unknown = unknown_flag(&first);
    explain_removed(&mut first);
    let mut text = first.to_string();
    while let Some(flag) = unknown.take() {
        let is_it = |argument: &OsString| argument.to_str().and_then(|text| text.split('=').next()) == Some(&*flag);
        let Some(at) = arguments.iter().position(is_it) else { break };
        arguments.remove(at);
        // The next argument may be the flag's value or something else. Only another unknown flag is certainly an error.
        let Err(error) = clap().try_get_matches_from(&arguments) else { break };
        let is_value = arguments.get(at).and_then(|next| next.to_str()).is_some_and(|next| !next.starts_with('-'));
        let next = match unknown_flag(&error) {
            None if is_value => {
                arguments.remove(at);
                clap().try_get_matches_from(&arguments).err().filter(|error| unknown_flag(error).is_some())
            }
            None => None,
            Some(_) => Some(error),
        };
        let Some(mut error) = next else { break };
        unknown = unknown_flag(&error);
        explain_removed(&mut error);
        let told = error.to_string();
        let (mistake, usage) = told.split_once("\n\nUsage").unwrap_or((&told, ""));
        let before = text.split_once("\n\nUsage").map_or(&*text, |(before, _)| before);
        text = format!("{before}\n{mistake}\n\nUsage{usage}");
    }
    Exit { code: EXIT_USAGE, text }
}

/// Says what became of a flag that earlier versions had, in place of the flag that is spelled most like it.
fn explain_removed(error: &mut clap::Error) {
    if let Some(removed) = unknown_flag(error).and_then(|flag| Removed::of_flag(&flag)) {
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![removed.message().into()]));
        // clap's own text shows how the other flag is used.
        error.insert(ContextKind::Usage, ContextValue::StyledStr(clap().render_usage()));
    }
}

fn unknown_flag(error: &clap::Error) -> Option<String> {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(named))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    named.starts_with('-').then(|| named.split('=').next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn parsed(line: &str) -> Result<Invocation, Exit> {
        parse(std::iter::once("informerd").chain(line.split_whitespace()))
    }

    fn code(line: &str) -> u8 {
        parsed(line).expect_err(line).code
    }

    #[test]
    fn run_is_the_default() {
        let plain = parsed("--kubeconfig /k --listen http://127.0.0.1:1 --listen unix:///s").unwrap();
        let named = parsed("run --kubeconfig /k --listen http://127.0.0.1:1 --listen unix:///s").unwrap();
        assert_eq!(plain, named);
        assert_eq!(plain.command, Command::Run);
        assert_eq!(plain.flags["listen"], ["http://127.0.0.1:1", "unix:///s"]);
        assert_eq!(parsed("").unwrap().flags, Flags::new(), "defaults are the configuration's business");
    }

    #[test]
    fn settings_in_front_of_and_behind_the_subcommand() {
        let invocation = parsed("--kubeconfig /a --idle-timeout 1m check --kubeconfig /b").unwrap();
        assert_eq!(invocation.command, Command::Check);
        assert_eq!(invocation.flags["kubeconfig"], ["/b"]);
        assert_eq!(invocation.flags["idleTimeout"], ["1m"]);
    }

    #[test]
    fn demo_sizes() {
        let demo = |line: &str| match parsed(line).unwrap().command {
            Command::Demo(demo) => demo,
            other => panic!("{other:?}"),
        };
        let wanted = DemoArgs {
            nodes: 20,
            pods: 500,
            namespaces: 10,
            churn: 20,
            seed: 1,
            watchers: 50,
            outage_after: Some(Duration::from_secs(20)),
            outage: Duration::from_secs(10),
            duration: None,
        };
        assert_eq!(demo("demo"), wanted);
        let all = demo(
            "demo --nodes 5 --pods 50_000 --namespaces 2 --churn 0 --seed 9 --watchers 7 --outage-after 0s --outage 2s --for 1m30s",
        );
        let wanted = DemoArgs {
            nodes: 5,
            pods: 50_000,
            namespaces: 2,
            churn: 0,
            seed: 9,
            watchers: 7,
            outage_after: None,
            outage: Duration::from_secs(2),
            duration: Some(Duration::from_secs(90)),
        };
        assert_eq!(all, wanted);
        let exit = parsed("demo --nodes 0 --pods many --for ever --outage 5 --watchers 1001").unwrap_err();
        assert_eq!((exit.code, exit.text.lines().count()), (64, 5), "{}", exit.text);
        assert_eq!(code("demo --kubeconfig /k"), 64);
    }

    #[test]
    fn status_and_completions() {
        let status = |line: &str| match parsed(line).unwrap().command {
            Command::Status(status) => (status.watch, status.json),
            other => panic!("{other:?}"),
        };
        assert_eq!(status("status"), (false, false));
        assert_eq!(status("status -w --admin 127.0.0.1:1"), (true, false));
        assert_eq!(status("status -o json"), (false, true));
        assert_eq!((code("status -o yaml"), code("status -w -o json")), (64, 64));
        assert_eq!(parsed("completions fish").unwrap().command, Command::Completions(Shell::Fish));
        assert_eq!((code("completions"), code("completions csh")), (64, 64));
        let man = |command: Option<&str>, directory: Option<&str>| Command::Man {
            command: command.map(str::to_owned),
            directory: directory.map(PathBuf::from),
        };
        assert_eq!(parsed("man").unwrap().command, man(None, None));
        assert_eq!(parsed("man status").unwrap().command, man(Some("status"), None));
        assert_eq!(parsed("man --directory d").unwrap().command, man(None, Some("d")));
        assert_eq!(code("man status --directory d"), 64);
    }

    #[test]
    fn exit_codes() {
        assert_eq!((code("--help"), code("demo --help"), code("--version")), (0, 0, 0));
        assert_eq!(
            (code("--lisen x"), code("fly"), code("--listen"), code("--threads 1 --threads 2")),
            (64, 64, 64, 64)
        );
        assert!(parsed("--lisen x").unwrap_err().text.contains("--listen"), "suggests what may be meant");
    }

    #[test]
    fn the_short_help_fits_on_a_screen() {
        for (line, most) in [("-h", 60), ("run -h", 50), ("kubeconfig -h", 50), ("inject -h", 50), ("status -h", 20)] {
            let text = parsed(line).unwrap_err().text;
            assert!(text.lines().count() <= most && text.contains("--help"), "{line}: {text}");
        }
        let all = parsed("--help").unwrap_err().text;
        assert!(SETTINGS.iter().all(|setting| all.contains(&format!("--{} ", setting.flag()))), "{all}");
    }

    #[test]
    fn all_unknown_flags_are_told_at_once() {
        for line in
            ["--lisen x --threds=1 --wat", "--lisen=x --threds 1 --wat demo", "check --lisen x --threds 1 --wat"]
        {
            let exit = parsed(line).unwrap_err();
            assert_eq!(exit.code, 64);
            for flag in ["'--lisen' found", "'--threds' found", "'--wat' found"] {
                assert_eq!(exit.text.matches(flag).count(), 1, "{flag}: {}", exit.text);
            }
            assert_eq!(exit.text.matches("Usage").count(), 1, "{}", exit.text);
        }
    }

    #[test]
    fn a_flag_that_is_gone_says_so() {
        for line in [
            "--snapshots-max-served-age 1h --wat",
            "check --wat --snapshots-max-served-age=1h",
            "--snapshots-max-served-age",
        ] {
            let exit = parsed(line).unwrap_err();
            assert_eq!((exit.code, exit.text.matches("this setting is gone").count()), (64, 1), "{}", exit.text);
            assert!(!exit.text.contains("--snapshots-max-bytes"), "it is not like another: {}", exit.text);
        }
    }

    #[test]
    fn kubeconfig() {
        assert_eq!(parsed("kubeconfig").unwrap().command, Command::Kubeconfig { write: None });
        let write = Some(PathBuf::from("/f"));
        assert_eq!(parsed("kubeconfig --write /f").unwrap().command, Command::Kubeconfig { write });
    }
}
