//! Rows that take more than one request: definitions that come and change and go, revisions that arrive while somebody
//! waits for them, bookmarks.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::compare::{Difference, compare};
use super::kinds::GROUP;
use super::report::Report;
use super::streams::{Recorder, Start, come_to_rest, differences};
use super::wire::{Answer, Ask};
use super::world::{A, BOUND, World, rv};

/// How long the two may differ after the apiserver has changed. It takes the apiserver itself seconds.
const SETTLE: Duration = Duration::from_secs(60);
/// The life of a definition, which takes as long as all of the others.
pub(crate) const DEFINED: &str = "G17";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const V1: &str = "/apis/differential.example.com/v1";
const V2: &str = "/apis/differential.example.com/v2";

/// The scenarios they show.
pub(crate) const SHOWN: &[&str] =
    &["C12", "C34", "D5", "E14", "E15", "E2-1", "E2-2", "E2-4", "E2-5", "G2", "G3", "G4", "G16", "G17", "G18", "G19"];

/// All of them but that of the definitions, or the one of that id.
pub(crate) async fn run(world: &World, filter: Option<&str>, seed: u64, report: &Report) {
    let wanted = |id: &str| filter.map_or(id != DEFINED, |filter| filter == id);
    let mut outcomes = Vec::new();
    if wanted("C12") {
        outcomes.push(("C12", a_revision_arrives(world, report).await));
    }
    if wanted("D5") {
        outcomes.push(("D5", a_deleted_object_is_gone(world, report).await));
    }
    if wanted("G3") {
        outcomes.push(("G3", bookmarks(world, report).await));
    }
    if wanted(DEFINED) {
        outcomes.push((DEFINED, definitions(world, report).await));
    }
    if wanted("starts") {
        outcomes.push(("starts", super::starts::run(world, seed, report).await));
    }
    for (id, outcome) in outcomes {
        if let Err(error) = outcome {
            report.wrong(&format!("scripts --filter {id}: the harness itself"), &format!("  {error}\n"));
        }
    }
}

/// Reads of a revision that does not exist yet, but does soon.
async fn a_revision_arrives(world: &World, report: &Report) -> Result<(), String> {
    let collection = format!("/api/v1/namespaces/{A}/configmaps");
    for (n, more) in
        ["", "&resourceVersionMatch=NotOlderThan&limit=2", "&resourceVersionMatch=Exact"].iter().enumerate()
    {
        let path = format!("{collection}/one");
        let patch = json!({"metadata": {"annotations": {"arrives": n.to_string()}}});
        let now = world.patch(&path, &patch).await?;
        // The revision after it, by whatever is written next.
        let ask = Ask::get(format!("{collection}?resourceVersion={}{more}", now + 1));
        let write = async {
            sleep(Duration::from_millis(400)).await;
            world.patch(&path, &json!({"metadata": {"annotations": {"arrives": format!("{n} again")}}})).await
        };
        let (_, written) = tokio::join!(same(world, "scripts --filter C12", ask, report), write);
        written?;
    }
    Ok(())
}

/// A get at the revision of a deletion.
async fn a_deleted_object_is_gone(world: &World, report: &Report) -> Result<(), String> {
    let collection = format!("/api/v1/namespaces/{A}/configmaps");
    world.create(&collection, &json!({"metadata": {"name": "gone"}})).await?;
    world.delete(&format!("{collection}/gone")).await?;
    let now = rv(&world.direct_json(&Ask::get(format!("{collection}?limit=1"))).await?);
    let gone = Ask::get(format!("{collection}/gone?resourceVersion={now}"));
    same(world, "scripts --filter D5", gone, report).await;

    // One that is deleted, and there until its finalizer is taken away.
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/wait"]}});
    world.create(&collection, &held).await?;
    world.delete(&format!("{collection}/held")).await?;
    for finalizers in [true, false] {
        if !finalizers {
            world.patch(&format!("{collection}/held"), &json!({"metadata": {"finalizers": null}})).await?;
        }
        let now = rv(&world.direct_json(&Ask::get(format!("{collection}?limit=1"))).await?);
        for target in [&collection, &format!("{collection}/held")] {
            let ask = Ask::get(format!("{target}?resourceVersion={now}"));
            same(world, "scripts --filter D5 (C34)", ask, report).await;
        }
    }
    Ok(())
}

