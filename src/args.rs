//! The command line: subcommands, and one flag for each setting of the configuration.

mod explain;
mod headings;
mod inject;
mod look;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command as Clap};
use clap_complete::Shell;

pub use explain::Explained;
pub use inject::InjectArgs;

use crate::client::Ask;
use crate::config::{Flags, Kind, Mistake, Mistakes, Origin, SETTINGS, Setting, parse_duration};

/// The exit code for bad configuration, which includes the command line (`EX_USAGE`).
pub const EXIT_USAGE: u8 = 64;

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
}

/// How the status is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatusArgs {
    /// Every second, until it is interrupted.
    pub watch: bool,
    /// As the daemon sends it.
    pub json: bool,
}

/// The size of the simulated cluster, its clients, and its outage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoArgs {
    pub nodes: u32,
    pub pods: u32,
    pub namespaces: u32,
    /// Changes a second.
    pub churn: u32,
    pub seed: u64,
    /// Clients that watch.
    pub watchers: u32,
    /// The simulated apiserver is cut off this long after the start, if at all.
    pub outage_after: Option<Duration>,
    /// For how long it is cut off.
    pub outage: Duration,
    /// The demo ends by itself after this time.
    pub duration: Option<Duration>,
}

/// The process exits without running: help was requested, or the command line is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    pub code: u8,
    pub text: String,
}

/// A numeric flag of the demo: flag, default, smallest, largest, help.
const DEMO_NUMBERS: &[(&str, u64, u64, u64, &str)] = &[
    ("nodes", 20, 1, 5_000, "simulated nodes"),
    ("pods", 500, 0, 50_000, "simulated pods"),
    ("namespaces", 10, 1, 1_000, "simulated namespaces"),
    ("churn", 20, 0, 10_000, "changes a second"),
    ("seed", 1, 0, u64::MAX, "the same seed makes the same cluster"),
    ("watchers", 50, 0, 1_000, "clients that watch"),
];

const DEMO_DURATIONS: &[(&str, &str)] = &[
    ("outage-after", "cut the apiserver off this long after the start, 0s: never [default: 20s]"),
    ("outage", "cut it off for this long [default: 10s]"),
    ("for", "end after this time, such as 30s"),
];
const OUTAGE_AFTER: Duration = Duration::from_secs(20);
const OUTAGE: Duration = Duration::from_secs(10);

const SHELLS: [(&str, Shell); 3] = [("bash", Shell::Bash), ("zsh", Shell::Zsh), ("fish", Shell::Fish)];

/// Settings that have no meaning for the demo, which has its own apiserver.
const NOT_IN_DEMO: &[&str] = &["kubeconfig", "context"];

// === impl DemoArgs ===

impl Default for DemoArgs {
    fn default() -> Self {
        Self {
            nodes: 20,
            pods: 500,
            namespaces: 10,
            churn: 20,
            seed: 1,
            watchers: 50,
            outage_after: Some(OUTAGE_AFTER),
            outage: OUTAGE,
            duration: None,
        }
    }
}

