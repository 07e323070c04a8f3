//! A real cluster for one test: etcd and kube-apiserver from the judge (see `tests/cluster`), on free ports and with
//! all files in a temporary directory, gone when the value is dropped.
//!
//! A missing judge is a failure and never a skip: a differential test that silently compares nothing passes for ever.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot have its cluster is over")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

use super::process::{self, judge, parse, stdout};

/// The kubeconfig files for one server, one per user.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Kubeconfigs {
    /// User `admin` with a token, allowed everything.
    pub admin: PathBuf,
    /// User `admin-cert` with a client certificate, allowed everything.
    pub admin_cert: PathBuf,
    /// User `reader` with a token, allowed what the test grants it.
    pub reader: PathBuf,
    /// User `nobody` with a token, allowed nothing.
    pub nobody: PathBuf,
}

/// What there is to know about a running cluster.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Info {
    pub server: String,
    pub etcd: String,
    pub pid: u32,
    /// Of the first kube-apiserver as it was started first.
    pub apiserver_pid: u32,
    /// `None` for an etcd that is not the cluster's own.
    pub etcd_pid: Option<u32>,
    pub dir: PathBuf,
    pub ca: PathBuf,
    pub client_cert: PathBuf,
    pub client_key: PathBuf,
    pub kubeconfigs: Kubeconfigs,
    pub version: String,
}

/// A kube-apiserver that has just been started.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Server {
    /// What commands to [`Cluster::command`] call it.
    pub index: usize,
    pub server: String,
    pub apiserver_pid: u32,
    pub kubeconfigs: Kubeconfigs,
}

#[derive(Deserialize)]
struct Answer {
    ok: bool,
    #[serde(default)]
    error: String,
}

#[derive(Deserialize)]
struct Revision {
    revision: i64,
}

struct Pipes {
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

/// A running cluster.
pub(crate) struct Cluster {
    pub info: Info,
    /// Taken by drop, which the judge sees as its end; locked for one command and its answer.
    pipes: Mutex<Option<Pipes>>,
    child: Child,
    dir: TempDir,
}

impl Cluster {
    /// Starts a cluster with the settings every test shares.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a cluster with extra flags of `judge cluster`, like `--apiserver-flag=v=4`.
    pub(crate) async fn start_with(flags: &[&str]) -> Self {
        let dir = tempfile::Builder::new().prefix("judge-").tempdir().expect("a temporary directory");
        let mut child = Command::new(judge().await)
            .arg("cluster")
            .arg("--dir")
            .arg(dir.path())
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the judge starts");
        let commands = child.stdin.take().expect("stdin is a pipe");
        let mut answers = BufReader::new(child.stdout.take().expect("stdout is a pipe")).lines();
        let Some(line) = answers.next_line().await.expect("the judge's stdout is readable") else {
            panic!("the cluster did not start\n{}", log_tails(dir.path()));
        };
        let info = parse(&line);
        Self { info, pipes: Mutex::new(Some(Pipes { commands, answers })), child, dir }
    }

    /// The directory with the cluster's files, for more of them.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The kubeconfig of the user that may do everything.
    pub(crate) fn admin(&self) -> &Path {
        &self.info.kubeconfigs.admin
    }

    /// Has one command done (`tests/cluster/README.md` lists them) and panics unless that succeeds.
    pub(crate) async fn command<T: DeserializeOwned>(&self, command: &str) -> T {
        let mut pipes = self.pipes.lock().await;
        let pipes = pipes.as_mut().expect("the cluster runs until it is dropped");
        let sent = pipes.commands.write_all(format!("{command}\n").as_bytes()).await;
        let answer = pipes.answers.next_line().await;
        let (Ok(()), Ok(Some(line))) = (sent, answer) else {
            panic!("the judge has died on {command}\n{}", log_tails(self.dir()));
        };
        let answer: Answer = parse(&line);
        assert!(answer.ok, "{command}: {}\n{}", answer.error, log_tails(self.dir()));
        parse(&line)
    }

