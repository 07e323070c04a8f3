//! What clients see of the network between the daemon and its apiserver: nothing where a watch resumes. Where it cannot,
//! because another apiserver knows nothing of the gap, who holds what the gap has deleted has to list again, and all others
//! see how the gap has ended.

use std::collections::BTreeMap;
use std::time::Duration;

use super::args::Mode;
use super::outage;
use super::own::Own;
use super::report::Report;
use super::rng::Rng;
use super::scripts::{Watched, compared};
use super::served::is_forwarded;
use super::streams::{Event, events, replay};
use super::support::relay::Loss;
use super::watches::{self, Churn, Pair, Size};
use super::wire::{Ask, End};
use super::world::{World, rv};

/// With two outages.
const CUT: Size = Size { watches: 40, changes: 48, rest: Duration::from_secs(60) };
/// With a gap.
const SIZE: Size = Size { watches: 40, changes: 120, rest: Duration::from_secs(60) };
/// Changes within the gap: so few that not everybody holds something that they delete.
const GAP: usize = 14;
/// What makes a gap. A loss of what the daemon sends does not: events still arrive until the daemon gives up the connection.
const LOSSES: [Loss; 3] = [Loss::Closed, Loss::Down, Loss::Both];

/// How a watch may go over a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It goes on, or was refused at its beginning, as by the apiserver.
    None,
    /// It ends: its client holds what the gap has deleted.
    Deleted,
    /// It ends although its client holds nothing of that kind, and is excused: it named a revision of which the daemon knew nothing when
    /// the network was cut, because nothing had happened to the resource after it. The gap may have begun before it.
    Ahead,
}

/// How many watches went how.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    all: usize,
    deleted: usize,
    ahead: usize,
    /// Those that named a revision after the cut.
    futures: usize,
}

pub(crate) async fn run(own: &Own, world: &World, seed: u64, report: &Report) {
    watches::run(world, seed + 100_000, &CUT, Some(own), report).await;
    let wrong = match relisted(world, Some(own), seed, &SIZE, report).await {
        Ok(outcomes) if outcomes.are_likely() => return,
        Ok(outcomes) => format!("{outcomes:?}"),
        Err(error) => error,
    };
    let reads = own.daemon.daemon.reads.metrics().series();
    report.wrong(&format!("cuts --seed {seed}: the watches"), &format!("  {wrong}\n  {reads:?}\n"));
}

/// Watches over a gap that the daemon has to list again for, if there is one.
pub(crate) async fn relisted(
    world: &World,
    own: Option<&Own>,
    seed: u64,
    size: &Size,
    report: &Report,
) -> Result<Outcomes, String> {
    let rng = &mut Rng::new(seed, 0x6375_7473);
    let mut churn = Churn::begin(world, &format!("diff-c{seed}"), rng, size.changes / 2).await?;
    let recorders = churn.recorders().await?;
    let mut pairs = Vec::new();
    for n in 0..size.watches {
        pairs.extend(watches::open(&churn, seed, n, rng, true, report).await);
    }
    for _ in 0..GAP {
        churn.step(rng).await?;
    }
    // What was before the cut has arrived.
    Watched::until_all_rest(pairs.iter().map(|pair| &pair.watched), size.rest).await;
    if let Some(own) = own {
        let n = usize::try_from(seed % 3).unwrap_or(0) + usize::from(own.mode == Mode::Probe);
        own.relay.lose(LOSSES[n % LOSSES.len()]);
    }
    let cut = world.newest().await?;
    for _ in 0..GAP {
        churn.step(rng).await?;
    }
    if let Some(own) = own {
        own.change_apiserver().await;
    }
    for n in 0..size.changes / 4 {
        churn.step(rng).await?;
        if n % 3 == 0 {
            let revision = rng.pick(churn.revisions());
            let target = format!("{}&resourceVersion={revision}&resourceVersionMatch=Exact", rng.pick(&pairs).list);
            let asks = [Ask::get(target.clone()), Ask::get(target)];
            // The cache of the other apiserver may still begin, which it says.
            let said = outage::ask(world, &asks, false).await;
            compared(world, &format!("cuts --seed {seed} ({})", asks[0].target), &asks, said, report);
        }
    }
    world.settle().await?;
    Watched::until_all_rest(pairs.iter().map(|pair| &pair.watched), size.rest).await;
    let mut changed = BTreeMap::new();
    for (plural, recorder) in &recorders {
        let revisions = events(&recorder.answer())?.iter().map(|event| event.rv).collect::<Vec<_>>();
        changed.insert(*plural, revisions);
    }
    let mut outcomes = Outcomes { all: pairs.len(), ..Outcomes::default() };
    for pair in &pairs {
        let answers = pair.watched.answers();
        if own.is_some() && is_forwarded(&answers[1]) {
            // It is cut with the network.
            report.count(&pair.watched.asks[0], &answers);
            continue;
        }
        let told = [events(&answers[0])?, events(&answers[1])?];
        let outcome = judged(pair, world, cut, &told, &changed[pair.plural]).await?;
        outcomes.deleted += usize::from(outcome == Ok(Outcome::Deleted));
        outcomes.ahead += usize::from(outcome == Ok(Outcome::Ahead));
        outcomes.futures += usize::from(pair.from.is_some_and(|from| from > cut));
        pair.watched.report(world, &pair.what, outcome.as_ref().err().map_or(&[], Vec::as_slice), report);
    }
    Ok(outcomes)
}

