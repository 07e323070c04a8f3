//! What happens to a world, and that it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use informerd::informer::Informer;
use informerd::lifecycle;
use informerd_sim::{Cut, Effect, Fault, ObjectKey, Server, Verb};
use rand::Rng;
use rand::rngs::StdRng;

use super::rights::READER;
use super::world::{GROUPS, NAMES, NAMESPACES, RESOURCES, Resource, Run};
use super::{SETTLES, rights, users};
use crate::support::relay::Loss;

pub(super) const KINDS: usize = 21;
pub(super) const POISON: usize = 9;
pub(super) const RESTORE: usize = 19;
pub(super) const MEMORY: usize = 20;
/// An object of so many bytes is a part of the memory that the caches have, if they have [`super::world::LITTLE`].
const LARGE: usize = 300_000;
/// Faults that happen in one seed.
const MOST: usize = 12;
/// Broken connections are replaced within this time, and what was missed has come.
const MENDS: Duration = Duration::from_secs(20);
/// Ends of streams when all is well, and how many lists may have other reasons.
const CUTS: usize = 6;
const SOME: u64 = 2;

fn millis(random: &mut StdRng, least: u64, most: u64) -> Duration {
    Duration::from_millis(random.random_range(least..=most))
}

fn one<T: Clone>(random: &mut StdRng, of: &[T]) -> T {
    of[random.random_range(0..of.len())].clone()
}

/// Undoes something after a while.
fn later(run: &Arc<Run>, after: Duration, undo: impl FnOnce(&Run) + Send + 'static) {
    let run = run.clone();
    lifecycle::spawn("later", async move {
        tokio::time::sleep(after).await;
        if !run.is_calm.load(Ordering::SeqCst) {
            undo(&run);
        }
    });
}

/// Faults, until there were enough of them.
pub(super) async fn reigns(run: &Arc<Run>) {
    let mut random = run.random(1);
    for _ in 0..MOST {
        tokio::time::sleep(millis(&mut random, 0, 2 * run.swarm.faults_between)).await;
        let kinds: Vec<usize> = run.swarm.faults.iter().copied().filter(|&kind| kind != RESTORE).collect();
        if !kinds.is_empty() {
            let kind = one(&mut random, &kinds);
            strike(run, kind, &mut random).await;
        }
    }
}