    /// Stops kube-apiserver gracefully and starts it again on the same port.
    pub(crate) async fn restart_apiserver(&self) -> Server {
        self.command("restart-apiserver").await
    }

    /// Stops kube-apiserver gracefully; its port refuses connections until it is started again.
    pub(crate) async fn stop_apiserver(&self) {
        self.command::<Answer>("stop-apiserver").await;
    }

    /// Kills kube-apiserver with SIGKILL; its port refuses connections until it is started again.
    pub(crate) async fn kill_apiserver(&self) {
        self.command::<Answer>("kill-apiserver").await;
    }

    /// Starts kube-apiserver after it was stopped or killed and waits until it is ready.
    pub(crate) async fn start_apiserver(&self) -> Server {
        self.command("start-apiserver").await
    }

    /// Starts one more kube-apiserver on the same etcd.
    pub(crate) async fn second_apiserver(&self) -> Server {
        self.command("second-apiserver").await
    }

    /// Compacts etcd to its current revision, which is returned.
    pub(crate) async fn compact(&self) -> i64 {
        self.command::<Revision>("compact").await.revision
    }

    /// The current revision of etcd.
    pub(crate) async fn revision(&self) -> i64 {
        self.command::<Revision>("revision").await.revision
    }

    /// Runs kubectl as the user of `kubeconfig`, against the server that names.
    pub(crate) async fn kubectl<S: AsRef<OsStr>>(
        &self,
        kubeconfig: &Path,
        args: impl IntoIterator<Item = S>,
    ) -> Output {
        self.kubectl_stdin(kubeconfig, args, "").await
    }

    /// Runs kubectl as admin and returns its stdout; panics unless it succeeds.
    pub(crate) async fn kubectl_ok<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        stdout("kubectl", self.kubectl(self.admin(), args).await)
    }

    /// Applies a manifest as admin; panics unless that succeeds.
    pub(crate) async fn apply(&self, manifest: &str) -> String {
        stdout("kubectl apply", self.kubectl_stdin(self.admin(), ["apply", "-f", "-"], manifest).await)
    }

    /// Runs `judge churn` with `args` as admin until it is done and returns its counts; panics unless it succeeds.
    pub(crate) async fn churn(&self, args: &[&str]) -> serde_json::Value {
        let mut command = process::command("churn", self.admin()).await;
        command.args(args);
        parse(&stdout("judge churn", process::run(command, "").await))
    }

    async fn kubectl_stdin<S: AsRef<OsStr>>(
        &self,
        kubeconfig: &Path,
        args: impl IntoIterator<Item = S>,
        input: &str,
    ) -> Output {
        let mut command = process::command("kubectl", kubeconfig).await;
        // Neither the preferences nor the caches of whoever runs the test.
        command.env("HOME", self.dir()).env("KUBECACHEDIR", self.dir().join("kubectl-cache")).env("KUBERC", "off");
        command.args(args);
        process::run(command, input).await
    }
}

impl Drop for Cluster {
    /// Waits until the processes are gone, which takes milliseconds: they would write into the directory while it is
    /// being removed.
    #[allow(clippy::disallowed_methods, reason = "drop cannot await, and the runtime may be gone")]
    fn drop(&mut self) {
        drop(self.pipes.get_mut().take());
        for _ in 0..500 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        // Dropping the child kills it, and the pipes between them end its children.
    }
}

/// The ends of the cluster's logs: with the directory they go away before anybody could look at them.
fn log_tails(dir: &Path) -> String {
    let mut tails = String::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension() != Some(OsStr::new("log")) {
            continue;
        }
        let log = std::fs::read(&path).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        let tail = lines.iter().skip(lines.len().saturating_sub(20));
        tails.push_str(&format!("--- {}\n", path.display()));
        tail.for_each(|line| tails.extend([line, "\n"]));
    }
    tails
}
