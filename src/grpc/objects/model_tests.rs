//! Compares what a client of the wire has with a simple model, byte by byte: under random changes, selections that objects
//! leave and enter again, batches, conflation, relists, drains, stores that are set back, other processes, revisions that
//! nobody has reached, and continuations by the token of any frame. Each frame is judged by what it claims, and the client
//! at each quiet moment. The apiserver does not answer.

#[path = "model_client_tests.rs"]
mod client;
#[path = "model_objects_tests.rs"]
mod objects;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use tonic::Code;

use self::client::{Asked, Client};
use self::objects::{Truth, Written, at, filters, sent};
use super::TypedWatch;
use crate::apiserver::client::Upstream;
use crate::cache::{Order, Writer};
use crate::grpc::messages::TokenBase;
use crate::grpc::objects::{Objects, Parts};
use crate::grpc::pb::v1::watch_request::Start;
use crate::grpc::testing::{ROOMY, away, caller, form, selection, unsynced};
use crate::lifecycle::drain::{self, Drain};
use crate::meta::{Encoding, EventType, Object, ResourceVersion};
use crate::reads::WantedEncoding;

const LISTED: u64 = 20_000;

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
    /// A client begins with the state, or with that of an earlier revision, which the events may not have reached, or which has
    /// left the window.
    Watch {
        selects: usize,
        conflate: bool,
        batch: u32,
        back: Option<u64>,
    },
    /// A client begins with a revision of another replica, which the cache has not reached. It may do so in a moment.
    Ahead {
        selects: usize,
        conflate: bool,
        ahead: usize,
        by_token: bool,
        comes: bool,
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
    /// The store is set back by so many revisions. Watches may look for the cache before it is listed again.
    Rewind(u64, bool),
    /// Another process takes the place of this one, after changes that this one never sees. It lists, or it has kept the state
    /// of so many revisions ago and what was sent since then.
    Restart(Vec<(u8, Option<usize>)>, Option<u64>),
    Quiet,
}

struct World {
    upstream: Upstream,
    encoding: Encoding,
    /// With a small window, watches are reset that take their frames late, and old starts fall out of it.
    window: usize,
    objects: Objects,
    writer: Writer,
    drain: Drain,
    /// One for each history that the store has had, and the revision at which each but the first left the one before it.
    truths: Vec<Truth>,
    forks: Vec<u64>,
    rv: u64,
    /// The revision of the last list. All changes since then were events.
    listed: u64,
    /// Fewer than a watch may last, or an informer without one.
    minutes: u64,
    clients: Vec<Client>,
}

fn op() -> impl Strategy<Value = Op> {
    let changes = || prop::collection::vec((0..4_u8, prop::option::of(0..4_usize)), 0..4);
    prop_oneof![
        12 => (0..4_u8, 0..4_usize).prop_map(|(name, labels)| Op::Write(name, labels)),
        3 => (0..4_u8).prop_map(Op::Delete),
        3 => any::<[bool; 4]>().prop_map(Op::Expire),
        1 => changes().prop_map(Op::Relist),
        1 => (1..4_u64).prop_map(Op::Confirm),
        2 => (0..3_usize, any::<bool>(), 1..5_u32, prop::option::of(0..8_u64))
            .prop_map(|(selects, conflate, batch, back)| Op::Watch { selects, conflate, batch, back }),
        1 => (0..3_usize, any::<bool>(), 1..4_usize, any::<bool>(), any::<bool>())
            .prop_map(|(selects, conflate, ahead, by_token, comes)| {
                Op::Ahead { selects, conflate, ahead, by_token, comes }
            }),
        8 => (any::<Index>(), 1..4_usize).prop_map(|(client, frames)| Op::Take(client, frames)),
        3 => (any::<Index>(), any::<bool>(), any::<bool>())
            .prop_map(|(client, conflate, known)| Op::Resume { client, conflate, known }),
        4 => (1..6_usize).prop_map(Op::Turns),
        1 => Just(Op::Minute),
        1 => Just(Op::Drain),
        1 => (0..8_u64, any::<bool>()).prop_map(|(back, is_away)| Op::Rewind(back, is_away)),
        1 => (changes(), prop::option::of(0..8_u64)).prop_map(|(missed, kept)| Op::Restart(missed, kept)),
        2 => Just(Op::Quiet),
    ]
}

