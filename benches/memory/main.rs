//! What caches cost in memory and processor time in each form of objects at rest.
//!
//! `cargo bench --bench memory` (with `-- --pods 50000 --others 1000` to change the size), or with a binary that is
//! built already, `-- --informerd PATH`. The objects are varied as real ones are and were written to a real
//! kube-apiserver, so that they have its defaults and managed fields. Each form gets a fresh informerd with all kinds
//! pinned; its memory and its CPU time are read from /proc.
//!
//! `-- --manifests DIR` takes the objects from manifests instead, and leaves changes and restarts out.

mod agents;
mod apply;
mod ingest;
mod kinds;
mod manifests;
mod others;
mod pods;
mod random;
mod reads;
mod report;
mod restart;
mod start;
mod varied;
mod world;

#[path = "../load/client.rs"]
mod client;
#[path = "../../tests/judge/cluster.rs"]
mod cluster;
#[path = "../../tests/judge/process.rs"]
mod process;
#[path = "../load/server.rs"]
mod server;

use std::path::PathBuf;

use clap::Parser;
use client::Target;
use cluster::Cluster;
use others::Kind;
use report::Report;
use world::World;

#[derive(Clone, Debug, Parser)]
struct Options {
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// Workloads that the pods belong to, the first ones with most of them; one for 25 pods if it is not given.
    #[arg(long)]
    workloads: Option<usize>,
    /// Objects of each other kind.
    #[arg(long, default_value_t = 1_000)]
    others: usize,
    /// Pods that are changed while one watcher reads.
    #[arg(long, default_value_t = 2_000)]
    updates: usize,
    /// Lists after the first one.
    #[arg(long, default_value_t = 10)]
    lists: usize,
    #[arg(long, value_enum, value_delimiter = ',', default_value = "plain,auto,packed")]
    forms: Vec<Form>,
    /// Measures objects of manifests instead of made ones: of all YAML and JSON files below this directory.
    #[arg(long)]
    manifests: Option<PathBuf>,
    /// Measures restarts only.
    #[arg(long)]
    restarts: bool,
    /// Node agents that are started again together; none if it is not given.
    #[arg(long, default_value_t = 0)]
    agents: usize,
    /// An informerd that is built already.
    #[arg(long)]
    informerd: Option<PathBuf>,
    /// Only what cargo passes to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A value of `--memory-form`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    Plain,
    Auto,
    Packed,
}

/// What is measured.
struct Subject {
    /// Names in rules, and paths.
    kinds: Vec<(String, String)>,
    /// Rules that pin all kinds.
    rules: String,
    /// The paths that are listed.
    lists: Vec<String>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    // Services of manifests need more addresses than a test cluster has.
    let cluster = Cluster::start_with(&["--apiserver-flag=service-cluster-ip-range=10.0.0.0/16"]).await;
    let apiserver = Target::admin(&cluster);
    let mut report = Report::default();
    let (world, subject) = match &options.manifests {
        Some(dir) => {
            let applied = apply::apply(&apiserver, dir).await?;
            let subject = Subject::new(applied.resources.iter().map(|it| (it.name.clone(), it.path.clone())), |_| true);
            report.applied(applied);
            (None, subject)
        }
        None => {
            let world = World::make(apiserver.clone(), &options).await?;
            let kinds = Kind::ALL.map(|kind| (kind.resource().to_owned(), kind.path()));
            (Some(world), Subject::new(kinds.into_iter(), |name| name == Kind::Pods.resource()))
        }
    };
    for (name, path) in &subject.kinds {
        let items = world::items(&apiserver, path).await?;
        let cost = tokio::task::spawn_blocking(move || kinds::run(&items)).await??;
        report.json_bytes += cost.plain_bytes;
        report.kind(name, cost);
    }
    let binary = options.informerd.clone().unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_informerd")));
    let state = cluster.dir().join("state");
    if let Some(world) = world.as_ref().filter(|_| options.agents > 0) {
        for with in [false, true] {
            let cost = agents::run(&binary, cluster.admin(), &state, with, world, &options).await?;
            report.agents(if with { "snapshots" } else { "none" }, cost);
        }
    }
    for form in options.forms.iter().copied() {
        for with in [false, true] {
            let Some(world) = &world else { continue };
            let name = format!("{}{}", form.as_str(), if with { ", snapshots" } else { "" });
            let cost = restart::run(&binary, cluster.admin(), &state, form, with, world, &options).await?;
            report.restart(&name, cost);
        }
        if options.restarts {
            continue;
        }
        let expected = reads::items(&apiserver, &subject.lists).await?;
        let (running, cost) = start::start(&binary, cluster.admin(), &state, form, &subject.rules).await?;
        report.start(form.as_str(), cost);
        report.list(form.as_str(), reads::run(&running, &subject.lists, &expected, options.lists).await?);
        if let Some(world) = &world {
            let count = options.updates.min(options.pods);
            report.events(form.as_str(), ingest::run(&running, world, count, form).await?, count);
            // What was packed again while it changed is still what the kube-apiserver has.
            let expected = reads::items(&apiserver, &subject.lists).await?;
            reads::run(&running, &subject.lists, &expected, 0).await?;
        }
    }
    report.print();
    Ok(())
}

// === impl Subject ===

impl Subject {
    fn new(kinds: impl Iterator<Item = (String, String)>, is_listed: impl Fn(&str) -> bool) -> Self {
        let kinds: Vec<_> = kinds.collect();
        let rules = start::pinned(kinds.iter().map(|(name, _)| name.as_str()));
        let lists = kinds.iter().filter(|(name, _)| is_listed(name)).map(|(_, path)| path.clone()).collect();
        Self { kinds, rules, lists }
    }
}

// === impl Form ===

impl Form {
    fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Auto => "auto",
            Self::Packed => "packed",
        }
    }
}