/// How the stream went, or what is wrong with it. `changed` has the revisions at which something happened to its resource.
async fn judged(
    pair: &Pair,
    world: &World,
    cut: u64,
    told: &[Vec<Event>; 2],
    changed: &[u64],
) -> Result<Result<Outcome, Vec<String>>, String> {
    let [direct, through] = told;
    let mut wrong = Vec::new();
    let known: BTreeMap<_, _> = direct.iter().map(|event| ((&event.key, event.rv), &event.bytes)).collect();
    for event in through.iter().filter(|event| matches!(event.kind.as_str(), "ADDED" | "MODIFIED")) {
        if !known.contains_key(&(&event.key, event.rv)) {
            wrong.push(format!("{} of {} at {}, which was never so", event.kind, event.key, event.rv));
        }
    }
    let of = async |revision: u64| -> Result<BTreeMap<String, u64>, String> {
        let target = format!("{}&resourceVersion={revision}&resourceVersionMatch=Exact", pair.list);
        let list = world.direct_json(&Ask::get(target)).await?;
        let items = list["items"].as_array().into_iter().flatten();
        Ok(items.map(|item| (super::world::key(item), rv(item))).collect())
    };
    let mut held = match pair.from {
        Some(from) => of(from).await?,
        None => BTreeMap::new(),
    };
    replay(&mut held, through);
    // Deletions that it was not told, and that came after the cut.
    let gone = |event: &Event| event.kind == "DELETED" && event.rv > cut && held.contains_key(&event.key);
    let [errors, errors_direct] =
        [through, direct].map(|side| side.iter().filter(|event| event.kind == "ERROR").count());
    let (asks, answers) = (&pair.watched.asks, pair.watched.answers());
    let end = answers[1].end;
    if errors_direct > 0 {
        // What was refused at its beginning.
        wrong.extend(watches::heads(&asks[0], &answers));
        return Ok(if errors == 1 && wrong.is_empty() { Ok(Outcome::None) } else { Err(wrong) });
    }
    let mut outcome = Outcome::None;
    if end != End::Open {
        let is_known = |from: u64| changed.iter().any(|rv| from < *rv && *rv <= cut);
        if direct.iter().any(gone) {
            outcome = Outcome::Deleted;
        } else if pair.from.is_some_and(|from| from < world.now() && !is_known(from)) {
            outcome = Outcome::Ahead;
        } else {
            wrong.push("it has ended, and holds nothing that the gap has deleted".to_owned());
        }
        if errors > 1 || end != End::Clean {
            wrong.push(format!("it has ended with {errors} errors, {end:?}"));
        }
    } else {
        let now = of(world.now()).await?;
        if held != now {
            let odd: Vec<_> = held.keys().chain(now.keys()).filter(|key| held.get(*key) != now.get(*key)).collect();
            wrong.push(format!("the state in the end differs in {odd:?}: {held:?} and not {now:?}"));
        }
    }
    Ok(if wrong.is_empty() { Ok(outcome) } else { Err(wrong) })
}

// === impl Outcomes ===

impl Outcomes {
    /// Neither to end nor to go on may be the answer to everything. Of ten watches, about one is ahead of the cut; an excuse for many
    /// more would hide ends that are none.
    fn are_likely(&self) -> bool {
        let ended = self.deleted + self.ahead;
        ended > 0 && ended * 4 <= self.all * 3 && self.ahead * 10 <= self.all * 3 && self.futures > 0
    }
}
