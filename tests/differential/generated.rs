//! Requests from a seed. The world stands still meanwhile, so that two answers can be compared byte for byte.

use std::sync::Arc;

use futures_util::future::join_all;

use super::axes::{self, Pool};
use super::compare::is_panic;
use super::http2;
use super::kinds::{KINDS, Kind, NOT_KINDS};
use super::outage;
use super::report::{Report, at_once};
use super::rng::Rng;
use super::scripts::compared;
use super::sensible;
use super::support::relay::{Loss, Relay};
use super::wire::{Answer, Ask, Endpoint};
use super::world::{A, BOUND, NAMESPACES, World};

/// Requests at once that are answered at once, and of those that take seconds.
const QUICK: usize = 8;
const SLOW: usize = 64;
/// Requests while the network is cut, all of them at once.
const CUT: u64 = 64;

/// A request with what is only known when it is sent: revisions and tokens.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub row: String,
    pub ask: Ask,
    /// The list whose tokens it may use.
    pub collection: String,
    /// It takes a second or more.
    pub slow: bool,
    /// It is sent over HTTP/2.
    pub http2: bool,
    /// Which of several revisions or tokens.
    pub choice: usize,
}

/// Which requests of a seed.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub seed: u64,
    pub requests: u64,
    pub only: Option<u64>,
    pub filter: Option<String>,
}

impl Range {
    /// Those of these numbers that are wanted.
    fn plans(&self, numbers: std::ops::Range<u64>) -> impl Iterator<Item = (u64, Plan)> {
        let plans = numbers.map(move |n| (n, plan(self.seed, n)));
        plans.filter(move |(n, plan)| {
            self.only.is_none_or(|only| only == *n)
                && self.filter.as_ref().is_none_or(|filter| plan.row.contains(filter.as_str()))
        })
    }
}

/// Sends them to both sides and reports what differs. In the middle of them, the network is cut.
pub(crate) async fn run(world: &Arc<World>, range: &Range, cut: Option<(&Relay, Loss)>, report: &Arc<Report>) {
    let (middle, all) = (range.requests / 2, range.requests);
    let Some((relay, loss)) = cut else { return part(world, range, 0..all, report).await };
    let end = all.min(middle + CUT);
    part(world, range, 0..middle, report).await;
    let plans: Vec<_> = range.plans(middle..end).collect();
    if !plans.is_empty() {
        relay.lose(loss);
        let asked = plans.iter().map(|(n, plan)| one(world, range.seed, *n, plan, Some(loss), report));
        outage::during(relay, join_all(asked)).await;
        relay.lose(Loss::None);
        if let Err(error) = world.settle().await {
            report.wrong("generated: after the network was cut", &format!("  {error}\n"));
        }
    }
    part(world, range, end..all, report).await;
}

async fn part(world: &Arc<World>, range: &Range, numbers: std::ops::Range<u64>, report: &Arc<Report>) {
    let (slow, quick): (Vec<_>, Vec<_>) = range.plans(numbers).partition(|(_, plan)| plan.slow);
    let all = async |plans: Vec<(u64, Plan)>, most: usize| {
        let requests = plans.into_iter().map(|(n, plan)| {
            let (world, report, seed) = (Arc::clone(world), Arc::clone(report), range.seed);
            async move { one(&world, seed, n, &plan, None, &report).await }
        });
        at_once("generated", most, requests, report).await;
    };
    tokio::join!(all(quick, QUICK), all(slow, SLOW));
}

async fn one(world: &World, seed: u64, n: u64, plan: &Plan, cut: Option<Loss>, report: &Report) {
    let http2 = plan.http2 && world.http2;
    let over = if http2 { " over HTTP/2" } else { "" };
    let during = cut.map(|loss| format!(", while the network loses {loss:?}")).unwrap_or_default();
    let what = format!("generated --seed {seed} --request {n} ({}{over}{during})", plan.row);
    let tokens = if uses_tokens(&plan.ask) {
        tokens(world, &plan.collection, cut.is_some()).await
    } else {
        [Vec::new(), Vec::new()]
    };
    let asks = [0, 1].map(|side| resolve(world, plan, &world.pair[side], &tokens[side]));
    let said = answers(world, &asks, http2, cut.is_some()).await;
    if is_panic(&said[0], &said[1]) {
        report.leave_out(&format!("{what}: {}", asks[0].target), "the apiserver does not survive it");
    } else {
        compared(world, &what, &asks, said, report);
    }
}

