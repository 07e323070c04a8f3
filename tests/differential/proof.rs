//! That the harness sees what it is there to see: an apiserver against itself is clean, and each wrong
//! proxy is caught by every phase that is to catch it.

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum as _;
use informerd::apiserver::client::ConfigSource;

use super::args::{Mode, Phase};
use super::own::Own;
use super::report::Report;
use super::support::Through;
use super::wire::Endpoint;
use super::world::World;
use super::wrong::{Fault, Form, WrongProxy};
use super::{curated, cuts, generated, pages, scripts, shards, tables, users, watches};

/// Who catches what, and what is clean; of the curated table one row is enough.
const CATCHES: &[(Phase, &[Fault])] = &[
    (Phase::Curated, &[Fault::IgnoresSelectors, Fault::ReordersAKey, Fault::StripsAHeader, Fault::FakesARevision]),
    (
        Phase::Generated,
        &[
            Fault::None,
            Fault::IgnoresSelectors,
            Fault::ReordersAKey,
            Fault::FakesARevision,
            Fault::StripsAHeader,
            Fault::LosesAnObject,
        ],
    ),
    (
        Phase::Watches,
        &[
            Fault::None,
            Fault::DropsAnEvent(Form::Json),
            Fault::DropsAnEvent(Form::Protobuf),
            Fault::RepeatsAnEvent(Form::Json),
            Fault::RepeatsAnEvent(Form::Protobuf),
            Fault::BookmarksAhead(Form::Json),
            Fault::BookmarksAhead(Form::Protobuf),
            Fault::KeepsErrors,
        ],
    ),
    (Phase::Pages, &[Fault::None, Fault::ForgetsTheSnapshot, Fault::LosesAnObject]),
    (Phase::Scripts, &[Fault::BookmarksAhead(Form::Json)]),
    (Phase::Shards, &[Fault::LosesAnObject]),
    (Phase::Tables, &[Fault::LosesARow]),
    (Phase::Users, &[Fault::TrustsEverybody]),
    (Phase::Cuts, &[Fault::None, Fault::KeepsDeletions]),
    (Phase::Generated, &[Fault::FlipsABit]),
    (Phase::Shards, &[Fault::FlipsABit]),
    (Phase::Users, &[Fault::FlipsABit]),
];

const ROW: &str = "C27";
/// Of the generated requests so many are enough.
const REQUESTS: u64 = 250;
const SIZE: watches::Size = watches::Size { watches: 20, changes: 60, rest: Duration::from_secs(2) };
const WALKS: usize = 4;
const LISTS: usize = 40;
const OF_A_USER: u64 = 40;

/// Has nothing to do with the daemon.
pub(crate) async fn run(own: &Own, world: &World, report: &Arc<Report>) {
    // Each phase has its proof.
    let proved: Vec<_> = CATCHES.iter().map(|(phase, _)| *phase).chain([Phase::Proof]).collect();
    for phase in Phase::value_variants().iter().filter(|phase| !proved.contains(phase)) {
        report.wrong(&format!("proof: the phase {}", phase.name()), "  nothing shows that it catches anything\n");
    }
    let all = CATCHES.iter().flat_map(|(phase, faults)| faults.iter().map(|fault| (*fault, *phase)));
    for (n, (fault, phase)) in all.enumerate() {
        let what = format!("proof: {fault:?} in the phase {}", phase.name());
        let started = tokio::time::Instant::now();
        let outcome = attempt(own, world, fault, phase, 1000 + n as u64).await;
        println!("  {what}: {:.0} s", started.elapsed().as_secs_f64());
        match outcome {
            Err(error) => report.wrong(&what, &format!("  {error}\n")),
            Ok(found) if fault == Fault::None && !found.is_empty() => {
                report.wrong(&what, &format!("  the apiserver differs from itself:\n  {}\n", found.join("\n  ")));
            }
            Ok(found) if fault != Fault::None && found.is_empty() => report.wrong(&what, "  it is not caught\n"),
            Ok(_) => report.equal(),
        }
    }
}

/// The requests through a daemon that forwards all reads: they are equal, and it is not enough.
pub(crate) async fn forwarding_is_caught(
    world: &World,
    source: ConfigSource,
    mode: Mode,
    report: &Arc<Report>,
) -> Result<(), String> {
    let daemon = Through::start(source, "resources:\n- resource: '*'\n  exclude: true\n").await;
    let pair = [world.direct().clone(), Endpoint::new(&daemon.url, None, None, None)?];
    let seen = Arc::new(world.seen_by(pair, false));
    let range = generated::Range { seed: 2000, requests: REQUESTS, only: None, filter: None };
    report.take_tally();
    generated::run(&seen, &range, None, report).await;
    let tally = report.take_tally();
    if tally.below(Phase::Generated, mode).is_empty() || tally.share() > 0 {
        return Err(format!("it is not caught: {} % are enough\n{tally}", tally.share()));
    }
    report.equal();
    Ok(())
}

/// What the phase finds.
async fn attempt(own: &Own, world: &World, fault: Fault, phase: Phase, seed: u64) -> Result<Vec<String>, String> {
    let proxy = WrongProxy::start(fault, world.direct().clone()).await.map_err(|error| error.to_string())?;
    let pair = [world.direct().clone(), Endpoint::new(&proxy.url, None, None, None)?];
    let spoiled = Arc::new(world.seen_by(pair, false));
    // What is right has to say where it is not.
    let report = Arc::new(if fault == Fault::None { Report::default() } else { Report::quiet() });
    // Who is right comes to rest.
    let size = watches::Size { rest: if fault == Fault::None { watches::SIZE.rest } else { SIZE.rest }, ..SIZE };
    match phase {
        Phase::Curated => curated::run(&spoiled, (fault != Fault::None).then_some(ROW), &report).await,
        Phase::Generated => {
            let range = generated::Range { seed, requests: REQUESTS, only: None, filter: None };
            generated::run(&spoiled, &range, None, &report).await;
        }
        Phase::Watches => watches::run(&spoiled, seed, &size, None, &report).await,
        Phase::Pages => pages::run(&spoiled, seed, WALKS, None, &report).await,
        Phase::Scripts => scripts::run(&spoiled, Some("starts"), seed, &report).await,
        Phase::Shards => shards::run(&spoiled, LISTS, &report).await,
        Phase::Tables => tables::run(&spoiled, Some("pods"), &report).await,
        Phase::Users => users::run(own, &spoiled, Some(&proxy.url), seed, OF_A_USER, &report).await,
        Phase::Cuts => cuts::relisted(&spoiled, None, seed, &size, &report).await.map(drop)?,
        Phase::Proof => {}
    }
    if report.compared() == 0 {
        return Err("nothing was compared".to_owned());
    }
    Ok(report.different())
}
