//! The same requests to a kube-apiserver and to what stands in front of it: who looks at the answers cannot tell the
//! two apart. See README.md.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod args;
mod axes;
#[path = "../judge/cluster.rs"]
mod cluster;
mod compare;
mod curated;
mod generated;
mod http2;
mod kinds;
mod moving;
mod pages;
#[path = "../judge/process.rs"]
mod process;
mod proof;
mod proto;
mod report;
mod rng;
mod rows;
mod scenarios;
mod scripts;
mod served;
mod shards;
mod starts;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod tables;
mod watches;
mod wire;
mod world;
mod wrong;

use std::process::ExitCode;
use std::sync::Arc;

use args::{Args, Mode, Phase};
use cluster::Cluster;
use informerd::packing::PackingStats;
use informerd::upstream::client::ConfigSource;
use report::Report;
use served::Served;
use support::Through;
use tokio::time::Instant;
use wire::Endpoint;
use world::World;

/// Nothing of the server's own may be written while answers are compared: not its leases, not its endpoints, not the
/// key that tells of compactions.
const STILL: &[&str] =
    &["--apiserver-flag=endpoint-reconciler-type=none", "--apiserver-flag=etcd-compaction-interval=0"];
const GATES: &str = "--apiserver-flag=feature-gates=APIServerIdentity=false,UnknownVersionInteroperabilityProxy=false";

fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(64);
        }
    };
    if args.list {
        for phase in &args.phases {
            println!("differential::{}: test", phase.name());
        }
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(run(&args))
}

async fn run(args: &Args) -> ExitCode {
    let report = Arc::new(Report::default());
    let started = Instant::now();
    if let Err(error) = scenarios::are_accounted_for() {
        report.wrong("the table of scenarios", &format!("  {error}\n"));
    }
    if let (Some(direct), Some(through)) = (&args.direct, &args.through) {
        let pair = Endpoint::new(
            direct,
            args.ca.as_deref(),
            args.token.as_deref(),
            args.certificate.as_deref().zip(args.key.as_deref()),
        )
        .and_then(|direct| {
            let through = Endpoint::new(through, args.through_ca.as_deref(), args.through_token.as_deref(), None)?;
            Ok([direct, through])
        });
        match pair {
            Ok(pair) => drop(phases(args, "given endpoints", pair, None, &report).await),
            Err(error) => report.wrong("the endpoints", &error),
        }
    } else if !args.phases.is_empty() {
        for (n, mode) in args.modes.iter().enumerate() {
            let mut args = args.clone();
            // The proof has nothing to do with the daemon.
            args.phases.retain(|phase| n == 0 || *phase != Phase::Proof);
            // Tables are asked for in ways that the modes do not differ in.
            let last = n + 1 == args.modes.len();
            args.phases.retain(|phase| last || *phase != Phase::Tables);
            // Once tables are read, the same caches answer the readers of JSON in the phases that follow. That of the chosen
            // requests knows which objects there are without those of the tables.
            args.phases.sort_by_key(|phase| match phase {
                Phase::Curated => 0,
                Phase::Tables => 1,
                _ => 2,
            });
            own(&args, *mode, &report).await;
        }
    }
    summary(&report, started)
}