async fn strike(run: &Arc<Run>, kind: usize, random: &mut StdRng) {
    let server = if random.random_bool(0.7) { &run.server } else { &run.second };
    let faults = server.faults();
    let resource = one(random, &RESOURCES);
    let verb = one(random, &[Verb::Watch, Verb::Watch, Verb::List, Verb::Probe, Verb::Get]);
    let times = random.random_range(1..5);
    let add = |effect, verb| {
        faults.add(Fault::times(times, effect).on(resource.id).verb(verb));
    };
    let span = millis(random, 200, 15_000);
    run.deeds.lock().push(format!("{kind} {} {verb:?} {times} {span:?}", resource.plural));
    run.load.strikes(kind, resource, verb, times);
    match kind {
        0 | 6 | 14 => run.disturb(MENDS),
        // Nobody hears of it that a connection is dead.
        13 => run.disturb(span + SETTLES),
        _ => {}
    }
    match kind {
        0 => match random.random_range(0..4) {
            0 => faults.reset_connections(),
            1 => faults.close_connections(),
            2 => faults.go_away(),
            _ => faults.end_watches(None),
        },
        1 => add(Effect::Cut(one(random, &[Cut::End, Cut::Fin, Cut::Rst])), verb),
        2 => add(Effect::Delay(millis(random, 10, 2500)), verb),
        3 => {
            let code = one(random, &[429, 500, 503, 504]);
            add(Effect::Answer { code, retry_after: random.random_bool(0.5).then_some(1) }, verb);
        }
        4 => {
            run.excuse();
            match random.random_range(0..3) {
                0 => faults.expire_watches(random.random_bool(0.5).then_some(resource.id)),
                1 => add(Effect::Expire, Verb::Watch),
                _ => {
                    add(Effect::Answer { code: 410, retry_after: None }, Verb::Watch);
                    faults.end_watches(None);
                }
            }
        }
        5 => {
            run.excuse();
            faults.compact();
            faults.end_watches(None);
        }
        6 => {
            let compacted = run.swarm.has(5) && random.random_bool(0.3);
            if compacted {
                run.excuse();
            }
            server.restart(millis(random, 50, 4000), compacted).await.unwrap();
        }
        7 => {
            run.excuse();
            run.stop_daemon(Duration::from_millis(500)).await;
            tokio::time::sleep(millis(random, 0, 3000)).await;
            run.start_daemon().await;
        }
        8 => redefine(run, random).await,
        POISON => {
            run.excuse();
            let variant = random.random_range(0..5);
            poison(&run.server, resource, random.random_range(0..2), variant);
            later(run, span, cure);
        }
        10 => {
            run.excuse();
            add(one(random, &[Effect::Garbage, Effect::Duplicate, Effect::Replay]), Verb::Watch);
        }
        11 => {
            let leap = millis(random, 1000, 90_000);
            if leap > Duration::from_secs(30) {
                run.excuse();
            }
            run.disturb(leap + MENDS);
            tokio::time::advance(leap).await;
        }
        12 if run.swarm.delegated && !run.was_taken.swap(true, Ordering::SeqCst) => users::taken(run).await,
        12 => {
            rights::set(run, READER, false);
            later(run, span, |run| rights::set(run, READER, true));
        }
        13 => match random.random_range(0..4) {
            0 => add(Effect::Stall, Verb::Watch),
            1 => faults.half_open(),
            2 => {
                faults.blackhole(true);
                let faults = faults.clone();
                later(run, span, move |_| faults.blackhole(false));
            }
            _ => {
                run.relay.lose(one(random, &[Loss::Both, Loss::Up, Loss::Down, Loss::Late, Loss::Closed]));
                later(run, span, |run| run.relay.lose(Loss::None));
            }
        },
        14 => {
            run.relay.lead(one(random, &[&run.server, &run.second]).address());
            run.server.faults().close_connections();
            run.second.faults().close_connections();
        }
        15 => {
            let lag = faults.add(Fault::always(Effect::Lag(millis(random, 50, 5000))).on(resource.id));
            let faults = faults.clone();
            later(run, span, move |_| faults.remove(lag));
        }
        16 => add(one(random, &[Effect::NoBookmark, Effect::NoInitialEnd]), Verb::Watch),
        17 => {
            run.excuse();
            add(Effect::ErrorEvent(one(random, &[429, 500, 504])), Verb::Watch);
        }
        MEMORY => scarce(run, span, random),
        _ => {
            if run.swarm.delegated {
                rights::long_line(&run.server);
            }
            add(Effect::SlowBody(millis(random, 1, 500)), Verb::List);
        }
    }
}

/// Objects come that do not fit, or little is left for another state, or caches have to go.
fn scarce(run: &Arc<Run>, span: Duration, random: &mut StdRng) {
    run.excuse();
    match random.random_range(0..3) {
        0 => {
            for _ in 0..random.random_range(1..8) {
                write_of(run, random, LARGE);
            }
            later(run, span, cure);
        }
        how => {
            let informers = run.daemon().map(|daemon| daemon.daemon.factory.informers()).unwrap_or_default();
            let Some(budget) = informers.first().map(|one| one.cache().config().budget.clone()) else { return };
            if how == 1 {
                let free = (budget.limit() - budget.limit() / 10).saturating_sub(budget.used());
                let lent = budget.lend(free.saturating_sub(random.random_range(0..20_000)));
                later(run, span, move |_| drop(lent));
            } else {
                while random.random_bool(0.6) && budget.recall() {}
            }
        }
    }
}

/// The definition is changed, or deleted and made anew.
async fn redefine(run: &Run, random: &mut StdRng) {
    let (of, key) = ("customresourcedefinitions.apiextensions.k8s.io", ObjectKey::new("", RESOURCES[1].id));
    run.excuse();
    let Some(stored) = run.server.store().objects(of).get(&key).cloned() else { return };
    let mut definition = stored.value();
    definition["metadata"] = serde_json::json!({"name": RESOURCES[1].id});
    let names = if random.random_bool(0.5) { serde_json::json!(["wd"]) } else { serde_json::json!(["wd", "wdg"]) };
    definition["spec"]["names"]["shortNames"] = names;
    if random.random_bool(0.5) {
        let _ = run.server.update(definition);
        return;
    }
    let _ = run.server.store().delete(of, &key);
    tokio::time::sleep(millis(random, 0, 2000)).await;
    run.server.create(definition).unwrap();
}

