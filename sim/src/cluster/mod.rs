//! A small live cluster: nodes with heartbeats, deployments whose pods restart, roll and scale, services that follow
//! them, and controllers that also react to a user's changes with kubectl.

mod controllers;
mod deployments;
mod mishaps;
mod render;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::controllers::Controllers;
use self::render::{APPS, Placed, Pod};
use super::server::Server;
use super::store::Store;
use super::write::{mix, suffix};
use crate::types::Status;

/// The most pods that a demo cluster may have.
pub const MAX_PODS: usize = 50_000;

/// The size and the activity of the cluster.
#[derive(Clone, Debug)]
pub struct DemoConfig {
    pub nodes: usize,
    /// At most [`MAX_PODS`].
    pub pods: usize,
    /// Not counting `default` and the `kube-*` namespaces.
    pub namespaces: usize,
    /// The target for writes per second, including their consequences and heartbeats. 0 leaves only heartbeats.
    pub churn: f64,
    /// The same seed gives the same names, placements and first actions.
    pub seed: u64,
    /// 0 selects any free port.
    pub port: u16,
}

/// The running cluster. It stops when dropped.
#[derive(Debug)]
pub struct Cluster {
    server: Server,
    controllers: Arc<Mutex<JoinSet<()>>>,
}

// === impl DemoConfig ===

impl Default for DemoConfig {
    fn default() -> Self {
        Self { nodes: 5, pods: 200, namespaces: 4, churn: 10.0, seed: 1, port: 0 }
    }
}

impl DemoConfig {
    /// Limits the numbers: at least one node and namespace, at most [`MAX_PODS`] pods.
    fn bounded(mut self) -> Self {
        self.nodes = self.nodes.clamp(1, 5_000);
        self.namespaces = self.namespaces.clamp(1, 1_000);
        self.pods = self.pods.min(MAX_PODS);
        self.churn = if self.churn.is_finite() { self.churn.clamp(0.0, 10_000.0) } else { 0.0 };
        self
    }
}

// === impl Cluster ===

