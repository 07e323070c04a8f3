//! The overlays `tier` and `node-agent`, and programs that are led to the tier by their in-cluster configuration.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

use super::cluster::Cluster;
use super::pod::{Pod, Process};
use super::sidecar::{create_pod, stands_alone, until};
use super::support::client::Client;
use super::{image, objects};

const CLIENTS: &str = "informerd-client";
const SERVED: &str = "https://localhost:8443";
const PROBES: &str = "http://127.0.0.1:8003";
const ADMIN: &str = "http://127.0.0.1:8002";
const PINNED: &[(&str, &str)] =
    &[("", "namespaces"), ("", "nodes"), ("", "pods"), ("", "services"), ("discovery.k8s.io", "endpointslices")];

/// An overlay that runs, and the namespace of its clients.
struct World {
    cluster: Cluster,
    overlay: &'static str,
    daemon: Process,
    clients: Pod,
}

/// A Service's cluster address: loopback, with a name in `/etc/hosts`.
struct Service {
    task: tokio::task::JoinHandle<()>,
}

pub async fn the_tier_serves_unmodified_programs() {
    let world = World::start("tier").await;
    world.is_what_its_manifest_says().await;
    world.authorizes().await;

    let _service = Service::start(world.cluster.dir()).await;
    for client in ["go", "python", "node"] {
        world.serves_program(client).await;
    }
}

pub async fn a_node_agent_serves_its_node() {
    let world = World::start("node-agent").await;
    world.is_what_its_manifest_says().await;
    let caches = Client::new(ADMIN).json("/debug/caches").await;
    let pods = caches["caches"].as_array().unwrap().iter().find(|cache| cache["resource"] == "pods").unwrap();
    assert_eq!(pods["fieldSelector"], "spec.nodeName=node-1");
    world.authorizes().await;
}

// === impl World ===

impl World {
    async fn start(overlay: &'static str) -> Self {
        let cluster = Cluster::start().await;
        objects::apply(&cluster, overlay).await;
        objects::apply_example(&cluster, if overlay == "tier" { "drop-in" } else { "drop-in-node" }).await;
        let namespace = format!("informerd-{overlay}");
        let kind = if overlay == "tier" { "deployment" } else { "daemonset" };
        let pod = Pod::of(&cluster, kind, &namespace, "informerd").await;
        let mut daemon = pod.container("informerd").start_in(&image::binary().await).await;
        until(&mut daemon, &Client::new(PROBES), "/readyz", 200).await;
        create_pod(&cluster, CLIENTS, "one").await;
        let clients = Pod::of(&cluster, "deployment", CLIENTS, "client").await;
        Self { cluster, overlay, daemon, clients }
    }

    /// Everything pinned is cached with no rights but the manifest's, and there are none that it does not need.
    async fn is_what_its_manifest_says(&self) {
        stands_alone(&self.daemon);
        let caches = Client::new(ADMIN).json("/debug/caches").await;
        let caches = caches["caches"].as_array().unwrap();
        assert_eq!(caches.len(), PINNED.len(), "{caches:#?}");
        assert!(caches.iter().all(|cache| cache["ready"] == true), "{caches:#?}");
        let name = format!("informerd-{}", self.overlay);
        let role = objects::get(&self.cluster, &["clusterrole", &name]).await;
        objects::reads_exactly(&role["rules"], PINNED);
        // It hears of changed rights, or it would say so.
        assert!(!self.daemon.log().contains("forbidden"), "{}", self.daemon.log());
        let account = format!("system:serviceaccount:{name}:informerd");
        for (verb, resource) in [
            ("list", "secrets"),
            ("get", "secrets"),
            ("list", "configmaps"),
            ("create", "pods"),
            ("delete", "pods"),
            ("update", "nodes"),
            ("impersonate", "users"),
            ("create", "serviceaccounts/token"),
            ("escalate", "clusterroles"),
        ] {
            let args = ["auth", "can-i", verb, resource, "--all-namespaces", "--as", &account];
            let answer = self.cluster.kubectl(self.cluster.admin(), args).await;
            assert_eq!(String::from_utf8_lossy(&answer.stdout).trim(), "no", "{verb} {resource}");
        }
    }

