//! What caches cost in memory and processor time in each form of objects at rest.
//!
//! `cargo bench --bench memory` (with `-- --pods 50000 --others 1000` to change the size), or with a binary that is
//! built already, `-- --informerd PATH`. The objects are varied as real ones are and were written to a real
//! kube-apiserver, so that they have its defaults and managed fields. Each form gets a fresh informerd with all kinds
//! pinned; its memory and its CPU time are read from /proc.

mod agents;
mod ingest;
mod kinds;
mod others;
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

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let cluster = Cluster::start().await;
    let apiserver = Target {
        address: cluster.info.server.trim_start_matches("https://").to_owned(),
        ca: Some(cluster.info.ca.clone()),
        token: Some("admin-token".into()),
        pid: cluster.info.apiserver_pid,
    };
    let world = World::make(apiserver, &options).await?;
    let mut report = Report::default();
    for kind in Kind::ALL {
        let items = world.items(kind).await?;
        let cost = tokio::task::spawn_blocking(move || kinds::run(&items)).await??;
        report.json_bytes += cost.plain_bytes;
        report.kind(kind, cost);
    }
    let binary = options.informerd.clone().unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_informerd")));
    let state = cluster.dir().join("state");
    if options.agents > 0 {
        for with in [false, true] {
            let cost = agents::run(&binary, cluster.admin(), &state, with, &world, &options).await?;
            report.agents(if with { "snapshots" } else { "none" }, cost);
        }
    }
    for form in options.forms.iter().copied() {
        for with in [false, true] {
            let name = format!("{}{}", form.as_str(), if with { ", snapshots" } else { "" });
            let cost = restart::run(&binary, cluster.admin(), &state, form, with, &world, &options).await?;
            report.restart(&name, cost);
        }
        for is_cold in [false, true] {
            if options.restarts || is_cold && form == Form::Plain {
                continue;
            }
            let name = format!("{}{}", form.as_str(), if is_cold { ", hotBytes 0" } else { "" });
            let flags = if is_cold { &["--memory-hot-bytes", "0"][..] } else { &[] };
            let expected = reads::items(&world.apiserver).await?;
            let (running, cost) = start::start(&binary, cluster.admin(), &state, form, flags).await?;
            report.start(&name, cost);
            report.list(&name, reads::run(&running, &expected, options.lists).await?);
            if !is_cold {
                let count = options.updates.min(options.pods);
                report.events(&name, ingest::run(&running, &world, count, form.as_str()).await?, count);
                // What was packed again while it changed is still what the kube-apiserver has.
                reads::run(&running, &reads::items(&world.apiserver).await?, 0).await?;
            }
        }
    }
    report.print();
    Ok(())
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