async fn answers(world: &World, asks: &[Ask; 2], http2: bool, is_cut: bool) -> [std::io::Result<Answer>; 2] {
    match (is_cut, http2) {
        (true, _) => outage::ask(world, asks, http2).await,
        (false, true) => world.ask_http2(asks, BOUND).await,
        (false, false) => world.ask(asks, BOUND).await,
    }
}

fn uses_tokens(ask: &Ask) -> bool {
    ask.target.contains("{token}")
}

/// Tokens of each side, of its own pages.
async fn tokens(world: &World, collection: &str, is_cut: bool) -> [Vec<String>; 2] {
    let mut tokens = [Vec::new(), Vec::new()];
    for limit in ["1", "2"] {
        let ask = Ask::get(format!("{collection}?limit={limit}"));
        let said = answers(world, &[ask.clone(), ask], false, is_cut).await;
        for (answer, found) in said.iter().zip(&mut tokens) {
            let Ok(answer) = answer else { continue };
            found.extend(answer.json()["metadata"]["continue"].as_str().map(str::to_owned));
        }
    }
    tokens
}

/// The request as it is sent to one side.
fn resolve(world: &World, plan: &Plan, side: &Endpoint, tokens: &[String]) -> Ask {
    let token = if tokens.is_empty() { "" } else { &tokens[plan.choice % tokens.len()] };
    Ask { target: world.target(&plan.ask.target, plan.choice, side, token), ..plan.ask.clone() }
}

/// The `n`th request of a seed: every other one makes sense.
pub(crate) fn plan(seed: u64, n: u64) -> Plan {
    if n.is_multiple_of(2) { sensible::plan(seed, n) } else { odd(seed, n) }
}

/// One of which much may mean nothing, or be wrong.
fn odd(seed: u64, n: u64) -> Plan {
    let rng = &mut Rng::new(seed, n);
    let kind = if rng.in_1000(60) { rng.pick(NOT_KINDS) } else { rng.pick(KINDS) };
    let namespace: Option<&str> = match rng.below(100) {
        0..35 => None,
        35..75 => Some(A),
        75..90 => Some(*rng.pick(&NAMESPACES)),
        90..94 => Some("none"),
        _ => Some(*rng.pick(axes::NAMESPACES)),
    };
    // A cluster-scoped kind in a namespace is wrong, and rarely of interest.
    let namespace = if kind.namespaced || rng.in_1000(60) { namespace } else { None };
    let collection = kind.collection(namespace);
    let form = rng.below(100);
    let (path, mut query, what) = match form {
        0..46 => (collection.clone(), list(rng, kind), "list"),
        46..66 => (object(rng, kind, &collection), get(rng), "get"),
        66..86 => (collection.clone(), watch(rng, kind), "watch"),
        86..93 => {
            let path = legacy(rng, kind, &collection);
            (path, watch(rng, kind), "legacy")
        }
        93..97 => {
            let path = format!("{}/{}", object(rng, kind, &collection), rng.pick(axes::SUBRESOURCES));
            (path, get(rng), "subresource")
        }
        _ => ((*rng.pick(axes::OTHER)).to_owned(), get(rng), "other"),
    };
    let streams = what == "watch" || what == "legacy";
    let path = mangled(rng, path);
    if rng.in_1000(120) {
        query.push((*rng.pick(axes::MORE)).to_owned());
    }
    if rng.in_1000(80) && !query.is_empty() {
        let twice = rng.pick(&query).clone();
        query.push(twice);
    }
    shuffle(rng, &mut query);
    if streams {
        // A stream must end, that of a spoiled deadline would last for half an hour; but not before it began, which is
        // a race of the server's own, as is a deadline within a wait for a revision.
        query.retain(|part| !part.starts_with("timeoutSeconds=-"));
        let waits = query.iter().any(|part| part.contains("{next}") || part.contains("{far}"));
        if waits {
            query.retain(|part| !part.starts_with("timeoutSeconds="));
        }
        let last = if waits { "timeoutSeconds=5" } else { "timeoutSeconds=1" };
        if !query.iter().any(|part| part == last) {
            query.push(last.to_owned());
        }
    }
    let mut target = if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) };
    if rng.in_1000(8) {
        target = format!("http://{{authority}}{target}");
    }
    let mut ask = Ask::get(target);
    headers(rng, &mut ask);
    if !streams && rng.in_1000(50) {
        method(rng, &mut ask);
    }
    let slow = streams
        || ask.target.contains("{next}")
        || ask.target.contains("{far}")
        || ask.target.contains("8446744")
        || ask.target.contains("9223372");
    let choice = rng.below(64);
    let http2 = http2::can_say(&ask) && rng.in_1000(250);
    Plan { row: format!("{}/{what}", kind.row), ask, collection, slow, http2, choice }
}