/// With a cluster and a daemon that are started for it.
async fn own(args: &Args, mode: Mode, report: &Arc<Report>) {
    // In one of the modes shard selectors are evaluated, in the other they are ignored, as they are by default.
    let mut gates = GATES.to_owned();
    match process::minor_version().await {
        36.. => gates.push_str(&format!(",ShardedListAndWatch={}", mode == Mode::Probe)),
        31.. => {}
        // Without it the cache of a resource that does not change reaches no newer revision, and the world never settles.
        ..31 => gates.push_str(",ConsistentListFromCache=true"),
    }
    let cluster = Cluster::start_with(&[STILL, &[gates.as_str()]].concat()).await;
    // Nothing the server starts from is the beginning of all things: there is a past that is too old.
    cluster.namespace("diff-before").await;
    cluster.compact().await;
    cluster.restart_apiserver().await;
    let daemon = Through::start(ConfigSource::kubeconfig(cluster.admin()), mode.yaml()).await;
    daemon.ready().await;
    let direct = Endpoint::new(&cluster.info.server, Some(&cluster.info.ca), Some("admin-token"), None);
    let pair = [direct.expect("the cluster's URL"), Endpoint::new(&daemon.url, None, None, None).expect("its URL")];
    let served = Served::new(daemon.daemon.reads.metrics(), mode);
    let world = phases(args, &mode.name(), pair, Some(served), report).await;
    let PackingStats { objects, unpacked_total, .. } = daemon.daemon.packing.stats();
    println!("{}: {objects} objects are packed, unpacked {unpacked_total} times", mode.name());
    let whole = args.filter.is_none() && args.request.is_none() && args.phases.contains(&Phase::Generated);
    if mode == Mode::Probe && whole && (objects < 50 || unpacked_total < 1000) {
        report.wrong("objects that were packed", "  too few to say that packing changes nothing\n");
    }
    if let (Some(world), true) = (world, args.phases.contains(&Phase::Proof)) {
        let source = ConfigSource::kubeconfig(cluster.admin());
        if let Err(error) = proof::forwarding_is_caught(&world, source, mode, report).await {
            report.wrong("proof: a daemon that forwards everything", &format!("  {error}\n"));
        }
    }
}

/// Runs the phases; `served` belongs to a daemon of ours, with whose cluster nobody else has to do.
async fn phases(
    args: &Args,
    name: &str,
    pair: [Endpoint; 2],
    mut served: Option<Served>,
    report: &Arc<Report>,
) -> Option<Arc<World>> {
    let still = served.is_some();
    let world = match World::set_up(pair, still).await {
        Ok(world) => Arc::new(world),
        Err(error) => {
            report.wrong(&format!("{name}: setting up"), &format!("  {error}\n"));
            return None;
        }
    };
    for phase in &args.phases {
        let (started, before) = (Instant::now(), (report.compared(), report.different().len()));
        let seeds = args.seed..args.seed + args.seeds;
        served.iter_mut().for_each(Served::begin);
        match phase {
            Phase::Curated => curated::run(&world, args.filter.as_deref(), report).await,
            Phase::Scripts => scripts::run(&world, args.filter.as_deref(), report).await,
            Phase::Generated => {
                for seed in seeds {
                    let filter = args.filter.clone();
                    let range = generated::Range { seed, requests: args.requests, only: args.request, filter };
                    generated::run(&world, &range, report).await;
                }
            }
            Phase::Watches => {
                for seed in seeds {
                    watches::run(&world, seed, &watches::SIZE, report).await;
                }
            }
            Phase::Pages => {
                for seed in seeds {
                    pages::run(&world, seed, pages::WALKS, report).await;
                }
            }
            Phase::Shards => shards::run(&world, report).await,
            Phase::Tables => tables::run(&world, report).await,
            Phase::Proof => proof::run(&world, report).await,
        }
        if still && let Err(error) = world.settle().await {
            report.wrong(&format!("{name}: after {}", phase.name()), &format!("  {error}\n"));
        }
        let share = served.as_ref().filter(|_| *phase != Phase::Proof).map(|served| served.share(*phase));
        // Of a few chosen requests it says nothing.
        let chosen = args.filter.is_some() || args.request.is_some();
        if let Some((_, Some(wrong))) = share.as_ref().filter(|_| !chosen) {
            report.wrong(&format!("{name}: {}: answers from the caches", phase.name()), &format!("  {wrong}\n"));
        }
        println!(
            "{name}: {}: {} compared, {} different{}, {:.0} s",
            phase.name(),
            report.compared() - before.0,
            report.different().len() - before.1,
            share.map_or_else(String::new, |(share, _)| format!(", {share} % of the reads from the caches")),
            started.elapsed().as_secs_f64()
        );
    }
    if !still {
        world.tear_down().await;
    }
    Some(world)
}

fn summary(report: &Report, started: Instant) -> ExitCode {
    for (what, why) in report.left_out() {
        println!("left out: {what}: {why}");
    }
    let different = report.different();
    println!("{} compared, {} different, {:.0} s", report.compared(), different.len(), started.elapsed().as_secs_f64());
    for what in &different {
        println!("  {what}");
    }
    if !different.is_empty() {
        println!("tolerated was only:");
        for tolerance in compare::TOLERATED {
            println!("  {}: {}", tolerance.what, tolerance.why);
        }
    }
    if different.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
