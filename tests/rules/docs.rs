//! Holds the documentation to the code: settings with their flags, variables, defaults and forms, the flags of the
//! subcommands, the examples, and the commands and figures that the README promises.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of a test")]

mod links;
mod metrics;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use informerd::args;
use informerd::config::{self, Flags, REMOVED, SETTINGS, Source};
use informerd::reads::ForwardReason;

use crate::program::{crates, read, root};

const CONFIGURATION: &str = "docs/configuration.md";

/// Pages with examples, flags and variables, beside those for concepts and tasks.
const PAGES: &[&str] =
    &[CONFIGURATION, "README.md", "docs/quickstart.md", "docs/troubleshooting.md", "docs/runbooks.md"];

/// Not settings of the daemon, but of its tests, of the demo's environment, and of the commands that look at a daemon.
const OTHER_VARIABLES: &[&str] = &["INFORMERD_CACHE", "INFORMERD_JUDGE", "INFORMERD_ADDRESS"];

/// A world with variables and one file, which remembers for which variables it was asked.
#[derive(Default)]
struct World {
    variables: &'static [(&'static str, &'static str)],
    file: Option<String>,
    asked: RefCell<BTreeSet<String>>,
}

impl Source for World {
    fn variable(&self, name: &str) -> Result<Option<String>, String> {
        self.asked.borrow_mut().insert(name.to_owned());
        Ok(self.variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    fn variable_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn read(&self, _: &Path) -> io::Result<String> {
        self.file.clone().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// The two commands a newcomer is told to type.
#[test]
fn the_readme_promises_what_there_is() {
    let readme = read("README.md");
    for command in ["cargo run --release -- demo", "make test"] {
        assert!(readme.contains(command), "{command}");
    }
    assert!(read("Makefile").contains("\ntest:\n"));
    assert!(read(".ci/run").contains("make test"), "CI runs the same command");
}

#[test]
fn every_reason_for_forwarding_is_explained() {
    let table = table("docs/compatibility.md", "reasons");
    let rows: Vec<_> = table.lines().skip(2).map(str::to_owned).collect();
    let row = |reason: ForwardReason| format!("| `{}` | {} | {} |", reason.as_str(), reason.cause(), reason.change());
    assert_eq!(rows, ForwardReason::ALL.map(row));
}

#[test]
fn the_variables_of_opentelemetry_are_those_that_are_read() {
    let table = table(CONFIGURATION, "otel");
    let named = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    let documented: BTreeSet<String> = table.lines().filter_map(named).collect();
    let variables =
        &[("OTEL_LOGS_EXPORTER", "none"), ("OTEL_TRACES_EXPORTER", "otlp"), ("OTEL_METRICS_EXPORTER", "otlp")];
    let world = World { variables, ..World::default() };
    config::load(&Flags::new(), &world).expect("nothing is wrong");
    let asked = world.asked.into_inner().into_iter().filter(|name| name.starts_with("OTEL_"));
    // Those of one signal are told of in words.
    let of_all = |name: String| name.replace("OTLP_TRACES_", "OTLP_").replace("OTLP_METRICS_", "OTLP_");
    assert_eq!(documented, asked.map(of_all).collect::<BTreeSet<_>>());
}

/// Both ways: what the code has and the page lacks, and what the page has and the code lacks.
#[test]
fn the_table_of_settings_is_the_registry() {
    let table = table(CONFIGURATION, "settings");
    let found: Vec<&str> = table.lines().filter(|line| line.starts_with('|')).collect();
    let wanted = settings_table();
    let wanted: Vec<&str> = wanted.lines().collect();
    let lacks: Vec<_> = wanted.iter().filter(|line| !found.contains(line)).collect();
    let stale: Vec<_> = found.iter().filter(|line| !wanted.contains(line)).collect();
    assert!(
        found == wanted,
        "{CONFIGURATION} is not true.\nlacks: {lacks:#?}\nstale: {stale:#?}\n\nThe whole table:\n{}",
        wanted.join("\n")
    );
}

/// Whoever adds one takes another one away: what no operator would set is a constant, and what follows from another setting is
/// derived.
#[test]
fn there_are_few_settings() {
    let settings = SETTINGS.iter().filter(|setting| setting.in_file()).count();
    assert!(settings <= 60, "{settings}");
}

#[test]
fn no_page_names_a_setting_that_is_gone() {
    let mut stale = Vec::new();
    for page in pages() {
        let text = read(&page);
        stale.extend(
            REMOVED
                .iter()
                .filter(|removed| text.contains(&format!("`{}`", removed.key)))
                .map(|removed| format!("{page}: {}", removed.key)),
        );
    }
    assert!(stale.is_empty(), "{stale:#?}");
}

#[test]
fn every_flag_of_every_command_is_documented() {
    let page = read(CONFIGURATION);
    let mut missing = Vec::new();
    for command in args::clap().get_subcommands() {
        if !page.contains(&format!("`informerd {}", command.get_name())) {
            missing.push(format!("informerd {}", command.get_name()));
        }
        for flag in command.get_arguments().filter_map(|argument| argument.get_long()) {
            if flag != "help" && !page.contains(&format!("`--{flag}")) {
                missing.push(format!("informerd {} --{flag}", command.get_name()));
            }
        }
    }
    assert!(missing.is_empty(), "not in {CONFIGURATION}: {missing:#?}");
}

#[test]
fn no_page_names_a_flag_or_a_variable_that_does_not_exist() {
    let mut flags: BTreeSet<String> =
        // The flags of other programs: cargo, kubectl, curl, helm, kube-apiserver.
        "bin locked path etcd-servers-overrides help version release kubeconfig watch server-side raw retry retry-connrefused set create-namespace"
            .split(' ')
            .map(str::to_owned)
            .collect();
    for command in std::iter::once(&args::clap()).chain(args::clap().get_subcommands()) {
        flags.extend(command.get_arguments().filter_map(|argument| argument.get_long()).map(str::to_owned));
    }
    let mut variables: BTreeSet<String> = SETTINGS.iter().map(config::Setting::variable).collect();
    variables.extend(OTHER_VARIABLES.iter().map(|&name| name.to_owned()));
    let mut stale = Vec::new();
    for page in &pages_with_examples() {
        let text = read(page);
        for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_')) {
            let flag = word.strip_prefix("--").filter(|flag| flag.starts_with(|c: char| c.is_ascii_lowercase()));
            if flag.is_some_and(|flag| !flags.contains(flag)) {
                stale.push(format!("{page}: {word}"));
            }
            let complete = word.starts_with("INFORMERD_") && word.len() > "INFORMERD_".len();
            if complete
                && !word.starts_with("INFORMERD_SERVICE_")
                && !word.starts_with("INFORMERD_PORT")
                && !variables.contains(word)
            {
                stale.push(format!("{page}: {word}"));
            }
        }
    }
    assert!(stale.is_empty(), "there is no such flag or variable: {stale:#?}");
}

#[test]
fn every_example_of_a_configuration_loads() {
    let mut examples = 0;
    for page in &pages_with_examples() {
        for (number, example) in fences(&read(page), "yaml").into_iter().enumerate() {
            // An example of kustomize, not of informerd.
            let of_kustomize = ["apiVersion: kustomize.", "configMapGenerator:", "resources: [manifests/"];
            if of_kustomize.iter().any(|start| example.starts_with(*start)) {
                continue;
            }
            let flags = Flags::from([("config", vec![format!("{page}#{number}")])]);
            let world = World { variables: &[("NODE_NAME", "node-1")], file: Some(example), ..World::default() };
            if let Err(mistakes) = config::load(&flags, &world) {
                panic!("an example of {page} is wrong:\n{mistakes}");
            }
            examples += 1;
        }
    }
    assert!(examples > 1, "no examples found");
}

#[test]
fn every_command_line_of_an_example_parses() {
    let mut lines = 0;
    for page in &pages_with_examples() {
        for example in fences(&read(page), "sh") {
            for line in example.lines() {
                let line = line.split(" #").next().unwrap_or_default().trim();
                let line = line.replace("cargo run --release -- ", "informerd ");
                if !line.starts_with("informerd ") {
                    continue;
                }
                // What a shell would do with quotes is not needed so far.
                assert!(!line.contains(['\'', '"', '|', '>']), "too clever for this test: {line}");
                if let Err(exit) = args::parse(line.split_whitespace()) {
                    panic!("{page}: {line}\n{}", exit.text);
                }
                lines += 1;
            }
        }
    }
    assert!(lines > 3, "only {lines} command lines found");
}

/// Each row of README's table is a pattern of docs/performance.md: its requests, megabytes and CPU seconds, without and with informerd.
#[test]
fn the_readme_shows_what_was_measured() {
    let (readme, measured) = (read("README.md"), read("docs/performance.md"));
    let cells = |row: &str| row.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    // | pattern | without | requests | lists | gets | watches | writes | MB sent | CPU s | answered |, and the same with informerd.
    let table: Vec<_> = measured.lines().map(cells).filter(|row| row.len() == 12).collect();
    let is = |row: &[String], which: &str| row[2] == which;
    let patterns: Vec<Vec<String>> = table
        .windows(2)
        .filter(|pair| is(&pair[0], "without") && is(&pair[1], "with"))
        .map(|pair| [3, 8, 9].map(|column| format!("{} → {}", pair[0][column], pair[1][column])).to_vec())
        .collect();
    assert!(patterns.len() > 8, "{patterns:?}");
    let table = self::table("README.md", "measured");
    let rows: Vec<_> = table.lines().skip(2).collect();
    assert!((4..=6).contains(&rows.len()), "{} rows", rows.len());
    for row in rows {
        let cells = cells(row);
        assert_eq!(cells.len(), 6, "{row}");
        assert!(patterns.iter().any(|pattern| pattern[..] == cells[2..5]), "not in docs/performance.md: {row}");
    }
    for (said, figure) in [("448 ms", "| 448 ms |"), ("32 ms", "| 32 ms |")] {
        assert!(readme.contains(said) && measured.contains(figure), "{said}");
    }
}

#[test]
fn every_label_of_injection_is_explained() {
    let (table, code) = (table("docs/injection.md", "labels"), read("crates/injection/src/lib.rs"));
    let rows: BTreeSet<_> = table.lines().skip(2).filter_map(|row| row.split('`').nth(1)).collect();
    let known: BTreeSet<_> = code.split('"').filter(|text| text.starts_with("informerd.io/")).collect();
    assert_eq!(rows, known);
    assert_eq!(known.len(), 5);
}

#[test]
fn the_architecture_names_every_room() {
    let page = read("ARCHITECTURE.md");
    for directory in crates() {
        let row = format!("| `{}/` |", directory.parent().expect("a crate").display());
        assert!(page.contains(&row), "ARCHITECTURE.md does not say what {} is for", directory.display());
    }
    let entries = fs::read_dir(root().join("src")).expect("src is readable");
    for entry in entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_dir()) {
        let room = entry.file_name().expect("a name").to_string_lossy().into_owned();
        // Beside app.rs and args.rs, their own parts.
        if !["app", "args"].contains(&&*room) {
            assert!(page.contains(&format!("| `{room}/` |")), "ARCHITECTURE.md does not say what {room}/ is for");
        }
    }
}

fn settings_table() -> String {
    let mut table =
        String::from("| key | flag | environment | value | default | meaning |\n|---|---|---|---|---|---|\n");
    for setting in SETTINGS {
        let key = if setting.in_file() { format!("`{}`", setting.key) } else { "–".to_owned() };
        let default = if setting.default.is_empty() { "–".to_owned() } else { format!("`{}`", setting.default) };
        let several = if matches!(setting.kind, config::Kind::Many(_)) { ", several" } else { "" };
        table.push_str(&format!(
            "| {key} | `--{}` | `{}` | {}{several} | {default} | {} |\n",
            setting.flag(),
            setting.variable(),
            setting.form().replace('|', ", "),
            setting.help,
        ));
    }
    table
}

/// The table of a page between the comments that say to what it is held and where it ends.
fn table(page: &str, name: &str) -> String {
    let text = read(page);
    let begun = text.split_once(&format!("<!-- {name}: held to ")).and_then(|(_, rest)| rest.split_once(" -->\n"));
    let table = begun.and_then(|(_, rest)| rest.split_once(&format!("<!-- end of {name} -->")));
    table.unwrap_or_else(|| panic!("{page} has no table of {name} between two comments")).0.to_owned()
}

/// The bodies of all fenced blocks of one language.
fn fences(page: &str, language: &str) -> Vec<String> {
    let opening = format!("```{language}\n");
    page.split(&opening).skip(1).filter_map(|rest| rest.split("\n```").next()).map(str::to_owned).collect()
}

fn pages_with_examples() -> Vec<String> {
    let is_wanted = |page: &String| {
        PAGES.contains(&page.as_str()) || page.starts_with("docs/concepts/") || page.starts_with("docs/tasks/")
    };
    pages().into_iter().filter(is_wanted).collect()
}

/// README and the pages below docs, as paths from the root.
fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned()];
    for directory in ["docs", "docs/concepts", "docs/tasks"] {
        let entries = fs::read_dir(root().join(directory)).expect("a directory is readable");
        let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
        pages.extend(names.filter(|name| name.ends_with(".md")).map(|name| format!("{directory}/{name}")));
    }
    pages.sort();
    pages
}