impl Cluster {
    /// Starts the server, creates the objects and starts the controllers.
    pub async fn start(config: DemoConfig) -> io::Result<Self> {
        let config = config.bounded();
        let builder = Server::builder().port(config.port).max_streams(1000).progress_every(Duration::from_secs(5));
        let server = builder.start().await?;
        let store = server.store().clone();
        let filling = move || {
            fill(&store, &config)?;
            store.graceful_pods(true);
            Ok(Controllers::new(store, config))
        };
        // Creating tens of thousands of pods takes one or two seconds of CPU time.
        let filled: Result<Controllers, Box<Status>> =
            tokio::task::spawn_blocking(filling).await.map_err(io::Error::other)?;
        let controllers = filled.map_err(|status| io::Error::other(status.message))?;
        let mut tasks = JoinSet::new();
        tasks.spawn(controllers.run());
        Ok(Self { server, controllers: Arc::new(Mutex::new(tasks)) })
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Whether the controllers still run. They end only by a panic, which is a bug.
    pub fn is_alive(&self) -> bool {
        let mut controllers = self.controllers.lock();
        controllers.try_join_next().is_none() && !controllers.is_empty()
    }
}

/// A time in the past, in the format of objects.
fn ago(seconds: u64) -> String {
    let then = jiff::Timestamp::now().as_second() - i64::try_from(seconds).unwrap_or(0);
    let then = jiff::Timestamp::from_second(then).unwrap_or_default();
    then.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The current time in the format of leases, with microseconds.
fn micro_now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// The hash that distinguishes a deployment's replica sets.
fn template_hash(template: &Value) -> String {
    let sum = template.to_string().bytes().fold(17u64, |sum, byte| mix(sum ^ u64::from(byte)));
    format!("{}{}", suffix(sum), suffix(sum >> 7))[..9].to_owned()
}

fn fill(store: &Store, config: &DemoConfig) -> Result<(), Box<Status>> {
    let mut random = config.seed;
    let mut next = move |below: u64| {
        random = mix(random);
        random % below.max(1)
    };
    let birth = ago(90_000);
    let mut namespaces =
        vec!["default".to_owned(), "kube-system".into(), "kube-public".into(), "kube-node-lease".into()];
    namespaces.extend((1..=config.namespaces).map(|i| format!("team-{i}")));
    for namespace in &namespaces {
        let labels = json!({"kubernetes.io/metadata.name": namespace});
        store.create(json!({"kind": "Namespace", "apiVersion": "v1", "spec": {"finalizers": ["kubernetes"]},
            "metadata": {"name": namespace, "creationTimestamp": birth, "labels": labels}, "status": {"phase": "Active"}}))?;
        store.create(json!({"kind": "ServiceAccount", "apiVersion": "v1",
            "metadata": {"name": "default", "namespace": namespace, "creationTimestamp": birth}}))?;
        store.create(json!({"kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"name": "kube-root-ca.crt", "namespace": namespace, "creationTimestamp": birth},
            "data": {"ca.crt": "not a certificate: this cluster is simulated\n"}}))?;
    }
    for index in 0..config.nodes {
        let name = render::node_name(index);
        store.create(render::node(index, &birth))?;
        store.create(render::lease("kube-node-lease", &name, &name, 40, &micro_now()))?;
    }
    for name in ["kube-controller-manager", "kube-scheduler"] {
        store.create(render::lease("kube-system", name, &format!("{}_1", render::node_name(0)), 15, &micro_now()))?;
    }
    let mut pods = 0;
    let teams = &namespaces[4..];
    // Larger clusters have larger deployments instead of ten thousand small ones.
    let most = (config.pods / 60).clamp(8, 40) as u64;
    for number in 0.. {
        let left = config.pods - pods;
        if left == 0 {
            break;
        }
        let namespace = &teams[number % teams.len()];
        let round = number / teams.len();
        let app = match round / APPS.len() {
            0 => APPS[round % APPS.len()].to_owned(),
            again => format!("{}-{}", APPS[round % APPS.len()], again + 1),
        };
        let replicas = usize::try_from(1 + next(most)).unwrap_or(1).min(left);
        deploy(store, config, namespace, &app, replicas, pods, &mut next)?;
        pods += replicas;
    }
    for index in 0..(config.namespaces as u64 * 3).min(60) {
        store.create(render::widget(&teams[index as usize % teams.len()], index, &ago(3_600 + index * 60)))?;
    }
    store.compact();
    Ok(())
}

/// Creates a deployment with all its dependents, in a stable state.
fn deploy(
    store: &Store,
    config: &DemoConfig,
    namespace: &str,
    app: &str,
    replicas: usize,
    first: usize,
    next: &mut impl FnMut(u64) -> u64,
) -> Result<(), Box<Status>> {
    let age = 600 + next(80_000);
    let created = ago(age);
    let image = format!("registry.demo/{app}:1.{}", next(30));
    let deployment = store.create(render::deployment(namespace, app, &image, replicas, &created))?.value();
    let hash = template_hash(&deployment["spec"]["template"]);
    let owner = format!("{app}-{hash}");
    let set = store.create(render::replica_set(&deployment, &owner, &hash, replicas))?;
    let service = store.create(render::service(namespace, app, first as u64, &created))?;
    let mut slice = render::endpoint_slice(namespace, app, &service.attributes.uid, &created);
    let mut endpoints = Vec::with_capacity(replicas);
    let started = ago(age - 5);
    for index in first..first + replicas {
        let name = format!("{owner}-{}", suffix(next(u64::MAX)));
        let at = usize::try_from(next(config.nodes as u64)).unwrap_or(0);
        let (node, node_ip, ip) = (render::node_name(at), render::node_ip(at), render::pod_ip(index as u64));
        let restarts = next(12).saturating_sub(9);
        let placed = Placed { node: &node, node_ip: &node_ip, ip: &ip, started: &started, restarts };
        let seed = next(u64::MAX) >> 1;
        let pod = Pod {
            namespace,
            name: &name,
            app,
            owner: &owner,
            owner_uid: &set.attributes.uid,
            hash: &hash,
            image: &image,
            created: &created,
            placed: Some(placed),
            seed,
        };
        store.load("pods", |rv| render::pod(&pod, rv));
        endpoints.push(render::endpoint(&name, &super::write::uid(seed), &ip, &node, true));
    }
    slice["endpoints"] = endpoints.into();
    store.create(slice)?;
    Ok(())
}

#[cfg(test)]
mod tests;
