//! The program as a process of its own, which must not use more memory than it is told.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use informerd_sim::{self as sim, Server};

use super::binary::{BINARY, Binary, bare};

/// A process under a limit. The kernel kills it if it goes beyond.
pub(crate) struct Limited {
    daemon: Binary,
    group: Option<Group>,
}

/// A cgroup of its own. Whoever made it removes it when its process is gone.
pub(crate) struct Group(PathBuf);

/// The file with the limit in each version of cgroups.
const LIMITS: [&str; 2] = ["memory.max", "memory.limit_in_bytes"];

// === impl Limited ===

impl Limited {
    /// In a cgroup with this limit in bytes, where this machine lets us make one. Otherwise the kernel limits the process's
    /// data, of which the program uses half: beyond it allocating fails, which is as deadly.
    pub(crate) async fn start(server: &Server, limit: usize, arguments: &[&str]) -> Self {
        let group = Group::make(limit);
        let mut command = match &group {
            Some(group) => {
                let mut command = bare("sh");
                command.args(["-c", &group.joined(), "sh", BINARY]);
                command
            }
            None => {
                let mut command = bare("prlimit");
                command.args([&format!("--data={}", 2 * limit), BINARY]);
                command
            }
        };
        command.args(["run", "--listen", "http://127.0.0.1:0"]);
        let kubeconfig = sim::kubeconfig("sim", &server.url()).replace("user: {}", "user: {token: t}");
        Self { daemon: Binary::run(command, &kubeconfig, arguments).await, group }
    }

    /// Panics if it has ended, or if the kernel has killed anything in its cgroup. Says what it uses.
    pub(crate) async fn lives(&self, when: &str) {
        self.assert_alive(when);
        let killed = self.group.as_ref().map(Group::killed).unwrap_or_default();
        assert_eq!(killed, 0, "{when}: killed by the kernel\n{}", self.log());
        let resident = self.metric("process_resident_memory_bytes").await;
        let peak = self.group.as_ref().and_then(Group::peak);
        eprintln!("{when}: {resident} bytes, at most {peak:?} in the cgroup");
    }

    /// The counts of all that was said of memory, for a failing test.
    pub(crate) async fn said_of_memory(&self) -> String {
        let metrics = self.metrics().await;
        let of = ["informerd_memory", "informerd_bodies", "informerd_caches", "informerd_reads_total"];
        let lines =
            metrics.lines().filter(|line| of.iter().any(|name| line.starts_with(name)) && !line.ends_with(" 0"));
        lines.collect::<Vec<_>>().join("\n")
    }
}

impl Deref for Limited {
    type Target = Binary;

    fn deref(&self) -> &Binary {
        &self.daemon
    }
}

// === impl Group ===

impl Group {
    /// Below our own cgroup, or, where that must not have any, at the root of the hierarchy.
    pub(crate) fn make(limit: usize) -> Option<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("informerd-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = |controller: &str| {
            let of = |line: &str| {
                let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
                controllers.split(',').any(|name| name == controller).then(|| path.trim_start_matches('/').to_owned())
            };
            own.lines().find_map(of).unwrap_or_default()
        };
        let (first, second) = (Path::new("/sys/fs/cgroup/memory"), Path::new("/sys/fs/cgroup"));
        let parents = [first.join(own("memory")), first.into(), second.join(own("")), second.into()];
        for group in parents.map(|parent| parent.join(&name)) {
            if std::fs::create_dir(&group).is_err() {
                continue;
            }
            if LIMITS.iter().any(|file| std::fs::write(group.join(file), limit.to_string()).is_ok()) {
                return Some(Self(group));
            }
            std::fs::remove_dir(&group).ok();
        }
        None
    }

    /// A script that runs its arguments in it.
    pub(crate) fn joined(&self) -> String {
        format!("echo $$ >{}/cgroup.procs && exec \"$@\"", self.0.display())
    }

    /// How many processes the kernel has killed.
    pub(crate) fn killed(&self) -> u64 {
        let files = ["memory.events", "memory.oom_control"];
        let text = files.iter().find_map(|file| std::fs::read_to_string(self.0.join(file)).ok()).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.unwrap_or_else(|| panic!("no count of kills: {text}")).parse().unwrap()
    }

    pub(crate) fn remove(&self) {
        std::fs::remove_dir(&self.0).ok();
    }

    /// The most that was ever used, in bytes, with what the kernel can take back.
    fn peak(&self) -> Option<u64> {
        let files = ["memory.peak", "memory.max_usage_in_bytes"];
        files.iter().find_map(|file| std::fs::read_to_string(self.0.join(file)).ok())?.trim().parse().ok()
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // The group cannot go before the process has.
        self.daemon.kill();
        self.group.iter().for_each(Group::remove);
    }
}
