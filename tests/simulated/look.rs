//! `informerd get` and `informerd watch`: the binary as a client of a daemon.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::process::Stdio;
use std::time::Duration;

use informerd_sim::Server;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use crate::support::lines::Lines;
use crate::support::{Through, binary, within};

fn config_map(namespace: &str, name: &str, color: &str) -> Value {
    let metadata = json!({"name": name, "namespace": namespace, "labels": {"color": color}});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": "v"}})
}

fn informerd(address: &str, line: &str) -> Command {
    let mut command = binary::informerd(line);
    command.env("INFORMERD_ADDRESS", address);
    command
}

async fn run(address: &str, line: &str) -> (i32, String, String) {
    binary::said(&mut informerd(address, line)).await
}

async fn some(yaml: &str) -> (Server, Through) {
    let objects = [("one", "a", "red"), ("one", "b", "green"), ("two", "a", "red")];
    let (server, through, _) =
        Through::simulated(objects.map(|(namespace, name, color)| config_map(namespace, name, color)), yaml).await;
    (server, through)
}

/// A failure with this code, which is told in one line with these words.
async fn fails(address: &str, line: &str, code: i32, words: &[&str]) -> String {
    let (found, out, err) = run(address, line).await;
    assert_eq!((found, out.as_str(), err.lines().count()), (code, "", 1), "{line}: {err}");
    assert!(err.starts_with("informerd: "), "{line}: {err}");
    words.iter().for_each(|words| assert!(err.contains(words), "{line}: {words} in {err}"));
    err
}

#[tokio::test(flavor = "multi_thread")]
async fn get_prints_what_is_there() {
    let (_server, through) = some("").await;
    for (line, expected) in [
        ("get configmaps", "one/a\none/b\ntwo/a\n"),
        ("get configmaps.v1. -n one", "one/a\none/b\n"),
        ("get configmaps -A -l color=red -o name", "configmap/a\nconfigmap/a\n"),
        ("get configmaps --field-selector metadata.name=b", "one/b\n"),
        ("get configmaps a", "one/a\ntwo/a\n"),
        ("get configmaps/b -n one", "one/b\n"),
    ] {
        assert_eq!(run(&through.url, line).await, (0, expected.to_owned(), String::new()), "{line}");
    }
    for (line, told) in [
        ("get configmaps -n nowhere", "No resources found in nowhere namespace.\n"),
        ("get configmaps -l color=none", "No resources found\n"),
    ] {
        assert_eq!(run(&through.url, line).await, (0, String::new(), told.to_owned()), "{line}");
    }
    let (code, out, _) = run(&through.url, "get configmaps -n one -o json").await;
    let objects: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, objects.len()), (0, 2));
    assert_eq!(objects[0]["metadata"]["name"], "a");
    assert_eq!(objects[0]["data"]["k"], "v");
}

#[tokio::test(flavor = "multi_thread")]
async fn get_says_in_one_line_what_is_wrong() {
    let (server, through) = some("").await;
    for (line, words) in [
        ("get nothings", "no resource \"nothings\""),
        ("get configmaps x -n one", "\"x\" not found"),
        ("get configmaps x", "no configmaps named \"x\""),
        ("get configmaps -l a=b=c", "found '=', expected"),
        ("get nodes -n one", "no namespaces"),
        ("get secrets", "excluded from the caches by default; a rule in `resources`"),
    ] {
        fails(&through.url, line, 1, &[words]).await;
    }
    for address in ["http://127.0.0.1:1", "unix:///no/such/socket"] {
        fails(address, "get pods", 1, &[address, "is it running?"]).await;
    }
    assert_eq!(run("nonsense", "get pods").await.0, 64);
    // The admin side speaks HTTP/1.1 alone, and an apiserver no gRPC.
    for address in [format!("http://{}", through.daemon.admin), server.url()] {
        for line in ["get configmaps", "get configmaps.v1.", "watch configmaps", "watch configmaps.v1."] {
            fails(&address, line, 1, &[&format!("what answers at {address} is not informerd's listener")]).await;
        }
    }
}

