//! Compares what a client of the wire has with a simple model: under random changes, selections that objects leave and
//! enter again, batches, conflation, relists, drains, and continuations by the token of any frame. Each frame is judged by
//! what it claims, and the client at each quiet moment.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::Index;
use prost::Message as _;
use serde_json::Value;

use super::super::service::Parts;
use super::*;
use crate::cache::{Order, Writer};
use crate::codec::json;
use crate::grpc::messages::Pieces;
use crate::grpc::testing::{caller, objects_of, selection};
use crate::lifecycle::drain::{self, Drain};
use crate::meta::{FieldTable, Object};

/// Objects by name: their uid, revision and bytes.
type State = BTreeMap<String, (String, u64, Value)>;

/// The state from each revision on, and whether only a list has shown it.
type Truth = BTreeMap<u64, (State, bool)>;

const LISTED: u64 = 20_000;
/// The labels that objects have, and what clients select by names and by a label: everything, or any of these.
const LABELS: [&str; 4] = ["{}", r#"{"app":"web"}"#, r#"{"tier":"a"}"#, r#"{"app":"web","tier":"a"}"#];
const SELECTIONS: [&[(&[&str], &str)]; 3] = [&[(&[], "")], &[(&[], "app")], &[(&["c0", "c1"], "app"), (&[], "tier")]];

#[derive(Clone, Debug)]
enum Op {
    Write(u8, usize),
    Delete(u8),
    /// All of these at one revision.
    Expire([bool; 4]),
    /// The changes are never seen as events.
    Relist(Vec<(u8, Option<usize>)>),
    /// The cache is told that nothing has changed.
    Confirm(u64),
    /// A client begins with the state, or with that of a revision of late, which the events may not have reached.
    Watch {
        selects: usize,
        conflate: bool,
        batch: u32,
        back: Option<u64>,
    },
    /// It takes frames.
    Take(Index, usize),
    /// It continues after one of its last frames, with a token and what it has.
    Resume {
        client: Index,
        conflate: bool,
        known: bool,
    },
    /// Other tasks have some turns.
    Turns(usize),
    Minute,
    /// All watches are told goodbye, and go on with what takes the place of this informerd.
    Drain,
    Quiet,
}

struct World {
    objects: Objects,
    writer: Writer,
    drain: Drain,
    truth: Truth,
    rv: u64,
    /// Fewer than a watch may last, or an informer without one.
    minutes: u64,
    clients: Vec<Client>,
}

pub(in crate::grpc) struct Client {
    watch: TypedWatch,
    selects: usize,
    held: State,
    /// What it is to have after the snapshot that is being sent.
    snapshot: Option<State>,
    /// The token of the last frame, and the revision that it names.
    token: Bytes,
    complete: u64,
    /// It has events up to this revision from an earlier watch, and may get some of them again.
    had: u64,
    /// The revision of its last event.
    last: u64,
    /// The revisions up to which it knows of each name whether it was gone.
    told: BTreeMap<String, u64>,
    /// It has named what it holds.
    is_known: bool,
}

fn op() -> impl Strategy<Value = Op> {
    let changes = prop::collection::vec((0..4_u8, prop::option::of(0..4_usize)), 0..4);
    prop_oneof![
        12 => (0..4_u8, 0..4_usize).prop_map(|(name, labels)| Op::Write(name, labels)),
        3 => (0..4_u8).prop_map(Op::Delete),
        3 => any::<[bool; 4]>().prop_map(Op::Expire),
        1 => changes.prop_map(Op::Relist),
        1 => (1..4_u64).prop_map(Op::Confirm),
        2 => (0..3_usize, any::<bool>(), 1..5_u32, prop::option::of(0..3_u64))
            .prop_map(|(selects, conflate, batch, back)| Op::Watch { selects, conflate, batch, back }),
        8 => (any::<Index>(), 1..4_usize).prop_map(|(client, frames)| Op::Take(client, frames)),
        3 => (any::<Index>(), any::<bool>(), any::<bool>())
            .prop_map(|(client, conflate, known)| Op::Resume { client, conflate, known }),
        4 => (1..6_usize).prop_map(Op::Turns),
        1 => Just(Op::Minute),
        1 => Just(Op::Drain),
        2 => Just(Op::Quiet),
    ]
}

fn object(name: &str, uid: &str, rv: u64, labels: &str, gone: bool) -> (Value, Object) {
    let text = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"a","uid":"{uid}","resourceVersion":"{rv}","labels":{labels}}},"data":{{"at":"{rv}{gone}"}}}}"#
    );
    let object = json::parse_item(text.as_bytes(), &FieldTable::default()).unwrap().0;
    (serde_json::from_str(&text).unwrap(), object)
}

