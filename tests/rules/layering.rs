//! Holds every path of the program that leads to another room to the table in ARCHITECTURE.md, and every file to a length at
//! which it can still be read. Rooms are the modules below `src/`, and the crates below `crates/`.
//!
//! Test code may import more: files named `tests.rs`, `testing.rs` or `*_tests.rs`, directories named `tests`, and items under
//! `#[cfg(test)]`.
#![allow(clippy::expect_used, reason = "helpers of a test")]

mod circles;
mod scan;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use scan::Source;

use crate::children::sources;
use crate::program;

/// May name every room.
const EVERYTHING: &[&str] = &["*"];

/// Room → what it may import: a room, or a part of one. A room may always name itself.
const ROOMS: &[(&str, &[&str])] = &[
    ("main", EVERYTHING),
    ("lib", EVERYTHING),
    ("app", EVERYTHING),
    ("args", EVERYTHING),
    // The configuration hands every room its own Config type; nothing but the wiring imports it.
    ("config", EVERYTHING),
    ("lifecycle", &[]),
    // What it exports is sent by tasks.
    ("telemetry", &["lifecycle"]),
    // What the process holds in all, and what bodies under way may.
    ("memory", &[]),
    ("packing", &["memory::allocated"]),
    ("meta", &["memory::allocated", "packing"]),
    ("selector", &["meta", "codec"]),
    ("codec", &["meta"]),
    ("cache", &["memory", "packing", "meta", "selector", "codec", "lifecycle"]),
    ("apiserver", &["memory", "meta", "codec", "lifecycle", "telemetry::trace"]),
    ("upstream", &["apiserver", "meta", "selector", "codec", "cache", "lifecycle", "telemetry::trace"]),
    ("snapshots", &["packing", "meta", "codec", "cache"]),
    (
        "informer",
        &[
            "apiserver",
            "packing",
            "meta",
            "selector",
            "cache",
            "snapshots",
            "upstream",
            "lifecycle",
            "telemetry::histogram",
            "telemetry::stripes",
        ],
    ),
    ("reads", &["meta", "selector", "codec", "cache", "informer", "telemetry::trace"]),
    // Of apiserver the client only, with its error, the verbs it counts by and its watches of metadata: never the reflector or
    // the probe.
    // The selectors of a request are part of what is authorized; watches for changed rights are tasks.
    (
        "auth",
        &[
            "meta",
            "selector",
            "lifecycle",
            "telemetry::gauge",
            "telemetry::trace",
            "telemetry::seldom",
            "telemetry::lines",
            "apiserver::client",
            "apiserver::UpstreamError",
            "apiserver::RequestVerb",
            "apiserver::metadata",
        ],
    ),
    // A client of the apiserver's for a few objects, and a latch; the certificates go out by a closure of the wiring.
    (
        "authority",
        &["lifecycle", "apiserver::client", "apiserver::reader", "apiserver::UpstreamError", "apiserver::RequestVerb"],
    ),
    ("injection", &[]),
    (
        "passthrough",
        &["memory", "meta", "auth", "apiserver::client", "apiserver::UpstreamError", "apiserver::RequestVerb"],
    ),
    (
        "http",
        &[
            "memory",
            "meta",
            "codec",
            "reads",
            "auth",
            // The CA that is made here too, for a machine of its own.
            "authority",
            "passthrough",
            "lifecycle",
            "telemetry::gauge",
            "telemetry::trace",
            "telemetry::histogram",
            "telemetry::stripes",
            "telemetry::seldom",
            "telemetry::lines",
        ],
    ),
    ("workqueue", &["meta"]),
    (
        "grpc",
        &[
            "memory",
            "meta",
            "selector",
            "codec",
            "reads",
            "workqueue",
            "auth",
            "lifecycle",
            "telemetry::gauge",
            "telemetry::histogram",
            "telemetry::stripes",
            "api",
        ],
    ),
    ("api", &[]),
    // The command line as a client of a running daemon.
    ("cli", &["api", "lifecycle", "status"]),
    // Two clusters and their clients. One has the daemon in front of it, which the wiring starts.
    ("demo", &["api", "cli", "lifecycle", "status", "sim"]),
    ("sim", &[]),
    ("status", &[]),
    ("manual", &[]),
    ("admin", &["cache", "informer", "telemetry", "lifecycle", "status"]),
];