/// An object that comes with every list, and that cannot be decoded.
fn poison(server: &Server, resource: Resource, n: usize, variant: usize) {
    // The apiserver accepts it: in protobuf it is not UTF-8.
    let name = if variant == 4 { format!("poison-{n}\u{fffd}") } else { format!("poison-{n}") };
    server.store().put_raw(resource.id, &ObjectKey::new("a", &name), |rv| {
        let of = format!(r#""name":"{name}","namespace":"a""#);
        match variant {
            0 => format!(r#""metadata":{{{of},"resourceVersion":{rv}}}}}"#).into_bytes(),
            1 => format!(r#""metadata":{{{of},"resourceVersion":"none"}}}}"#).into_bytes(),
            2 => format!(r#""metadata":{{{of},"resourceVersion":"{rv}","labels":["x"]}}}}"#).into_bytes(),
            4 => format!(r#""metadata":{{{of},"resourceVersion":"{rv}"}}}}"#).into_bytes(),
            _ => format!(r#""metadata":{{{of}}}}}"#).into_bytes(),
        }
    });
}

/// What cannot be decoded goes, and so does what is large.
fn cure(run: &Run) {
    let store = run.server.store();
    for resource in RESOURCES {
        for (key, stored) in &store.objects(resource.id) {
            if key.as_str().contains("poison") || stored.json.len() > LARGE {
                let _ = store.delete(resource.id, key);
            }
        }
    }
}

/// All faults end. Streams that stand still stay so, and so do connections that are dead.
pub(super) fn ends(run: &Run) {
    run.is_calm.store(true, Ordering::SeqCst);
    for server in [&run.server, &run.second] {
        server.faults().clear();
    }
    run.relay.lose(Loss::None);
    run.relay.lead(run.server.address());
    rights::set(run, READER, true);
    cure(run);
    if let Some(resource) = run.swarm.poisoned {
        run.excuse();
        run.load.allow(&[resource], 4);
        // Its revision can be read, so it is no reason to take the resource for one without any.
        poison(&run.server, resource, 0, if run.seed.is_multiple_of(2) { 2 } else { 4 });
    }
    run.stay();
}

/// Streams and connections end, again and again. A daemon goes on where it was, and does not read whole states anew.
pub(super) async fn cuts(run: &Run) -> Result<(), String> {
    let informers = run.daemon().map(|daemon| daemon.daemon.factory.informers()).unwrap_or_default();
    let before: Vec<_> = informers.iter().map(|one| one.status().relists).collect();
    for n in 0..CUTS {
        run.disturb(MENDS);
        for server in [&run.server, &run.second] {
            if n % 2 == 0 { server.faults().end_watches(None) } else { server.faults().reset_connections() }
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let lists = |one: &Informer, before: u64| one.status().relists - before;
    match informers.iter().zip(before).find(|(one, before)| lists(one, *before) > SOME) {
        None => Ok(()),
        Some((one, before)) => Err(format!("{} lists {} times in {CUTS} cuts", one.key(), lists(one, before))),
    }
}

/// The store is set back, and goes on from there.
pub(super) fn restore(run: &Run) {
    let mut random = run.random(2);
    run.excuse();
    run.is_rewound.store(true, Ordering::SeqCst);
    run.load.allow(&RESOURCES, 4);
    run.disturb(2 * SETTLES);
    let (oldest, now) = (run.beginning.max(run.server.store().oldest()), run.server.revision());
    run.server.faults().rewind(random.random_range(oldest..=now));
    run.second.faults().reset_connections();
    // It may have come back.
    cure(run);
    for _ in 0..random.random_range(0..100) {
        write(run, &mut random);
    }
}

/// A change of something.
pub(super) fn write(run: &Run, random: &mut StdRng) {
    write_of(run, random, 0);
}

fn write_of(run: &Run, random: &mut StdRng, size: usize) {
    let resource = one(random, &RESOURCES);
    let (namespace, group) = (one(random, &NAMESPACES), one(random, &GROUPS));
    let name = format!("object-{}", random.random_range(0..NAMES));
    let mut object = resource.object(namespace, &name, group, random.random());
    object["metadata"]["annotations"]["x"] = "x".repeat(size).into();
    // What fails does so because the object is there already, or is not, or because its definition is gone.
    match random.random_range(0..4) {
        0 => drop(run.server.delete(resource.id, namespace, &name)),
        1 => drop(run.server.create(object)),
        _ => drop(run.server.update(object)),
    }
}