fn labels(value: &Value) -> String {
    value["metadata"]["labels"].to_string()
}

fn filters(selects: usize) -> Vec<v1::Filter> {
    let filter = |(names, label): &(&[&str], &str)| v1::Filter {
        names: names.iter().copied().map(str::to_owned).collect(),
        label_selector: (*label).to_owned(),
        ..Default::default()
    };
    SELECTIONS[selects].iter().map(filter).collect()
}

/// What is selected of the state at this revision.
fn at(truth: &Truth, selects: usize, rv: u64) -> State {
    let mut state = truth.range(..=rv).next_back().unwrap().1.0.clone();
    state.retain(|name, (_, _, value)| {
        let has =
            |names: &[&str], label| (names.is_empty() || names.contains(&&**name)) && labels(value).contains(label);
        SELECTIONS[selects].iter().any(|(names, label)| has(names, label))
    });
    state
}

impl World {
    async fn new() -> Self {
        let (objects, writer) = objects_of(Vec::new()).await;
        let (drain, truth) = (drain::channel().0, Truth::from([(LISTED, Default::default())]));
        let mut world = Self { objects, writer, drain, truth, rv: LISTED, minutes: 0, clients: Vec::new() };
        world.serve();
        world
    }

    fn serve(&mut self) {
        let (drain, watch) = drain::channel();
        self.objects = Objects::new(Parts { drain: watch, ..Parts::clone(&self.objects) });
        self.drain = drain;
    }

    /// Changes objects at the next revision, or deletes them, and returns what is sent of them.
    fn change(&mut self, names: &[String], labelled: Option<usize>) -> Vec<(EventType, Object)> {
        let (mut state, rv, mut sent) = (at(&self.truth, 0, self.rv), self.rv + 1, Vec::new());
        for name in names {
            let (kind, uid, old) = match (state.remove(name), labelled) {
                (None, None) => continue,
                (None, Some(_)) => (EventType::Added, format!("u{rv}"), Value::Null),
                (Some((uid, _, old)), None) => (EventType::Deleted, uid, old),
                (Some((uid, _, old)), Some(_)) => (EventType::Modified, uid, old),
            };
            let labels = labelled.map_or_else(|| labels(&old), |labels| LABELS[labels].to_owned());
            let (value, object) = object(name, &uid, rv, &labels, labelled.is_none());
            if labelled.is_some() {
                state.insert(name.clone(), (uid, rv, value));
            }
            sent.push((kind, object));
        }
        if !sent.is_empty() {
            self.rv = rv;
            self.truth.insert(rv, (state, false));
        }
        sent
    }

    async fn run(&mut self, op: Op) {
        let of = |index: Index, world: &Self| (!world.clients.is_empty()).then(|| index.index(world.clients.len()));
        match op {
            Op::Write(name, labels) => self.apply(&[format!("c{name}")], Some(labels)).await,
            Op::Delete(name) => self.apply(&[format!("c{name}")], None).await,
            Op::Expire(names) => {
                let names: Vec<_> = (0..4).filter(|name| names[*name]).map(|name| format!("c{name}")).collect();
                self.apply(&names, None).await;
            }
            Op::Relist(changes) => {
                let before = self.rv;
                for (name, labels) in changes {
                    self.change(&[format!("c{name}")], labels);
                }
                self.truth.range_mut(before + 1..).for_each(|(_, (_, is_listed))| *is_listed = true);
                self.rv += 1;
                let of = |name: &str, uid: &str, rv, old: &Value| object(name, uid, rv, &labels(old), false).1;
                let list = at(&self.truth, 0, self.rv);
                let list = list.iter().map(|(name, (uid, rv, old))| Arc::new(of(name, uid, *rv, old)));
                self.writer.replace(list.collect(), ResourceVersion(self.rv)).await.unwrap();
            }
            Op::Confirm(ahead) => {
                self.rv += ahead;
                let cache = self.writer.cache();
                assert!(cache.confirm(&cache.snapshot().unwrap(), ResourceVersion(self.rv), Order::now()));
            }
            Op::Watch { selects, conflate, batch, back } => {
                let start = back.map(|back| (self.rv - back).max(LISTED));
                let floor = self.writer.cache().window_floor().unwrap().get();
                let start = start.filter(|start| *start >= floor);
                let held = start.map(|start| at(&self.truth, selects, start)).unwrap_or_default();
                let from = start.map(|rv| v1::watch_request::Start::FromResourceVersion(rv.to_string()));
                self.watch(selects, from, HashMap::new(), (conflate, batch), held, 0).await;
            }
            Op::Take(index, frames) => {
                let Some(client) = of(index, self) else { return };
                (0..frames).for_each(|_| _ = self.take(client));
            }
            Op::Resume { client, conflate, known } => {
                let Some(client) = of(client, self) else { return };
                self.resume(client, conflate, known).await;
            }
            Op::Drain => {
                self.drain.start(Duration::from_secs(60));
                self.serve();
                for client in (0..self.clients.len()).rev() {
                    self.take_all(client).await;
                    assert!(self.clients[client].watch.is_over());
                    self.resume(client, client % 2 == 0, false).await;
                }
            }
            Op::Turns(turns) => {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
            }
            Op::Minute if self.minutes < 8 => {
                self.minutes += 1;
                tokio::time::advance(Duration::from_secs(61)).await;
            }
            Op::Minute => {}
            Op::Quiet => self.quiet().await,
        }
    }

