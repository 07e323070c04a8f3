//! Holds the resolved dependency tree to `deny.toml`: licences, banned crates, sources, and one version each of the
//! crates of which two would mean two TLS or HTTP stacks. What `cargo deny` checks too, but in every test run, without
//! the network and without a tool to install.
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Two versions of one of these would be two stacks that do not know each other.
const SINGLE: &[&str] = &[
    "aws-lc-rs",
    "bytes",
    "h2",
    "http",
    "http-body",
    "hyper",
    "hyper-rustls",
    "hyper-util",
    "kube-client",
    "kube-core",
    "opentelemetry",
    "opentelemetry-http",
    "opentelemetry-otlp",
    "opentelemetry-proto",
    "opentelemetry_sdk",
    "parking_lot",
    "prometheus-client",
    "prost",
    "rustls",
    "rustls-webpki",
    "tokio",
    "tokio-rustls",
    "tonic",
    "tracing",
    "tracing-subscriber",
];

#[derive(Debug)]
struct Crate {
    name: String,
    version: String,
    /// A path or an URL, for whatever is not from crates.io.
    source: Option<String>,
    license: String,
}

#[derive(Debug, Default)]
struct Rules {
    licenses: BTreeSet<String>,
    exceptions: BTreeMap<String, BTreeSet<String>>,
    banned: BTreeSet<String>,
    /// Banned crates that some others may bring along, and these.
    wrapped: BTreeMap<String, BTreeSet<String>>,
}

#[test]
fn dependencies_keep_the_rules() {
    let rules = Rules::parse(include_str!("../../deny.toml"));
    for banned in ["openssl", "native-tls", "ring", "serde_yaml"] {
        assert!(rules.banned.contains(banned), "deny.toml no longer bans {banned}, or can no longer be read");
    }
    assert!(rules.licenses.contains("Apache-2.0"), "the licences of deny.toml can no longer be read");

    let crates = tree();
    assert!(crates.len() > 50, "cargo tree names only {} crates", crates.len());
    let mut found = violations(&rules, &crates);
    for exception in rules.exceptions.keys() {
        if !crates.iter().any(|dependency| dependency.name == *exception) {
            found.push(format!("deny.toml: the exception for {exception} is no longer needed"));
        }
    }
    assert!(rules.wrapped.contains_key("paste"), "the wrappers of deny.toml can no longer be read");
    for (name, wrappers) in &rules.wrapped {
        let parents = parents(name);
        if !parents.is_subset(wrappers) || parents.is_empty() {
            found.push(format!("{name} comes with {parents:?}, and may come with {wrappers:?}"));
        }
    }
    assert!(found.is_empty(), "against deny.toml:\n{}", found.join("\n"));
}

#[test]
fn finds_violations_in_a_made_up_tree() {
    let rules = Rules::parse(include_str!("../../deny.toml"));
    let found = |name: &str, license: &str, source: Option<&str>| {
        violations(&rules, &[dependency(name, "1.0.0", license, source)])
    };
    assert_eq!(found("fine", "MIT OR GPL-3.0", None), Vec::<String>::new());
    assert_eq!(found("fine", "(MIT OR Apache-2.0) AND Unicode-3.0", None), Vec::<String>::new());
    assert_eq!(found("fine", "Unlicense/MIT", None), Vec::<String>::new());
    assert_eq!(found("fine", "Apache-2.0 WITH LLVM-exception", None), Vec::<String>::new());
    assert_eq!(found("imbl", "MPL-2.0+", None), Vec::<String>::new());
    assert_eq!(found("copyleft", "GPL-3.0", None).len(), 1);
    assert_eq!(found("copyleft", "MIT AND GPL-3.0", None).len(), 1);
    assert_eq!(found("copyleft", "(MIT OR Apache-2.0) AND (GPL-2.0 OR GPL-3.0)", None).len(), 1);
    assert_eq!(found("other", "MPL-2.0", None).len(), 1);
    assert_eq!(found("silent", "", None).len(), 1);
    assert_eq!(found("ring", "MIT", None).len(), 1);
    assert_eq!(found("fork", "MIT", Some("https://example.com/fork?branch=main#1234")).len(), 1);

    let two = [dependency("rustls", "0.22.0", "MIT", None), dependency("rustls", "0.23.0", "MIT", None)];
    assert_eq!(violations(&rules, &two), ["rustls is there twice: 0.22.0 and 0.23.0"]);
}

