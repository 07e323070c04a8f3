//! The program as a process of its own: its settings, its log, its end.

use std::path::PathBuf;
use std::process::{ExitStatus, Output, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::process::{Child, Command};

use super::client::Client;
use super::lines::keep;
use super::metrics::only;
use super::patience::{eventually, until, within};
use super::{file, tied};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_informerd");

/// The program with these arguments.
pub(crate) fn informerd(line: &str) -> Command {
    let mut command = bare(BINARY);
    command.args(line.split_whitespace());
    command
}

/// A command with nothing of this process's environment that could be a setting.
pub(crate) fn bare(program: &str) -> Command {
    let mut command = tied::command(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("INFORMERD_") || name == "KUBECONFIG" {
            command.env_remove(name);
        }
    }
    command
}

/// The exit code of a command, and what it says on either side.
pub(crate) async fn said(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().await.unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// A running daemon.
pub(crate) struct Binary {
    child: Mutex<Child>,
    log: Arc<Mutex<String>>,
    /// Of its first listener.
    pub url: String,
    /// `http://ADDRESS:PORT` of its admin side.
    pub admin: String,
    /// Its state, and the kubeconfig it was given.
    pub directory: tempfile::TempDir,
}

impl Binary {
    /// Before the server of a kubeconfig, on a free port.
    pub(crate) async fn start(kubeconfig: &str, flags: &[&str]) -> Self {
        Self::run(informerd("run --listen http://127.0.0.1:0 --lend-identity all"), kubeconfig, flags).await
    }

    /// A command that begins with the program's own arguments. Returns when the daemon listens.
    pub(crate) async fn run(mut command: Command, kubeconfig: &str, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = file(directory.path(), "kubeconfig", kubeconfig);
        command.arg("--kubeconfig").arg(&file).arg("--state-dir").arg(directory.path());
        command.args(["--admin", "127.0.0.1:0", "--log-format", "json"]).args(flags);
        // A debug assertion of a library that fails with a broken connection ends its task alone. To print where it was, a
        // debug build would read its symbols: 90 MiB.
        command.env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = Arc::default();
        keep(&mut child.stderr, &log, false);
        let (url, admin) = (String::new(), String::new());
        let mut daemon = Self { child: Mutex::new(child), log, url, admin, directory };
        // It says this after all of its listeners.
        eventually("it listens", || {
            daemon.assert_alive("it starts");
            daemon.line("admin").is_some()
        })
        .await;
        daemon.url = daemon.addresses().remove(0).replace("delegated+", "");
        daemon.admin = format!("http://{}", daemon.line("admin").unwrap()["address"].as_str().unwrap());
        daemon
    }

    pub(crate) fn assert_alive(&self, when: &str) {
        let ended = self.child.lock().try_wait().unwrap();
        assert!(ended.is_none(), "{when}: it has ended: {ended:?}\n{}", self.log());
    }

    pub(crate) async fn ready(&self) {
        let admin = Client::new(&self.admin);
        until("it is ready", async || {
            self.assert_alive("becoming ready");
            admin.get("/readyz").await.status == 200
        })
        .await;
    }

    /// Of all listeners, by their schemes.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let lines = self.lines().into_iter().filter(|line| line["message"] == "serving");
        lines.map(|line| line["address"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.url)
    }

    /// The CA of its listeners.
    pub(crate) fn ca(&self) -> PathBuf {
        self.directory.path().join("ca.crt")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.lock().id().unwrap()
    }

    /// What it has said so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().clone()
    }

    pub(crate) fn lines(&self) -> Vec<Value> {
        self.log
            .lock()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")))
            .collect()
    }

    /// The first line with this message.
    pub(crate) fn line(&self, message: &str) -> Option<Value> {
        self.lines().into_iter().find(|line| line["message"] == message)
    }

    pub(crate) async fn metrics(&self) -> String {
        Client::new(&self.admin).metrics().await
    }

    /// A series without labels.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        only(&self.metrics().await, name, &[])
    }

    pub(crate) fn signal(&self, name: &str) {
        tied::signal(self.pid(), name);
    }

    /// Kills it, and waits until it is gone.
    pub(crate) fn kill(&self) {
        let mut child = self.child.lock();
        child.start_kill().ok();
        for _ in 0..500 {
            if !matches!(child.try_wait(), Ok(None)) {
                break;
            }
            #[allow(clippy::disallowed_methods, reason = "called by drop, which cannot await")]
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Until it has ended by itself, or by a signal.
    pub(crate) async fn ended(self) -> ExitStatus {
        within("the process ends", self.child.into_inner().wait()).await.unwrap()
    }

    /// Tells it to end, and waits until it has.
    pub(crate) async fn stop(self) -> ExitStatus {
        self.signal("TERM");
        self.ended().await
    }
}