/// One request to both sides. Returns what the apiserver says in JSON; null for anything else.
pub(super) async fn same(world: &World, what: &str, ask: Ask, report: &Report) -> Value {
    let asks = [ask.clone(), ask];
    let said = world.ask(&asks, BOUND).await;
    let direct = said[0].as_ref().map(Answer::json).unwrap_or_default();
    compared(world, &format!("{what} ({})", asks[0].target), &asks, said, report);
    direct
}

/// The pages of a collection to the last one, with `each` in every query. Tokens of one revision and key are equal.
pub(super) async fn same_pages(world: &World, what: &str, collection: &str, first: &str, each: &str, report: &Report) {
    let mut target = format!("{collection}?{each}&{first}");
    for _ in 0..40 {
        let page = same(world, what, Ask::get(target), report).await;
        let Some(token) = super::pages::token(&page) else { return };
        target = format!("{collection}?{each}&continue={token}");
    }
}

pub(super) fn compared(world: &World, what: &str, asks: &[Ask; 2], said: [io::Result<Answer>; 2], report: &Report) {
    compared_to(world, what, asks, said, |_| None, report);
}

/// The same, and what both agree in is compared to what is known of it.
pub(super) fn compared_to(
    world: &World,
    what: &str,
    asks: &[Ask; 2],
    said: [io::Result<Answer>; 2],
    known: impl FnOnce(&Answer) -> Option<Difference>,
    report: &Report,
) {
    match said {
        [Ok(direct), Ok(through)] => {
            let mut found = compare(&asks[0], &direct, &through, world.still);
            if found.is_empty() {
                found.extend(known(&direct));
            }
            report.outcome(what, &world.pair, asks, &[direct, through], &found);
        }
        [direct, through] => {
            let said = |answer: io::Result<Answer>| match answer {
                Ok(answer) => format!("{} {}", answer.status, answer.text()),
                Err(error) => error.to_string(),
            };
            let broken = Difference::Broken(said(direct), said(through));
            report.judged(what, &world.pair, asks, &[broken.to_string()]);
        }
    }
}

/// What bookmarks say where something happens and where nothing does.
async fn bookmarks(world: &World, report: &Report) -> Result<(), String> {
    world.settle().await?;
    let (busy, idle) =
        (format!("/api/v1/namespaces/{A}/configmaps"), format!("/apis/apps/v1/namespaces/{A}/deployments"));
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let now = format!("resourceVersion={}", world.now());
    // Row, collection, the rest of the query, and whether a bookmark of the write is due before the end.
    let rows = [
        ("G2", &busy, now.clone(), true),
        ("E15, G18", &busy, initial.to_owned(), true),
        ("G4", &busy, format!("{now}&fieldSelector=metadata.name%3Dnone"), true),
        ("G19", &idle, now.clone(), false),
    ];
    let mut open = Vec::new();
    for (row, collection, query, due) in rows {
        let ask = Ask::get(format!("{collection}?watch=1&allowWatchBookmarks=true&timeoutSeconds=7&{query}"));
        let start = if query.contains("Initial") { Start::Anywhere } else { Start::Named };
        open.push((row, due, start, Watched::open(world, ask).await?));
    }
    sleep(Duration::from_millis(1200)).await;
    let written = world.patch(&format!("{busy}/one"), &json!({"metadata": {"annotations": {"mark": "x"}}})).await?;
    for (row, due, start, watched) in open {
        watched.until_over(SETTLE).await;
        let mut wrong = watched.differences(start);
        let mut marks = Vec::new();
        for (side, answer) in ["direct", "through"].iter().zip(&watched.answers()) {
            let events = super::streams::events(answer)?;
            let of_side =
                events.iter().filter(|event| event.kind == "BOOKMARK").map(|event| (event.rv, event.marks_end));
            // How often one is repeated depends on when it was due.
            marks.push(of_side.collect::<BTreeSet<_>>());
            let told = events.iter().any(|event| event.kind == "BOOKMARK" && event.rv >= written);
            if told != due {
                wrong.push(format!("{side}: {} bookmark of {written}", if told { "a" } else { "no" }));
            }
        }
        if marks[0] != marks[1] {
            wrong.push(format!("bookmarks: {:?} / {:?}", marks[0], marks[1]));
        }
        watched.report(world, &format!("scripts --filter G3 ({row})"), &wrong, report);
    }
    Ok(())
}