pub(super) fn option(rng: &mut Rng, into: &mut Vec<String>, name: &str, pool: Pool) {
    let value = *rng.weighted(pool);
    if value != "-" {
        into.push(format!("{name}={value}"));
    }
}

fn selectors(rng: &mut Rng, kind: &Kind, into: &mut Vec<String>) {
    if rng.in_1000(220) {
        let selector = *rng.pick(axes::LABELS);
        into.push(format!("labelSelector={}", escaped(rng, selector)));
    }
    if rng.in_1000(260) {
        let own = if rng.in_1000(500) { kind.odd } else { kind.some };
        let selector = if !own.is_empty() && rng.in_1000(500) { *rng.pick(own) } else { *rng.pick(axes::FIELDS) };
        into.push(format!("fieldSelector={}", escaped(rng, selector)));
    }
}

fn list(rng: &mut Rng, kind: &Kind) -> Vec<String> {
    let mut query = Vec::new();
    selectors(rng, kind, &mut query);
    option(rng, &mut query, "resourceVersion", axes::REVISIONS);
    option(rng, &mut query, "resourceVersionMatch", axes::MATCHES);
    option(rng, &mut query, "limit", axes::LIMITS);
    option(rng, &mut query, "continue", axes::TOKENS);
    if rng.in_1000(30) {
        option(rng, &mut query, "sendInitialEvents", axes::INITIAL);
    }
    query
}

fn get(rng: &mut Rng) -> Vec<String> {
    let mut query = Vec::new();
    option(rng, &mut query, "resourceVersion", axes::REVISIONS);
    if rng.in_1000(100) {
        option(rng, &mut query, "resourceVersionMatch", axes::MATCHES);
    }
    if rng.in_1000(60) {
        query.push(format!("watch={}", rng.pick(&["1", "", "false"])));
    }
    query
}

fn watch(rng: &mut Rng, kind: &Kind) -> Vec<String> {
    let mut query = vec![(*rng.weighted(axes::WATCHES)).to_owned()];
    selectors(rng, kind, &mut query);
    option(rng, &mut query, "resourceVersion", axes::REVISIONS);
    option(rng, &mut query, "sendInitialEvents", axes::INITIAL);
    // Mostly as it has to be, or nearly every watch would be refused.
    let starts = query.iter().any(|part| part.starts_with("sendInitialEvents"));
    if rng.in_1000(150) {
        option(rng, &mut query, "resourceVersionMatch", axes::MATCHES);
    } else if starts {
        query.push("resourceVersionMatch=NotOlderThan".to_owned());
    }
    option(rng, &mut query, "allowWatchBookmarks", axes::BOOKMARKS);
    if rng.in_1000(60) {
        option(rng, &mut query, "limit", axes::LIMITS);
    }
    if rng.in_1000(60) {
        option(rng, &mut query, "continue", axes::TOKENS);
    }
    option(rng, &mut query, "timeoutSeconds", axes::TIMEOUTS);
    query
}