/// Parses the command line. The first argument is the program's name.
///
/// # Errors
/// Help or version text to print (code 0), or an error (code 64).
pub fn parse<I, T>(arguments: I) -> Result<Invocation, Exit>
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    let matches = clap().try_get_matches_from(&arguments).map_err(|error| refused(arguments, &error))?;
    let mut flags = Flags::new();
    collect(&matches, &mut flags);
    let command = match matches.subcommand() {
        None => Command::Run,
        Some((name, matches)) => {
            collect(matches, &mut flags);
            match name {
                "demo" => Command::Demo(demo(matches)?),
                "kubeconfig" => Command::Kubeconfig { write: matches.get_one::<PathBuf>("write").cloned() },
                "check" => Command::Check,
                "injector" => Command::Injector,
                "inject" => Command::Inject(inject::arguments(matches)),
                "status" => Command::Status(StatusArgs {
                    watch: matches.get_flag("watch"),
                    json: matches.get_one::<String>("output").is_some(),
                }),
                "completions" => Command::Completions(shell(matches)),
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
            Mistake::new(Origin::Flag(format!("--{key}")), "the demo brings its own apiserver and reads no kubeconfig")
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
        .about("One shared informer per Kubernetes resource: list and watch served to many local clients")
        .after_help(
            "Every flag can also be set in the environment (INFORMERD_...) and in the file of --config; \
             see docs/configuration.md.",
        )
        .subcommand_value_name("COMMAND")
        .max_term_width(110)
        .args(flags(&[]))
        .subcommand(Clap::new("run").about("Serve clients (what happens without a command, too)").args(flags(&[])))
        .subcommand(
            Clap::new("demo")
                .hide(!cfg!(feature = "demo"))
                .about("Serve a simulated cluster: everything to try, no cluster needed")
                .args(DEMO_NUMBERS.iter().map(|(name, default, least, most, help)| {
                    let bounds = if *most == u64::MAX { String::new() } else { format!(", {least} to {most}") };
                    Arg::new(*name).long(*name).value_name("N").help(format!("{help}{bounds} [default: {default}]"))
                }))
                .args(
                    DEMO_DURATIONS
                        .iter()
                        .map(|(name, help)| Arg::new(*name).long(*name).value_name("duration").help(*help)),
                )
                .args(flags(NOT_IN_DEMO).map(|flag| flag.hide_short_help(true))),
        )
        .subcommand(
            Clap::new("kubeconfig")
                .about("Print a kubeconfig for the local endpoint")
                .arg(
                    Arg::new("write")
                        .long("write")
                        .value_name("path")
                        .value_parser(clap::value_parser!(PathBuf))
                        .help("write it to this file (mode 0600) instead of printing it"),
                )
                .args(flags(&[])),
        )
        .subcommand(
            Clap::new("check")
                .about("Validate the configuration, reach the apiserver and tell what our identity may list and watch")
                .args(flags(&[])),
        )
        .subcommand(
            Clap::new("status")
                .about("Show what the daemon that runs on this machine does")
                .arg(
                    Arg::new("watch")
                        .long("watch")
                        .short('w')
                        .action(ArgAction::SetTrue)
                        .conflicts_with("output")
                        .help("show it every second, until Ctrl-C"),
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
        .subcommand(look::get())
        .subcommand(look::watch())
        .subcommand(
            Clap::new("completions")
                .about("Print a script that completes command lines in a shell")
                .arg(Arg::new("shell").required(true).value_parser(SHELLS.map(|(name, _)| name)).help("the shell")),
        )
        .subcommand(Clap::new("version").about("Print the version, the commit and the target"))
}

fn shell(matches: &ArgMatches) -> Shell {
    let name = matches.get_one::<String>("shell");
    SHELLS.into_iter().find(|(known, _)| name.is_some_and(|name| name == known)).map_or(Shell::Bash, |(_, shell)| shell)
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

fn demo(matches: &ArgMatches) -> Result<DemoArgs, Exit> {
    let mut mistakes = Vec::new();
    let mut wrong = |name: &str, message: String| {
        mistakes.push(Mistake::new(Origin::Flag(format!("--{name}")), message));
    };
    let mut number = |name: &str| {
        let (_, default, least, most, _) = DEMO_NUMBERS.iter().find(|(known, ..)| *known == name)?;
        let Some(text) = matches.get_one::<String>(name) else { return Some(*default) };
        let number = text.replace('_', "").parse::<u64>().ok().filter(|number| (least..=most).contains(&number));
        if number.is_none() {
            wrong(name, format!("{text:?} is no number from {least} to {most}"));
        }
        number
    };
    let small = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok()).unwrap_or_default();
    let (nodes, pods, namespaces) = (small(number("nodes")), small(number("pods")), small(number("namespaces")));
    let (churn, seed) = (small(number("churn")), number("seed").unwrap_or_default());
    let watchers = small(number("watchers"));
    let mut time = |name: &str| {
        let text = matches.get_one::<String>(name)?;
        parse_duration(text).map_err(|message| wrong(name, message)).ok()
    };
    let (after, outage, duration) = (time("outage-after"), time("outage"), time("for"));
    fail(mistakes)?;
    Ok(DemoArgs {
        nodes,
        pods,
        namespaces,
        churn,
        seed,
        watchers,
        outage_after: Some(after.unwrap_or(OUTAGE_AFTER)).filter(|after| !after.is_zero()),
        outage: outage.unwrap_or(OUTAGE),
        duration,
    })
}

/// The errors of the command line. clap stops at the first unknown flag. So each unknown flag is removed and the rest
/// is parsed again, until all of them are found.
fn refused(mut arguments: Vec<OsString>, first: &clap::Error) -> Exit {
    if matches!(first.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Exit { code: 0, text: first.to_string() };
    }
    let mut text = first.to_string();
    let mut unknown = unknown_flag(first);
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
        let Some(error) = next else { break };
        let told = error.to_string();
        let (mistake, usage) = told.split_once("\n\nUsage").unwrap_or((&told, ""));
        let before = text.split_once("\n\nUsage").map_or(&*text, |(before, _)| before);
        text = format!("{before}\n{mistake}\n\nUsage{usage}");
        unknown = unknown_flag(&error);
    }
    Exit { code: EXIT_USAGE, text }
}

fn unknown_flag(error: &clap::Error) -> Option<String> {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(named))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    named.starts_with('-').then(|| named.split('=').next().unwrap_or_default().to_owned())
}

fn fail(mistakes: Vec<Mistake>) -> Result<(), Exit> {
    if mistakes.is_empty() {
        return Ok(());
    }
    Err(Exit { code: EXIT_USAGE, text: format!("{}\n", Mistakes(mistakes)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Invocation, Exit> {
        parse(std::iter::once("informerd").chain(line.split_whitespace()))
    }

    fn code(line: &str) -> u8 {
        parsed(line).expect_err(line).code
    }

    #[test]
    fn is_consistent() {
        clap().debug_assert();
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
        assert_eq!(demo("demo"), DemoArgs::default());
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
    fn kubeconfig() {
        assert_eq!(parsed("kubeconfig").unwrap().command, Command::Kubeconfig { write: None });
        let write = Some(PathBuf::from("/f"));
        assert_eq!(parsed("kubeconfig --write /f").unwrap().command, Command::Kubeconfig { write });
    }
}
