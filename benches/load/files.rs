//! The limit of open files: over HTTP/1.1, each watcher has a connection of its own.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of this process, and of the servers that it starts, as far as the system allows.
pub(crate) fn allow_many() -> anyhow::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

/// Whether a process may have so many connections, and the files that it needs besides.
pub(crate) fn allow(connections: usize) -> bool {
    const BESIDES: u64 = 200;
    getrlimit(Resource::Nofile).current.is_none_or(|most| most >= connections as u64 + BESIDES)
}
