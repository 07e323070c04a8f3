//! How the process starts and ends: the cluster that it finds, addresses that are taken, and what it says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::process::Stdio;

use informerd_sim::Server;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::support::Through;
use crate::support::binary;
use crate::support::tied;
use crate::support::within;

fn informerd(line: &str) -> Command {
    let mut command = binary::informerd(line);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kubeconfig_of_the_environment_is_used_and_told() {
    let server = Server::builder().start().await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (empty, used) = (directory.path().join("empty"), directory.path().join("used"));
    std::fs::write(&empty, "apiVersion: v1\nkind: Config\n").unwrap();
    std::fs::write(&used, informerd_sim::kubeconfig("test", &server.url())).unwrap();
    let state = directory.path().display();
    let mut child = informerd(&format!("--listen http://127.0.0.1:0 --admin 127.0.0.1:0 --state-dir {state}"))
        .env("KUBECONFIG", format!("{}:{}", empty.display(), used.display()))
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = within("the next line of the log", lines.next_line()).await.unwrap().unwrap();
    for words in ["starting", &server.url(), "context", &used.display().to_string()] {
        assert!(first.contains(words), "{words} in {first}");
    }
    while !within("the next line of the log", lines.next_line()).await.unwrap().expect("it starts").contains("serving")
    {
    }
    let pid = child.id().unwrap().to_string();
    assert!(tied::command("kill").args(["-INT", &pid]).status().await.unwrap().success());
    while !within("the next line of the log", lines.next_line())
        .await
        .unwrap()
        .expect("it says so")
        .contains("a second signal (Ctrl-C again)")
    {}
    assert!(within("the process ends", child.wait()).await.unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_kubeconfig_is_found_it_tells_where_it_looked() {
    let mut command = informerd("--listen http://127.0.0.1:0 --admin 127.0.0.1:0");
    command.env_remove("KUBERNETES_SERVICE_HOST").env_remove("KUBERNETES_SERVICE_PORT").env("HOME", "/no/home");
    for (listed, words) in [
        ("/no/config", "no file that $KUBECONFIG names exists (/no/config)"),
        ("", "$KUBECONFIG is not set, and /no/home/.kube/config does not exist"),
    ] {
        let output = command.env("KUBECONFIG", listed).output().await.unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), error.lines().count()), (Some(64), 1), "{error}");
        for words in [words, "does not run in a pod", "--kubeconfig FILE"] {
            assert!(error.contains(words), "{words} in {error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_of_informerd_itself_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let own = directory.path().join("own");
    std::fs::write(&own, informerd_sim::kubeconfig("test", "http://127.0.0.1:8001")).unwrap();
    let output = informerd(&format!("run --kubeconfig {}", own.display())).output().await.unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), error.lines().count()), (Some(64), 1), "{error}");
    assert!(error.contains("names 127.0.0.1:8001, where informerd itself is to listen"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_use_tells_by_whom_and_the_flag() {
    let server = Server::builder().start().await.unwrap();
    let through = Through::before(&server, "").await;
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("k");
    std::fs::write(&kubeconfig, informerd_sim::kubeconfig("test", &server.url())).unwrap();
    // It accepts nothing, so it never answers.
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let taken = other.local_addr().unwrap();
    let (url, admin) = (&through.url, through.daemon.admin);
    for (line, words) in [
        (format!("--listen {url} --admin 127.0.0.1:0"), "another informerd serves there; --listen and --admin"),
        (
            format!("--listen http://127.0.0.1:0 --admin {admin}"),
            "another informerd serves there; --listen and --admin",
        ),
        (
            format!("--listen http://{taken} --admin 127.0.0.1:0"),
            "what answers there is not an informerd, or wants credentials; --listen takes",
        ),
        (
            format!("--listen http://127.0.0.1:0 --admin {taken}"),
            "what answers there is not an informerd, or wants credentials; --admin takes",
        ),
        (
            format!("--listen http://127.0.0.1:0 --admin 127.0.0.1:0 --probes {taken}"),
            "what answers there is not an informerd, or wants credentials; --probes takes",
        ),
    ] {
        let state = directory.path().display();
        let flags = format!("run --kubeconfig {} --state-dir {state} --log-level error {line}", kubeconfig.display());
        let output = informerd(&flags).output().await.unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), error.lines().count()), (Some(1), 1), "{line}: {error}");
        assert!(error.contains("in use") && error.contains(words), "{line}: {error}");
    }
}
