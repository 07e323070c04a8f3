//! The source files of the program: those below `src`, and those of the crates below `crates`, from which it is linked.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of a test")]

use std::fs;
use std::path::{Path, PathBuf};

use crate::children::sources;

/// The directories with the crates' sources, as paths from the root.
pub(crate) fn crates() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("crates")).unwrap();
    let mut crates: Vec<_> = entries.map(|entry| entry.unwrap().path().join("src")).collect();
    crates.sort();
    crates.iter().map(|path| path.strip_prefix(root()).unwrap().to_owned()).collect()
}

/// All source files, as paths from the root.
pub(crate) fn files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for directory in crates().into_iter().chain(["src".into()]) {
        sources(&root().join(directory), &mut files);
    }
    assert!(files.len() > 100, "only {} source files found", files.len());
    files.sort();
    files.iter().map(|file| file.strip_prefix(root()).unwrap().to_owned()).collect()
}

pub(crate) fn read(file: impl AsRef<Path>) -> String {
    let file = root().join(file);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The path of a file that begins with its room: a crate is one, like a directory below `src`. `cache/ring.rs` is
/// `src/cache/ring.rs`, and `cli/ask.rs` is `crates/cli/src/ask.rs`.
pub(crate) fn in_room(file: &Path) -> PathBuf {
    let parts: Vec<_> = file.iter().collect();
    match parts[..] {
        [first, room, _, ..] if first == "crates" => Path::new(room).join(parts[3..].iter().collect::<PathBuf>()),
        _ => parts[1..].iter().collect(),
    }
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