fn object(rng: &mut Rng, kind: &Kind, collection: &str) -> String {
    let name = if rng.in_1000(80) { rng.pick(axes::NAMES) } else { rng.pick(kind.names) };
    format!("{collection}/{name}")
}

/// The path of an old watch: the word stands behind the version.
fn legacy(rng: &mut Rng, kind: &Kind, collection: &str) -> String {
    let path = if rng.in_1000(400) { object(rng, kind, collection) } else { collection.to_owned() };
    path.replacen(kind.root, &format!("{}/watch", kind.root), 1)
}

fn mangled(rng: &mut Rng, path: String) -> String {
    match rng.below(1000) {
        0..20 => format!("{path}/"),
        20..26 => format!("{path}//"),
        26..32 => format!("/{path}"),
        32..38 => path.replacen("/namespaces/", "/namespaces//", 1),
        38..44 => path.replacen("s", "%73", 1),
        44..48 => path.to_uppercase(),
        48..52 => format!("{path}/."),
        52..56 => format!("{path}%2F"),
        56..58 => format!("{path};x=y"),
        _ => path,
    }
}

fn headers(rng: &mut Rng, ask: &mut Ask) {
    let accept = *rng.weighted(axes::ACCEPTS);
    if accept != "-" {
        ask.headers.push(("Accept".to_owned(), accept.to_owned()));
        if rng.in_1000(10) {
            ask.headers.push(("Accept".to_owned(), "application/yaml".to_owned()));
        }
    }
    for (cases, name, value) in [
        (25, "User-Agent", "curl/8.0"),
        (10, "User-Agent", "Mozilla/5.0 (X11)"),
        (60, "Accept-Encoding", "gzip"),
        (10, "Accept-Encoding", "gzip;q=1.0, *"),
        (30, "Audit-Id", "an-audit-id"),
        (10, "Content-Type", "application/json"),
        (10, "If-None-Match", "*"),
        (10, "Range", "bytes=0-1"),
        (5, "X-Forwarded-For", "192.0.2.1"),
        (5, "Expect", "something"),
    ] {
        if rng.in_1000(cases) && !ask.has(name) {
            ask.headers.push((name.to_owned(), value.to_owned()));
        }
    }
}

/// Another method, which must not change anything.
fn method(rng: &mut Rng, ask: &mut Ask) {
    ask.method = (*rng.pick(axes::METHODS)).to_owned();
    match ask.method.as_str() {
        // What there is must stay; so must whole collections.
        "DELETE" => {
            let path = ask.target.split('?').next().unwrap_or_default();
            ask.target = format!("{}/nothing-of-this-name", path.trim_end_matches('/'));
        }
        "POST" | "PUT" | "PATCH" => {
            let bodies = [
                ("application/json", "nonsense"),
                ("application/json", "{}"),
                ("application/json", ""),
                ("text/plain", "{}"),
                ("application/merge-patch+json", "[]"),
                ("application/vnd.kubernetes.protobuf", "k8s"),
            ];
            let (kind, body) = *rng.pick(&bodies);
            ask.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("content-type"));
            ask.headers.push(("Content-Type".to_owned(), kind.to_owned()));
            ask.body = Some(body.to_owned());
        }
        _ => {}
    }
}

/// Percent-encoded, more or less of it. What no URI contains always is: informerd refuses such a request line (docs/compatibility.md).
pub(super) fn escaped(rng: &mut Rng, text: &str) -> String {
    let (plus, all) = (rng.in_1000(500), rng.in_1000(200));
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b' ' if plus => out.push('+'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' if !all => out.push(char::from(byte)),
            b'=' | b'!' | b',' | b'(' | b')' | b'/' if plus => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn shuffle(rng: &mut Rng, parts: &mut [String]) {
    for at in (1..parts.len()).rev() {
        parts.swap(at, rng.below(at + 1));
    }
}