/// Part of a room, a folder in it → what it may import of its room: other parts, files that stand beside them, or names that the
/// room itself defines.
const PARTS: &[(&str, &[&str])] = &[
    ("http::record", &[]),
    ("http::door", &["record"]),
    ("http::answer", &["record", "door"]),
    ("http::wire", &["record", "door", "answer"]),
    ("grpc::call", &["pb", "metrics"]),
    ("grpc::messages", &["pb", "call"]),
    ("grpc::objects", &["pb", "metrics", "call", "messages"]),
    ("grpc::queue", &["pb", "call", "messages", "Streamed"]),
    // Some credentials are renewed by a request.
    ("apiserver::kubeconfig", &["client"]),
    ("apiserver::client", &["error", "meter", "metrics", "retries", "kubeconfig"]),
    ("apiserver::metadata", &["error", "lenient", "metrics", "chunks", "client", "reader"]),
    ("apiserver::discovery", &["error", "lenient", "client", "reader", "metadata"]),
    ("upstream::proofs", &["source"]),
    ("upstream::reflector", &["source", "proofs"]),
];

/// Rooms that only the wiring may name, whatever a row above says.
const WIRING_ONLY: &[&str] = &["app", "args", "main", "config", "admin", "demo"];

const LONGEST_FILE: usize = 500;

#[test]
fn rooms_import_only_what_the_table_allows() {
    let mut violations = Vec::new();
    let mut edges = BTreeSet::new();
    for source in program_sources() {
        violations.extend(check(&source));
        edges.extend(source.paths.iter().map(|path| (source.room.clone(), path.segments[0].clone())));
    }
    assert!(violations.is_empty(), "imports against the table of rooms:\n{}", violations.join("\n"));
    // A scanner that sees nothing would find no violation either.
    let own: BTreeSet<_> = edges.iter().filter(|(from, to)| from == "main" && to == "app").collect();
    assert!(!own.is_empty(), "the scanner does not even see that main calls app");
}

#[test]
fn the_table_names_every_room() {
    let table: BTreeMap<_, _> = ROOMS.iter().copied().collect();
    assert_eq!(table.len(), ROOMS.len(), "a room stands twice in the table");
    for (room, allowed) in ROOMS {
        for allowed in allowed.iter().filter(|allowed| **allowed != "*") {
            let target = allowed.split("::").next().unwrap_or_default();
            assert!(table.contains_key(target), "{room} may import {target}, which is no room");
            assert!(!WIRING_ONLY.contains(&target), "{room} may import {target}, which only the wiring may");
        }
    }
    for file in program::files() {
        let room = scan::room_of(&program::in_room(&file));
        assert!(table.contains_key(room.as_str()), "{} belongs to no room of the table", file.display());
    }
    for (part, _) in PARTS {
        let folder = part.replace("::", "/");
        let is_there = program::files().iter().any(|file| program::in_room(file).starts_with(&folder));
        assert!(is_there, "{part} is no folder of a room");
    }
}

/// Rooms form layers: no two may import each other, directly or around a corner.
#[test]
fn the_table_has_no_cycle() {
    fn visit(room: &str, table: &BTreeMap<&str, &[&str]>, trail: &mut Vec<String>) {
        assert!(!trail.iter().any(|seen| seen == room), "a cycle: {} -> {room}", trail.join(" -> "));
        trail.push(room.to_owned());
        for target in table.get(room).copied().unwrap_or_default().iter().filter(|target| **target != "*") {
            visit(target.split("::").next().unwrap_or_default(), table, trail);
        }
        trail.pop();
    }
    let table: BTreeMap<_, _> = ROOMS.iter().copied().collect();
    for (room, _) in ROOMS {
        visit(room, &table, &mut Vec::new());
    }
}

#[test]
fn files_stay_readable() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut simulated = Vec::new();
    sources(&root.join("sim/src"), &mut simulated);
    assert!(simulated.len() > 10, "only {} source files of the simulated apiserver found", simulated.len());
    let long: Vec<_> = program::files()
        .into_iter()
        .map(|file| root.join(file))
        .chain(simulated)
        .filter_map(|file| {
            let lines = fs::read_to_string(&file).expect("a source file is readable").lines().count();
            (lines > LONGEST_FILE).then(|| format!("{}: {lines} lines", file.display()))
        })
        .collect();
    assert!(long.is_empty(), "longer than {LONGEST_FILE} lines, split them:\n{}", long.join("\n"));
}

