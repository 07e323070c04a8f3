//! What clients see of the network between the daemon and its apiserver: nothing where a watch resumes. Where it cannot,
//! because another apiserver knows nothing of the gap, who holds what the gap has deleted has to list again, and all others
//! see how the gap has ended.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::own::Own;
use super::report::Report;
use super::rng::Rng;
use super::scripts::compared;
use super::served::is_forwarded;
use super::streams::{Event, come_to_rest, events, replay};
use super::support::relay::Loss;
use super::watches::{self, Churn, Pair, Size};
use super::wire::{Ask, End};
use super::world::{BOUND, World, rv};

pub(crate) const SIZE: Size = Size { watches: 40, changes: 120, rest: Duration::from_secs(60) };
/// Changes within the gap: so few that not everybody holds something that they delete.
const GAP: usize = 14;

pub(crate) async fn run(own: &Own, world: &World, seed: u64, report: &Report) {
    watches::run(world, seed + 100_000, &SIZE, Some(&own.relay), report).await;
    let wrong = match relisted(world, Some(own), seed, &SIZE, report).await {
        // Neither may be the answer to everything.
        Ok([ended, futures, all]) if ended == 0 || ended * 4 > all * 3 || futures == 0 => {
            format!("{ended} of {all} have ended, {futures} named the future")
        }
        Ok(_) => return,
        Err(error) => error,
    };
    let reads = own.daemon.daemon.reads.metrics().series();
    report.wrong(&format!("cuts --seed {seed}: the watches"), &format!("  {wrong}\n  {reads:?}\n"));
}

/// Watches over a gap that the daemon has to list again for, if there is one. Returns how many had to end, how many named a
/// revision of the future, and how many there are.
pub(crate) async fn relisted(
    world: &World,
    own: Option<&Own>,
    seed: u64,
    size: &Size,
    report: &Report,
) -> Result<[usize; 3], String> {
    let rng = &mut Rng::new(seed, 0x6375_7473);
    let mut churn = Churn::begin(world, &format!("diff-c{seed}"), rng, size.changes / 2).await?;
    let mut pairs = Vec::new();
    for n in 0..size.watches {
        pairs.extend(watches::open(&churn, seed, n, rng, true, report).await?);
    }
    for _ in 0..GAP {
        churn.step(rng).await?;
    }
    if let Some(own) = own {
        own.relay.lose(Loss::Closed);
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
            let bound = Instant::now() + BOUND;
            let said = loop {
                let said = world.ask(&asks, BOUND).await;
                // The cache of the other apiserver may still begin, which it says.
                let begins = said[1].as_ref().is_ok_and(|answer| answer.status == 429);
                if !begins || Instant::now() > bound {
                    break said;
                }
                sleep(Duration::from_millis(200)).await;
            };
            compared(world, &format!("cuts --seed {seed} ({})", asks[0].target), &asks, said, report);
        }
    }
    world.settle().await?;
    come_to_rest(&pairs.iter().map(|pair| &pair.streams).collect::<Vec<_>>(), size.rest).await;
    let (mut ended, mut futures) = (0, 0);
    for pair in &pairs {
        if own.is_some() && is_forwarded(&pair.answers()[1]) {
            // It is cut with the network.
            report.count(&pair.asks[0], &pair.answers());
            continue;
        }
        let told = [events(&pair.answers()[0])?, events(&pair.answers()[1])?];
        let outcome = judged(pair, world, cut, &told).await?;
        ended += usize::from(outcome == Ok(true));
        futures += usize::from(pair.from.is_some_and(|from| from > cut));
        pair.report(world, outcome.as_ref().err().map_or(&[], Vec::as_slice), report);
    }
    Ok([ended, futures, pairs.len()])
}

/// Whether the stream had to end, or what is wrong with it.
async fn judged(
    pair: &Pair,
    world: &World,
    cut: u64,
    told: &[Vec<Event>; 2],
) -> Result<Result<bool, Vec<String>>, String> {
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
    let has_ended = pair.answers()[1].end != End::Open;
    if errors_direct > 0 {
        // What was refused at its beginning.
        wrong.extend(watches::heads(&pair.asks[0], &pair.answers()));
        return Ok(if errors == 1 && wrong.is_empty() { Ok(false) } else { Err(wrong) });
    }
    if has_ended {
        // The daemon knows of a revision by what happens to the resource.
        let is_before = |from| direct.iter().any(|event| from < event.rv && event.rv <= cut);
        let is_within = pair.from.is_some_and(|from| from < world.now() && (from > cut || !is_before(from)));
        if !is_within && !direct.iter().any(gone) {
            wrong.push("it has ended, and holds nothing that the gap has deleted".to_owned());
        }
        let end = pair.answers()[1].end;
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
    Ok(if wrong.is_empty() { Ok(has_ended) } else { Err(wrong) })
}
