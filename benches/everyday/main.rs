//! What the kube-apiserver has to do for the clients of every day, without informerd and with it: the same requests, in
//! one run, to the same kube-apiserver, first directly and then through an informerd with default settings.
//!
//! `cargo bench --bench everyday`, or with a binary that is built already,
//! `cargo bench --profile dev --bench everyday -- --informerd PATH`. Requests are what the kube-apiserver counts, without
//! its own; bytes are what it sends, counted on the wire; CPU time is its process's, less what it uses at rest. What
//! informerd costs from its start on is in its figures.
//!
//! The second group of patterns (`token` to `controllers` of `--help`) has a smaller cluster of its own and a line for each: what is
//! asked of the kube-apiserver by programs that are short, or that informerd has no good answer for. Each takes at most
//! a minute, after one for the cluster: `cargo bench --bench everyday -- --patterns token,gzip`. The clients' requests for
//! leases, endpoints and endpointslices are not counted: the kube-apiserver asks for them itself all the time.

mod answers;
mod commands;
mod latency;
mod meter;
mod patterns;
mod programs;
mod report;
mod session;
mod wire;
mod world;

#[path = "../load/client.rs"]
mod client;
#[path = "../../tests/judge/cluster.rs"]
mod cluster;
#[path = "../load/cpu.rs"]
mod cpu;
#[path = "../load/padding.rs"]
mod padding;
#[path = "../../tests/judge/process.rs"]
mod process;
#[path = "../load/server.rs"]
mod server;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, ensure};
use clap::Parser;
use client::Target;
use cluster::Cluster;
use meter::{Cost, Meter};
use report::{Report, Row};
use server::{Running, Transport};
use session::Side;
use wire::Wire;

#[derive(Clone, Debug, Parser)]
struct Options {
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "everyday,at-once,mixed,helm,controller,k9s,herd,latency,token,other-token,gzip,release,deletion,loop,k9s-pods,descheduler,agent,roll-out"
    )]
    patterns: Vec<Pattern>,
    #[arg(long, default_value_t = 2_000)]
    pods: usize,
    /// Bytes of a pod's JSON, about.
    #[arg(long, default_value_t = 5_000)]
    pod_bytes: usize,
    /// Rounds of the everyday commands.
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// Pause after each of them.
    #[arg(long, default_value_t = 50)]
    pause_ms: u64,
    /// Users at once, and rounds of each.
    #[arg(long, default_value_t = 20)]
    users: usize,
    #[arg(long, default_value_t = 3)]
    user_rounds: usize,
    /// Updates of the controller.
    #[arg(long, default_value_t = 200)]
    updates: usize,
    /// How often Helm and k9s look again, and how many times.
    #[arg(long, default_value_t = 2_000)]
    tick_ms: u64,
    #[arg(long, default_value_t = 10)]
    ticks: usize,
    /// Clients of the herd.
    #[arg(long, default_value_t = 50)]
    clients: usize,
    /// Reads of each kind whose latency is measured.
    #[arg(long, default_value_t = 200)]
    reads: usize,
    /// An informerd that is built already.
    #[arg(long)]
    informerd: Option<PathBuf>,
    /// A flag for informerd, such as `--flag=--consistent-reads=probe`; several are given by repeating it.
    #[arg(long, allow_hyphen_values = true)]
    flag: Vec<String>,
    /// Only what cargo passes to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
enum Pattern {
    /// 26 commands of kubectl, Python and curl, one after the other.
    Everyday,
    /// The same by many users.
    AtOnce,
    /// The same, each in another order.
    Mixed,
    /// `helm install --wait` of a dozen objects and `helm uninstall`, request by request.
    Helm,
    /// Five informers, and a get before each update.
    Controller,
    /// Informers on three resources, and tables of four.
    K9s,
    /// Many clients that begin within a second, each with five informers.
    Herd,
    /// Not what reads cost, but how long they take.
    Latency,
    /// 5 lists of pods with informerd's own token, on a listener that trusts its clients.
    Token,
    /// The same with the token of another user.
    OtherToken,
    /// 30 lists of pods with gzip, while ConfigMaps change.
    Gzip,
    /// The real helm: install, upgrade, rollback, uninstall.
    Release,
    /// A namespace is emptied: its 45 resources are listed, deleted and listed again.
    Deletion,
    /// An informer, and 100 gets that are followed by an update of the status.
    Loop,
    /// Two informers, and a table of the pods of a namespace every two seconds.
    K9sPods,
    /// Eight informers for two seconds.
    Descheduler,
    /// 20 pods with tokens and two informers each, through the agent of their node.
    Agent,
    /// 20 informers, whose watches go on at an informerd that was started again.
    RollOut,
    /// The real kube-controller-manager and kube-scheduler, while Deployments are created, scaled and deleted. Only if it is
    /// asked for: they are built first, and each of two runs takes minutes.
    Controllers,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let (own, common): (Vec<_>, Vec<_>) = options.patterns.iter().copied().partition(|pattern| pattern.has_a_line());
    if !common.is_empty() {
        compare(&options, &common).await?;
    }
    if !own.is_empty() {
        patterns::run(&options, &own).await?;
    }
    Ok(())
}

