//! Watches from many starting points while objects change, compared event by event.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::compare::{Difference, compare};
use super::curated::escaped;
use super::kinds::custom;
use super::outage;
use super::own::Own;
use super::report::Report;
use super::rng::Rng;
use super::scripts::{Watched, compared};
use super::sensible::undiscerning;
use super::served::is_forwarded;
use super::streams::{Recorder, Start};
use super::support::relay::Loss;
use super::wire::{Answer, Ask};
use super::world::{BOUND, World, rv};

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Half of them opened before the changes and half among them.
    pub watches: usize,
    pub changes: usize,
    /// How long sides that differ have to become equal.
    pub rest: Duration,
}

/// Of each seed.
pub(crate) const SIZE: Size = Size { watches: 56, changes: 160, rest: Duration::from_secs(60) };

/// How many revisions ahead a client may be.
const FUTURE: usize = 40;

const ACCEPTS: &[&str] = &[
    "application/json",
    "application/json",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    "application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1",
    "application/vnd.kubernetes.protobuf,application/json",
];

/// What is watched and changed.
#[derive(Clone, Copy)]
struct Subject {
    root: &'static str,
    plural: &'static str,
    custom: bool,
    selectors: &'static [&'static str],
}

const SUBJECTS: &[Subject] = &[
    Subject { root: "/api/v1", plural: "configmaps", custom: false, selectors: &[] },
    Subject {
        root: "/api/v1",
        plural: "pods",
        custom: false,
        selectors: &["spec.nodeName=node-x", "status.phase=Running", "status.phase!=Running", "spec.nodeName="],
    },
    Subject {
        root: "/apis/differential.example.com/v1",
        plural: "widgets",
        custom: true,
        selectors: &["spec.color=red", "spec.color!=red", "spec.color="],
    },
    Subject {
        root: "/apis/differential.example.com/v2",
        plural: "widgets",
        custom: true,
        selectors: &["spec.size=1", "spec.size!=1", "spec.ready=true"],
    },
];
const LABELS: &[&str] = &["app=x", "app!=x", "app in (x,y)", "!app", "app"];
const NAMES: &[&str] = &["n0", "n1", "n2", "n3", "n4"];

/// One watch on both sides.
pub(super) struct Pair {
    pub what: String,
    pub plural: &'static str,
    pub start: Start,
    /// The list of what it selects.
    pub list: String,
    /// The revision that its client says it has the state of.
    pub from: Option<u64>,
    pub watched: Watched,
}

/// One seed. A network that can be cut is cut again and again between changes.
pub(crate) async fn run(world: &World, seed: u64, size: &Size, cut: Option<&Own>, report: &Report) {
    if let Err(error) = attempt(world, seed, size, cut, report).await {
        report.wrong(&format!("watches --seed {seed}: the harness itself"), &format!("  {error}\n"));
    }
    if let Some(own) = cut {
        own.relay.lose(Loss::None);
    }
}

