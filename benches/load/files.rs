//! The limit of open files: over HTTP/1.1, each watcher has a connection of its own.

use anyhow::Context;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of this process, and of the servers that it starts, as far as the system allows.
pub(crate) fn allow_many() -> anyhow::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

/// Whether a process may have so many connections, and the files that it needs besides.
pub(crate) fn allows(pid: u32, connections: usize) -> anyhow::Result<bool> {
    const BESIDES: usize = 200;
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits"))?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).context("no limit of open files")?;
    let most = line.split_whitespace().next().context("no limit of open files")?;
    Ok(most == "unlimited" || most.parse::<usize>()? >= connections + BESIDES)
}
