//! Compares what a client of the wire has with a simple model: under random changes, batches, conflation, relists, and
//! continuations by the token of any frame. Each frame is judged by what it claims, and the client at each quiet moment.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::Index;
use prost::Message as _;
use serde_json::Value;

use super::super::testing::{caller, objects_of, selection};
use super::*;
use crate::cache::{Order, Writer};
use crate::codec::json;
use crate::grpc::message::Pieces;
use crate::meta::{FieldTable, Object};

/// Objects by name: their uid, revision and bytes.
type State = BTreeMap<String, (String, u64, Value)>;

const LISTED: u64 = 20_000;

#[derive(Clone, Debug)]
enum Op {
    Write(u8),
    Delete(u8),
    /// All of these at one revision.
    Expire([bool; 4]),
    /// The changes are never seen as events.
    Relist(Vec<(u8, bool)>),
    /// The cache is told that nothing has changed.
    Confirm(u64),
    /// A client begins with the state, or with that of a revision of late, which the events may not have reached.
    Watch {
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
    Quiet,
}

struct World {
    objects: Objects,
    writer: Writer,
    /// The state from each revision on.
    truth: BTreeMap<u64, State>,
    rv: u64,
    /// Fewer than a watch may last, or an informer without one.
    minutes: u64,
    clients: Vec<Client>,
}

struct Client {
    watch: TypedWatch,
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
    /// It has named what it holds.
    is_known: bool,
}

fn op() -> impl Strategy<Value = Op> {
    let changes = prop::collection::vec((0..4_u8, any::<bool>()), 0..4);
    prop_oneof![
        8 => (0..4_u8).prop_map(Op::Write),
        3 => (0..4_u8).prop_map(Op::Delete),
        3 => any::<[bool; 4]>().prop_map(Op::Expire),
        1 => changes.prop_map(Op::Relist),
        1 => (1..4_u64).prop_map(Op::Confirm),
        2 => (any::<bool>(), 1..5_u32, prop::option::of(0..3_u64))
            .prop_map(|(conflate, batch, back)| Op::Watch { conflate, batch, back }),
        8 => (any::<Index>(), 1..4_usize).prop_map(|(client, frames)| Op::Take(client, frames)),
        3 => (any::<Index>(), any::<bool>(), any::<bool>())
            .prop_map(|(client, conflate, known)| Op::Resume { client, conflate, known }),
        4 => (1..6_usize).prop_map(Op::Turns),
        1 => Just(Op::Minute),
        2 => Just(Op::Quiet),
    ]
}

fn object(name: &str, uid: &str, rv: u64, gone: bool) -> (String, Object) {
    let text = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"a","uid":"{uid}","resourceVersion":"{rv}"}},"data":{{"at":"{rv}{gone}"}}}}"#
    );
    let object = json::parse_item(text.as_bytes(), &FieldTable::default()).unwrap().0;
    (text, object)
}

impl World {
    async fn new() -> Self {
        let (objects, writer) = objects_of(Vec::new()).await;
        let truth = BTreeMap::from([(LISTED, State::new())]);
        Self { objects, writer, truth, rv: LISTED, minutes: 0, clients: Vec::new() }
    }

    fn now(&self) -> State {
        self.at(self.rv)
    }

    fn at(&self, rv: u64) -> State {
        self.truth.range(..=rv).next_back().unwrap().1.clone()
    }

    /// Changes objects at the next revision, and returns what is sent of them.
    fn change(&mut self, names: &[String], delete: bool) -> Vec<(EventType, Object)> {
        let (mut state, rv, mut sent) = (self.now(), self.rv + 1, Vec::new());
        for name in names {
            let uid = state.get(name).map(|held| held.0.clone());
            let kind = match (&uid, delete) {
                (None, true) => continue,
                (Some(_), true) => EventType::Deleted,
                (Some(_), false) => EventType::Modified,
                (None, false) => EventType::Added,
            };
            let uid = uid.unwrap_or_else(|| format!("u{rv}"));
            let (text, object) = object(name, &uid, rv, delete);
            match delete {
                true => drop(state.remove(name)),
                false => drop(state.insert(name.clone(), (uid, rv, serde_json::from_str(&text).unwrap()))),
            }
            sent.push((kind, object));
        }
        if !sent.is_empty() {
            self.rv = rv;
            self.truth.insert(rv, state);
        }
        sent
    }

