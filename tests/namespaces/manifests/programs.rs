//! Programs in three languages that only know their in-cluster configuration, in the place of a manifest's container.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncWriteExt;

use super::isolated;
use super::pod::{Container, Pod, Process};
use super::sidecar::create_pod;
use crate::cluster::Cluster;
use crate::process::prepared;
use crate::support::client::Client;
use crate::support::lines::Lines;
use crate::support::metrics::sum;
use crate::support::relay::Relay;
use crate::support::{file, tied, until, within};

/// The languages in which they are written.
pub(super) const LANGUAGES: &[&str] = &["go", "python", "node"];

/// Informers of one program that runs.
pub(super) struct Program {
    language: String,
    process: Process,
    lines: Lines,
    /// By informer and object: what it was told last.
    seen: BTreeMap<(u64, String), u64>,
}

/// The tier's address in the cluster: loopback, with a name in `/etc/hosts`. And the port of a node that its agent has.
pub(super) struct Service {
    _ports: [Relay; 2],
}

/// Each of them, unmodified, sees a pod come. If `cached`, the cache behind `probes` serves it, otherwise no answer is
/// the cache's.
pub(super) async fn see_pods_come(
    cluster: &Cluster,
    pod: &Pod,
    container: &str,
    namespace: &str,
    probes: &str,
    cached: bool,
) {
    for language in LANGUAGES {
        let before = served(probes).await;
        let mut program = Program::start(pod.container(container), language, namespace).await;
        program.synced(1).await;
        let name = format!("by-{language}");
        create_pod(cluster, namespace, &name).await;
        program.sees(&format!("{namespace}/{name}"), 1).await;
        if !cached {
            assert_eq!(served(probes).await, before, "{language}: served from the cache");
            continue;
        }
        // The list that shows the pod may be forwarded: that is cheaper than to prove a cache whose events are late.
        // The watch that follows the list is served.
        until(&format!("{language} is served from the cache"), async || served(probes).await > before).await;
    }
}

/// Answers of a daemon that the apiserver had no part in.
pub(super) async fn served(probes: &str) -> f64 {
    // The metrics on the probes' port may be a second old.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    sum(&Client::new(probes).metrics().await, "informerd_http_requests_served_total", &[])
}

// === impl Program ===

impl Program {
    /// With the environment and the files of a container, and arguments of its own.
    pub(super) async fn start(mut container: Container, language: &str, namespace: &str) -> Self {
        let mut program = prepared(language).await;
        program.extend(["--resource", "v1/pods", "--namespace", namespace].map(str::to_owned));
        container.args.clear();
        let mut process = container.start_program(&program).await;
        let lines = Lines::of(&mut process.child.stdout);
        Self { language: language.to_owned(), process, lines, seen: BTreeMap::new() }
    }

    /// Until so many of its informers have synced.
    pub(super) async fn synced(&mut self, informers: usize) {
        for _ in 0..informers {
            while self.next().await["t"] != "SYNCED" {}
        }
    }

    /// Until so many of its informers have told of an object.
    pub(super) async fn sees(&mut self, key: &str, informers: usize) {
        while self.seen.keys().filter(|(_, seen)| seen == key).count() < informers {
            self.next().await;
        }
    }

    /// The next line. Nothing may be told twice, or out of order, and nothing may go.
    async fn next(&mut self) -> Value {
        let (language, log) = (&self.language, self.process.log());
        let line = self.lines.next().await.unwrap_or_else(|| panic!("{language} has ended before its time\n{log}"));
        let line: Value = serde_json::from_str(&line).expect("JSON");
        match line["t"].as_str().expect("a type") {
            kind @ ("ADDED" | "MODIFIED") => {
                let key = (line["i"].as_u64().unwrap_or_default(), line["key"].as_str().expect("a key").to_owned());
                let version = line["rv"].as_str().and_then(|rv| rv.parse().ok()).expect("a version");
                let last = self.seen.insert(key, version);
                assert_eq!(
                    last.is_none(),
                    kind == "ADDED",
                    "{language} is told twice, or has missed something: {line}"
                );
                assert!(last.is_none_or(|last| last < version), "{language} is taken back: {line} after {last:?}");
            }
            "SYNCED" | "STATE" => {}
            _ => panic!("{language}: {line}\n{log}"),
        }
        line
    }

    /// Ends it in order and returns what each of its informers holds.
    pub(super) async fn end(mut self, informers: usize) -> Vec<Value> {
        self.process.child.stdin.as_mut().expect("a pipe").write_all(b"\n").await.expect("it reads");
        let mut states = Vec::new();
        while states.len() < informers {
            let line = self.next().await;
            if line["t"] == "STATE" {
                states.push(line["items"].clone());
            }
        }
        let status = within("the program ends", self.process.child.wait()).await.expect("it ends");
        assert!(status.success(), "{}: {status}\n{}", self.language, self.process.log());
        states
    }
}

// === impl Service ===

impl Service {
    /// What kube-proxy and the cluster's DNS make of the Service `informerd`, and the container runtime of a `hostPort`; one
    /// deployment runs at a time.
    pub(super) async fn start(dir: &Path) -> Self {
        let hosts = file(dir, "hosts", "127.0.0.1 localhost informerd.informerd-tier.svc\n");
        let mounted = tied::command("mount").arg("--bind").arg(&hosts).arg("/etc/hosts").status().await;
        assert!(mounted.expect("mount runs").success());
        let node = format!("{}:8643", isolated::HOST_IP);
        // The port on which all pods listen.
        let pod = ([127, 0, 0, 1], 8443).into();
        Self { _ports: [Relay::at("127.0.0.1:443", pod).await, Relay::at(&node, pod).await] }
    }
}
