//! informerd itself, the binary, in front of a cluster.

#![allow(dead_code, reason = "not every test needs all of it")]
#![allow(clippy::expect_used, clippy::panic, reason = "a test without its daemon is over")]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Child;
use tokio::time::{Instant, sleep};

use crate::support::ports::Port;
use crate::support::tied;

/// A running informerd with an http and an https listener.
pub(crate) struct Daemon {
    /// Kubeconfigs without credentials, as `informerd kubeconfig` prints them.
    pub http: PathBuf,
    pub https: PathBuf,
    pub admin: String,
    child: Child,
    dir: TempDir,
    _ports: [Port; 3],
}

const BINARY: &str = env!("CARGO_BIN_EXE_informerd");

// === impl Daemon ===

impl Daemon {
    /// Starts it and waits until it is ready; panics with its log if that takes longer than half a minute.
    pub(crate) async fn start(upstream: &Path, flags: &[&str]) -> Self {
        let dir = tempfile::Builder::new().prefix("informerd-").tempdir().expect("a temporary directory");
        let state = dir.path().join("state");
        let ports = [Port::free(), Port::free(), Port::free()];
        let [http, https, admin] = ports.each_ref().map(|port| port.address.to_string());
        let (http, https) = (format!("http://{http}"), format!("https://{https}"));
        let log = std::fs::File::create(dir.path().join("log")).expect("a log file");
        let child = tied::command(BINARY)
            .arg("run")
            .arg("--kubeconfig")
            .arg(upstream)
            .args(["--listen", &http, "--listen", &https, "--admin", &admin, "--lend-sessions", "true", "--state-dir"])
            .arg(&state)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log file"))
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("informerd starts");
        let path = |name: &str| dir.path().join(name);
        let (http_file, https_file) = (path("http"), path("https"));
        let mut daemon = Self { http: http_file, https: https_file, admin, child, dir, _ports: ports };
        daemon.ready().await;
        for (listen, file) in [(&http, &daemon.http), (&https, &daemon.https)] {
            let output = tied::command(BINARY)
                .args(["kubeconfig", "--listen", listen, "--state-dir"])
                .arg(&state)
                .arg("--write")
                .arg(file)
                .output()
                .await
                .expect("informerd runs");
            assert!(output.status.success(), "no kubeconfig: {}", String::from_utf8_lossy(&output.stderr));
        }
        daemon
    }

    async fn ready(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let ended = self.child.try_wait().expect("a process can be asked");
            let answer = get(&self.admin, "/readyz").await;
            if answer.as_ref().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
                return;
            }
            assert!(ended.is_none(), "informerd has ended: {ended:?}\n{}", self.log());
            assert!(Instant::now() < deadline, "informerd is not ready: {answer:?}\n{}", self.log());
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// What the admin listener answers.
    pub(crate) async fn admin(&self, path: &str) -> String {
        let answer = get(&self.admin, path).await.expect("the admin listener answers");
        answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).expect("an answer with a body")
    }

    /// Whether an informer of `resource` (GROUP/VERSION/RESOURCE) answers reads in `encoding`.
    pub(crate) async fn is_cached(&self, resource: &str, encoding: &str) -> bool {
        let name = resource.rsplit('/').next().unwrap_or_default();
        let labels = [format!("resource=\"{name}\""), format!("encoding=\"{encoding}\"")];
        let metrics = self.admin("/metrics").await;
        let mut ready =
            metrics.lines().filter_map(|line| line.strip_prefix("informerd_cache_ready{")?.split_once("} "));
        ready.any(|(series, ready)| {
            labels.iter().all(|label| series.contains(label)) && ready.parse::<f64>().is_ok_and(|ready| ready > 0.0)
        })
    }

    pub(crate) fn log(&self) -> String {
        let log = std::fs::read(self.dir.path().join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- informerd's last words\n{}", self.log());
        }
    }
}

/// A GET as simple as can be, answered with status line, headers and body.
async fn get(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
