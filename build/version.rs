//! Tells the program what it is built from. A program that is built with optimisation from a checkout names its commit;
//! elsewhere the builder may say it. See `src/app/version.rs`.

use std::path::Path;
use std::process::Command;

/// What the program is built from, for the comparison with the commit.
const SOURCES: [&str; 10] = [
    "Cargo.toml",
    "Cargo.lock",
    "rust-toolchain.toml",
    "benches",
    "build",
    "crates",
    "manifests",
    "proto",
    "sim",
    "src",
];

fn main() {
    println!("cargo:rerun-if-changed=build/version.rs");
    println!("cargo:rerun-if-env-changed=INFORMERD_BUILD_COMMIT");
    println!("cargo:rerun-if-env-changed=INFORMERD_BUILD_DATE");
    let is_said = std::env::var_os("INFORMERD_BUILD_COMMIT").is_some_and(|commit| !commit.is_empty());
    // Builds of the tests name none: each commit would compile them again.
    if is_said || std::env::var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    let here = std::env::current_dir().ok();
    let is_own = |top: &String| Path::new(top).canonicalize().ok() == here.and_then(|here| here.canonicalize().ok());
    // The checkout may be a part of another repository, and the sources may come without a repository.
    if git(&["rev-parse", "--show-toplevel"]).filter(is_own).is_none() {
        return;
    }
    let (Some(commit), Some(date)) = (git(&["rev-parse", "HEAD"]), git(&["log", "-1", "--format=%cs"])) else { return };
    let changes = git(&[&["status", "--porcelain", "--"][..], &SOURCES].concat());
    let changed = if changes.is_none_or(|changes| changes.is_empty()) { "" } else { ", changed since" };
    println!("cargo:rustc-env=INFORMERD_BUILD_COMMIT={commit}");
    println!("cargo:rustc-env=INFORMERD_BUILD_DATE={date}{changed}");
    // Where git keeps no log, the script runs at each build.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]);
    for path in log.iter().map(String::as_str).chain(SOURCES.into_iter().filter(|path| Path::new(path).exists())) {
        println!("cargo:rerun-if-changed={path}");
    }
}

/// What git prints; `None` without git, without a repository, or if git refuses.
fn git(arguments: &[&str]) -> Option<String> {
    // It must not lock the checkout, where somebody may commit meanwhile.
    let output = Command::new("git").arg("--no-optional-locks").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
