//! The load generator: the same lists and watches through informerd and through the real kube-apiserver, in one run,
//! so that the figures are ratios and not a machine's mood.
//!
//! `cargo bench --bench load` (with `-- --pods 10000 --watchers 1000 --updates 200` to change the size). Each server is
//! a process of its own, informerd a fresh one for each measurement; CPU time is read from /proc. The generator shares
//! the machine with them.
//!
//! `-- --growth DIR` measures how costs grow with watchers and with objects, and draws it. It takes some 10 minutes.

mod baseline;
mod broadcaster;
mod client;
mod cpu;
mod fanout;
mod files;
mod fixture;
mod growth;
mod latency;
mod lists;
mod padding;
mod reads;
mod report;
mod server;
mod watchers;

use std::path::PathBuf;

use clap::Parser;
use client::Protocol;
use server::Transport;

#[path = "../../tests/judge/cluster.rs"]
mod cluster;
#[path = "../../tests/judge/process.rs"]
mod process;

#[derive(Clone, Debug, Parser)]
struct Options {
    /// Pods that are listed.
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// Bytes of a pod's JSON, about.
    #[arg(long, default_value_t = 5_000)]
    pod_bytes: usize,
    /// Lists that are timed, one after the other; 0 leaves the lists out.
    #[arg(long, default_value_t = 10)]
    lists: usize,
    /// Watchers of one resource; 0 leaves the watches out.
    #[arg(long, default_value_t = 1_000)]
    watchers: usize,
    /// Watches on one HTTP/2 connection; the kube-apiserver allows 100. Over HTTP/1.1 it is one.
    #[arg(long, default_value_t = 100)]
    streams: usize,
    /// Events each watcher receives.
    #[arg(long, default_value_t = 200)]
    updates: usize,
    /// Pause between two writes.
    #[arg(long, default_value_t = 5)]
    pause_ms: u64,
    /// Events of which it is measured how much later they reach one watcher than at the kube-apiserver itself, about 20
    /// per second, for each protocol without TLS; 0 leaves this out.
    #[arg(long, value_name = "UPDATES", default_value_t = 400)]
    latency: usize,
    /// Reads of the newest state in each mode, of a quiet and of a busy resource; 0 leaves them out.
    #[arg(long, default_value_t = 1_000)]
    reads: usize,
    #[arg(long, value_enum, value_delimiter = ',', default_value = "http2,http1,grpc")]
    protocols: Vec<Protocol>,
    /// An informerd that is built already, in place of the one that cargo builds.
    #[arg(long)]
    informerd: Option<PathBuf>,
    /// Another informerd to measure beside it, for a comparison of two versions.
    #[arg(long)]
    other: Option<PathBuf>,
    /// Leaves the kube-apiserver out: no ratios, but faster.
    #[arg(long)]
    only_informerd: bool,
    /// How often each fan-out is measured; the least processor time counts.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Write what each unit of work costs to this file.
    #[arg(long, conflicts_with = "only_informerd")]
    record: Option<PathBuf>,
    /// Fail if a unit of work costs over 10 % more than this file says. `benches/compare` does this with the file that
    /// is kept.
    #[arg(long, conflicts_with = "only_informerd")]
    compare: Option<PathBuf>,
    /// Measure how costs grow with watchers and with objects, and nothing else. The numbers and the charts are written to
    /// this directory.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["record", "compare", "only_informerd", "other"])]
    growth: Option<PathBuf>,
    /// With few watchers and objects, to try it.
    #[arg(long, requires = "growth")]
    small: bool,
    /// Draw the numbers that the directory has, and measure nothing.
    #[arg(long, requires = "growth", conflicts_with = "small")]
    redraw: bool,
    /// Be the broadcaster: write the events of the kube-apiserver at this address to the clients of that one.
    #[arg(long, hide = true, requires_all = ["broadcast_from", "broadcast_ca"])]
    broadcast: Option<String>,
    #[arg(long, hide = true)]
    broadcast_from: Option<String>,
    #[arg(long, hide = true)]
    broadcast_ca: Option<PathBuf>,
    /// Only what cargo passes to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    fn informerd(&self) -> PathBuf {
        self.informerd.clone().unwrap_or_else(|| env!("CARGO_BIN_EXE_informerd").into())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    if let (Some(listen), Some(from), Some(ca)) = (&options.broadcast, &options.broadcast_from, &options.broadcast_ca) {
        return broadcaster::run(listen, from, ca).await;
    }
    if let (Some(directory), true) = (&options.growth, options.redraw) {
        return growth::redraw(directory);
    }
    files::allow_many()?;
    let cluster = cluster::Cluster::start().await;
    let mut fixture = fixture::Fixture::prepare(&cluster).await?;
    if let Some(directory) = &options.growth {
        return growth::measure(&mut fixture, directory, &options).await;
    }
    if options.lists > 0 {
        fixture.create_pods(0..options.pods, options.pod_bytes).await?;
    }
    let servers = fixture.servers(&options);
    let mut report = report::Report::default();
    for protocol in options.protocols.iter().copied().filter(|protocol| *protocol != Protocol::Grpc) {
        let mut expected = None;
        for server in servers.iter().filter(|_| options.lists > 0) {
            for gzip in [false, true].into_iter().filter(|gzip| server.lists(protocol, *gzip)) {
                let running = fixture.start(server).await?;
                let cost = lists::run(&running, protocol, gzip, &mut expected, &options).await?;
                report.list(format!("{}{}", server.row(protocol), if gzip { ", gzip" } else { "" }), cost);
            }
        }
    }
    let rounds = (0..options.rounds).flat_map(|_| options.protocols.iter().copied());
    for protocol in rounds {
        for server in servers.iter().filter(|server| options.watchers > 0 && server.speaks(protocol)) {
            let running = fixture.start(server).await?;
            let cost = fanout::run(&running, protocol, fixture.writer(), &options).await?;
            report.fanout(server.row(protocol), cost);
        }
    }
    for protocol in options.protocols.iter().copied().filter(|_| options.latency > 0) {
        let speaks = |server: &&fixture::Server| server.speaks(protocol) && server.transport() == Transport::Plain;
        for server in servers.iter().filter(speaks) {
            let (running, apiserver) = (fixture.start(server).await?, fixture.apiserver().clone());
            let latency = latency::run(&running, protocol, &apiserver, fixture.writer(), options.latency).await?;
            report.latency(server.row(protocol), latency);
        }
    }
    if options.reads > 0 {
        for resource in [reads::Resource::Quiet, reads::Resource::Busy] {
            for readers in [1, 20] {
                for (name, running) in fixture.modes(&options)? {
                    let apiserver = fixture.apiserver().clone();
                    let cost = reads::run(&running, &apiserver, fixture.writer(), resource, readers, &options).await?;
                    report.reads(format!("{name} | {resource:?} | {readers}"), cost);
                }
            }
        }
    }
    report.print(&options);
    if let Some(path) = &options.record {
        baseline::record(path, &report.units())?;
    }
    match &options.compare {
        Some(path) => baseline::compare(path, &report.units()),
        None => Ok(()),
    }
}