async fn attempt(world: &World, seed: u64, size: &Size, cut: Option<&Own>, report: &Report) -> Result<(), String> {
    let Size { watches, changes, rest } = *size;
    let rng = &mut Rng::new(seed, 0x0077_6174_6368);
    let mut churn = Churn::begin(world, &format!("diff-w{seed}"), rng, changes / 4).await?;
    let mut pairs = Vec::new();
    for n in 0..watches / 2 {
        pairs.extend(open(&churn, seed, n, rng, true, report).await);
    }
    let (mut n, mut known) = (watches / 2, [0, 0]);
    for change in 0..changes {
        churn.step(rng).await?;
        match (cut, change % 20) {
            (Some(own), 10) => own.relay.lose(outage::loss(seed, own.mode, outage::CUTS + change / 20)),
            (Some(own), 12) => {
                let [shown, refused] = outage::during(&own.relay, churn.is_known(report)).await;
                known = [known[0] + shown, known[1] + refused];
            }
            (Some(own), 16) => own.relay.lose(Loss::None),
            // What is shown during a cut is what was known before it.
            (Some(_), 18) => world.settle().await?,
            _ => {}
        }
        // Until the daemon has found the apiserver again, it may say so.
        if cut.is_some() && (10..18).contains(&(change % 20)) {
            continue;
        }
        // The last ones are still among changes.
        if n < watches && change < changes * 3 / 4 && change % (changes * 3 / 4 / (watches - watches / 2)).max(1) == 0 {
            pairs.extend(open(&churn, seed, n, rng, false, report).await);
            n += 1;
        }
    }
    if cut.is_some() && known[0] < 3 * known[1].max(1) {
        return Err(format!("while the network was cut, {} lists were shown, and {} refused", known[0], known[1]));
    }
    // A proof has too few changes for that.
    if world.still && changes >= SIZE.changes {
        let wrong = churn.undiscerning().await?;
        if !wrong.is_empty() {
            report.wrong(&format!("watches --seed {seed}: selectors"), &format!("  {}\n", wrong.join("\n  ")));
        }
    }
    Watched::until_all_rest(pairs.iter().map(|pair| &pair.watched), rest).await;
    for Pair { what, start, watched, .. } in pairs {
        let answers = watched.answers();
        if cut.is_some() && is_forwarded(&answers[1]) {
            // It is cut with the network.
            report.count(&watched.asks[0], &answers);
            continue;
        }
        let mut wrong = watched.differences(start);
        wrong.extend(heads(&watched.asks[0], &answers));
        watched.report(world, &what, &wrong, report);
    }
    Ok(())
}

/// What differs in the answers but their bodies.
pub(super) fn heads(ask: &Ask, answers: &[Answer; 2]) -> Vec<String> {
    let bare = |answer: &Answer| Answer { body: Vec::new(), ..answer.clone() };
    let found = compare(ask, &bare(&answers[0]), &bare(&answers[1]), true);
    found.iter().map(Difference::to_string).collect()
}

pub(super) async fn open(
    churn: &Churn<'_>,
    seed: u64,
    n: usize,
    rng: &mut Rng,
    still: bool,
    report: &Report,
) -> Option<Pair> {
    let world = churn.world;
    let subject = *rng.pick(SUBJECTS);
    let collection = match rng.below(3) {
        0 => format!("{}/{}", subject.root, subject.plural),
        n => format!("{}/namespaces/{}/{}", subject.root, churn.spaces[n - 1], subject.plural),
    };
    let mut query = vec!["watch=1".to_owned(), "timeoutSeconds=300".to_owned()];
    let newest = churn.revisions.last().copied().unwrap_or_default();
    let past = *rng.pick(&churn.revisions);
    let future = newest + 1 + rng.below(FUTURE) as u64;
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let none = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let (first, start, from) = match rng.below(if still { 24 } else { 20 }) {
        0..6 => (format!("resourceVersion={past}"), Start::Named, Some(past)),
        6..8 => (format!("{none}&resourceVersion={past}"), Start::Named, Some(past)),
        8..11 => (format!("resourceVersion={future}"), Start::Named, Some(future)),
        // Too old: an error, and nothing else.
        11 => ("resourceVersion=1".to_owned(), Start::Named, None),
        12..14 => (String::new(), Start::Anywhere, None),
        14..16 => ("resourceVersion=0".to_owned(), Start::Anywhere, None),
        16..18 => (initial.to_owned(), Start::Anywhere, None),
        18..20 => (format!("{initial}&resourceVersion={past}"), Start::Anywhere, None),
        // From now on; where that is the same moment for both.
        20..22 => (none.to_owned(), Start::Named, Some(newest)),
        _ => (format!("{none}&resourceVersion=0"), Start::Named, Some(newest)),
    };
    query.extend(Some(first).filter(|first| !first.is_empty()));
    let mut selection = Vec::new();
    if rng.in_1000(600) {
        query.push("allowWatchBookmarks=true".to_owned());
    }
    if rng.in_1000(300) {
        let selector: &str = rng.pick::<&str>(LABELS);
        selection.push(format!("labelSelector={}", escaped(selector)));
    }
    if rng.in_1000(300) {
        let selector = match rng.below(3) {
            0 if !subject.selectors.is_empty() => (*rng.pick(subject.selectors)).to_owned(),
            1 => format!("metadata.namespace={}", churn.spaces[0]),
            _ => format!("metadata.name={}", rng.pick(NAMES)),
        };
        selection.push(format!("fieldSelector={}", escaped(&selector)));
    }
    let list = format!("{collection}?{}", selection.join("&"));
    query.append(&mut selection);
    // Objects of custom resources have no protobuf but their metadata's.
    let mut accept = *rng.pick(ACCEPTS);
    if subject.custom && accept == ACCEPTS[3] {
        accept = ACCEPTS[0];
    }
    let ask = Ask::get(format!("{collection}?{}", query.join("&"))).header("Accept", accept);
    let what = format!("watches --seed {seed} (the {n}th: {} {accept})", ask.target);
    let watched = Watched::open(world, ask).await.map_err(|error| report.wrong(&what, &format!("  {error}\n")));
    Some(Pair { watched: watched.ok()?, what, plural: subject.plural, start, list, from })
}

