//! Unions of filters over gRPC, and each of their parts over HTTP, by users with random rights: what is allowed is what the
//! apiserver allows for each part alone, and a stream ends exactly when a right goes that one of its parts needs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::Method;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::watch_response::Frame;
use informerd::lifecycle::spawn;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::access::rights::{Access, Grant, NAMES, RESOURCES, USERS};
use crate::access::streams::{Worker, work};
use crate::access::typed::{PERMISSION_DENIED, begun, message, send, status, status_as, trailers};
use crate::access::world::World;
use crate::support::client::{Client, Watch, names};
use crate::support::grpc::{add, filtered};
use crate::support::{eventually, until, within};

const GRANTS: usize = 8;
/// Of each user.
const UNIONS: usize = 8;
/// The number of a change of all objects stands behind it, in three digits.
const TICK: &str = "tick-";

/// One part of a union: all in a namespace or everywhere, or one name of it, of which selectors leave some.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Part {
    resource: &'static str,
    namespace: &'static str,
    name: &'static str,
    labels: &'static str,
    fields: &'static str,
}

struct User {
    direct: Client,
    through: Client,
    token: String,
}

/// What the apiserver says of one part alone.
struct Judge<'a> {
    user: usize,
    direct: &'a Client,
    grants: &'a [Grant],
    said: HashMap<(Part, bool), bool>,
}

/// A union over gRPC, or one part of it over HTTP.
struct Stream {
    call: &'static str,
    user: usize,
    filters: Vec<Vec<Part>>,
    /// Otherwise there is nothing that it could tell.
    has_objects: bool,
    /// The last tick that it has told.
    told: Arc<AtomicU64>,
    /// The status that it ends with.
    end: JoinHandle<String>,
}

// === impl Part ===

impl Part {
    /// 200 or 403.
    async fn answer(&self, client: &Client, watch: bool) -> u16 {
        let target = self.target(watch);
        let status = if watch { client.watch(&target).await.status } else { client.get(&target).await.status };
        assert!(status == 200 || status == 403, "{target}: {status}");
        status.as_u16()
    }

    fn target(&self, watch: bool) -> String {
        let scope = if self.namespace.is_empty() { String::new() } else { format!("namespaces/{}/", self.namespace) };
        let name = if self.name.is_empty() { String::new() } else { format!("metadata.name={},", self.name) };
        let watch = if watch { "watch=1&" } else { "" };
        let fields = format!("{name}{}", self.fields);
        let [labels, fields] = [self.labels, fields.trim_end_matches(',')].map(|text| text.replace('=', "%3D"));
        let resource = self.resource;
        format!("/api/v1/{scope}{resource}?{watch}resourceVersion=0&labelSelector={labels}&fieldSelector={fields}")
    }

    fn access(&self, watch: bool) -> Access {
        let selected = self.fields.strip_prefix("metadata.name=").unwrap_or_default();
        let name = if self.name.is_empty() { selected } else { self.name };
        Access { verb: if watch { "watch" } else { "list" }, resource: self.resource, namespace: self.namespace, name }
    }
}

/// One part for each access that there is.
fn every_access() -> Vec<Part> {
    let mut parts = Vec::new();
    for resource in RESOURCES {
        for namespace in ["", "a", "b"] {
            parts.extend(["", "one", "two"].map(|name| Part { resource, namespace, name, labels: "", fields: "" }));
        }
    }
    parts
}

/// Parts with several names become one filter with these names.
fn selection(filters: &[Vec<Part>]) -> Option<v1::Selection> {
    let filter = |parts: &Vec<Part>| v1::Filter {
        namespace: parts[0].namespace.to_owned(),
        names: parts.iter().map(|part| part.name.to_owned()).filter(|name| !name.is_empty()).collect(),
        label_selector: parts[0].labels.to_owned(),
        field_selector: parts[0].fields.to_owned(),
        ..Default::default()
    };
    Some(filtered(filters[0][0].resource, filters.iter().map(filter).collect()))
}