    async fn run(&mut self, op: Op) {
        let of = |index: Index, world: &Self| (!world.clients.is_empty()).then(|| index.index(world.clients.len()));
        match op {
            Op::Write(name) => self.apply(&[format!("c{name}")], false).await,
            Op::Delete(name) => self.apply(&[format!("c{name}")], true).await,
            Op::Expire(names) => {
                let names: Vec<_> = (0..4).filter(|name| names[*name]).map(|name| format!("c{name}")).collect();
                self.apply(&names, true).await;
            }
            Op::Relist(changes) => {
                for (name, delete) in changes {
                    self.change(&[format!("c{name}")], delete);
                }
                self.rv += 1;
                let list =
                    self.now().into_iter().map(|(name, (uid, rv, _))| Arc::new(object(&name, &uid, rv, false).1));
                self.writer.replace(list.collect(), ResourceVersion(self.rv)).await.unwrap();
            }
            Op::Confirm(ahead) => {
                self.rv += ahead;
                let cache = self.writer.cache();
                assert!(cache.confirm(&cache.snapshot().unwrap(), ResourceVersion(self.rv), Order::now()));
            }
            Op::Watch { conflate, batch, back } => {
                let start = back.map(|back| (self.rv - back).max(LISTED));
                let floor = self.writer.cache().window_floor().unwrap().get();
                let start = start.filter(|start| *start >= floor);
                let held = start.map(|start| self.at(start)).unwrap_or_default();
                let from = start.map(|rv| v1::watch_request::Start::FromResourceVersion(rv.to_string()));
                self.watch(from, HashMap::new(), conflate, batch, held, 0).await;
            }
            Op::Take(index, frames) => {
                let Some(client) = of(index, self) else { return };
                (0..frames).for_each(|_| _ = self.take(client));
            }
            Op::Resume { client, conflate, known } => {
                let Some(client) = of(client, self) else { return };
                let Client { token, held, had, last, .. } = self.clients.swap_remove(client);
                let has = if known {
                    held.values().map(|(uid, rv, _)| (uid.clone(), rv.to_string())).collect()
                } else {
                    HashMap::new()
                };
                let start = Some(v1::watch_request::Start::ResumeToken(token));
                self.watch(start, has, conflate, 3, held, had.max(last)).await;
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

    async fn apply(&mut self, names: &[String], delete: bool) {
        let mut sent = self.change(names, delete);
        match sent.len() {
            0 => {}
            1 => {
                let (kind, object) = sent.remove(0);
                self.writer.apply(kind, object).await.unwrap();
            }
            _ => self.writer.delete_together(sent.into_iter().map(|(_, object)| object).collect()).await.unwrap(),
        }
    }

    async fn watch(
        &mut self,
        start: Option<v1::watch_request::Start>,
        known: HashMap<String, String>,
        conflate: bool,
        max_batch: u32,
        held: State,
        had: u64,
    ) {
        let selection = Some(selection("configmaps", vec![]));
        let is_known = !known.is_empty();
        let request = v1::WatchRequest { selection, start, known, max_batch, conflate, ..Default::default() };
        let watch = self.objects.watch_for(&caller(), request).await.unwrap();
        let client = Client { watch, held, snapshot: None, token: Bytes::new(), complete: 0, had, last: 0, is_known };
        self.clients.push(client);
        assert!(self.take(self.clients.len() - 1), "it has started");
    }

    /// Takes a frame. Returns false if there is none now.
    fn take(&mut self, client: usize) -> bool {
        let client = &mut self.clients[client];
        let Poll::Ready(frame) = client.watch.poll_frame(&mut Context::from_waker(std::task::Waker::noop())) else {
            return false;
        };
        let mut pieces = Pieces::default();
        pieces.push(Message::Watch(frame.expect("it goes on").unwrap()));
        let bytes: Vec<u8> = pieces.finish().into_iter().flatten().collect();
        let response = v1::WatchResponse::decode(&bytes[5..]).unwrap();
        client.receive(response, &self.truth);
        true
    }

    /// Everything that is on its way arrives.
    async fn quiet(&mut self) {
        let (rv, now) = (self.rv, self.now());
        for client in 0..self.clients.len() {
            let mut pauses = 0;
            while pauses < 3 {
                tokio::time::sleep(Duration::from_millis(1)).await;
                pauses = if self.take(client) { 0 } else { pauses + 1 };
            }
            let client = &self.clients[client];
            assert!(client.snapshot.is_none() && client.complete <= rv);
            assert_eq!(client.held, now, "at rest at {rv}");
        }
    }
}

impl Client {
    fn receive(&mut self, response: v1::WatchResponse, truth: &BTreeMap<u64, State>) {
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
            Frame::Goodbye(_) => panic!("{what}"),
        }
        assert!(
            complete >= self.complete && (complete > 0) == self.snapshot.is_none(),
            "{what} after {}",
            self.complete
        );
        (self.token, self.complete) = (response.resume_token, complete);
        // Who continues here gets all that it lacks.
        let at = |rv| truth.range(..=rv).next_back().map(|(_, state)| state);
        let Some(wanted) = at(complete).filter(|_| complete > 0) else { return };
        if self.last.max(self.had) <= complete {
            assert_eq!(&self.held, wanted, "{what}");
        }
        for name in self.held.keys().chain(wanted.keys()) {
            let (held, was) = (self.held.get(name), wanted.get(name));
            let comes = || truth.range(complete + 1..).any(|(_, state)| state.get(name) != was);
            assert!(held == was || comes(), "{name} is lost: {what}");
        }
    }

    fn begin(&mut self) {
        // What it had is replaced: nothing comes again.
        (self.snapshot, self.had) = (Some(State::new()), 0);
    }

    fn event(&mut self, event: v1::Event, truth: &BTreeMap<u64, State>, what: &str) {
        let kind = event.r#type();
        let v1::Key { name, uid, resource_version, .. } = event.key.unwrap();
        let rv: u64 = resource_version.parse().unwrap();
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
        if kind == v1::event::Type::Deleted {
            state.remove(&name);
            return;
        }
        assert!(held.is_none_or(|held| held.1 < rv) || again, "{what} goes back");
        let mut value: Value = serde_json::from_slice(&event.object).unwrap();
        let members = value.as_object_mut().unwrap();
        members.remove("kind");
        members.remove("apiVersion");
        let sent = truth.get(&rv).and_then(|state| state.get(&name));
        assert_eq!(Some(&(uid.clone(), rv, value.clone())), sent, "{what}");
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
            world.apply(&["c0".to_owned()], false).await;
            world.quiet().await;
        });
    }
}
