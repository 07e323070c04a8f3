//! The binary itself: its exit codes, its mistakes, and `check` and `kubeconfig` against a real apiserver.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of a test")]

use std::process::{Command, Output};

use crate::cluster::Cluster;
use crate::support::ports::Port;
use crate::support::tied;

/// Runs the binary with nothing of this process's environment that could be a setting.
fn informerd(line: &str) -> Output {
    command(line).output().expect("the binary runs")
}

fn command(line: &str) -> Command {
    let mut command = tied::blocking(env!("CARGO_BIN_EXE_informerd"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("INFORMERD_") || name == "KUBECONFIG" {
            command.env_remove(name);
        }
    }
    command.args(line.split_whitespace());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// A running daemon.
struct Daemon {
    child: std::process::Child,
    admin: String,
    _port: Port,
}

impl Daemon {
    fn start(kubeconfig: &std::path::Path, config: &std::path::Path) -> Self {
        let port = Port::free();
        let admin = port.address.to_string();
        let (kubeconfig, config) = (kubeconfig.display(), config.display());
        let line = format!(
            "run --kubeconfig {kubeconfig} --config {config} --listen http://127.0.0.1:0 --admin {admin} --log-level error"
        );
        let child = command(&line).spawn().expect("the binary runs");
        Self { child, admin, _port: port }
    }

    /// What `informerd status` says once it says this; the bound only keeps a failing test from hanging.
    async fn status_with(&self, words: &str) -> String {
        let mut last = String::new();
        for _ in 0..600 {
            last = text(&informerd(&format!("status --admin {}", self.admin)).stdout);
            if last.contains(words) {
                return last;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        panic!("never {words:?}: {last}");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn exit_codes() {
    for (line, code) in [
        ("version", 0),
        ("--help", 0),
        ("demo --help", 0),
        ("fly", 64),
        ("--admin x", 64),
        ("check --kubeconfig /no", 64),
        ("run --kubeconfig /no --listen http://127.0.0.1:0 --admin 127.0.0.1:0", 64),
    ] {
        assert_eq!(informerd(line).status.code(), Some(code), "informerd {line}");
    }
}

#[test]
fn a_file_with_mistakes_is_told_line_by_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("informerd.yaml");
    std::fs::write(&file, "listn: x\nnotSynced:\n  wait: 5\nresources:\n- resource: pods\n  pinn: true\n")
        .expect("written");
    let output = informerd(&format!("check --config {} --threads many", file.display()));
    assert_eq!(output.status.code(), Some(64));
    assert!(output.stdout.is_empty());
    let stderr = text(&output.stderr);
    let path = file.display();
    for start in [
        format!("{path}:1: listn: there is no such setting; did you mean listen?"),
        format!("{path}:6: resources[0].pinn: there is no such setting; did you mean pin?"),
        format!("{path}:3: notSynced.wait: \"5\" is no duration"),
        "--threads: \"many\" is no count".to_owned(),
    ] {
        assert!(stderr.lines().any(|line| line.starts_with(&start)), "{start}\nin:\n{stderr}");
    }
    assert_eq!(stderr.lines().count(), 4, "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_tells_what_each_user_may_read() {
    let cluster = Cluster::start().await;
    let check = |kubeconfig: &std::path::Path, flags: &str| {
        let output = informerd(&format!("check --kubeconfig {} {flags}", kubeconfig.display()));
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };

    for admin in [&cluster.info.kubeconfigs.admin, &cluster.info.kubeconfigs.admin_cert] {
        let (code, out, err) = check(admin, "");
        assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
        assert!(out.contains(&format!("apiserver: {}", cluster.info.server)), "{out}");
        assert!(out.contains(&cluster.info.version), "{out}");
        assert!(out.contains("secrets: forwarded, excluded by default"), "{out}");
        assert!(!out.contains("the daemon may"), "an admin may read everything: {out}");
    }

    // As kubectl: a file that is missing is passed over.
    let admin = cluster.admin().display();
    let found = command("check").env("KUBECONFIG", format!("/no/such/file:{admin}")).output().expect("the binary runs");
    let out = text(&found.stdout);
    assert!(found.status.success() && out.contains(&format!("credentials: {admin}, context ")), "{out}");

    let (code, out, err) = check(&cluster.info.kubeconfigs.nobody, "");
    assert_eq!(code, Some(1), "nothing may be read, so nothing would be saved: {out}");
    assert!(err.contains("may list and watch nothing"), "{err}");
    assert!(out.contains("in all namespaces: 0 of "), "{out}");
    assert!(out.contains("of the others, in the namespace default: 0 of "), "{out}");
    assert!(
        out.contains("  forwarded, the daemon may neither list nor watch it: ") && out.contains(" more\n"),
        "{out}"
    );
    assert!(out.lines().count() < 9, "{out}");

    // What is pinned must be readable.
    let file = cluster.dir().join("informerd.yaml");
    std::fs::write(&file, "resources:\n- resource: pods\n  pin: true\n").expect("written");
    let (code, out, err) = check(&cluster.info.kubeconfigs.nobody, &format!("--config {}", file.display()));
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("pods: is pinned, but cannot be cached") && err.contains("pins"), "{out}{err}");
    let (code, out, _) = check(cluster.admin(), &format!("--config {}", file.display()));
    assert_eq!(code, Some(0), "{out}");

    let daemon = Daemon::start(cluster.admin(), &file);
    let before = daemon.status_with(": ready\n").await;
    assert!(before.contains("watching"), "{before}");
    cluster.kill_apiserver().await;
    // Still ready, and the truth beside it.
    let after = daemon.status_with(": ready, apiserver unreachable\n\napiserver  unreachable for ").await;
    // Refused; or reset, while it dies.
    assert!(after.contains("what is served is up to ") && after.contains("Connection re"), "{after}");

    let (code, out, err) = check(cluster.admin(), "");
    assert_eq!(code, Some(1));
    assert!(out.starts_with("settings: ok"), "{out}");
    assert!(err.starts_with("informerd: apiserver ") && err.lines().count() == 1, "{err}");
}

/// kubectl reads what `informerd kubeconfig` writes, and asks for no user name over TLS.
#[tokio::test(flavor = "multi_thread")]
async fn kubectl_accepts_the_kubeconfig() {
    let cluster = Cluster::start().await;
    let server = cluster.info.server.trim_start_matches("https://").trim_end_matches('/');
    let state = cluster.dir().join("state");
    std::fs::create_dir(&state).expect("a directory");
    std::fs::copy(&cluster.info.ca, state.join("ca.crt")).expect("the CA is copied");
    let kubeconfig = cluster.dir().join("local");
    let line = format!(
        "kubeconfig --listen https://{server} --state-dir {} --write {}",
        state.display(),
        kubeconfig.display()
    );
    let output = informerd(&line);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // The real apiserver stands in for the daemon: it trusts no certificate of ours, so we are nobody to it, and it
    // answers as it does to everybody who is not known.
    let output = cluster.kubectl(&kubeconfig, ["get", "--raw", "/api/v1/pods"]).await;
    let stderr = text(&output.stderr);
    assert!(!output.status.success());
    assert!(!stderr.contains("Username") && !text(&output.stdout).contains("Username"), "{stderr}");
    assert!(
        stderr.contains("Unauthorized") || stderr.contains("logged in") || stderr.contains("Forbidden"),
        "{stderr}"
    );
}
