//! Lists walked page by page while objects change: one snapshot, whatever happens meanwhile.

use serde_json::{Value, json};

use super::compare::{Difference, compare};
use super::kinds::{custom, parted};
use super::outage;
use super::own::Own;
use super::report::Report;
use super::rng::Rng;
use super::sensible::undiscerning;
use super::support::relay::{Loss, Relay};
use super::wire::{Answer, Ask};
use super::world::{BOUND, World, rv};

/// Objects at the beginning.
const OBJECTS: usize = 40;
/// Walks of each seed.
pub(crate) const WALKS: usize = 8;
const EVEN: &str = "&labelSelector=even%3Dtrue";

/// One seed. A network that can be cut is cut in one of the walks.
pub(crate) async fn run(world: &World, seed: u64, walks: usize, own: Option<&Own>, report: &Report) {
    if let Err(error) = attempt(world, seed, walks, own, report).await {
        report.wrong(&format!("pages --seed {seed}: the harness itself"), &format!("  {error}\n"));
    }
}

async fn attempt(world: &World, seed: u64, walks: usize, own: Option<&Own>, report: &Report) -> Result<(), String> {
    let rng = &mut Rng::new(seed, 0x0070_6167_6573);
    let space = format!("diff-p{seed}");
    world.create("/api/v1/namespaces", &json!({"metadata": {"name": space}})).await?;
    let collections = [
        format!("/api/v1/namespaces/{space}/configmaps"),
        format!("/apis/differential.example.com/v1/namespaces/{space}/widgets"),
        // Not cached by the apiserver.
        format!("/api/v1/namespaces/{space}/events"),
    ];
    for collection in &collections {
        for n in 0..OBJECTS {
            world.create(collection, &object(collection, n)).await?;
        }
    }
    world.settle().await?;
    for collection in &collections {
        let wrong = undiscerning(world, &[format!("{collection}?")], &[EVEN.replacen('&', "", 1)]).await?;
        if !wrong.is_empty() {
            return Err(wrong.join("\n  "));
        }
    }
    let mut cut = own.map(|own| (&own.relay, outage::loss(seed, own.mode, outage::PAGES)));
    for walk in 0..walks {
        let collection = rng.pick(&collections).clone();
        let limit = 3 + rng.below(12);
        let selector = *rng.pick(&["", "", "", EVEN]);
        // The walk's revision: chosen by the server, or named.
        let now = rv(&world.direct_json(&Ask::get(format!("{collection}?limit=1"))).await?);
        let from = match rng.below(4) {
            0 => String::new(),
            1 => format!("&resourceVersion={now}&resourceVersionMatch=NotOlderThan"),
            2 => format!("&resourceVersion={now}"),
            _ => format!("&resourceVersion={now}&resourceVersionMatch=Exact"),
        };
        let first = format!("{collection}?limit={limit}{selector}{from}");
        let away = cut.filter(|_| walk >= walks / 2);
        let lost =
            away.map(|(_, loss)| format!(", the network loses {loss:?} after its first page")).unwrap_or_default();
        let what = format!("pages --seed {seed} (walk {walk}: {first}{lost})");
        let walked = walk_both(world, rng, &what, &collection, limit, selector, &first, away, report).await;
        if let Some((relay, _)) = away {
            relay.lose(Loss::None);
        }
        if walked? > 1 && away.is_some() {
            cut = None;
            world.settle().await?;
        }
    }
    if cut.is_some() { Err("no walk was long enough to cut the network in it".to_owned()) } else { Ok(()) }
}