    /// A client reads what it may and nothing else, whatever is cached.
    async fn authorizes(&self) {
        let account = self.clients.volume("account");
        let token = std::fs::read_to_string(account.join("token")).unwrap();
        let client = Client::tls(SERVED, &account.join("ca.crt"), &token);
        for (path, status) in [
            (format!("/api/v1/namespaces/{CLIENTS}/pods?resourceVersion=0"), 200),
            (format!("/api/v1/namespaces/{CLIENTS}/pods/one?resourceVersion=0"), 200),
            ("/api/v1/pods?resourceVersion=0".to_owned(), 403),
            ("/api/v1/nodes?resourceVersion=0".to_owned(), 403),
            (format!("/api/v1/namespaces/{CLIENTS}/secrets"), 403),
        ] {
            let answer = client.get(&path).await;
            assert_eq!(answer.status, status, "{path}: {}", answer.text());
        }
        let anonymous = Client::tls_anonymous(SERVED, &account.join("ca.crt"));
        assert_eq!(anonymous.get(&format!("/api/v1/namespaces/{CLIENTS}/pods?resourceVersion=0")).await.status, 401);
    }

    /// Runs an unmodified program with the drop-in volume and variables of the example.
    async fn serves_program(&self, client: &str) {
        let mut program = prepared(client).await;
        program.extend(["--resource", "v1/pods", "--namespace", CLIENTS].map(str::to_owned));
        let mut container = self.clients.container("client");
        container.args.clear();
        let before = served().await;
        let mut running = container.start_program(&program).await;
        let mut lines = BufReader::new(running.child.stdout.take().unwrap()).lines();
        let name = format!("by-{client}");
        let wanted = format!("{CLIENTS}/{name}");
        let mut synced = false;
        while let Some(line) = lines.next_line().await.unwrap() {
            let line: Value = serde_json::from_str(&line).unwrap();
            assert_ne!(line["t"], "ERROR", "{client}: {line}\n{}", running.log());
            if line["t"] == "SYNCED" && !synced {
                synced = true;
                create_pod(&self.cluster, CLIENTS, &name).await;
            }
            if line["key"] == wanted.as_str() {
                assert!(served().await > before, "{client} was not served from the cache");
                return;
            }
        }
        panic!("{client} has ended before it saw {wanted}\n{}", running.log());
    }
}

async fn served() -> u64 {
    let metrics = Client::new(PROBES).get("/metrics").await.text();
    let line = metrics.lines().find(|line| line.starts_with("informerd_http_requests_served_total "));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("the counter")
}

/// The command line of a client in another language; they are made before, where there is a network.
pub async fn prepared(client: &str) -> Vec<String> {
    let script: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/prepare");
    let output = Command::new(script).arg(client).stderr(Stdio::inherit()).output().await.expect("prepare runs");
    assert!(output.status.success(), "there is no {client} client: tests/clients/prepare failed");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

async fn run(command: &mut Command) {
    let output = command.output().await.expect("a program that is there");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

// === impl Service ===

impl Service {
    /// What kube-proxy and the cluster's DNS make of the Service `informerd` in `informerd-tier`.
    async fn start(dir: &Path) -> Self {
        let hosts = dir.join("hosts");
        std::fs::write(&hosts, "127.0.0.1 localhost informerd.informerd-tier.svc\n").unwrap();
        run(Command::new("mount").arg("--bind").arg(&hosts).arg("/etc/hosts")).await;
        let listener = TcpListener::bind("127.0.0.1:443").await.expect("the port of the Service");
        let task = informerd::lifecycle::spawn("service", async move {
            while let Ok((mut client, _)) = listener.accept().await {
                informerd::lifecycle::spawn("connection of the service", async move {
                    if let Ok(mut pod) = TcpStream::connect("127.0.0.1:8443").await {
                        tokio::io::copy_bidirectional(&mut client, &mut pod).await.ok();
                    }
                });
            }
        });
        Self { task }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}