/// It reads the cache, which needs no apiserver.
#[tokio::test(flavor = "multi_thread")]
async fn get_reads_the_cache_while_the_apiserver_hangs_or_is_gone() {
    let (server, through) = some("resources: [{resource: configmaps, pin: true}]\n").await;
    through.ready().await;
    server.faults().blackhole(true);
    for (line, expected) in [
        ("get configmaps -n one", "one/a\none/b\n"),
        ("get configmaps b -n one", "one/b\n"),
        ("get configmaps.v1. -n two -o name", "configmaps/a\n"),
    ] {
        assert_eq!(run(&through.url, line).await, (0, expected.to_owned(), String::new()), "{line}");
    }
    let mut watch = Watching::start(&through.url, "watch configmaps b");
    assert_eq!(watch.line().await, format!("ADDED    one/b {}", at(&server, "one/b")));
    drop(server);
    assert_eq!(run(&through.url, "get configmaps -n two").await, (0, "two/a\n".to_owned(), String::new()));
    // What only the apiserver could tell is said to be so, in one line.
    let advice = "name the resource with its version, as in pods.v1. or deployments.v1.apps";
    fails(&through.url, "get cm", 1, &["cannot say what \"cm\" is", "503", advice]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_does_not_answer_is_not_waited_for() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    for command in ["get", "watch"] {
        let words = format!("{address} has not answered within 200ms");
        fails(&address, &format!("{command} pods --timeout 200ms"), 75, &[&words]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn get_reads_over_tls_of_a_ca_that_is_named() {
    let (server, through) = some("listen: [\"https://127.0.0.1:0\"]\n").await;
    let ca = through.ca();
    let ca = ca.display();
    let two = (0, "two/a\n".to_owned(), String::new());
    assert_eq!(run(&through.url, &format!("get configmaps -n two --ca-file {ca}")).await, two);
    let mut watch = Watching::start(&through.url, &format!("watch configmaps b -n one --ca-file {ca}"));
    assert_eq!(watch.line().await, format!("ADDED    one/b {}", at(&server, "one/b")));
    let err = fails(&through.url, "get configmaps", 1, &[]).await;
    assert!(err.contains("certificate") || err.contains("TLS"), "{err}");
    let err = fails("http://127.0.0.1:1", "get configmaps --token secret", 1, &["https://"]).await;
    assert!(!err.contains("secret"), "{err}");
}

/// A running `informerd watch`.
struct Watching {
    child: Child,
    lines: Lines,
}

impl Watching {
    fn start(address: &str, line: &str) -> Self {
        let mut command = informerd(address, line);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = Lines::of(&mut child.stdout);
        Self { child, lines }
    }

    async fn line(&mut self) -> String {
        self.lines.next().await.expect("it goes on")
    }

    /// The next lines, of which the order is not said.
    async fn state(&mut self, count: usize) -> Vec<String> {
        let mut lines = vec![];
        for _ in 0..count {
            lines.push(self.line().await);
        }
        lines.sort();
        lines
    }
}

fn at(server: &Server, key: &str) -> u64 {
    server.state("configmaps")[key]
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_prints_the_state_and_every_change() {
    let (server, through) = some("").await;
    let mut watch = Watching::start(&through.url, "watch configmaps -n one -l color=red");
    assert_eq!(watch.line().await, format!("ADDED    one/a {}", at(&server, "one/a")));
    let left = server.update(config_map("one", "a", "green")).unwrap();
    assert_eq!(watch.line().await, format!("DELETED  one/a {left}"));
    let entered = server.update(config_map("one", "b", "red")).unwrap();
    assert_eq!(watch.line().await, format!("ADDED    one/b {entered}"));
    let mut watch = Watching::start(&through.url, "watch configmaps b -o json");
    let added: Value = serde_json::from_str(&watch.line().await).unwrap();
    assert_eq!((added["type"].as_str(), added["object"]["kind"].as_str()), (Some("ADDED"), Some("ConfigMap")));
    assert_eq!(added["object"]["metadata"]["resourceVersion"], entered.to_string());
    let mut watch = Watching::start(&through.url, "watch configmaps/b -n one -o name");
    assert_eq!(watch.line().await, format!("ADDED    configmap/b {entered}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_goes_on_over_a_restart_of_the_daemon() {
    let directory = tempfile::tempdir().unwrap();
    let listen = format!("listen: ['unix://{}/s']\n", directory.path().display());
    let (server, through) = some(&listen).await;
    let mut watch = Watching::start(&through.url, "watch configmaps");
    assert_eq!(watch.state(3).await.len(), 3);
    assert_eq!(run(&through.url, "get configmaps -n two").await, (0, "two/a\n".to_owned(), String::new()));
    through.stop(Duration::ZERO).await;
    drop(through);
    let changed = server.update(config_map("one", "a", "blue")).unwrap();
    let gone = server.delete("configmaps", "one", "b").unwrap();
    let _through = Through::before(&server, &listen).await;
    let lines = watch.state(2).await;
    assert_eq!(lines[1], format!("MODIFIED one/a {changed}"));
    // A new daemon's window does not reach back: it only knows that the object is gone, and of what revision it was.
    assert!(lines[0].starts_with("DELETED  one/b "), "{lines:?} {gone}");
    let added = server.create(config_map("two", "z", "red")).unwrap();
    assert_eq!(watch.line().await, format!("ADDED    two/z {added}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_ends_quietly_when_nobody_reads() {
    let (server, through) = some("").await;
    let Watching { mut child, mut lines } = Watching::start(&through.url, "watch configmaps");
    lines.next().await;
    drop(lines);
    let churn = async {
        for round in 0_u64.. {
            server.update(config_map("one", "a", &format!("c{round}"))).unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let ended = within("the client ends", child.wait());
    let status = tokio::select! { status = ended => status.unwrap(), () = churn => unreachable!() };
    assert_eq!(status.code(), Some(0));
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).await.unwrap();
    assert_eq!(errors, "");
}