/// Walks both sides in step, with changes between the pages, and after the first page perhaps a cut of the network. Returns how many
/// pages there were.
#[allow(clippy::too_many_arguments, reason = "one walk's particulars, named in one place")]
async fn walk_both(
    world: &World,
    rng: &mut Rng,
    what: &str,
    collection: &str,
    limit: usize,
    selector: &str,
    first: &str,
    cut: Option<(&Relay, Loss)>,
    report: &Report,
) -> Result<usize, String> {
    let mut pages: [Vec<Answer>; 2] = [Vec::new(), Vec::new()];
    let mut wrong = Vec::new();
    let mut asks = [Ask::get(first), Ask::get(first)];
    loop {
        let [direct, through] = match (cut, pages[0].len()) {
            (None, _) | (_, 0) => world.ask(&asks, BOUND).await,
            (Some((relay, loss)), n) => {
                if n == 1 {
                    relay.lose(loss);
                }
                outage::during(relay, outage::ask(world, &asks, false)).await
            }
        };
        let said = [direct.map_err(|error| error.to_string())?, through.map_err(|error| error.to_string())?];
        let tokens = [token(&said[0].json()), token(&said[1].json())];
        report.count(&asks[0], &said);
        // What either began at one revision has the same pages there.
        if said.iter().map(|answer| rv(&answer.json())).collect::<Vec<_>>().windows(2).all(|pair| pair[0] == pair[1]) {
            let found = compare(&asks[0], &said[0], &said[1], true);
            wrong.extend(found.iter().map(Difference::to_string));
        }
        for (pages, answer) in pages.iter_mut().zip(said) {
            pages.push(answer);
        }
        let next: Vec<_> = tokens.iter().flatten().collect();
        if next.len() < 2 {
            if next.len() == 1 {
                wrong.push("one side has one more page".to_owned());
            }
            break;
        }
        asks = [0, 1].map(|side| {
            let token = tokens[side].clone().unwrap_or_default();
            Ask::get(format!("{collection}?limit={limit}{selector}&continue={token}"))
        });
        for _ in 0..3 {
            change(world, rng, collection).await?;
        }
    }
    for (side, pages) in ["direct", "through"].iter().zip(&pages) {
        wrong.extend(
            walk_is_whole(world, collection, selector, pages).await?.into_iter().map(|e| format!("{side}: {e}")),
        );
    }
    if wrong.is_empty() {
        report.equal();
    } else {
        report.wrong(what, &format!("  {}\n", wrong.join("\n  ")));
    }
    Ok(pages[0].len())
}

/// The pages of one side against the whole list of their revision, as the apiserver has it.
async fn walk_is_whole(
    world: &World,
    collection: &str,
    selector: &str,
    pages: &[Answer],
) -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    let mut items: Vec<Value> = Vec::new();
    let bodies: Vec<Value> = pages.iter().map(Answer::json).collect();
    let at = rv(&bodies[0]);
    let whole = format!("{collection}?resourceVersion={at}&resourceVersionMatch=Exact{selector}");
    let whole = world.direct_json(&Ask::get(whole)).await?;
    let all = whole["items"].as_array().cloned().unwrap_or_default();
    for (n, body) in bodies.iter().enumerate() {
        if rv(body) != at {
            wrong.push(format!("page {n} is of {} and the first of {at}", rv(body)));
        }
        items.extend(body["items"].as_array().cloned().unwrap_or_default());
        let left = all.len().saturating_sub(items.len());
        let told = &body["metadata"]["remainingItemCount"];
        let right = if selector.is_empty() && left > 0 { json!(left) } else { Value::Null };
        if *told != right {
            wrong.push(format!("page {n} leaves {told} objects and not {right}"));
        }
    }
    if items != all {
        wrong.push(format!(
            "{} objects in all pages, {} in the whole list of {at}, or not the same",
            items.len(),
            all.len()
        ));
    }
    Ok(wrong)
}

pub(super) fn token(list: &Value) -> Option<String> {
    list["metadata"]["continue"].as_str().filter(|token| !token.is_empty()).map(str::to_owned)
}

fn object(collection: &str, n: usize) -> Value {
    let mut object = parted(&format!("p{n:03}"), n);
    if collection.contains("widgets") {
        return custom("Widget", object);
    }
    if let Some(space) = collection.strip_suffix("/events") {
        object["involvedObject"] = json!({"namespace": space.rsplit('/').next()});
    }
    object
}

async fn change(world: &World, rng: &mut Rng, collection: &str) -> Result<(), String> {
    let n = rng.below(OBJECTS + 10);
    let path = format!("{collection}/p{n:03}");
    let there = world.direct().ask(&Ask::get(&path), BOUND).await.map_err(|error| error.to_string())?;
    if there.status == 404 {
        world.create(collection, &object(collection, n)).await
    } else if rng.in_1000(300) {
        world.delete(&path).await
    } else {
        world.patch(&path, &json!({"metadata": {"annotations": {"n": rng.next().to_string()}}})).await.map(drop)
    }
}
