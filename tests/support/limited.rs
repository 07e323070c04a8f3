//! The program as a process of its own, which must not use more memory than it is told.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use informerd_sim::{self as sim, Server};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use super::client::Client;
use super::patience::{until, within};
use super::tied;

/// A process under a limit. The kernel kills it if it goes beyond.
pub(crate) struct Limited {
    child: Mutex<Child>,
    pub url: String,
    pub admin: SocketAddr,
    pub log: Arc<Mutex<String>>,
    group: Option<Group>,
    _directory: tempfile::TempDir,
}

/// A cgroup of its own.
struct Group(PathBuf);

/// The file with the limit in each version of cgroups.
const LIMITS: [&str; 2] = ["memory.max", "memory.limit_in_bytes"];

// === impl Limited ===

impl Limited {
    /// In a cgroup with this limit in bytes, where this machine lets us make one. Otherwise the kernel limits the process's
    /// data, of which the program uses half: beyond it allocating fails, which is as deadly.
    pub(crate) async fn start(server: &Server, limit: usize, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let group = Group::make(limit);
        let binary = env!("CARGO_BIN_EXE_informerd");
        let mut command = match &group {
            Some(Group(group)) => {
                let mut command = tied::command("sh");
                let join = format!("echo $$ >{}/cgroup.procs && exec {binary} \"$@\"", group.display());
                command.args(["-c", &join, "sh"]);
                command
            }
            None => {
                let mut command = tied::command("prlimit");
                command.args([&format!("--data={}", 2 * limit), binary]);
                command
            }
        };
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("INFORMERD_") {
                command.env_remove(name);
            }
        }
        // A debug assertion of a library that fails with a broken connection ends its task alone. To print where it was, a
        // debug build would read its symbols, more than the memory there is.
        command.env("RUST_BACKTRACE", "0");
        let kubeconfig = directory.path().join("kubeconfig");
        let text = sim::kubeconfig("sim", &server.url()).replace("user: {}", "user: {token: t}");
        std::fs::write(&kubeconfig, text).unwrap();
        command.arg("--kubeconfig").arg(kubeconfig);
        command.args(["--listen", "http://127.0.0.1:0", "--admin", "127.0.0.1:0", "--log-format", "json"]);
        command.args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("sh or prlimit");
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let (mut url, mut admin) = (None, None);
        while url.is_none() || admin.is_none() {
            let line =
                within("it serves", lines.next_line()).await.unwrap().unwrap_or_else(|| panic!("{}", log.lock()));
            log.lock().push_str(&format!("{line}\n"));
            let line: Value = serde_json::from_str(&line).unwrap_or_default();
            // The fields stand beside the message or in an object of their own.
            let fields = if line["fields"].is_object() { &line["fields"] } else { &line };
            match fields["message"].as_str() {
                Some("serving") => url = fields["address"].as_str().map(str::to_owned),
                Some("admin") => admin = fields["address"].as_str().and_then(|address| address.parse().ok()),
                _ => {}
            }
        }
        let kept = log.clone();
        informerd::lifecycle::spawn("log", async move {
            while let Ok(Some(line)) = lines.next_line().await {
                kept.lock().push_str(&format!("{line}\n"));
            }
        });
        Self { child: Mutex::new(child), url: url.unwrap(), admin: admin.unwrap(), log, group, _directory: directory }
    }

    /// Panics if it has ended, or if the kernel has killed anything in its cgroup. Says what it uses.
    pub(crate) async fn lives(&self, when: &str) {
        let ended = self.child.lock().try_wait().unwrap();
        assert!(ended.is_none(), "{when}: it has ended: {ended:?}\n{}", self.log.lock());
        let killed = self.group.as_ref().map(Group::killed).unwrap_or_default();
        assert_eq!(killed, 0, "{when}: killed by the kernel\n{}", self.log.lock());
        let metrics = self.metrics().await;
        let resident = metrics.lines().find(|line| line.starts_with("process_resident_memory_bytes ")).unwrap();
        let peak = self.group.as_ref().and_then(Group::peak);
        eprintln!("{when}: {resident}, at most {peak:?} in the cgroup");
    }

    /// The counts of all that was said of memory, for a failing test.
    pub(crate) async fn said_of_memory(&self) -> String {
        let metrics = self.metrics().await;
        let of = ["informerd_memory", "informerd_bodies", "informerd_caches", "informerd_reads_total"];
        let lines =
            metrics.lines().filter(|line| of.iter().any(|name| line.starts_with(name)) && !line.ends_with(" 0"));
        lines.collect::<Vec<_>>().join("\n")
    }

    pub(crate) async fn metrics(&self) -> String {
        Client::new(&format!("http://{}", self.admin)).metrics().await
    }

    /// A series without labels.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let metrics = self.metrics().await;
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name}: {metrics}")).parse().unwrap()
    }

    pub(crate) async fn ready(&self) {
        let admin = Client::new(&format!("http://{}", self.admin));
        until("it is ready", async || {
            self.lives("becoming ready").await;
            admin.get("/readyz").await.status == 200
        })
        .await;
    }
}

// === impl Group ===

impl Group {
    /// Below our own cgroup, or, where that must not have any, at the root of the hierarchy.
    fn make(limit: usize) -> Option<Self> {
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

    /// How many processes the kernel has killed.
    fn killed(&self) -> u64 {
        let files = ["memory.events", "memory.oom_control"];
        let text = files.iter().find_map(|file| std::fs::read_to_string(self.0.join(file)).ok()).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.unwrap_or_else(|| panic!("no count of kills: {text}")).parse().unwrap()
    }

    /// The most that was ever used, in bytes, with what the kernel can take back.
    fn peak(&self) -> Option<u64> {
        let files = ["memory.peak", "memory.max_usage_in_bytes"];
        files.iter().find_map(|file| std::fs::read_to_string(self.0.join(file)).ok())?.trim().parse().ok()
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        child.start_kill().ok();
        for _ in 0..500 {
            // The group cannot go before the process has.
            if !matches!(child.try_wait(), Ok(None)) {
                break;
            }
            #[allow(clippy::disallowed_methods, reason = "drop cannot await, and the runtime may be gone")]
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        if let Some(Group(group)) = &self.group {
            std::fs::remove_dir(group).ok();
        }
    }
}