/// Changes to objects, one after the other.
pub(super) struct Churn<'a> {
    world: &'a World,
    spaces: [String; 2],
    /// Those that there were.
    revisions: Vec<u64>,
}

impl<'a> Churn<'a> {
    /// With namespaces of its own, and some changes already; the world has come to rest again.
    pub(super) async fn begin(world: &'a World, name: &str, rng: &mut Rng, changes: usize) -> Result<Self, String> {
        let spaces = [name.to_owned(), format!("{name}-b")];
        for space in &spaces {
            world.create("/api/v1/namespaces", &json!({"metadata": {"name": space}})).await?;
        }
        let mut churn = Self { world, spaces, revisions: vec![world.now()] };
        for _ in 0..changes {
            churn.step(rng).await?;
        }
        world.settle().await?;
        churn.revisions.push(world.now());
        Ok(churn)
    }

    pub(super) fn revisions(&self) -> &[u64] {
        &self.revisions
    }

    /// All that happens from now on, as the apiserver tells it, by resource.
    pub(super) async fn recorders(&self) -> Result<BTreeMap<&'static str, Recorder>, String> {
        let mut recorders = BTreeMap::new();
        for Subject { root, plural, .. } in &SUBJECTS[..3] {
            let target = format!("{root}/{plural}?watch=1&timeoutSeconds=300&resourceVersion={}", self.world.now());
            recorders.insert(*plural, Recorder::open(self.world.direct(), &Ask::get(target), BOUND).await?);
        }
        Ok(recorders)
    }

    /// The selections of the watches that at no time select some of the objects, and not all.
    async fn undiscerning(&self) -> Result<Vec<String>, String> {
        let by = |parameter: &str, selector: &str| format!("{parameter}={}", escaped(selector));
        let revisions = || self.revisions.iter().rev().step_by(16);
        let mut wrong = Vec::new();
        for Subject { root, plural, selectors, .. } in SUBJECTS {
            let list =
                |path: &str, rv: u64| format!("{root}{path}/{plural}?resourceVersion={rv}&resourceVersionMatch=Exact");
            let everywhere: Vec<_> = revisions().map(|rv| list("", *rv)).collect();
            let of_spaces =
                |space: &String| revisions().map(|rv| list(&format!("/namespaces/{space}"), *rv)).collect::<Vec<_>>();
            let of_spaces = self.spaces.each_ref().map(of_spaces).concat();
            let labels = LABELS.iter().map(|selector| by("labelSelector", selector));
            let names = NAMES.iter().map(|name| by("fieldSelector", &format!("metadata.name={name}")));
            let fields = selectors.iter().map(|selector| by("fieldSelector", selector));
            let selections: Vec<_> = labels.chain(names).chain(fields).collect();
            wrong.extend(undiscerning(self.world, &of_spaces, &selections).await?);
            let space = by("fieldSelector", &format!("metadata.namespace={}", self.spaces[0]));
            wrong.extend(undiscerning(self.world, &everywhere, &[space]).await?);
        }
        Ok(wrong)
    }

    /// While the network is cut, too, both sides show the state in which the world was last at rest. Returns how many lists
    /// were, and how many were refused because the daemon did not know them for certain.
    async fn is_known(&self, report: &Report) -> [usize; 2] {
        let state = format!("resourceVersion={}&resourceVersionMatch=Exact", self.world.now());
        let mut targets = Vec::new();
        for Subject { root, plural, .. } in SUBJECTS {
            targets.extend(self.spaces.each_ref().map(|space| format!("{root}/namespaces/{space}/{plural}?{state}")));
        }
        let shown = targets.iter().map(|target| async move {
            let asks = [Ask::get(target), Ask::get(target)];
            let said = self.world.ask(&asks, BOUND).await;
            let is_shown = !outage::says_so(&asks[0], &said);
            if is_shown {
                compared(self.world, &format!("while the network is cut: {target}"), &asks, said, report);
            }
            is_shown
        });
        let shown = join_all(shown).await;
        let known = shown.iter().filter(|is_shown| **is_shown).count();
        [known, shown.len() - known]
    }

    pub(super) async fn step(&mut self, rng: &mut Rng) -> Result<(), String> {
        let subject = *rng.pick(&SUBJECTS[..3]);
        let space = rng.pick(&self.spaces).clone();
        let collection = format!("{}/namespaces/{space}/{}", subject.root, subject.plural);
        let name = *rng.pick(NAMES);
        let path = format!("{collection}/{name}");
        let there = self.world.direct().ask(&Ask::get(&path), BOUND).await.map_err(|error| error.to_string())?;
        if there.status == 404 {
            let object = Self::object(rng, &subject, name);
            let ask = Ask::method("POST", &collection).body("application/json", object.to_string());
            self.revisions.push(rv(&self.world.direct_json(&ask).await?));
            return Ok(());
        }
        let label = *rng.pick(&["x", "y", "z"]);
        match rng.below(10) {
            0..2 => {
                let grace = "gracePeriodSeconds=0";
                let gone = self.world.direct_json(&Ask::method("DELETE", format!("{path}?{grace}"))).await?;
                // Some kinds answer with the object as it was.
                self.revisions.extend(Some(rv(&gone)).filter(|rv| *rv > 0));
                Ok(())
            }
            2..5 => {
                let labels = if label == "z" { json!({"app": null}) } else { json!({"app": label}) };
                self.change(&path, &json!({"metadata": {"labels": labels}})).await
            }
            5..8 => match subject.plural {
                "widgets" => {
                    let spec =
                        json!({"color": *rng.pick(&["red", "blue"]), "size": rng.below(3), "ready": rng.in_1000(500)});
                    self.change(&path, &json!({"spec": spec})).await
                }
                "pods" => {
                    let phase = *rng.pick(&["Pending", "Running"]);
                    self.change(&format!("{path}/status"), &json!({"status": {"phase": phase}})).await
                }
                _ => self.change(&path, &json!({"data": {"n": rng.next().to_string()}})).await,
            },
            8 => {
                // A finalizer keeps a deleted object until it is taken away.
                self.change(&path, &json!({"metadata": {"finalizers": ["example.com/wait"]}})).await?;
                self.world.direct_json(&Ask::method("DELETE", format!("{path}?gracePeriodSeconds=0"))).await?;
                self.change(&path, &json!({"metadata": {"finalizers": null}})).await
            }
            // Nothing changes, and nothing is to be seen.
            _ => self.change(&path, &json!({})).await,
        }
    }

    async fn change(&mut self, path: &str, patch: &Value) -> Result<(), String> {
        let rv = self.world.patch(path, patch).await?;
        self.revisions.push(rv);
        Ok(())
    }

    fn object(rng: &mut Rng, subject: &Subject, name: &str) -> Value {
        let mut object = json!({"metadata": {"name": name}});
        if rng.in_1000(700) {
            object["metadata"]["labels"] = json!({"app": *rng.pick(&["x", "y"])});
        }
        match subject.plural {
            "widgets" => {
                object["spec"] = json!({"color": *rng.pick(&["red", "blue", ""]), "size": rng.below(3)});
                return custom("Widget", object);
            }
            "pods" => {
                object["spec"] = json!({"containers": [{"name": "main", "image": "image"}]});
                if rng.in_1000(600) {
                    object["spec"]["nodeName"] = json!(*rng.pick(&["node-x", "node-y"]));
                }
            }
            _ => object["data"] = json!({"text": "<&>"}),
        }
        object
    }
}
