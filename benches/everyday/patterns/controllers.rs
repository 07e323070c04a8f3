//! The real kube-controller-manager and kube-scheduler: their start, and Deployments that are created, scaled and deleted.
//! Nobody plays a kubelet: pods are bound, and go no further.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use anyhow::{Context, ensure};
use http::Method;
use serde_json::{Value, json};
use tokio::process::Child;

use super::{Daemon, Ground, free_port, line};
use crate::cluster::Cluster;
use crate::meter::{Cost, Reading};
use crate::process::{self, tied};
use crate::session::{CONTROLLER, JSON, Session};
use crate::{Options, Pattern, side, world};

const NODES: usize = 10;
const DEPLOYMENTS: usize = 10;
/// Of each, one after the other. Then their namespace is deleted.
const REPLICAS: [usize; 3] = [50, 10, 50];
const CORE: &str = "/api/v1/namespaces/load";
const APPS: &str = "/apis/apps/v1/namespaces/load/deployments";

/// One run, a phase after the other.
struct Run<'a> {
    ground: &'a Ground<'a>,
    daemon: Option<Daemon>,
    /// Of informerd alone.
    start: Cost,
    bench: Session,
    begin: Reading,
    phases: Vec<Phase>,
}

struct Phase {
    name: String,
    cost: Cost,
    /// Until its end.
    forwarded: BTreeMap<String, u64>,
}

/// Prints a line for each phase.
pub(super) async fn run(options: &Options) -> anyhow::Result<()> {
    let program = process::built("INFORMERD_CONTROLLERS", "benches/everyday/controllers/build.sh").await;
    let (_, without) = measured(options, &program, false).await.context("directly")?;
    let (mut start, with) = measured(options, &program, true).await.context("through informerd")?;
    let mut before = BTreeMap::<String, u64>::new();
    for (without, with) in without.iter().zip(with) {
        let costs = [&without.cost, &with.cost];
        let pair = |of: &dyn Fn(&Cost) -> f64| costs.map(|cost| format!("{:.0}", of(cost))).join(" → ");
        let reads = ["GET", "WATCH"].map(|verb| format!("{verb} {}", pair(&|cost: &Cost| cost.of(verb)))).join(", ");
        let writes =
            pair(&|cost: &Cost| cost.total() - ["LIST", "GET", "WATCH"].map(|verb| cost.of(verb)).iter().sum::<f64>());
        let etcd = costs.map(|cost| format!("{:.2}", cost.etcd_cpu_seconds)).join(" → ");
        let note = format!("{reads}, writes {writes}; etcd's CPU s {etcd}");
        let mut forwarded = with.forwarded.clone();
        forwarded.retain(|reason, count| {
            *count -= before.get(reason).copied().unwrap_or_default();
            *count > 0
        });
        before = with.forwarded;
        let name = format!("Controllers: {}", with.name);
        println!("{}", line(&name, [&without.cost, &with.cost, &std::mem::take(&mut start)], &forwarded, &note));
    }
    Ok(())
}

/// In a cluster of its own: much of what these programs write when they start, they write once.
async fn measured(options: &Options, program: &Path, through: bool) -> anyhow::Result<(Cost, Vec<Phase>)> {
    let cluster = Cluster::start().await;
    let ground = Ground::new(options, &cluster, Vec::new()).await?;
    let mut bench = Session::open(&side(&ground.apiserver), &CONTROLLER).await?;
    for node in 0..NODES {
        make_node(&mut bench, &format!("node-{node}")).await?;
    }
    let begin = ground.meter.begin().await?;
    let mut run = Run { ground: &ground, daemon: None, start: Cost::default(), bench, begin, phases: Vec::new() };
    if through {
        run.daemon = Some(ground.start_at([free_port()?, free_port()?], Pattern::Controllers).await?);
        run.start = ground.meter.end(&run.begin).await?;
    }
    let target = run.daemon.as_ref().map_or(&ground.relayed, |daemon| &daemon.target);
    let kubeconfig = ground.kubeconfig(target, &ground.dir)?;
    let plugins = format!("--flex-volume-plugin-dir={}", ground.dir.join("plugins").display());
    let manager = ["--node-monitor-grace-period=1h", &plugins];
    let _manager = spawn(&ground, program, "kube-controller-manager", &kubeconfig, &manager)?;
    let _scheduler = spawn(&ground, program, "kube-scheduler", &kubeconfig, &[])?;
    run.end("start", 0).await?;
    run.act().await?;
    Ok((run.start, run.phases))
}

