//! What a test starts ends with it, however it ends: processes are started through `tests/support/tied.rs`.

#![allow(clippy::unwrap_used, reason = "helpers of a test")]

use std::fs;
use std::path::{Path, PathBuf};

/// Files that may start processes in another way, and why.
const OTHERS: &[(&str, &str)] = &[
    ("support/tied.rs", "it is the other way"),
    ("judge/cluster.rs", "a cluster outlives its test, for others, and ends with its standard input"),
];

/// Where nothing is started that could go on: these tests have no runtime, and those programs are started by tests.
const ELSEWHERE: [&str; 2] = ["rules", "clients"];

pub(crate) fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn what_a_test_starts_ends_with_it() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut files = Vec::new();
    sources(&tests, &mut files);
    assert!(files.len() > 100, "{files:?}");
    for file in files {
        let name = file.strip_prefix(&tests).unwrap();
        if ELSEWHERE.iter().any(|directory| name.starts_with(directory)) {
            continue;
        }
        let starts = fs::read_to_string(&file).unwrap().contains("Command::new(");
        let other = OTHERS.iter().any(|(other, _)| name == Path::new(other));
        assert_eq!(starts, other, "{}: use support::tied instead of Command::new", name.display());
    }
}
