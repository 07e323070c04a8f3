//! Processes that end with the test that started them, however it ends.
//!
//! A guard kills what it holds when a test fails. Nothing runs it when the test itself is killed, so the kernel is asked to.
//! `tests/rules/children.rs` checks that tests start processes only through this.

#![allow(dead_code, reason = "every test binary uses its own part")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use tokio::process::Command;

use super::patience::bounded;

/// The whole path: a test may give its process another `PATH`.
static SETPRIV: LazyLock<PathBuf> = LazyLock::new(|| {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|directory| directory.join("setpriv"));
    found.find(|program| program.is_file()).expect("setpriv of util-linux is in the PATH")
});

/// A command whose process is killed when it is dropped, or when the thread that started it ends. Whoever runs it must
/// not change its user, and not start it from a thread that ends before its test.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::from(blocking(program));
    command.kill_on_drop(true);
    command
}

/// Sends a signal to a process.
pub(crate) fn signal(pid: u32, name: &str) {
    let sent = blocking("kill").args(["-s", name, &pid.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "{name} to {pid}");
}

/// Copies a directory with all that is in it to a place where there is none.
pub(crate) fn copy(from: &Path, to: &Path) {
    let copied = blocking("cp").arg("-r").args([from, to]).status();
    assert!(copied.is_ok_and(|status| status.success()), "{} to {}", from.display(), to.display());
}

/// The same without a runtime. Dropping its process does not kill it.
pub(crate) fn blocking(program: impl AsRef<OsStr>) -> std::process::Command {
    bounded();
    let mut command = std::process::Command::new(&*SETPRIV);
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}
