//! That the harness sees what it is there to see: an apiserver against itself is clean in every phase, and each wrong
//! proxy is caught by the phase that is to catch it.

use std::sync::Arc;
use std::time::Duration;

use informerd::upstream::client::ConfigSource;

use super::args::{Mode, Phase};
use super::report::Report;
use super::served::Served;
use super::support::Through;
use super::wire::Endpoint;
use super::world::World;
use super::wrong::{Fault, WrongProxy};
use super::{curated, generated, pages, watches};

/// Who catches what; of the curated table one row is enough.
const CATCHES: &[(Fault, Phase)] = &[
    (Fault::IgnoresSelectors, Phase::Curated),
    (Fault::ReordersAKey, Phase::Curated),
    (Fault::StripsAHeader, Phase::Curated),
    (Fault::FakesARevision, Phase::Curated),
    (Fault::IgnoresSelectors, Phase::Generated),
    (Fault::ReordersAKey, Phase::Generated),
    (Fault::FakesARevision, Phase::Generated),
    (Fault::StripsAHeader, Phase::Generated),
    (Fault::LosesAnObject, Phase::Generated),
    (Fault::DropsAnEvent, Phase::Watches),
    (Fault::RepeatsAnEvent, Phase::Watches),
    (Fault::BookmarksAhead, Phase::Watches),
    (Fault::IgnoresSelectors, Phase::Watches),
    (Fault::ForgetsTheSnapshot, Phase::Pages),
    (Fault::FakesARevision, Phase::Pages),
    (Fault::LosesAnObject, Phase::Pages),
];

const ROW: &str = "C27";
/// Of the generated requests so many are enough.
const REQUESTS: u64 = 250;
const SIZE: watches::Size = watches::Size { watches: 20, changes: 60, rest: Duration::from_secs(4) };
const WALKS: usize = 4;

/// Needs only the apiserver of the world.
pub(crate) async fn run(world: &World, report: &Arc<Report>) {
    let clean = [Phase::Curated, Phase::Generated, Phase::Watches, Phase::Pages].map(|phase| (Fault::None, phase));
    for (n, (fault, phase)) in clean.iter().chain(CATCHES).enumerate() {
        let what = format!("proof: {fault:?} in the phase {}", phase.name());
        match attempt(world, *fault, *phase, 1000 + n as u64).await {
            Err(error) => report.wrong(&what, &format!("  {error}\n")),
            Ok(found) if *fault == Fault::None && !found.is_empty() => {
                report.wrong(&what, &format!("  the apiserver differs from itself:\n  {}\n", found.join("\n  ")));
            }
            Ok(found) if *fault != Fault::None && found.is_empty() => report.wrong(&what, "  it is not caught\n"),
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
    let seen = Arc::new(world.seen_by(pair));
    let mut served = Served::new(daemon.daemon.reads.metrics(), mode);
    served.begin();
    let range = generated::Range { seed: 2000, requests: REQUESTS, only: None, filter: None };
    generated::run(&seen, &range, report).await;
    match served.share(Phase::Generated) {
        (_, Some(_)) => report.equal(),
        (share, None) => return Err(format!("it is not caught: {share} % are enough")),
    }
    Ok(())
}

/// What the phase finds.
async fn attempt(world: &World, fault: Fault, phase: Phase, seed: u64) -> Result<Vec<String>, String> {
    let proxy = WrongProxy::start(fault, world.direct().clone()).await.map_err(|error| error.to_string())?;
    let pair = [world.direct().clone(), Endpoint::new(&proxy.url, None, None, None)?];
    let spoiled = Arc::new(world.seen_by(pair));
    // What is right has to say where it is not.
    let report = Arc::new(if fault == Fault::None { Report::default() } else { Report::quiet() });
    match phase {
        Phase::Curated => curated::run(&spoiled, (fault != Fault::None).then_some(ROW), &report).await,
        Phase::Generated => {
            let range = generated::Range { seed, requests: REQUESTS, only: None, filter: None };
            generated::run(&spoiled, &range, &report).await;
        }
        Phase::Watches => watches::run(&spoiled, seed, &SIZE, &report).await,
        Phase::Pages => pages::run(&spoiled, seed, WALKS, &report).await,
        // The scripts compare with what the rest compares with.
        Phase::Scripts | Phase::Shards | Phase::Tables | Phase::Proof => {}
    }
    if report.compared() == 0 {
        return Err("nothing was compared".to_owned());
    }
    Ok(report.different())
}