impl World {
    async fn new(encoding: Encoding, window: usize) -> Self {
        let upstream = away().await;
        let (objects, writer) = unsynced(&upstream, encoding, window);
        let (drain, truths) = (drain::channel().0, vec![Truth::from([(LISTED, Default::default())])]);
        let (forks, clients) = Default::default();
        let (rv, listed, minutes) = (LISTED, LISTED, 0);
        let mut world =
            Self { upstream, encoding, window, objects, writer, drain, truths, forks, rv, listed, minutes, clients };
        world.list().await;
        world.serve();
        world
    }

    fn serve(&mut self) {
        let (drain, watch) = drain::channel();
        self.objects = Objects::new(Parts { drain: watch, ..Parts::clone(&self.objects) });
        self.drain = drain;
    }

    fn truth(&self) -> &Truth {
        self.truths.last().unwrap()
    }

    /// The oldest revision that a watch can begin after.
    fn floor(&self) -> u64 {
        self.writer.cache().window_floor().unwrap().get()
    }

    /// Changes objects at the next revision, or deletes them, and returns what is sent of them.
    fn change(&mut self, names: &[String], labelled: Option<usize>) -> Vec<(EventType, Object)> {
        let (mut state, rv, epoch) = (at(self.truth(), 0, self.rv), self.rv + 1, self.forks.len());
        let mut is_changed = false;
        for name in names {
            let old = state.remove(name);
            is_changed |= old.is_some() || labelled.is_some();
            let Some(labels) = labelled else { continue };
            let uid = old.map_or_else(|| format!("u{epoch}-{rv}"), |old| old.uid.clone());
            let (encoding, name, data) = (self.encoding, name.clone(), format!("{epoch}-{rv}"));
            state.insert(name.clone(), Arc::new(Written { encoding, name, uid, rv, labels, data }));
        }
        if !is_changed {
            return Vec::new();
        }
        self.rv = rv;
        self.truths.last_mut().unwrap().insert(rv, (state, false));
        sent(self.truth(), rv)
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
                let unseen = self.truths.last_mut().unwrap().range_mut(before + 1..);
                unseen.for_each(|(_, (_, is_listed))| *is_listed = true);
                self.rv += 1;
                self.list().await;
            }
            Op::Confirm(ahead) => {
                self.rv += ahead;
                let cache = self.writer.cache();
                assert!(cache.confirm(&cache.snapshot().unwrap(), ResourceVersion(self.rv), Order::now()));
            }
            Op::Watch { selects, conflate, batch: max_batch, back } => {
                let mut asked = Asked { selects, conflate, max_batch, ..Asked::default() };
                if let Some(back) = back {
                    asked.after = (self.rv - back).max(LISTED);
                    asked.start = Some(Start::FromResourceVersion(asked.after.to_string()));
                    asked.held = at(self.truth(), selects, asked.after);
                }
                self.watch(asked).await;
            }
            Op::Ahead { selects, conflate, ahead, by_token, comes } => {
                let after = self.rv + ahead as u64;
                let tokens = TokenBase::new("", &selection("configmaps", filters(selects)));
                let start = match by_token {
                    true => Start::ResumeToken(tokens.at(ResourceVersion(after))),
                    false => Start::FromResourceVersion(after.to_string()),
                };
                let asked = Asked { selects, start: Some(start), after, conflate, max_batch: 2, ..Asked::default() };
                self.watch_ahead(asked, if comes { ahead + 1 } else { 0 }).await;
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
            Op::Rewind(back, is_away) => self.rewind(back, is_away).await,
            Op::Restart(missed, kept) => {
                for (name, labels) in missed {
                    self.change(&[format!("c{name}")], labels);
                }
                // The watches of the process before end with it.
                (self.objects, self.writer) = unsynced(&self.upstream, self.encoding, self.window);
                match kept {
                    Some(back) => self.restore(back),
                    None => self.list().await,
                }
                self.serve();
                for client in (0..self.clients.len()).rev() {
                    self.resume(client, client % 2 == 0, client % 3 == 0).await;
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
            _ => self.writer.delete_together(sent.into_iter().map(|(_, object)| object).collect(), true).await.unwrap(),
        }
    }

    /// The cache is given the whole state.
    async fn list(&mut self) {
        let list = at(self.truth(), 0, self.rv).into_values().map(|written| Arc::new(written.object())).collect();
        self.writer.replace(list, ResourceVersion(self.rv)).await.unwrap();
        self.listed = self.rv;
    }

    /// The cache is given the state of so many revisions ago, and what was sent since then.
    fn restore(&mut self, back: u64) {
        let from = self.listed.max(self.rv - back);
        let (truth, mut kept) = (self.truth(), self.writer.restoration());
        kept.set_form(form(self.encoding));
        let state = at(truth, 0, from);
        state.values().for_each(|written| kept.insert(written.object()).unwrap());
        kept.begin(ResourceVersion(from), state.len()).unwrap();
        let events = truth.range(from + 1..).flat_map(|(rv, _)| sent(truth, *rv));
        events.for_each(|(kind, object)| kept.push(kind, object).unwrap());
        kept.progress(ResourceVersion(self.rv));
        kept.finish();
        self.writer.restore(kept).unwrap();
    }

    async fn rewind(&mut self, back: u64, is_away: bool) {
        let fork = (self.rv - back).max(LISTED);
        self.writer.rewound("the store was set back");
        // As the first read that asks the store finds it.
        let shown = self.objects.reads.floors().of("", "configmaps");
        shown.rewound(shown.get(), ResourceVersion(fork));
        if is_away {
            for client in 0..self.clients.len() {
                (0..3).for_each(|_| _ = self.take(client));
            }
        }
        let before = self.truth().range(..=fork).map(|(rv, state)| (*rv, state.clone())).collect();
        self.truths.push(before);
        self.forks.push(fork);
        self.rv = fork;
        self.list().await;
    }

    /// A client comes again. One that knows something that was undone since begins anew, because once the revisions have passed
    /// its token nobody can tell (docs/grpc.md, "No silent gaps"). Until then the server can, which [`Self::refused`] looks at.
    async fn resume(&mut self, client: usize, conflate: bool, known: bool) {
        let before = self.clients.swap_remove(client);
        let is_undone = self.forks[before.held_epoch..].iter().any(|fork| before.reached() > *fork);
        let Client { watch, selects, held, token, complete, had, last, .. } = before;
        drop(watch);
        let start = Some(Start::ResumeToken(token));
        let had = had.max(last);
        let mut asked = Asked { selects, start, after: complete, known, conflate, max_batch: 3, held, had };
        if is_undone {
            if complete > self.rv {
                self.refused(&asked).await;
            }
            asked = Asked { selects, conflate, max_batch: 3, ..Asked::default() };
        }
        self.watch(asked).await;
    }

    async fn watch(&mut self, asked: Asked) {
        let floor = self.floor();
        let watch = self.objects.watch_for(&caller(), asked.request()).await.unwrap();
        self.begins(watch, asked, floor);
    }

    /// Only the apiserver could say whether there is such a revision.
    async fn refused(&self, asked: &Asked) {
        let refused = self.objects.watch_for(&caller(), asked.request()).await.err();
        assert_eq!(refused.map(|status| status.code()), Some(Code::Unavailable), "{}", asked.after);
    }

    /// A watch from a revision that the cache reaches with so many changes. With none, it does not.
    async fn watch_ahead(&mut self, mut asked: Asked, changes: usize) {
        if changes == 0 {
            return self.refused(&asked).await;
        }
        let sent = (0..changes).flat_map(|n| self.change(&[format!("c{}", n % 4)], Some(n % 4))).collect::<Vec<_>>();
        asked.held = at(self.truth(), asked.selects, asked.after);
        let (floor, writer, caller) = (self.floor(), &mut self.writer, caller());
        let come = async {
            // The watch waits twice as long for them.
            tokio::time::sleep(Duration::from_millis(10)).await;
            for (kind, object) in sent {
                writer.apply(kind, object).await.unwrap();
            }
        };
        let (watch, ()) = tokio::join!(self.objects.watch_for(&caller, asked.request()), come);
        self.begins(watch.unwrap(), asked, floor);
    }

    /// `floor` is where the window began when the watch was asked for.
    fn begins(&mut self, mut watch: TypedWatch, asked: Asked, floor: u64) {
        // Whatever a cache of the tests holds, its informer is that of JSON. There the watch looks when it begins again.
        let terms = Arc::get_mut(&mut watch.terms).unwrap();
        terms.selection.encoding = WantedEncoding::Only(Encoding::Json);
        let (client, after) = (self.clients.len(), asked.after);
        self.clients.push(Client::new(watch, asked, self.encoding, self.forks.len()));
        assert!(self.take(client), "it has started");
        let is_resumed = self.clients[client].snapshot.is_none();
        assert!(is_resumed || after < self.floor(), "{after} is in the window");
        assert!(!is_resumed || after >= floor, "{after} is not in the window");
    }

    /// Takes a frame. Returns false if there is none now.
    fn take(&mut self, client: usize) -> bool {
        let client = &mut self.clients[client];
        let was_opening = client.is_opening();
        let frame = client.poll();
        if was_opening && !client.is_opening() {
            client.epoch = self.forks.len();
        }
        let Some(frame) = frame else { return false };
        let truth = &self.truths[client.epoch];
        client.receive(frame, truth);
        true
    }

    /// Takes everything that is on its way.
    async fn take_all(&mut self, client: usize) {
        let mut pauses = 0;
        while pauses < 3 {
            // A watch that begins again may wait for a second first.
            let is_opening = self.clients[client].is_opening();
            tokio::time::sleep(Duration::from_millis(if is_opening { 1000 } else { 1 })).await;
            pauses = if self.take(client) || is_opening { 0 } else { pauses + 1 };
        }
    }

    async fn quiet(&mut self) {
        for client in 0..self.clients.len() {
            self.take_all(client).await;
            let (rv, client) = (self.rv, &self.clients[client]);
            assert!(client.snapshot.is_none() && client.complete <= rv && client.epoch == self.forks.len());
            assert_eq!(client.held, at(self.truth(), client.selects, rv), "at rest at {rv}");
        }
    }
}

/// Unless the environment asks for another number.
fn cases(usual: u32) -> u32 {
    std::env::var_os("PROPTEST_CASES").map_or(usual, |_| ProptestConfig::default().cases)
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 2000, cases: cases(60), ..ProptestConfig::default() })]
    #[test]
    fn every_frame_claims_what_its_client_has(
        ops in prop::collection::vec(op(), 1..80),
        in_protobuf: bool,
        roomy in prop::bool::weighted(0.7),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let encoding = if in_protobuf { Encoding::Protobuf } else { Encoding::Json };
            let mut world = World::new(encoding, if roomy { ROOMY } else { 7 }).await;
            for op in ops {
                world.run(op).await;
            }
            // The last events are later than all starts.
            world.apply(&["c0".to_owned()], Some(3)).await;
            world.quiet().await;
        });
    }
}
