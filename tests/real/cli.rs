//! The binary itself: its exit codes, its mistakes, and `check` and `kubeconfig` against a real apiserver.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of a test")]

use crate::cluster::Cluster;
use crate::support::binary::{Binary, informerd, said};
use crate::support::{file, until};

/// The exit code of this command, and what it says on either side.
async fn run(line: &str) -> (i32, String, String) {
    said(&mut informerd(line)).await
}

/// What `informerd status` says once it says this.
async fn status_with(daemon: &Binary, words: &str) -> String {
    let line = format!("status --admin {}", daemon.admin.trim_start_matches("http://"));
    let mut last = String::new();
    until(words, async || {
        last = run(&line).await.1;
        last.contains(words)
    })
    .await;
    last
}

#[tokio::test]
async fn exit_codes() {
    for (line, code) in [
        ("version", 0),
        ("--help", 0),
        ("demo --help", 0),
        ("fly", 64),
        ("--admin x", 64),
        ("check --kubeconfig /no", 64),
        ("run --kubeconfig /no --listen http://127.0.0.1:0 --admin 127.0.0.1:0", 64),
    ] {
        assert_eq!(run(line).await.0, code, "informerd {line}");
    }
}

#[tokio::test]
async fn a_file_with_mistakes_is_told_line_by_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let yaml = "listn: x\nnotSynced:\n  wait: 5\nresources:\n- resource: pods\n  pinn: true\n";
    let file = file(directory.path(), "informerd.yaml", yaml);
    let path = file.display();
    let (code, out, stderr) = run(&format!("check --config {path} --threads many")).await;
    assert_eq!((code, out.as_str()), (64, ""));
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
    let check = async |kubeconfig: &std::path::Path, flags: &str| {
        run(&format!("check --kubeconfig {} {flags}", kubeconfig.display())).await
    };

    for admin in [&cluster.info.kubeconfigs.admin, &cluster.info.kubeconfigs.admin_cert] {
        let (code, out, err) = check(admin, "").await;
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        assert!(out.contains(&format!("apiserver: {}", cluster.info.server)), "{out}");
        assert!(out.contains(&cluster.info.version), "{out}");
        assert!(out.contains("secrets: forwarded, excluded by default"), "{out}");
        assert!(!out.contains("the daemon may"), "an admin may read everything: {out}");
    }

    // As kubectl: a file that is missing is passed over.
    let admin = cluster.admin().display();
    let (code, out, _) = said(informerd("check").env("KUBECONFIG", format!("/no/such/file:{admin}"))).await;
    assert!(code == 0 && out.contains(&format!("credentials: {admin}, context ")), "{out}");

    let (code, out, err) = check(&cluster.info.kubeconfigs.nobody, "").await;
    assert_eq!(code, 1, "nothing may be read, so nothing would be saved: {out}");
    assert!(err.contains("may list and watch nothing"), "{err}");
    assert!(out.contains("in all namespaces: 0 of "), "{out}");
    assert!(out.contains("of the others, in the namespace default: 0 of "), "{out}");
    assert!(
        out.contains("  forwarded, the daemon may neither list nor watch it: ") && out.contains(" more\n"),
        "{out}"
    );
    assert!(out.lines().count() < 9, "{out}");

    // What is pinned must be readable.
    let file = file(cluster.dir(), "informerd.yaml", "resources:\n- resource: pods\n  pin: true\n");
    let (code, out, err) = check(&cluster.info.kubeconfigs.nobody, &format!("--config {}", file.display())).await;
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("pods: is pinned, but cannot be cached") && err.contains("pins"), "{out}{err}");
    let (code, out, _) = check(cluster.admin(), &format!("--config {}", file.display())).await;
    assert_eq!(code, 0, "{out}");

    let kubeconfig = std::fs::read_to_string(cluster.admin()).expect("a kubeconfig");
    let daemon = Binary::start(&kubeconfig, &["--config", &file.display().to_string()]).await;
    let before = status_with(&daemon, ": ready\n").await;
    assert!(before.contains("watching"), "{before}");
    cluster.kill_apiserver().await;
    // Still ready, and the truth beside it.
    let after = status_with(&daemon, ": ready, apiserver unreachable\n\napiserver  unreachable for ").await;
    // Refused; or reset, while it dies.
    assert!(after.contains("what is served is up to ") && after.contains("Connection re"), "{after}");

    let (code, out, err) = check(cluster.admin(), "").await;
    assert_eq!(code, 1);
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
    let (code, _, err) = run(&line).await;
    assert_eq!(code, 0, "{err}");
    // The real apiserver stands in for the daemon: it trusts no certificate of ours, so we are nobody to it, and it
    // answers as it does to everybody who is not known.
    let output = cluster.kubectl(&kubeconfig, ["get", "--raw", "/api/v1/pods"]).await;
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(!output.status.success());
    assert!(!stderr.contains("Username") && !stdout.contains("Username"), "{stderr}");
    assert!(
        stderr.contains("Unauthorized") || stderr.contains("logged in") || stderr.contains("Forbidden"),
        "{stderr}"
    );
}
