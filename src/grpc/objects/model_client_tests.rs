//! A client of the model. It holds what a correct consumer would hold, and judges each frame by what the frame claims.

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use prost::Message as _;

use super::objects::{State, Truth, at, filters};
use crate::grpc::messages::{Message, Pieces};
use crate::grpc::objects::watch::{Phase, TypedWatch};
use crate::grpc::pb::v1;
use crate::grpc::pb::v1::goodbye;
use crate::grpc::pb::v1::watch_request::Start;
use crate::grpc::pb::v1::watch_response::Frame;
use crate::grpc::testing::selection;
use crate::meta::Encoding;

/// What a client asks for, and what it has.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) selects: usize,
    pub(super) start: Option<Start>,
    /// The revision after which it begins; zero for the state.
    pub(super) after: u64,
    /// It names what it holds.
    pub(super) known: bool,
    pub(super) conflate: bool,
    pub(super) max_batch: u32,
    pub(super) held: State,
    /// It has events up to this revision from an earlier watch, and may get some of them again.
    pub(super) had: u64,
}

pub(super) struct Client {
    pub(super) watch: TypedWatch,
    pub(super) selects: usize,
    encoding: v1::Encoding,
    /// The history of the store that its watch is of, and that of what it holds.
    pub(super) epoch: usize,
    pub(super) held_epoch: usize,
    pub(super) held: State,
    /// What it is to have after the snapshot that is being sent.
    pub(super) snapshot: Option<State>,
    /// The token of the last frame, and the revision that it names.
    pub(super) token: Bytes,
    pub(super) complete: u64,
    pub(super) had: u64,
    /// The revision of its last event.
    pub(super) last: u64,
    /// The revisions up to which it knows of each name whether it was gone.
    told: BTreeMap<String, u64>,
    /// It has named what it holds.
    is_known: bool,
}

// === impl Asked ===

impl Asked {
    pub(super) fn request(&self) -> v1::WatchRequest {
        let held = self.held.values().filter(|_| self.known);
        v1::WatchRequest {
            selection: Some(selection("configmaps", filters(self.selects))),
            start: self.start.clone(),
            known: held.map(|written| (written.uid.clone(), written.rv.to_string())).collect(),
            max_batch: self.max_batch,
            conflate: self.conflate,
            ..Default::default()
        }
    }
}

// === impl Client ===

impl Client {
    pub(super) fn new(watch: TypedWatch, asked: Asked, encoding: Encoding, epoch: usize) -> Self {
        let Asked { selects, known, held, had, .. } = asked;
        let encoding = if encoding == Encoding::Json { v1::Encoding::Json } else { v1::Encoding::KubeProtobuf };
        let is_known = known && !held.is_empty();
        let (snapshot, token, told, complete, last) = Default::default();
        let held_epoch = epoch;
        Self { watch, selects, encoding, epoch, held_epoch, held, snapshot, token, complete, had, last, told, is_known }
    }

    /// Its watch looks for the cache to begin again.
    pub(super) fn is_opening(&self) -> bool {
        matches!(self.watch.phase, Phase::Opening(_))
    }

    /// The newest revision of which it knows something.
    pub(super) fn reached(&self) -> u64 {
        let held = self.held.values().map(|written| written.rv);
        held.chain([self.complete, self.had, self.last]).max().unwrap()
    }

    /// Takes a frame, if there is one now.
    pub(super) fn poll(&mut self) -> Option<v1::WatchResponse> {
        let Poll::Ready(Some(frame)) = self.watch.poll_frame(&mut Context::from_waker(Waker::noop())) else {
            return None;
        };
        let mut pieces = Pieces::default();
        pieces.push(Message::Watch(frame.unwrap()));
        let bytes: Vec<u8> = pieces.finish().into_iter().flatten().collect();
        Some(v1::WatchResponse::decode(&bytes[5..]).unwrap())
    }

    pub(super) fn receive(&mut self, response: v1::WatchResponse, truth: &Truth) {
        let what = format!("{:?} at {}", response.frame, response.resource_version);
        let complete = response.resource_version.parse().unwrap_or(0);
        match response.frame.unwrap() {
            Frame::Started(started) => {
                assert_eq!(started.encoding(), self.encoding);
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
                (self.held, self.held_epoch) = (snapshot, self.epoch);
                self.held.retain(|_, written| !end.gone_uids.contains(&written.uid));
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
        (self.snapshot, self.had, self.last, self.told) = (Some(State::new()), 0, 0, BTreeMap::new());
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
        let is_merged = held.is_some_and(|held| held.uid == uid && held.rv <= self.had);
        match kind {
            // The uid of the one before is named at the end.
            v1::event::Type::Added if is_difference => assert!(held.is_none_or(|held| held.uid != uid), "{what}"),
            v1::event::Type::Added => assert!(held.is_none() || again || is_merged, "{what}"),
            _ => assert!(held.is_some_and(|held| held.uid == uid) || again, "{what}"),
        }
        if kind == v1::event::Type::Deleted {
            state.remove(&name);
            let is_there = at(truth, 0, rv).contains_key(&name);
            let last = at(truth, self.selects, rv - 1).remove(&name);
            let last = last.map(|last| if is_there { last.left(rv) } else { last.deleted(rv) });
            let is_last = last.is_some_and(|last| event.object == last.bytes());
            // Of a gap, the cache has only the states at its ends.
            let is_listed = truth.get(&rv).is_some_and(|(_, is_listed)| *is_listed);
            let mut earlier = truth.range(..rv).filter_map(|(_, (state, _))| state.get(&name));
            let mut was = || earlier.any(|was| was.uid == uid && event.object == was.left(rv).bytes());
            assert!(is_last || is_listed && was(), "not the last state: {what}");
            return;
        }
        assert!(held.is_none_or(|held| held.rv < rv) || again, "{what} goes back");
        let sent = at(truth, self.selects, rv).remove(&name).unwrap_or_else(|| panic!("{name} is not there: {what}"));
        assert_eq!((&*uid, rv), (&*sent.uid, sent.rv), "{what}");
        assert_eq!(event.object, sent.bytes(), "{what}");
        state.insert(name, sent);
    }
}
