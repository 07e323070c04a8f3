//! One seeded simulation: a daemon, two apiservers behind one address, clients of every kind, and faults that are composed
//! at random, on a clock that stands still while anything can be done.
//!
//! Everything that clients see is held against the log of the store, in one history. Nobody is served for long without the
//! right, and the daemon lists for a reason only. When the faults have ended, all is well after a while. `INFORMERD_SEEDS` is
//! the number of seeds, `INFORMERD_SEED` the first one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod chaos;
mod contents;
mod load;
mod rest;
pub(crate) mod rights;
mod typed;
mod users;
mod world;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use informerd::cache::Floor;
use informerd::informer::Informer;
use informerd::lifecycle;
use informerd::meta::{Encoding, ResourceVersion, Scope};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::support::client::Client;
use crate::support::history::{Selected, State};
use crate::support::informer;
use rest::Following;
use typed::Holding;
use world::{RESOURCES, Resource, Run};

/// The clock goes on by this much when there is nothing to do: the time in which what was sent arrives.
const STEP: Duration = Duration::from_millis(4);
/// After so many steps, real time goes on as well: on a busy machine, the kernel delivers what was sent when it comes to it.
const PAUSE: u32 = 250;
/// A seed takes a few seconds of real time, or minutes on a machine that does much else. One that takes so long never ends.
const HANGS: Duration = Duration::from_secs(900);
/// Dead connections are found out within this time, and so is a store that was set back.
const SETTLES: Duration = Duration::from_secs(60);
/// After the faults, everything is well within this time.
const BOUND: Duration = Duration::from_secs(900);