#[test]
fn finds_violations_in_a_made_up_source() {
    let found = |path: &str, text: &str| check(&made_up(path, text));

    assert_eq!(found("meta/key.rs", "use crate::cache::Writer;").len(), 1);
    assert_eq!(found("meta/key.rs", "use super::super::cache::Writer;").len(), 1);
    assert_eq!(found("meta/mod.rs", "use super::cache::Writer;").len(), 1);
    assert_eq!(found("meta/mod.rs", "mod a { mod b { fn f() { super::super::super::cache::x() } } }").len(), 1);
    assert_eq!(found("meta/key.rs", "fn f() -> crate::cache::Writer { x }").len(), 1);
    assert_eq!(found("meta/key.rs", "use crate::{meta::Gvr, cache::{Writer, WatchCache}, http};").len(), 3);
    assert_eq!(found("meta/key.rs", "use crate::*;").len(), 1);
    assert_eq!(found("meta/key.rs", "use crate as everything;").len(), 1);
    assert_eq!(found("meta/key.rs", "use informerd::cache::Writer;").len(), 1);
    assert_eq!(found("meta/key.rs", "use informerd_api::v1;").len(), 1);
    assert_eq!(found("meta/key.rs", "use informerd_api as pb;").len(), 1);
    assert_eq!(found("http/mod.rs", "use crate::config::Config;").len(), 1);
    assert_eq!(found("auth/mod.rs", "use crate::apiserver::{client::Upstream, discovery};").len(), 1);
    assert_eq!(found("nowhere/mod.rs", "use crate::meta::Gvr;").len(), 1);
    assert_eq!(found("meta/key.rs", "#[cfg(not(test))] mod x { use crate::cache::Writer; }").len(), 1);
    assert_eq!(found("meta/key.rs", "#[cfg(test)] mod tests { use crate::http; }\nuse crate::cache::Writer;").len(), 1);

    assert_eq!(found("http/record/metrics.rs", "use crate::http::door::Places;").len(), 1);
    assert_eq!(found("http/record/metrics.rs", "use super::super::{HttpMetrics, service};").len(), 2);
    assert_eq!(found("http/door/places.rs", "use crate::http::{record::Clients, wire::Http2, Server};").len(), 2);

    let message = &found("meta/key.rs", "\n\nuse crate::cache::Writer;")[0];
    assert_eq!(message, "src/meta/key.rs:3: meta may not import cache::Writer");
}

#[test]
fn finds_nothing_where_nothing_is_wrong() {
    let found = |path: &str, text: &str| check(&made_up(path, text));

    assert!(found("cache/store.rs", "use crate::meta::{Gvr, Object};\nuse super::History;").is_empty());
    assert!(found("cache/mod.rs", "pub(crate) use crate::cache::store::Store;").is_empty());
    assert!(found("auth/mod.rs", "use crate::apiserver::client::Upstream;").is_empty());
    assert!(
        found("meta/key.rs", "// use crate::cache::Writer;\n/* crate::http /* nested */ crate::http */").is_empty()
    );
    assert!(found("meta/key.rs", "const A: &str = \"crate::http\"; const B: &str = r#\"\"crate::http\"#;").is_empty());
    assert!(found("meta/key.rs", "fn f<'a>(x: &'a str) -> char { '\"' } // \"").is_empty());
    assert!(found("meta/key.rs", "#[cfg(test)]\nmod tests { use crate::cache::Writer; }").is_empty());
    assert!(found("meta/key.rs", "#[cfg(test)]\nuse crate::cache::Writer;\nfn f() {}").is_empty());
    assert!(found("meta/key_tests.rs", "use crate::cache::Writer;").is_empty());
    assert!(found("meta/tests.rs", "use crate::cache::Writer;").is_empty());
    assert!(found("app.rs", "use crate::{http, config};").is_empty());
    assert!(
        found("http/door/places.rs", "use super::config::X;\nuse crate::http::{door::Y, record::Clients};").is_empty()
    );
    assert!(found("http/server.rs", "use super::wire::Http2;").is_empty());
}

fn check(source: &Source) -> Vec<String> {
    let table: BTreeMap<_, _> = ROOMS.iter().copied().collect();
    let file = &source.file;
    let Some(allowed) = table.get(source.room.as_str()) else {
        return vec![format!("{}: {} is no room of the table", file.display(), source.room)];
    };
    let part = PARTS.iter().find(|(part, _)| part.split("::").eq(source.module.iter().take(2)));
    let is_allowed = |segments: &[String]| match part {
        _ if segments[0] != source.room => allows(allowed, segments),
        Some((_, of_room)) => {
            segments.get(1).is_none_or(|name| *name == source.module[1]) || allows(of_room, &segments[1..])
        }
        None => true,
    };
    source
        .paths
        .iter()
        .filter(|path| !path.in_tests && !is_allowed(&path.segments))
        .map(|path| {
            format!("{}:{}: {} may not import {}", file.display(), path.line, source.room, path.segments.join("::"))
        })
        .collect()
}

fn allows(allowed: &[&str], segments: &[String]) -> bool {
    allowed.iter().any(|allowed| {
        let mut parts = segments.iter();
        *allowed == "*" || allowed.split("::").all(|part| parts.next().is_some_and(|segment| segment == part))
    })
}

/// A file below `src`.
fn made_up(path: &str, text: &str) -> Source {
    Source::parse(&Path::new("src").join(path), text)
}

fn program_sources() -> Vec<Source> {
    program::files().iter().map(|file| Source::parse(file, &program::read(file))).collect()
}