    async fn apply(&mut self, names: &[String], labels: Option<usize>) {
        let mut sent = self.change(names, labels);
        match sent.len() {
            0 => {}
            1 => {
                let (kind, object) = sent.remove(0);
                self.writer.apply(kind, object).await.unwrap();
            }
            _ => self.writer.delete_together(sent.into_iter().map(|(_, object)| object).collect()).await.unwrap(),
        }
    }

    async fn resume(&mut self, client: usize, conflate: bool, known: bool) {
        let Client { selects, token, held, had, last, .. } = self.clients.swap_remove(client);
        let has = held.values().filter(|_| known).map(|(uid, rv, _)| (uid.clone(), rv.to_string())).collect();
        let start = Some(v1::watch_request::Start::ResumeToken(token));
        self.watch(selects, start, has, (conflate, 3), held, had.max(last)).await;
    }

    async fn watch(
        &mut self,
        selects: usize,
        start: Option<v1::watch_request::Start>,
        known: HashMap<String, String>,
        (conflate, max_batch): (bool, u32),
        held: State,
        had: u64,
    ) {
        let selection = Some(selection("configmaps", filters(selects)));
        let is_known = !known.is_empty();
        let request = v1::WatchRequest { selection, start, known, max_batch, conflate, ..Default::default() };
        let watch = self.objects.watch_for(&caller(), request).await.unwrap();
        let (snapshot, token, told, complete, last) = Default::default();
        let client = Client { watch, selects, held, snapshot, token, told, complete, had, last, is_known };
        self.clients.push(client);
        assert!(self.take(self.clients.len() - 1), "it has started");
    }

    /// Takes a frame. Returns false if there is none now.
    fn take(&mut self, client: usize) -> bool {
        let client = &mut self.clients[client];
        let Poll::Ready(Some(frame)) = client.watch.poll_frame(&mut Context::from_waker(std::task::Waker::noop()))
        else {
            return false;
        };
        let mut pieces = Pieces::default();
        pieces.push(Message::Watch(frame.unwrap()));
        let bytes: Vec<u8> = pieces.finish().into_iter().flatten().collect();
        let response = v1::WatchResponse::decode(&bytes[5..]).unwrap();
        client.receive(response, &self.truth);
        true
    }

    /// Takes everything that is on its way.
    async fn take_all(&mut self, client: usize) {
        let mut pauses = 0;
        while pauses < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            pauses = if self.take(client) { 0 } else { pauses + 1 };
        }
    }

    async fn quiet(&mut self) {
        for client in 0..self.clients.len() {
            self.take_all(client).await;
            let (rv, client) = (self.rv, &self.clients[client]);
            assert!(client.snapshot.is_none() && client.complete <= rv);
            assert_eq!(client.held, at(&self.truth, client.selects, rv), "at rest at {rv}");
        }
    }
}

