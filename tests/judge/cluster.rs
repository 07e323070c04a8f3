//! A real cluster for one test: etcd and kube-apiserver from the judge (see `tests/cluster`), on free ports and with
//! all files in a temporary directory. No two tests have it at the same time.
//!
//! A missing judge is a failure and never a skip: a differential test that silently compares nothing passes for ever.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot have its cluster is over")]

#[path = "idle.rs"]
mod idle;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::Mutex;
use tokio::time::Instant;

use idle::{Idle, Process};

use super::process::patience::{bounded, within};
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
    etcd: String,
    /// Of the first kube-apiserver as it was started first.
    apiserver_pid: u32,
    /// `None` for an etcd that is not the cluster's own.
    etcd_pid: Option<u32>,
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

/// The commands whose effects a reset takes back.
const UNDONE: [&str; 3] = ["apply", "revision", "token"];

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

#[derive(Deserialize)]
struct Token {
    token: String,
}

struct Pipes {
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

/// A running cluster.
pub(crate) struct Cluster {
    pub info: Info,
    /// Taken by drop; locked for one command and its answer.
    pipes: Mutex<Option<Pipes>>,
    /// Taken by drop.
    process: Option<Process>,
    /// Another test may have it afterwards: nothing was done that a reset does not take back.
    reusable: AtomicBool,
}

impl Cluster {
    /// A cluster with the settings every test shares, in which nothing has happened yet: a new one, or one that an earlier
    /// test has left and that was reset. Revisions may be any.
    pub(crate) async fn start() -> Self {
        bounded();
        while let Some(idle) = idle::take() {
            let cluster = Self::new(idle);
            let answer = cluster.exchange("reset").await;
            if answer.is_some_and(|line| parse::<Answer>(&line).ok) {
                cluster.reusable.store(true, Relaxed);
                return cluster;
            }
        }
        let cluster = Self::start_with(&[]).await;
        cluster.reusable.store(true, Relaxed);
        cluster
    }

    /// Starts a cluster with extra flags of `judge cluster`, like `--apiserver-flag=v=4`. No other test ever has it.
    pub(crate) async fn start_with(flags: &[&str]) -> Self {
        bounded();
        let dir = tempfile::Builder::new().prefix("judge-").tempdir().expect("a temporary directory");
        // It outlives the thread of this test, for others. It ends with its standard input, so with this process at the latest.
        let mut child = std::process::Command::new(judge().await)
            .args(["cluster", "--temporary", "--dir"])
            .arg(dir.path())
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the judge starts");
        let commands = child.stdin.take().expect("stdin is a pipe");
        let answers = child.stdout.take().expect("stdout is a pipe");
        let process = Process { child, dir, started: Instant::now() };
        let mut pipes = Pipes::new(commands, answers);
        let Some(line) =
            within("a cluster has started", pipes.answers.next_line()).await.expect("the judge's stdout is readable")
        else {
            panic!("the cluster did not start\n{}", log_tails(process.dir.path()));
        };
        let (pipes, process) = (Mutex::new(Some(pipes)), Some(process));
        Self { info: parse(&line), pipes, process, reusable: AtomicBool::new(false) }
    }

    fn new(Idle { info, commands, answers, process }: Idle) -> Self {
        let pipes = Mutex::new(Some(Pipes::new(commands, answers)));
        Self { info, pipes, process: Some(process), reusable: AtomicBool::new(false) }
    }

    /// The URL of its etcd. Nobody knows what a test does with it, so no other test gets this cluster.
    pub(crate) fn etcd(&self) -> &str {
        self.reusable.store(false, Relaxed);
        &self.info.etcd
    }

    /// The process of its first kube-apiserver as it was started first, with the same consequence.
    pub(crate) fn apiserver_pid(&self) -> u32 {
        self.reusable.store(false, Relaxed);
        self.info.apiserver_pid
    }

    /// The process of its etcd, with the same consequence.
    pub(crate) fn etcd_pid(&self) -> u32 {
        self.reusable.store(false, Relaxed);
        self.info.etcd_pid.expect("an etcd of its own")
    }

    /// The directory with the cluster's files, for more of them.
    pub(crate) fn dir(&self) -> &Path {
        &self.info.dir
    }