/// Most filters are within one of the rights.
fn union(rng: &mut StdRng, user: usize, grants: &[Grant]) -> Vec<Vec<Part>> {
    let scopes = |resource: &str| -> Vec<_> { grants.iter().flat_map(|grant| grant.scopes(user, resource)).collect() };
    let mut resources: Vec<_> = RESOURCES.into_iter().filter(|resource| !scopes(resource).is_empty()).collect();
    if resources.is_empty() || rng.random_bool(0.2) {
        resources = RESOURCES.to_vec();
    }
    let resource = *resources.choose(rng).unwrap();
    let scopes = scopes(resource);
    let filter = |rng: &mut StdRng| {
        let mut namespace = *["", "a", "b"].choose(rng).unwrap();
        let mut names = NAMES.choose(rng).unwrap().to_vec();
        let scope = scopes.choose(rng).filter(|_| rng.random_bool(0.75));
        if let Some(&(of, named)) = scope {
            if !of.is_empty() {
                namespace = of;
            }
            if !named.is_empty() {
                let count = rng.random_range(1..=named.len());
                names = named.choose_multiple(rng, count).copied().collect();
            }
        }
        let labels = *["", "", "app=x"].choose(rng).unwrap();
        // Of two names in one selector, the apiserver asks for the first in order.
        let same = match names[..] {
            [] => *["metadata.name=one", "metadata.name=two"].choose(rng).unwrap(),
            ["one"] => "metadata.name=one",
            ["two"] => "metadata.name=two",
            _ => "",
        };
        let fields = *["", same, "metadata.name!=one", "metadata.namespace=a"].choose(rng).unwrap();
        if names.len() == 1 && fields == same && rng.random_bool(0.5) {
            // The selector alone says which.
            names.clear();
        }
        if names.is_empty() {
            names.push("");
        }
        names.into_iter().map(|name| Part { resource, namespace, name, labels, fields }).collect()
    };
    (0..rng.random_range(1..=6)).map(|_| filter(rng)).collect()
}

fn watch(filters: &[Vec<Part>]) -> v1::WatchRequest {
    v1::WatchRequest { selection: selection(filters), ..Default::default() }
}

/// A stream of many whose only watch has begun, and what came with its first frame; otherwise how it ended.
async fn synced(client: &Client, filters: &[Vec<Part>]) -> Result<(Incoming, Vec<u8>), String> {
    let credit = Some(v1::Credit { frames: 1 << 20, bytes: 1 << 30 });
    let mut body = send(client, "Sync", &add(1, watch(filters), credit)).await.into_body();
    let mut rest = Vec::new();
    let first: v1::SyncResponse = message(&mut body, &mut rest).await;
    match first.response.unwrap().frame {
        Some(Frame::Goodbye(goodbye)) => Err(goodbye.error.unwrap().code.to_string()),
        _ => Ok((body, rest)),
    }
}

async fn worked(world: &World, token: &str, group: &str, filters: &[Vec<Part>]) -> Result<Worker, String> {
    let joined = work(world, token, group, selection(filters));
    within("an answer to Work", joined).await.map_err(|status| (status.code() as i32).to_string())
}

/// Whether there is anything that a stream of these could tell.
async fn selects_objects(admin: &Client, filters: &[Vec<Part>]) -> bool {
    for part in filters.iter().flatten() {
        if !names(&admin.json(&part.target(false)).await).is_empty() {
            return true;
        }
    }
    false
}

// === impl Judge ===

impl Judge<'_> {
    async fn allows(&mut self, part: &Part, watch: bool) -> bool {
        let key = (part.clone(), watch);
        if let Some(said) = self.said.get(&key) {
            return *said;
        }
        let (user, direct, access) = (self.user, self.direct, part.access(watch));
        // Its authorizer learns of a change of rights some time later. These are all rights that there are, so its answer is
        // this one as soon as it knows them, and no other.
        let is_allowed = self.grants.iter().any(|grant| grant.allows(user, &access));
        let what = format!("watch: {watch}, allowed: {is_allowed}, user {user}: {part:?}, {:?}", self.grants);
        until(&what, async || (part.answer(direct, watch).await == 200) == is_allowed).await;
        self.said.insert(key, is_allowed);
        is_allowed
    }

    async fn allows_all(&mut self, filters: &[Vec<Part>], watch: bool) -> bool {
        for part in filters.iter().flatten() {
            if !self.allows(part, watch).await {
                return false;
            }
        }
        true
    }
}