/// In a cluster that people work with.
async fn compare(options: &Options, patterns: &[Pattern]) -> anyhow::Result<()> {
    let cluster = Cluster::start().await;
    let apiserver = Target::admin(&cluster);
    world::make(&apiserver, options).await?;
    let wire = Wire::before(&apiserver.address).await?;
    let relayed = Target { address: wire.address.clone(), ..apiserver.clone() };
    let kubeconfig = relayed_kubeconfig(&cluster, &apiserver, &relayed)?;
    // What the kube-apiserver does once, such as filling its own caches, is done before it is measured.
    commands::one_by_one(&side(&relayed), &Options { rounds: 1, ..options.clone() }).await?;
    let meter = Meter::new(apiserver, Some(cluster.etcd_pid()), wire).await?;
    let mut report = Report::default();
    for pattern in patterns.iter().copied() {
        eprintln!("{pattern:?}");
        let direct = side(&relayed);
        if pattern == Pattern::Latency {
            let informerd = start(options, &kubeconfig, &cluster).await?;
            latency::measure(&direct, &informerd, options).await?;
            continue;
        }
        let without = pattern.measured(&direct, &meter, options).await?;
        let begin = meter.begin().await?;
        let informerd = start(options, &kubeconfig, &cluster).await?;
        let through = side(&informerd.target);
        pattern.run(&through, options).await.context("through informerd")?;
        let with = meter.end(&begin).await?;
        let own_cpu_seconds = informerd.target.cpu_seconds()?;
        let metrics = informerd.admin("/metrics").await?.unwrap_or_default();
        let mut unlike = if pattern.is_static() { through.answers.unlike(&direct.answers) } else { Vec::new() };
        let (compared, more) = answers::compare(&direct, &through).await?;
        unlike.extend(more);
        report.add(Row::new(pattern, without, with, own_cpu_seconds, &metrics, compared, unlike));
    }
    report.print();
    let unlike = report.unlike();
    ensure!(unlike.is_empty(), "answers differ:\n{}", unlike.join("\n"));
    Ok(())
}

async fn start(options: &Options, kubeconfig: &Path, cluster: &Cluster) -> anyhow::Result<Running> {
    let flags: Vec<&str> = options.flag.iter().map(String::as_str).collect();
    let informerd =
        Running::informerd(&options.binary(), kubeconfig, &cluster.dir().join("state"), Transport::Plain, &flags)?;
    informerd.wait_until_ready().await?;
    Ok(informerd)
}

fn side(target: &Target) -> Arc<Side> {
    Arc::new(Side { target: target.clone(), answers: answers::Answers::default() })
}

/// The admin's kubeconfig, by way of the relay.
fn relayed_kubeconfig(cluster: &Cluster, apiserver: &Target, relayed: &Target) -> anyhow::Result<PathBuf> {
    let text = std::fs::read_to_string(cluster.admin())?;
    let path = Path::join(cluster.dir(), "relayed.kubeconfig");
    std::fs::write(&path, text.replace(&apiserver.address, &relayed.address))?;
    Ok(path)
}

// === impl Options ===

impl Options {
    fn binary(&self) -> PathBuf {
        self.informerd.clone().unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_informerd")))
    }
}

// === impl Pattern ===

impl Pattern {
    /// Whether it is one of the second group.
    fn has_a_line(self) -> bool {
        self >= Self::Token
    }

    /// Whether it leaves all objects as they are, so that answers of two runs are the same.
    fn is_static(self) -> bool {
        matches!(self, Self::Everyday | Self::AtOnce | Self::Mixed | Self::K9s)
    }

    async fn measured(self, side: &Arc<Side>, meter: &Meter, options: &Options) -> anyhow::Result<Cost> {
        let begin = meter.begin().await?;
        self.run(side, options).await?;
        meter.end(&begin).await
    }

    async fn run(self, side: &Arc<Side>, options: &Options) -> anyhow::Result<()> {
        match self {
            Self::Everyday => commands::one_by_one(side, options).await,
            Self::AtOnce => commands::at_once(side, options, true).await,
            Self::Mixed => commands::at_once(side, options, false).await,
            Self::Helm => programs::helm(side, options).await,
            Self::Controller => programs::controller(side, options).await,
            Self::K9s => programs::k9s(side, options).await,
            Self::Herd => programs::herd(side, options).await,
            // They are measured in other ways.
            _ => Ok(()),
        }
    }
}