    /// The kubeconfig of the user that may do everything.
    pub(crate) fn admin(&self) -> &Path {
        &self.info.kubeconfigs.admin
    }

    /// Writes a kubeconfig for the bearer of this token, and returns where it is.
    pub(crate) fn kubeconfig(&self, name: &str, token: &str) -> PathBuf {
        let path = self.dir().join(format!("{name}.kubeconfig"));
        std::fs::write(&path, kubeconfig(&self.info.server, &self.info.ca, token)).expect("written");
        path
    }

    /// Sends one command and reads its answer; `None` if the judge has died.
    async fn exchange(&self, command: &str) -> Option<String> {
        let mut pipes = self.pipes.lock().await;
        let pipes = pipes.as_mut().expect("the cluster runs until it is dropped");
        // Nobody else may read the answer to a command that was given up.
        let was = self.reusable.swap(false, Relaxed);
        pipes.commands.write_all(format!("{command}\n").as_bytes()).await.ok()?;
        let line = within(&format!("the judge has done {command:?}"), pipes.answers.next_line()).await.ok()??;
        let name = command.split(' ').next().unwrap_or_default();
        self.reusable.store(was && UNDONE.contains(&name), Relaxed);
        Some(line)
    }

    /// Has one command done (`tests/cluster/README.md` lists them) and panics unless that succeeds.
    pub(crate) async fn command<T: DeserializeOwned>(&self, command: &str) -> T {
        let Some(line) = self.exchange(command).await else {
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
        let mut command = process::command("kubectl", kubeconfig).await;
        // Neither the preferences nor the caches of whoever runs the test.
        command.env("HOME", self.dir()).env("KUBECACHEDIR", self.dir().join("kubectl-cache")).env("KUBERC", "off");
        command.args(args);
        process::run(command, "").await
    }

    /// Runs kubectl as admin and returns its stdout; panics unless it succeeds.
    pub(crate) async fn kubectl_ok<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        stdout("kubectl", self.kubectl(self.admin(), args).await)
    }

    /// Applies a manifest as admin; panics unless that succeeds. The definitions in it are served afterwards. The judge
    /// does it itself: kubectl takes several times the processor.
    pub(crate) async fn apply(&self, manifest: &str) {
        let quoted = serde_json::Value::from(manifest);
        self.command::<Answer>(&format!("apply {quoted}")).await;
    }

    /// Makes a namespace as admin; panics unless that succeeds.
    pub(crate) async fn namespace(&self, name: &str) {
        self.apply(&format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n")).await;
    }

    /// A token of a service account; panics if there is none.
    pub(crate) async fn token(&self, namespace: &str, account: &str) -> String {
        self.command::<Token>(&format!("token {namespace} {account}")).await.token
    }
}

/// A kubeconfig for the bearer of this token.
pub(crate) fn kubeconfig(server: &str, ca: &Path, token: &str) -> String {
    let cluster = format!("{{server: '{server}', certificate-authority: '{}'}}", ca.display());
    context(&cluster, &format!("{{token: '{token}'}}"))
}

/// A kubeconfig of one context, in YAML's flow style.
pub(crate) fn context(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: k, cluster: {cluster}}}]\n\
         users: [{{name: u, user: {user}}}]\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n"
    )
}

impl Pipes {
    fn new(commands: std::process::ChildStdin, answers: std::process::ChildStdout) -> Self {
        let commands = ChildStdin::from_std(commands).expect("a pipe");
        let answers = BufReader::new(ChildStdout::from_std(answers).expect("a pipe")).lines();
        Self { commands, answers }
    }

    /// Without their runtime; `None` if that is gone.
    fn into_std(self) -> Option<(std::process::ChildStdin, std::process::ChildStdout)> {
        let answers = self.answers.into_inner().into_inner();
        Some((self.commands.into_owned_fd().ok()?.into(), answers.into_owned_fd().ok()?.into()))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let (pipes, process) = (self.pipes.get_mut().take(), self.process.take());
        if !self.reusable.load(Relaxed) || std::thread::panicking() {
            // Closed before the process is waited for, which takes it as its end.
            drop(pipes);
        } else if let (Some((commands, answers)), Some(process)) = (pipes.and_then(Pipes::into_std), process) {
            idle::leave(Idle { info: self.info.clone(), commands, answers, process });
        }
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