/// With the flags of a kubeadm cluster that change what it asks.
fn spawn(ground: &Ground<'_>, program: &Path, name: &str, kubeconfig: &Path, flags: &[&str]) -> anyhow::Result<Child> {
    let mut command = tied::command(program);
    command.arg(name).args(["--bind-address=127.0.0.1", &format!("--secure-port={}", free_port()?)]);
    command.arg(format!("--cert-dir={}", ground.dir.join(name).display()));
    for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
        command.arg(format!("--{flag}={}", kubeconfig.display()));
    }
    let log = File::create(ground.dir.join(format!("{name}.log")))?;
    Ok(command.args(flags).stderr(log).spawn()?)
}

/// Ready, and large enough for all pods.
async fn make_node(bench: &mut Session, name: &str) -> anyhow::Result<()> {
    let node = json!({ "metadata": { "name": name } }).to_string();
    bench.write(Method::POST, "/api/v1/nodes", node).await?;
    let room = json!({ "cpu": "1000", "memory": "1000Gi", "pods": "1000" });
    let ready = json!([{ "type": "Ready", "status": "True" }]);
    let status = json!({ "status": { "capacity": room, "allocatable": room, "conditions": ready } }).to_string();
    bench.patch(&format!("/api/v1/nodes/{name}/status"), status).await
}

/// Its pods end at once: there is no kubelet to wait for.
fn deployment(name: &str, replicas: usize) -> anyhow::Result<String> {
    let mut deployment: Value = serde_json::from_str(&world::deployment(name))?;
    deployment["spec"]["replicas"] = replicas.into();
    deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 0.into();
    Ok(deployment.to_string())
}

// === impl Run ===

impl Run<'_> {
    async fn act(&mut self) -> anyhow::Result<()> {
        let [replicas, others @ ..] = REPLICAS;
        let namespace = json!({ "metadata": { "name": "load" } }).to_string();
        self.bench.write(Method::POST, "/api/v1/namespaces", namespace).await?;
        for i in 0..DEPLOYMENTS {
            let name = format!("web-{i}");
            self.bench.write(Method::POST, &format!("{CORE}/services"), world::service(&name)).await?;
            self.bench.write(Method::POST, APPS, deployment(&name, replicas)?).await?;
        }
        self.end("create", DEPLOYMENTS * replicas).await?;
        for replicas in others {
            for i in 0..DEPLOYMENTS {
                let scale = json!({ "spec": { "replicas": replicas } }).to_string();
                self.bench.patch(&format!("{APPS}/web-{i}"), scale).await?;
            }
            self.end(&format!("scale to {replicas}"), DEPLOYMENTS * replicas).await?;
        }
        self.bench.write(Method::DELETE, CORE, String::new()).await?;
        self.end("delete", 0).await?;
        ensure!(!self.bench.ask(CORE, JSON).await?.0.is_success(), "the namespace stays");
        Ok(())
    }

    /// All is quiet then, and so many pods are bound.
    async fn end(&mut self, name: &str, pods: usize) -> anyhow::Result<()> {
        let meter = &self.ground.meter;
        meter.quiet().await.with_context(|| name.to_owned())?;
        let cost = meter.end(&self.begin).await?;
        let forwarded = match &self.daemon {
            Some(daemon) => daemon.running.forwarded().await?,
            None => BTreeMap::new(),
        };
        let all: Value = serde_json::from_slice(&self.bench.fetch(&format!("{CORE}/pods"), JSON).await?)?;
        let bound = all["items"].as_array().into_iter().flatten().filter(|pod| pod["spec"]["nodeName"].is_string());
        let bound = bound.count();
        ensure!(bound == pods, "{name}: {bound} pods are bound, and not {pods}; see the programs' logs");
        self.phases.push(Phase { name: name.to_owned(), cost, forwarded });
        self.begin = meter.begin().await?;
        Ok(())
    }
}