thread_local! {
    /// What panicked on this thread, in whichever task.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn every() {
    let (first, seeds) = (number("INFORMERD_SEED", 1), number("INFORMERD_SEEDS", 200));
    // The first clock is a real one, which no seed is ahead of.
    Floor::default().raise(ResourceVersion(1));
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.with_borrow_mut(|panics| panics.push(info.to_string()));
        hook(info);
    }));
    let (next, (tell, told)) = (Arc::new(AtomicU64::new(first)), mpsc::channel());
    for _ in 0..2 {
        let (next, tell) = (next.clone(), tell.clone());
        // Not in a scope: nothing ends a thread whose seed hangs.
        std::thread::spawn(move || {
            for seed in
                std::iter::repeat_with(|| next.fetch_add(1, Ordering::SeqCst)).take_while(|n| *n < first + seeds)
            {
                if tell.send((seed, None)).and_then(|()| tell.send((seed, Some(run(seed))))).is_err() {
                    return;
                }
            }
        });
    }
    drop(tell);
    let (mut running, mut failed, mut compared, mut heaviest) = (BTreeMap::new(), Vec::new(), 0, (0, 0));
    loop {
        match told.recv_timeout(Duration::from_secs(1)) {
            Ok((seed, None)) => drop(running.insert(seed, Instant::now())),
            Ok((seed, Some(done))) => {
                running.remove(&seed);
                match done {
                    Ok((reads, load)) => {
                        compared += reads;
                        heaviest = heaviest.max((load, seed));
                    }
                    Err(why) => {
                        eprintln!("seed {seed} fails:\n{why}\n{}", again(seed));
                        failed.push(seed);
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if let Some((seed, _)) = running.iter().find(|(_, began)| began.elapsed() > HANGS) {
            panic!("seed {seed} has not ended after {HANGS:?}; failed before: {failed:?}\n{}", again(*seed));
        }
    }
    assert!(failed.is_empty() && running.is_empty(), "of {seeds} seeds fail {failed:?} and die {running:?}");
    let (load, heaviest) = heaviest;
    println!("{seeds} seeds, {compared} reads, at most {load} % of the lists that were allowed (seed {heaviest})");
    // The faults of one seed may leave little to read.
    assert!(seeds < 10 || compared > 100 * usize::try_from(seeds).unwrap(), "only {compared} reads in {seeds} seeds");
}

fn again(seed: u64) -> String {
    format!("again: INFORMERD_SEED={seed} INFORMERD_SEEDS=1 cargo test --test simulated seeded::every -- --nocapture")
}

/// How many reads were compared with the log, and how many percent of the lists that were allowed the daemon has asked for.
fn run(seed: u64) -> Result<(usize, u64), String> {
    PANICS.with_borrow_mut(Vec::clear);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let done = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(lives(seed))));
    drop(runtime);
    let panics = PANICS.with_borrow_mut(std::mem::take);
    let (count, run, mut wrong) = done.map_err(|_| panics.join("\n"))?;
    wrong.extend(panics);
    if wrong.is_empty() {
        return Ok((count, run.load.share.load(Ordering::SeqCst)));
    }
    let (some, more) = (wrong.len().min(8), wrong.len().saturating_sub(8));
    let deeds = run.deeds.lock().join(", ");
    Err(format!("{}\n(and {more} more)\n{:?}\n{deeds}", wrong[..some].join("\n"), run.swarm))
}

#[expect(clippy::disallowed_methods, reason = "real time is to go on")]
fn pause() {
    std::thread::sleep(Duration::from_millis(1));
}

async fn lives(seed: u64) -> (usize, Arc<Run>, Vec<String>) {
    lifecycle::spawn("clock", async {
        for step in 1_u32.. {
            tokio::time::sleep(STEP).await;
            if step.is_multiple_of(PAUSE) {
                pause();
            }
        }
    });
    let run = Run::start(seed).await;
    let started = Instant::now();
    lifecycle::spawn("load", load::looks(run.clone()));
    let mut following = rest::informers(&run);
    let mut holding = typed::holders(&run);
    let tasks = actors(&run);
    let revoking = if run.swarm.delegated { users::begin(&run) } else { Vec::new() };
    chaos::reigns(&run).await;
    tasks.iter().for_each(JoinHandle::abort);
    chaos::ends(&run);
    let healed = Instant::now();
    let (mut count, mut wrong) = (0, Vec::new());
    let mut random = run.random(9);
    if run.swarm.has(chaos::RESTORE) {
        count = run.judge();
        wrong.extend(complaints(&run, &following, &holding));
        chaos::restore(&run);
        // What these know may be of another past, which no apiserver notices. Others begin once the daemon has noticed.
        (following, holding) = (Vec::new(), Vec::new());
        wrong.extend(becomes_well(&run, healed, &following, &holding).await.err());
        wrong.extend(forgets(&run).await.err());
        run.is_rewound.store(false, Ordering::SeqCst);
        (following, holding) = (rest::informers(&run), typed::holders(&run));
        let tasks = actors(&run);
        tokio::time::sleep(Duration::from_secs(5)).await;
        tasks.iter().for_each(JoinHandle::abort);
    }
    // What happens now is told, too.
    for _ in 0..10 {
        chaos::write(&run, &mut random);
    }
    wrong.extend(becomes_well(&run, healed, &following, &holding).await.err());
    if wrong.is_empty() {
        wrong.extend(chaos::cuts(&run).await.err());
        wrong.extend(becomes_well(&run, healed, &following, &holding).await.err());
    }
    run.deeds.lock().push(format!("well after {:?}", healed.elapsed()));
    if wrong.is_empty() && run.swarm.delegated {
        // Rights settle.
        tokio::time::sleep(SETTLES).await;
        wrong.extend(users::end(&run, &revoking).await);
    }
    run.is_over.store(true, Ordering::SeqCst);
    count += run.judge();
    wrong.extend(complaints(&run, &following, &holding));
    wrong.extend(run.load.judge(&run, started.elapsed()));
    wrong.extend(std::mem::take(&mut *run.wrong.lock()));
    run.stop_daemon(Duration::from_millis(100)).await;
    (count, run, wrong)
}

/// Who reads and writes.
fn actors(run: &Arc<Run>) -> [JoinHandle<()>; 5] {
    [
        lifecycle::spawn("reader", rest::reads(run.clone(), 0)),
        lifecycle::spawn("reader", rest::reads(run.clone(), 1)),
        lifecycle::spawn("reader", typed::reads(run.clone())),
        lifecycle::spawn("writer", rest::writes_directly(run.clone())),
        lifecycle::spawn("writer", rest::writes_through(run.clone())),
    ]
}

/// What streams have promised and not kept.
fn complaints(run: &Run, following: &[Following], holding: &[Holding]) -> Vec<String> {
    let (mut wrong, excuses) = (Vec::new(), usize::try_from(run.excuses.load(Ordering::SeqCst)).unwrap());
    for (what, resource, _, seen) in held(following, holding) {
        let seen = seen.lock();
        wrong.extend(seen.complaints.iter().map(|why| format!("{what} of {}: {why}", resource.plural)));
        if seen.expired > 3 * excuses {
            wrong.push(format!("{what} of {}: {} times too old, for {excuses} reasons", resource.plural, seen.expired));
        }
    }
    wrong
}

/// Waits until all is well.
async fn becomes_well(run: &Run, healed: Instant, following: &[Following], holding: &[Holding]) -> Result<(), String> {
    while let Err(why) = is_well(run, held(following, holding)).await {
        if healed.elapsed() > BOUND {
            let standing = run.daemon().map(|daemon| daemon.daemon.factory.informers()).unwrap_or_default();
            let standing: Vec<_> = standing.iter().map(|one| format!("{} {:?}", one.key(), one.status())).collect();
            return Err(format!("not well {BOUND:?} after the faults: {why}\n  {}", standing.join("\n  ")));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

/// Waits until no cache has anything of the past that was undone: those that nobody reads find out in their turn. The store is still.
async fn forgets(run: &Run) -> Result<(), String> {
    let (begun, all) = (Instant::now(), Scope { namespace: None, name: None });
    loop {
        tokio::time::sleep(SETTLES).await;
        let informers = run.daemon().map(|daemon| daemon.daemon.factory.informers()).unwrap_or_default();
        let is_wrong = |one: &&Arc<Informer>| {
            let resource = RESOURCES.iter().find(|of| *of.plural == *one.key().gvr.resource);
            let (Some(resource), Some(snapshot)) = (resource, one.cache().snapshot()) else { return false };
            let truth = run.truth(*resource, &Selected::default());
            let objects = snapshot.range(&all, None).filter(|object| !object.key.as_str().contains("poison"));
            let state: State = objects.map(|object| (object.key.as_str().to_owned(), object.rv.0)).collect();
            let is_whole = one.key().scope.is_everything() && state.len() != truth.len();
            is_whole || state.iter().any(|(key, rv)| truth.get(key) != Some(rv))
        };
        match informers.iter().find(is_wrong) {
            None => return Ok(()),
            Some(one) if begun.elapsed() > BOUND => return Err(format!("{} keeps what was undone", one.key())),
            Some(_) => {}
        }
    }
}

type Held<'a> = (&'static str, Resource, &'a Selected, &'a Arc<Mutex<informer::Seen>>);

/// What clients hold.
fn held<'a>(following: &'a [Following], holding: &'a [Holding]) -> impl Iterator<Item = Held<'a>> {
    let informers = following.iter().map(|one| (one.what, one.resource, &one.of, &one.informer.seen));
    informers.chain(holding.iter().map(|one| (one.what, one.resource, &one.of, &one.seen)))
}

/// The daemon is ready, answers from its caches, and everybody has what there is.
async fn is_well(run: &Run, states: impl Iterator<Item = Held<'_>>) -> Result<(), String> {
    let daemon = run.daemon().ok_or("no daemon")?;
    if !daemon.context.readiness.is_ready() {
        return Err("the daemon is not ready".to_owned());
    }
    let client = Client::new(&run.url());
    for resource in RESOURCES {
        let (truth, is_poisoned) = (run.truth(resource, &Selected::default()), run.swarm.poisoned == Some(resource));
        let protobuf = is_poisoned.then(|| client.accepting(world::PROTOBUF));
        let clients = [&client].into_iter().chain(&protobuf);
        for (client, query) in clients.flat_map(|client| ["?resourceVersion=0", ""].map(|query| (client, query))) {
            let answer = client.try_get(&format!("{}{query}", resource.path())).await?;
            if !answer.status.is_success() || answer.is_old() {
                return Err(format!("{}{query}: {} {:?}", resource.plural, answer.status, answer.warnings()));
            }
            let plan = answer.headers.get("x-informerd-plan").cloned();
            let is_forwarded = plan.as_ref().is_some_and(|plan| plan.as_bytes().starts_with(b"forwarded"));
            if is_forwarded != is_poisoned && (is_poisoned || !query.is_empty()) {
                return Err(format!("{}{query}: {plan:?}", resource.plural));
            }
            let list = rest::parsed(&answer).ok_or("no list")?;
            let state = rest::items(run, resource, "a list", &answer, &list).ok_or("no items")?;
            if state != truth {
                return Err(format!("{}{query} {plan:?}: {}", resource.plural, difference(&state, &truth)));
            }
        }
    }
    let informers = daemon.daemon.factory.informers();
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        let is_of =
            |one: &Arc<Informer>, of: Resource| (&*one.key().gvr.resource, one.key().encoding) == (of.plural, encoding);
        if let Some(of) = run.swarm.poisoned.filter(|of| encoding == Encoding::Json || *of == RESOURCES[0])
            && !informers.iter().any(|one| is_of(one, of) && one.status().undecodable)
        {
            return Err(format!("no informer of {} in {encoding:?} says that it is poisoned", of.plural));
        }
    }
    for (what, resource, of, seen) in states {
        // What cannot be cached is not served over gRPC.
        if run.swarm.poisoned == Some(resource) && (what.ends_with("gRPC") || what == "a worker") {
            continue;
        }
        let (state, truth) = (seen.lock().state.clone(), run.truth(resource, of));
        if state != truth {
            let (why, seen) = (difference(&state, &truth), seen.lock());
            let (last, lists, resumes, expired) = (seen.last, seen.lists, seen.resumes, seen.expired);
            return Err(format!("{what} of {}, at {last} after {lists} {resumes} {expired}: {why}", resource.plural));
        }
    }
    Ok(())
}

fn difference(state: &State, truth: &State) -> String {
    let missing: Vec<_> = truth.iter().filter(|(key, rv)| state.get(*key) != Some(rv)).collect();
    let ghosts: Vec<_> = state.iter().filter(|(key, _)| !truth.contains_key(*key)).collect();
    format!("missing or old {missing:?}, ghosts {ghosts:?}")
}