fn judges<'a>(users: &'a [User], grants: &'a [Grant]) -> Vec<Judge<'a>> {
    let judge = |(user, of): (usize, &'a User)| Judge { user, direct: &of.direct, grants, said: HashMap::new() };
    users.iter().enumerate().map(judge).collect()
}

// === impl Stream ===

impl Stream {
    fn kept<F>(
        (call, user): (&'static str, usize),
        filters: &[Vec<Part>],
        has_objects: bool,
        read: impl FnOnce(Arc<AtomicU64>) -> F,
    ) -> Self
    where
        F: Future<Output = String> + Send + 'static,
    {
        let told = Arc::<AtomicU64>::default();
        let end = spawn("stream", read(Arc::clone(&told)));
        Self { call, user, filters: filters.to_vec(), has_objects, told, end }
    }
}

/// Reads a call to its end, and tells the ticks in it.
async fn read_call(mut body: Incoming, told: Arc<AtomicU64>) -> String {
    let mut rest = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame.unwrap().into_data() {
            Ok(data) => {
                rest.extend_from_slice(&data);
                note(&rest, &told);
                // A tick may go on in the next frame.
                rest.drain(..rest.len().saturating_sub(TICK.len() + 2));
            }
            Err(frame) => return frame.into_trailers().unwrap()["grpc-status"].to_str().unwrap().to_owned(),
        }
    }
    panic!("trailers come before the end");
}

/// The same of the only watch of a stream of many.
async fn read_sync(mut body: Incoming, mut rest: Vec<u8>, told: Arc<AtomicU64>) -> String {
    loop {
        // There is a bookmark every minute.
        let response: v1::SyncResponse = message(&mut body, &mut rest).await;
        match response.response.unwrap().frame {
            Some(Frame::Events(events)) => events.events.iter().for_each(|event| note(&event.object, &told)),
            Some(Frame::Goodbye(goodbye)) => {
                assert!(rest.is_empty(), "nothing follows a goodbye");
                assert_eq!(trailers(&mut body).await["grpc-status"], "0");
                return goodbye.error.unwrap().code.to_string();
            }
            _ => {}
        }
    }
}

/// The same of a worker, which answers all its keys.
async fn read_worker(mut worker: Worker, told: Arc<AtomicU64>) -> String {
    loop {
        match worker.object().await {
            Ok(object) => note(&object, &told),
            Err(status) => return (status.code() as i32).to_string(),
        }
    }
}

/// The same of a watch over HTTP. A refusal counts as that of a call.
async fn read_watch(mut watch: Watch, told: Arc<AtomicU64>) -> String {
    loop {
        let event = watch.next().await.unwrap().expect("an error comes before the end");
        if event["type"] == "ERROR" {
            assert!(watch.next().await.unwrap().is_none(), "nothing follows an error");
            let is_refusal = event["object"]["code"] == 403;
            return if is_refusal { PERMISSION_DENIED.to_owned() } else { event.to_string() };
        }
        note(event.to_string().as_bytes(), &told);
    }
}

fn note(text: &[u8], told: &AtomicU64) {
    for digits in text.windows(TICK.len() + 3).filter_map(|window| window.strip_prefix(TICK.as_bytes())) {
        told.fetch_max(std::str::from_utf8(digits).unwrap().parse().unwrap(), Relaxed);
    }
}

/// Changes all objects.
async fn tick(admin: &Client, turn: u64) {
    let change = json!({ "metadata": { "annotations": { "tick": format!("{TICK}{turn:03}") } } });
    for resource in RESOURCES {
        for (namespace, name) in [("a", "one"), ("a", "two"), ("b", "one")] {
            let object = format!("/api/v1/namespaces/{namespace}/{resource}/{name}");
            admin.write(Method::PATCH, &object, &change).await;
        }
    }
}

async fn users(world: &World, grants: &[Grant]) -> Vec<User> {
    let mut manifests = String::new();
    for (user, namespace) in USERS.into_iter().enumerate() {
        manifests.push_str(&format!(
            "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: union-{user}, namespace: {namespace}}}\n---\n"
        ));
    }
    manifests.extend(grants.iter().map(Grant::manifests));
    world.cluster.apply(&manifests).await;
    let mut users = Vec::new();
    for (user, namespace) in USERS.into_iter().enumerate() {
        let token = world.cluster.token(namespace, &format!("union-{user}")).await;
        let (direct, through) = (world.direct(Some(&token)), world.through(Some(&token)));
        users.push(User { direct, through, token });
    }
    users
}

/// Asks for unions and their parts in every form. Returns the streams that stay open: of each form, but for workers. Their
/// groups are limited, so each user has one.
async fn asked(world: &World, users: &[User], grants: &[Grant], rng: &mut StdRng) -> Vec<Stream> {
    let (admin, mut judges) = (world.admin(), judges(users, grants));
    // The last right has come to the apiserver's authorizer: nothing that it says from now on changes.
    for judge in &mut judges {
        for part in every_access() {
            for is_watch in [false, true] {
                judge.allows(&part, is_watch).await;
            }
        }
    }
    let (mut allowed, mut denied, mut calls, mut streams) = (0, 0, 0, Vec::new());
    for (user, judge) in users.iter().zip(&mut judges) {
        let (at, mut seen, mut works) = (judge.user, HashSet::new(), false);
        for turn in 0..UNIONS {
            let filters = union(rng, at, grants);
            let as_reader = [("impersonate-user", "reader")];
            assert_eq!(status_as(&user.through, "Objects/Watch", &as_reader, &watch(&filters)).await.0, "14");
            let may_watch = judge.allows_all(&filters, true).await;
            let has_objects = may_watch && selects_objects(&admin, &filters).await;
            for (call, is_watch) in [("List", false), ("Watch", true), ("Sync", true), ("Work", true)] {
                let wanted = if judge.allows_all(&filters, is_watch).await { "0" } else { PERMISSION_DENIED };
                let code = match call {
                    "List" => {
                        let list = v1::ListRequest { selection: selection(&filters), ..Default::default() };
                        status(&user.through, call, &list).await.0
                    }
                    "Watch" => begun(&user.through, call, &watch(&filters)).await,
                    "Sync" => match synced(&user.through, &filters).await {
                        Ok((body, rest)) => {
                            let read = |told| read_sync(body, rest, told);
                            streams.push(Stream::kept((call, at), &filters, has_objects, read));
                            "0".to_owned()
                        }
                        Err(code) => code,
                    },
                    _ => {
                        // Whether the worker of the last turn has left is not known yet.
                        let group = if works { format!("union-{}", turn % 2) } else { "kept".to_owned() };
                        match worked(world, &user.token, &group, &filters).await {
                            Ok(worker) => {
                                if !works {
                                    let read = |told| read_worker(worker, told);
                                    streams.push(Stream::kept((call, at), &filters, has_objects, read));
                                }
                                works = true;
                                "0".to_owned()
                            }
                            Err(code) => code,
                        }
                    }
                };
                assert_eq!(code, wanted, "{call} by {at}: {filters:?}, {grants:?}");
                *(if wanted == "0" { &mut allowed } else { &mut denied }) += 1;
            }
            for part in filters.iter().flatten().filter(|part| seen.insert((*part).clone())) {
                let status_of = |is_allowed| if is_allowed { 200_u16 } else { 403 };
                let list = status_of(judge.allows(part, false).await);
                assert_eq!(part.answer(&user.through, false).await, list, "{at}: {part:?}, {grants:?}");
                let is_allowed = judge.allows(part, true).await;
                let watch = user.through.watch(&part.target(true)).await;
                assert_eq!(watch.status, status_of(is_allowed), "{at}: {part:?}, {grants:?}");
                if is_allowed {
                    let alone = [vec![part.clone()]];
                    let has_objects = selects_objects(&admin, &alone).await;
                    let read = |told| read_watch(watch.until_the_end(), told);
                    streams.push(Stream::kept(("GET", at), &alone, has_objects, read));
                }
            }
            if may_watch {
                let body = send(&user.through, "Watch", &watch(&filters)).await.into_body();
                streams.push(Stream::kept(("Watch", at), &filters, has_objects, |told| read_call(body, told)));
                calls += 1;
            }
        }
    }
    assert!(allowed > 40 && denied > 5, "{allowed} allowed, {denied} denied");
    assert!(calls > 5 && streams.len() > 50, "{calls} of {} streams", streams.len());
    streams
}

#[tokio::test(flavor = "multi_thread")]
async fn a_union_is_allowed_as_its_parts_are_alone() {
    let world = World::warmed("", &["/api/v1/configmaps", "/api/v1/pods"]).await;
    let (admin, mut rng) = (world.admin(), StdRng::seed_from_u64(crate::seed(20_261)));
    let mut grants: Vec<_> = (0..GRANTS).map(|number| Grant::drawn(number, &mut rng)).collect();
    let users = users(&world, &grants).await;
    let mut streams = asked(&world, &users, &grants, &mut rng).await;

    // The rights go, in part or as a whole. Each time exactly those streams end that needed what went.
    let changes = || world.daemon.daemon.access.metrics().flushes.get();
    let (mut turn, mut went_on) = (0, 0);
    while !grants.is_empty() {
        turn += 1;
        let (at, before) = (rng.random_range(0..grants.len()), changes());
        let what = grants[at].take(&world, &mut rng).await;
        let what = format!("turn {turn}, {what} of {:?}", grants[at]);
        if grants[at].is_over() {
            grants.swap_remove(at);
        }
        let (mut judges, mut gone, mut stay) = (judges(&users, &grants), Vec::new(), Vec::new());
        for stream in streams.drain(..) {
            let is_allowed = judges[stream.user].allows_all(&stream.filters, true).await;
            if is_allowed { stay.push(stream) } else { gone.push(stream) }
        }
        for Stream { call, user, filters, end, .. } in gone {
            let code = within(&format!("{call} by {user} ends: {filters:?}, {what}"), end).await.unwrap();
            assert_eq!(code, PERMISSION_DENIED, "{call} by {user}: {filters:?}, {what}");
        }
        // Even where no stream had to end.
        eventually("the change is known", || changes() > before).await;
        tick(&admin, turn).await;
        for Stream { call, user, filters, has_objects, told, end } in &stay {
            let goes_on = || !has_objects || told.load(Relaxed) >= turn;
            let what = format!("{call} by {user} goes on: {filters:?}, {what}");
            eventually(&what, || goes_on() || end.is_finished()).await;
            assert!(!end.is_finished(), "{what}");
            went_on += usize::from(*has_objects);
        }
        streams = stay;
    }
    assert!(streams.is_empty(), "without any right nothing stays");
    assert!(went_on > 50, "{went_on}");
}
