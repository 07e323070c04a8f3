//! The binary before an apiserver, told of its collector by its environment.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use informerd_sim::{self as sim, Server};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use crate::support::client::Client;
use crate::support::eventually;
use crate::support::tied;
use crate::support::within;

pub(super) struct Daemon {
    pub url: String,
    pub admin: String,
    lines: Arc<Mutex<Vec<Value>>>,
    child: Child,
    dir: tempfile::TempDir,
}

impl Daemon {
    pub(super) async fn start(server: &Server, env: &[(&str, &str)]) -> Self {
        Self::before(&sim::kubeconfig("sim", &server.url()), &[], env).await
    }

    /// Before the server of a kubeconfig, with more flags.
    pub(super) async fn before(kubeconfig: &str, flags: &[&str], env: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let text = kubeconfig;
        let kubeconfig = dir.path().join("kubeconfig");
        std::fs::write(&kubeconfig, text).unwrap();
        let mut command = tied::command(env!("CARGO_BIN_EXE_informerd"));
        command
            .args([
                "run",
                "--listen=http://127.0.0.1:0",
                "--admin=127.0.0.1:0",
                "--log-format=json",
                "--lend-identity=all",
            ])
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--state-dir={}", dir.path().display()))
            .args(flags)
            .env("INFORMERD_LOG_LEVEL", "debug")
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let lines = Arc::<Mutex<Vec<Value>>>::default();
        let kept = lines.clone();
        tokio::spawn(async move {
            while let Some(line) = stderr.next_line().await.unwrap() {
                kept.lock().push(serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}")));
            }
        });
        let mut daemon = Self { url: String::new(), admin: String::new(), lines, child, dir };
        eventually("it listens", || daemon.line("admin").is_some()).await;
        daemon.url = daemon.line("serving").unwrap()["address"].as_str().unwrap().to_owned();
        daemon.admin = format!("http://{}", daemon.line("admin").unwrap()["address"].as_str().unwrap());
        daemon
    }

    pub(super) fn client(&self) -> Client {
        Client::new(&self.url)
    }

    /// Of all listeners.
    pub(super) fn addresses(&self) -> Vec<String> {
        let lines = self.lines.lock();
        let serving = lines.iter().filter(|line| line["message"] == "serving");
        serving.map(|line| line["address"].as_str().unwrap().to_owned()).collect()
    }

    /// The CA of its listeners.
    pub(super) fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.crt")
    }

    /// The first line with this message.
    pub(super) fn line(&self, message: &str) -> Option<Value> {
        self.lines.lock().iter().find(|line| line["message"] == message).cloned()
    }

    pub(super) fn lines(&self) -> Vec<Value> {
        self.lines.lock().clone()
    }

    pub(super) async fn metrics(&self) -> String {
        Client::new(&self.admin).get("/metrics").await.text()
    }

    /// One number without labels.
    pub(super) async fn metric(&self, name: &str) -> f64 {
        let text = self.metrics().await;
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    /// Tells it to end, and waits until it has.
    pub(super) async fn stop(mut self) -> ExitStatus {
        let pid = self.child.id().unwrap().to_string();
        assert!(tied::command("kill").args(["-TERM", &pid]).status().await.unwrap().success());
        within("the process ends", self.child.wait()).await.unwrap()
    }
}
