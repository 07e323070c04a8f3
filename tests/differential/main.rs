//! The same requests to a kube-apiserver and to what stands in front of it: who looks at the answers cannot tell the
//! two apart. See README.md.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod args;
mod axes;
#[path = "../judge/cluster.rs"]
mod cluster;
#[path = "../judge/compare.rs"]
mod compare;
mod curated;
mod cuts;
mod generated;
mod http2;
mod kinds;
mod outage;
mod own;
mod pages;
#[path = "../judge/process.rs"]
mod process;
mod proof;
mod report;
mod rng;
mod rows;
mod scenarios;
mod scripts;
mod sensible;
mod served;
mod shards;
mod starts;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod tables;
mod users;
mod watches;
mod wire;
mod world;
mod wrong;

use std::process::ExitCode;
use std::sync::Arc;

use args::{Args, Mode, Phase};
use informerd::apiserver::client::ConfigSource;
use informerd::packing::PackingStats;
use own::Own;
use report::Report;
use tokio::time::Instant;
use wire::Endpoint;
use world::World;

fn main() -> ExitCode {
    if let Ok(filter) = std::env::var("RUST_LOG") {
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(std::io::stderr).init();
    }
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
            // The proof has nothing to do with the daemon, and tables are asked for in ways that the modes do not differ in.
            let last = n + 1 == args.modes.len();
            args.phases.retain(|phase| last || !matches!(phase, Phase::Proof | Phase::Tables));
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
    let own = Own::start(mode).await;
    let world = phases(args, &mode.name(), own.pair(), Some(&own), report).await;
    let PackingStats { objects, unpacked_total, .. } = own.daemon.daemon.packing.stats();
    println!("{}: {objects} objects are packed, unpacked {unpacked_total} times", mode.name());
    if mode == Mode::Probe && args.is_whole(Phase::Generated) && (objects < 50 || unpacked_total < 1000) {
        report.wrong("objects that were packed", "  too few to say that packing changes nothing\n");
    }
    if let (Some(world), true) = (world, args.phases.contains(&Phase::Proof)) {
        let source = ConfigSource::kubeconfig(own.cluster.admin());
        if let Err(error) = proof::forwarding_is_caught(&world, source, mode, report).await {
            report.wrong("proof: a daemon that forwards everything", &format!("  {error}\n"));
        }
    }
}

/// Runs the phases; without a cluster of our own, those that need none.
async fn phases(
    args: &Args,
    name: &str,
    pair: [Endpoint; 2],
    own: Option<&Own>,
    report: &Arc<Report>,
) -> Option<Arc<World>> {
    let world = match World::set_up(pair, own.is_some()).await {
        Ok(world) => Arc::new(world),
        Err(error) => {
            report.wrong(&format!("{name}: setting up"), &format!("  {error}\n"));
            return None;
        }
    };
    for phase in &args.phases {
        let (started, before) = (Instant::now(), (report.compared(), report.different().len()));
        report.take_tally();
        phase_of(args, *phase, &world, own, report).await;
        let tally = report.take_tally();
        if let Some(own) = own {
            if let Err(error) = world.settle().await {
                report.wrong(&format!("{name}: after {}", phase.name()), &format!("  {error}\n"));
            }
            let below = if args.is_whole(*phase) { tally.below(*phase, own.mode) } else { Vec::new() };
            if !below.is_empty() {
                let informers = own.daemon.daemon.factory.informers();
                let standing = informers.iter().map(|one| (one.key(), one.status()));
                let standing: Vec<_> =
                    standing.map(|(key, now)| format!("    {key}: {}, synced {}", now.state, now.synced)).collect();
                let told = format!("  {}\n{tally}{}\n", below.join("\n  "), standing.join("\n"));
                report.wrong(&format!("{name}: {}: answers from the caches", phase.name()), &told);
            }
        }
        println!(
            "{name}: {}: {} compared, {} different, {} % of the reads from the caches, {:.0} s",
            phase.name(),
            report.compared() - before.0,
            report.different().len() - before.1,
            tally.share(),
            started.elapsed().as_secs_f64()
        );
    }
    if own.is_none() {
        world.tear_down().await;
    }
    Some(world)
}

async fn phase_of(args: &Args, phase: Phase, world: &Arc<World>, own: Option<&Own>, report: &Arc<Report>) {
    let seeds = args.seed..args.seed + args.seeds;
    match phase {
        Phase::Curated => curated::run(world, args.filter.as_deref(), report).await,
        Phase::Scripts => {
            scripts::run(world, args.filter.as_deref(), args.seed, report).await;
            // Definitions change in ways that the modes do not differ in.
            let is_last = own.is_none_or(|own| args.modes.last() == Some(&own.mode));
            if args.filter.is_none() && is_last {
                scripts::run(world, Some(scripts::DEFINED), args.seed, report).await;
            }
        }
        Phase::Generated => {
            if world.still
                && let Err(error) = sensible::selectors_discern(world).await
            {
                report.wrong("generated: selectors", &format!("  {error}\n"));
            }
            for seed in seeds {
                let filter = args.filter.clone();
                let range = generated::Range { seed, requests: args.requests, only: args.request, filter };
                let cut = own.map(|own| (&own.relay, outage::loss(seed, own.mode, outage::GENERATED)));
                generated::run(world, &range, cut, report).await;
            }
        }
        Phase::Watches => {
            for seed in seeds {
                watches::run(world, seed, &watches::SIZE, None, report).await;
            }
        }
        Phase::Pages => {
            for seed in seeds {
                pages::run(world, seed, pages::WALKS, own, report).await;
            }
        }
        Phase::Shards => shards::run(world, usize::MAX, report).await,
        Phase::Tables => tables::run(world, args.filter.as_deref(), report).await,
        Phase::Users | Phase::Cuts => {
            let Some(own) = own else { return };
            for seed in seeds {
                match phase {
                    Phase::Users => users::run(own, world, None, seed, users::REQUESTS, report).await,
                    _ => cuts::run(own, world, seed, report).await,
                }
            }
        }
        Phase::Proof => {
            if let Some(own) = own {
                proof::run(own, world, report).await;
            }
        }
    }
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