impl Client {
    fn receive(&mut self, response: v1::WatchResponse, truth: &Truth) {
        let what = format!("{:?} at {}", response.frame, response.resource_version);
        let complete = response.resource_version.parse().unwrap_or(0);
        match response.frame.unwrap() {
            Frame::Started(started) => {
                if !started.resumed {
                    self.begin();
                    if self.is_known {
                        self.snapshot = Some(self.held.clone());
                    }
                }
            }
            Frame::Reset(_) => {
                self.begin();
                (self.complete, self.is_known) = (0, false);
            }
            Frame::SnapshotEnd(end) => {
                let snapshot = self.snapshot.take().expect("a snapshot");
                self.held = snapshot;
                self.held.retain(|_, (uid, ..)| !end.gone_uids.contains(uid));
                assert!(complete > 0, "{what}");
                assert_eq!(end.count, self.held.len() as u64, "{what}");
            }
            Frame::Events(events) => events.events.into_iter().for_each(|event| self.event(event, truth, &what)),
            Frame::Bookmark(_) => assert!(complete > 0, "{what}"),
            Frame::Goodbye(goodbye) => assert_eq!(goodbye.reason(), goodbye::Reason::Draining),
        }
        assert!(
            complete >= self.complete && (complete > 0) == self.snapshot.is_none(),
            "{what} after {}",
            self.complete
        );
        (self.token, self.complete) = (response.resume_token, complete);
        // Who continues here gets all that it lacks.
        if complete == 0 {
            return;
        }
        let wanted = at(truth, self.selects, complete);
        if self.last.max(self.had) <= complete {
            assert_eq!(self.held, wanted, "{what}");
        }
        for name in ["c0", "c1", "c2", "c3"] {
            let (held, was) = (self.held.get(name), wanted.get(name));
            let mut later = truth.range(complete + 1..);
            let mut comes = || later.any(|(rv, _)| at(truth, self.selects, *rv).get(name) != was);
            assert!(held == was || comes(), "{name} is lost: {what}");
            self.tell(name, complete, truth, &what);
        }
    }

    fn begin(&mut self) {
        // What it had is replaced: nothing comes again.
        (self.snapshot, self.had, self.told) = (Some(State::new()), 0, BTreeMap::new());
    }

    /// No deletion before this revision was left out, nor that the object was not selected for a while.
    fn tell(&mut self, name: &str, rv: u64, truth: &Truth, what: &str) {
        let has = |rv| at(truth, self.selects, rv).contains_key(name);
        let last = self.told.get(name).copied().unwrap_or(rv);
        let mut later = truth.range(..=rv).rev().take_while(|(rv, _)| **rv > last);
        let is_gone = later.any(|(rv, (_, is_listed))| !is_listed && has(rv - 1) && !has(*rv));
        assert!(!is_gone, "that {name} was gone is left out: {what}");
        self.told.insert(name.to_owned(), last.max(rv));
    }

    fn event(&mut self, event: v1::Event, truth: &Truth, what: &str) {
        let kind = event.r#type();
        let v1::Key { name, uid, resource_version, .. } = event.key.unwrap();
        let rv: u64 = resource_version.parse().unwrap();
        self.tell(&name, rv - 1, truth, what);
        assert!(self.told.insert(name.clone(), rv) < Some(rv), "{what}");
        let is_difference = self.snapshot.is_some() && self.is_known;
        let state = self.snapshot.as_mut().unwrap_or(&mut self.held);
        let held = state.get(&name);
        self.last = self.last.max(rv);
        let again = rv <= self.had;
        let is_merged = held.is_some_and(|held| held.0 == uid && held.1 <= self.had);
        match kind {
            // The uid of the one before is named at the end.
            v1::event::Type::Added if is_difference => assert!(held.is_none_or(|held| held.0 != uid), "{what}"),
            v1::event::Type::Added => assert!(held.is_none() || again || is_merged, "{what}"),
            _ => assert!(held.is_some_and(|held| held.0 == uid) || again, "{what}"),
        }
        let mut value: Value = serde_json::from_slice(&event.object).unwrap();
        let members = value.as_object_mut().unwrap();
        members.remove("kind");
        members.remove("apiVersion");
        if kind == v1::event::Type::Deleted {
            state.remove(&name);
            let (_, _, mut last) = at(truth, self.selects, rv - 1).remove(&name).unwrap_or_default();
            match at(truth, 0, rv).contains_key(&name) {
                true => last["metadata"]["resourceVersion"] = resource_version.into(),
                false => last = object(&name, &uid, rv, &labels(&last), true).0,
            }
            let is_listed = truth.get(&rv).is_some_and(|(_, is_listed)| *is_listed);
            assert!(value == last || is_listed, "{value} and not {last}: {what}");
            return;
        }
        assert!(held.is_none_or(|held| held.1 < rv) || again, "{what} goes back");
        let sent = at(truth, self.selects, rv).remove(&name);
        assert_eq!(Some((uid.clone(), rv, value.clone())), sent, "{what}");
        state.insert(name, (uid, rv, value));
    }
}

/// Unless the environment asks for another number.
fn cases(usual: u32) -> u32 {
    std::env::var_os("PROPTEST_CASES").map_or(usual, |_| ProptestConfig::default().cases)
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 2000, cases: cases(60), ..ProptestConfig::default() })]
    #[test]
    fn every_frame_claims_what_its_client_has(ops in prop::collection::vec(op(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut world = World::new().await;
            for op in ops {
                world.run(op).await;
            }
            // The last events are later than all starts.
            world.apply(&["c0".to_owned()], Some(3)).await;
            world.quiet().await;
        });
    }
}
