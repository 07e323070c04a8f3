//! How the process starts and ends: the cluster that it finds, addresses that are taken, and what it says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::ErrorKind;
use std::process::Stdio;

use informerd::http::ListenAddr;
use informerd_sim::Server;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

use crate::CONFIG_MAPS;
use crate::support::client::Client;
use crate::support::lines::Lines;
use crate::support::{Through, binary, file, tied, within};

fn informerd(line: &str) -> Command {
    let mut command = binary::informerd(line);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// It ends with this code and says one line with these words.
async fn ends(command: &mut Command, code: i32, words: &[&str]) {
    let output = command.output().await.unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), error.lines().count()), (Some(code), 1), "{words:?}: {error}");
    words.iter().for_each(|words| assert!(error.contains(words), "{words} in {error}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kubeconfig_of_the_environment_is_used_and_told() {
    let server = Server::builder().start().await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let empty = file(directory.path(), "empty", "apiVersion: v1\nkind: Config\n");
    let used = file(directory.path(), "used", informerd_sim::kubeconfig("test", &server.url()));
    let state = directory.path().display();
    let mut child = informerd(&format!("--listen http://127.0.0.1:0 --admin 127.0.0.1:0 --state-dir {state}"))
        .env("KUBECONFIG", format!("{}:{}", empty.display(), used.display()))
        .spawn()
        .unwrap();
    let mut lines = Lines::of(&mut child.stderr);
    let first = lines.next().await.expect("it goes on");
    for words in ["starting", &server.url(), "context", &used.display().to_string()] {
        assert!(first.contains(words), "{words} in {first}");
    }
    lines.until("serving").await;
    tied::signal(child.id().unwrap(), "INT");
    lines.until("a second signal (Ctrl-C again)").await;
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
        ends(command.env("KUBECONFIG", listed), 64, &[words, "does not run in a pod", "--kubeconfig FILE"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_of_informerd_itself_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let own = file(directory.path(), "own", informerd_sim::kubeconfig("test", "http://127.0.0.1:8001"));
    let words = "names 127.0.0.1:8001, where informerd itself is to listen";
    ends(&mut informerd(&format!("run --kubeconfig {}", own.display())), 64, &[words]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_use_tells_by_whom_and_the_flag() {
    let server = Server::builder().start().await.unwrap();
    let through = Through::before(&server, "").await;
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = file(directory.path(), "k", informerd_sim::kubeconfig("test", &server.url()));
    // It accepts nothing, so it never answers.
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let taken = other.local_addr().unwrap();
    let (url, admin, any) = (&through.url, through.daemon.admin, "127.0.0.1:0");
    let (ours, others) =
        ("another informerd serves there", "what answers there is not an informerd, or wants credentials");
    for (flags, who, takes) in [
        (format!("--listen {url} --admin {any}"), ours, "; --listen and --admin"),
        (
            format!(
                "--listen delegated+https://{taken} --admin {any} --tls-signer example.com/s --tls-names 127.0.0.1"
            ),
            others,
            "; --listen takes",
        ),
        (format!("--listen http://{any} --admin {admin}"), ours, "; --listen and --admin"),
        (format!("--listen http://{taken} --admin {any}"), others, "; --listen takes"),
        (format!("--listen http://{any} --admin {taken}"), others, "; --admin takes"),
        (format!("--listen http://{any} --admin {any} --probes {taken}"), others, "; --probes takes"),
    ] {
        let state = directory.path().display();
        let line = format!("run --kubeconfig {} --state-dir {state} --log-level error {flags}", kubeconfig.display());
        ends(&mut informerd(&line), 1, &["in use", &format!("{who}{takes}")]).await;
    }
}

/// As a node agent whose certificate is not signed yet: a client that is refused tries again, and keeps what it has.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_certificate_connections_are_refused_and_the_admin_side_answers() {
    let yaml = "listen: ['delegated+https://127.0.0.1:0', 'http://127.0.0.1:0']\n\
                tls: {signer: example.com/s, names: [127.0.0.1]}\n";
    let (_server, through, _) = Through::simulated([], yaml).await;
    let ListenAddr::Delegated(address) = through.daemon.listen[0] else { panic!("{:?}", through.daemon.listen) };
    let plain = Client::new(&through.listener(1));
    assert_eq!(plain.get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await.status, 200);
    let refused = TcpStream::connect(address).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(through.admin().get("/livez").await.status, 200);
    let ready = through.admin().get("/readyz").await;
    assert!(ready.status == 503 && ready.text().contains("certificate: pending"), "{}", ready.text());
}