/// The life of a definition, under open watches.
async fn definitions(world: &World, report: &Report) -> Result<(), String> {
    let (list1, list2) = (format!("{V1}/parts"), format!("{V2}/parts"));
    let space = format!("{V1}/namespaces/{A}/parts");
    let path = format!("{DEFINITIONS}/parts.{GROUP}");
    equal_in_the_end(world, "before it is created", &list1, 404, report).await;

    world.create(DEFINITIONS, &definition(&[("v1", true, &[])])).await?;
    equal_in_the_end(world, "created", &list1, 200, report).await;
    for name in ["one", "two"] {
        let part = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "Part", "metadata": {"name": name}, "spec": {"color": name},
        });
        world.create(&space, &part).await?;
    }
    let old = rv(&world.direct_json(&Ask::get(&list1)).await?);
    equal_in_the_end(world, "with objects", &list1, 200, report).await;

    // Nothing that concerns readers.
    let watched = Watched::open(world, watch(&list1, "resourceVersion=0")).await?;
    world.patch(&path, &json!({"metadata": {"annotations": {"note": "x"}}})).await?;
    sleep(Duration::from_secs(3)).await;
    world.patch(&format!("{space}/one"), &json!({"metadata": {"labels": {"after": "note"}}})).await?;
    watched.until_bytes_rest().await;
    let mut wrong = watched.differences(Start::Anywhere);
    if watched.sides.iter().any(Recorder::has_ended) {
        wrong.push("the watch has ended".to_owned());
    }
    watched.report(world, &id("its annotations change"), &wrong, report);

    changed(world, "a version is added", &path, &definition(&[("v1", true, &[]), ("v2", true, &[])]), report).await?;
    equal_in_the_end(world, "a version is added", &list1, 200, report).await;
    equal_in_the_end(world, "a version is added", &list2, 200, report).await;
    equal_in_the_end(world, "the group's discovery", "/apis/differential.example.com", 200, report).await;
    stale_watch(world, "a version is added", &list1, old, report).await;

    let selected = format!("{list1}?fieldSelector=spec.color%3Done");
    equal_in_the_end(world, "a field that cannot be selected", &selected, 400, report).await;
    let two = definition(&[("v1", true, &[".spec.color"]), ("v2", true, &[])]);
    changed(world, "a field becomes selectable", &path, &two, report).await?;
    equal_in_the_end(world, "a field becomes selectable", &selected, 200, report).await;
    selected_watch(world, &space, report).await?;
    let none = definition(&[("v1", true, &[]), ("v2", true, &[])]);
    changed(world, "it is selectable no more", &path, &none, report).await?;
    equal_in_the_end(world, "it is selectable no more", &selected, 400, report).await;

    changed(world, "a version is served no more", &path, &definition(&[("v1", true, &[]), ("v2", false, &[])]), report)
        .await?;
    equal_in_the_end(world, "a version is served no more", &list2, 404, report).await;
    equal_in_the_end(world, "a version is served no more", &list1, 200, report).await;

    let old = rv(&world.direct_json(&Ask::get(&list1)).await?);
    equal_in_the_end(world, "before it is deleted", &list1, 200, report).await;
    let watched = Watched::open(world, watch(&list1, &format!("resourceVersion={old}"))).await?;
    world.delete(&path).await?;
    watched.until_over(SETTLE).await;
    let wrong = watched.differences(Start::Named);
    watched.report(world, &id("it is deleted"), &wrong, report);
    equal_in_the_end(world, "deleted", &list1, 404, report).await;
    equal_in_the_end(world, "deleted", &format!("{list1}?resourceVersion=0"), 404, report).await;
    equal_in_the_end(world, "deleted", &format!("{list1}?watch=1&timeoutSeconds=1"), 404, report).await;

    world.create(DEFINITIONS, &definition(&[("v1", true, &[])])).await?;
    equal_in_the_end(world, "created again", &list1, 200, report).await;
    equal_in_the_end(world, "created again", &format!("{list1}?resourceVersion=0"), 200, report).await;
    stale_watch(world, "created again", &list1, old, report).await;
    world.delete(&path).await?;
    equal_in_the_end(world, "deleted for good", &list1, 404, report).await;
    Ok(())
}