fn dependency(name: &str, version: &str, license: &str, source: Option<&str>) -> Crate {
    Crate { name: name.into(), version: version.into(), source: source.map(str::to_owned), license: license.into() }
}

/// What is really compiled for this machine, tests and build scripts included; `cargo metadata` would also name
/// optional dependencies that no feature turns on.
fn tree() -> Vec<Crate> {
    let text = cargo_tree(&["--format", "{p}|{l}"]);
    let lines: BTreeSet<&str> = text.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    lines.into_iter().filter(|line| !line.is_empty()).map(parse_crate).collect()
}

/// The crates that depend on this one.
fn parents(name: &str) -> BTreeSet<String> {
    let text = cargo_tree(&["--depth", "1", "--invert", name]);
    let names = text.lines().skip(1).filter_map(|line| line.split(' ').next()).filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

fn cargo_tree(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--workspace", "--edges", "normal,build,dev", "--prefix", "none"])
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo prints UTF-8")
}

/// `name v1.2.3 (source)|license`, where sources other than crates.io are named, and `(proc-macro)` is none.
fn parse_crate(line: &str) -> Crate {
    let (package, license) = line.rsplit_once('|').unwrap_or_else(|| panic!("no licence column: {line}"));
    let mut parts = package.splitn(3, ' ');
    let (name, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let source = parts.next().unwrap_or_default().split(['(', ')']).map(str::trim).find(|part| {
        !part.is_empty() && *part != "proc-macro" && !Path::new(part).starts_with(env!("CARGO_MANIFEST_DIR"))
    });
    dependency(name, version.trim_start_matches('v'), license.trim(), source)
}

fn violations(rules: &Rules, crates: &[Crate]) -> Vec<String> {
    let mut found = Vec::new();
    let mut single: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for Crate { name, version, source, license } in crates {
        if rules.banned.contains(name) {
            found.push(format!("{name} {version} is banned"));
        }
        if let Some(source) = source {
            found.push(format!("{name} {version} comes from {source}, not from crates.io"));
        }
        let exceptions = rules.exceptions.get(name);
        let allowed =
            |id: &str| rules.licenses.contains(id) || exceptions.is_some_and(|exceptions| exceptions.contains(id));
        if !satisfied(license, &allowed) {
            found.push(format!("{name} {version} has the licence {license:?}, which is not allowed"));
        }
        if SINGLE.contains(&name.as_str()) {
            single.entry(name).or_default().insert(version);
        }
    }
    for (name, versions) in single.iter().filter(|(_, versions)| versions.len() > 1) {
        let versions: Vec<_> = versions.iter().copied().collect();
        found.push(format!("{name} is there twice: {}", versions.join(" and ")));
    }
    found
}

/// Whether an SPDX expression can be satisfied: any side of an OR (or of the old slash) in every side of an AND. Without
/// regard to parentheses this may refuse what is allowed, but not the other way round.
fn satisfied(expression: &str, allowed: &dyn Fn(&str) -> bool) -> bool {
    let is_allowed = |id: &str| allowed(id.trim_matches(['(', ')', ' ']).trim_end_matches('+'));
    expression.replace('/', " OR ").split(" AND ").all(|every| every.split(" OR ").any(is_allowed))
}

// === impl Rules ===

impl Rules {
    /// Reads the few lists needed here; one entry a line, as the file is written.
    fn parse(text: &str) -> Self {
        let mut rules = Self::default();
        let (mut section, mut list) = (String::new(), String::new());
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            if line.starts_with('[') && line.ends_with(']') {
                section = line.trim_matches(['[', ']']).to_owned();
            } else if let Some(name) = line.strip_suffix(" = [") {
                list = format!("{section}.{name}");
            } else if line == "]" {
                list.clear();
            } else {
                // What another crate may bring along, if only that.
                let quoted = |text: &str| text.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
                if let Some((name, rest)) = line.split_once("wrappers = [") {
                    let wrappers = quoted(rest.split(']').next().unwrap_or_default());
                    rules.wrapped.extend(quoted(name).pop().map(|name| (name, wrappers.into_iter().collect())));
                    continue;
                }
                let mut quoted = quoted(line).into_iter();
                let Some(first) = quoted.next() else { continue };
                match list.as_str() {
                    "licenses.allow" => _ = rules.licenses.insert(first),
                    "licenses.exceptions" => rules.exceptions.entry(first).or_default().extend(quoted),
                    "bans.deny" => _ = rules.banned.insert(first),
                    _ => {}
                }
            }
        }
        rules
    }
}