fn id(step: &str) -> String {
    format!("scripts --filter G17 ({step})")
}

/// `(name, served, selectable fields)` of each version. With the second one, lists are of another kind, a field has a
/// default, and all are deprecated; with selectable fields, in words of their own.
fn definition(versions: &[(&str, bool, &[&str])]) -> Value {
    let is_later = versions.len() > 1;
    let size = json!({"type": "string", "default": is_later.then_some("large")});
    let versions: Vec<Value> = versions
        .iter()
        .map(|(name, served, fields)| {
            let words = (!fields.is_empty()).then_some(r#"use "gadgets" \ é instead"#);
            let fields: Vec<Value> = fields.iter().map(|path| json!({"jsonPath": path})).collect();
            json!({
                "name": name, "served": served, "storage": *name == "v1", "selectableFields": fields,
                "deprecated": is_later, "deprecationWarning": words,
                "schema": {"openAPIV3Schema": {"type": "object", "description": name, "properties": {
                    "spec": {"type": "object", "properties": {"color": {"type": "string"}, "size": size}},
                }}},
            })
        })
        .collect();
    json!({
        "metadata": {"name": format!("parts.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced", "versions": versions,
            "names": {"plural": "parts", "singular": "part", "kind": "Part",
                "listKind": if is_later { "PartCollection" } else { "PartList" }},
        },
    })
}

fn watch(collection: &str, query: &str) -> Ask {
    Ask::get(format!("{collection}?watch=1&timeoutSeconds=120&{query}"))
}

/// The definition changes under watches: both sides end them, cleanly.
async fn changed(world: &World, step: &str, path: &str, definition: &Value, report: &Report) -> Result<(), String> {
    let list = format!("{V1}/parts");
    let now = rv(&world.direct_json(&Ask::get(&list)).await?);
    // Both know that revision before they are asked for what follows it.
    equal_in_the_end(world, &format!("before {step}"), &format!("{list}?resourceVersion={now}"), 200, report).await;
    let named = Watched::open(world, watch(&list, &format!("resourceVersion={now}"))).await?;
    let state = Watched::open(world, watch(&list, "resourceVersion=0")).await?;
    world.patch(path, &json!({"spec": definition["spec"]})).await?;
    for (watched, start) in [(named, Start::Named), (state, Start::Anywhere)] {
        watched.until_over(SETTLE).await;
        watched.report(world, &id(step), &watched.differences(start), report);
    }
    Ok(())
}

/// A watch from before the definition changed.
async fn stale_watch(world: &World, step: &str, list: &str, old: u64, report: &Report) {
    equal_in_the_end(world, step, &format!("{list}?watch=1&resourceVersion={old}&timeoutSeconds=1"), 200, report).await;
}

/// Objects come into what a new field selects, and leave it.
async fn selected_watch(world: &World, space: &str, report: &Report) -> Result<(), String> {
    let list = rv(&world.direct_json(&Ask::get(space)).await?);
    equal_in_the_end(world, "both know the revision", &format!("{space}?resourceVersion={list}"), 200, report).await;
    let ask = watch(space, &format!("resourceVersion={list}&fieldSelector=spec.color%3Dred"));
    let watched = Watched::open(world, ask).await?;
    for color in ["red", "red", "blue", "red"] {
        world.patch(&format!("{space}/one"), &json!({"spec": {"color": color}})).await?;
    }
    watched.until_bytes_rest().await;
    let wrong = watched.differences(Start::Named);
    watched.report(world, &id("a watch of a new field"), &wrong, report);
    world.patch(&format!("{space}/one"), &json!({"spec": {"color": "one"}})).await.map(drop)
}

/// Asks both until they say the same, with that status; a difference that stays is one.
async fn equal_in_the_end(world: &World, step: &str, target: &str, status: u16, report: &Report) {
    let asks = [Ask::get(target), Ask::get(target)];
    let bound = Instant::now() + SETTLE;
    loop {
        let said = world.ask(&asks, BOUND).await;
        let is_so = matches!(&said, [Ok(direct), Ok(through)]
            if direct.status == status && compare(&asks[0], direct, through, world.still).is_empty());
        if is_so || Instant::now() > bound {
            return compared_to(world, &id(step), &asks, said, |direct| other_than(status, direct), report);
        }
        sleep(Duration::from_millis(200)).await;
    }
}

pub(super) fn other_than(status: u16, said: &Answer) -> Option<Difference> {
    (said.status != status).then(|| Difference::Unexpected(format!("{} and not {status}", said.status)))
}

/// One watch on both sides.
pub(super) struct Watched {
    pub asks: [Ask; 2],
    sides: [Recorder; 2],
    /// A revision at which both were open.
    opened: u64,
}

// === impl Watched ===

impl Watched {
    pub(super) async fn open(world: &World, ask: Ask) -> Result<Self, String> {
        let (direct, through) =
            tokio::join!(Recorder::open(&world.pair[0], &ask, BOUND), Recorder::open(&world.pair[1], &ask, BOUND));
        match (direct, through) {
            (Ok(direct), Ok(through)) => {
                let opened = world.newest().await?;
                Ok(Self { asks: [ask.clone(), ask], sides: [direct, through], opened })
            }
            (direct, through) => Err(format!("not opened: {:?} / {:?}", direct.err(), through.err())),
        }
    }

    pub(super) fn answers(&self) -> [Answer; 2] {
        [self.sides[0].answer(), self.sides[1].answer()]
    }

    async fn until_over(&self, longest: Duration) {
        let bound = Instant::now() + longest;
        while !self.sides.iter().all(Recorder::has_ended) && Instant::now() < bound {
            sleep(Duration::from_millis(50)).await;
        }
    }

    pub(super) async fn until_bytes_rest(&self) {
        Self::until_all_rest([self], BOUND).await;
    }

    pub(super) async fn until_all_rest<'a>(watches: impl IntoIterator<Item = &'a Self>, longest: Duration) {
        let pairs: Vec<_> = watches.into_iter().map(|watched| &watched.sides).collect();
        come_to_rest(&pairs, longest).await;
    }

    pub(super) fn differences(&self, start: Start) -> Vec<String> {
        let answers = self.answers();
        let bookmarks = self.asks[0].target.contains("allowWatchBookmarks");
        let mut wrong = differences(&answers, start, self.opened, bookmarks);
        if answers[0].end != answers[1].end {
            wrong.push(format!("ends: {:?} / {:?}", answers[0].end, answers[1].end));
        }
        wrong
    }

    pub(super) fn report(&self, world: &World, what: &str, wrong: &[String], report: &Report) {
        report.count(&self.asks[0], &self.answers());
        report.judged(what, &world.pair, &self.asks, wrong);
    }
}
