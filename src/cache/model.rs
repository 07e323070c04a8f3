//! A simple model of an apiserver, for the tests of this module.

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;

use super::testing::*;
use super::*;
use crate::meta::{EventType, Object, ResourceVersion, Scope};
use crate::selector::Predicate;

/// The objects at one moment.
pub(super) type State = BTreeMap<String, Arc<Object>>;

const NAMESPACES: [&str; 3] = ["a", "a-b", "b"];
const LABELS: [&[(&str, &str)]; 3] = [&[], &[("app", "db")], &[("app", "web")]];
const NODES: [&str; 3] = ["", "n1", "n2"];

#[derive(Clone, Debug)]
pub(super) struct Change {
    gap: u64,
    namespace: usize,
    name: usize,
    labels: usize,
    node: usize,
    delete: bool,
}

/// What the apiserver sends to the cache.
pub(super) enum Sent {
    Event(EventType, Object),
    Together(Vec<Object>),
    Progress(u64),
}

/// The state of the apiserver, and its history as far as a reader may know it.
pub(super) struct Model {
    pub(super) rv: u64,
    pub(super) state: State,
    /// The state from each revision on, since the last rewind of the store.
    pub(super) past: BTreeMap<u64, State>,
    /// Revisions at which several objects were deleted.
    pub(super) together: HashSet<u64>,
    /// The cache does not know states at revisions strictly between these.
    pub(super) gaps: Vec<(u64, u64)>,
    /// Revisions at which the cache was told that its state was the newest. It knows them also inside a gap.
    pub(super) confirmed: HashSet<u64>,
}

pub(super) fn change() -> impl Strategy<Value = Change> {
    (1..4_u64, 0..3_usize, 0..4_usize, 0..3_usize, 0..3_usize, prop::bool::weighted(0.3))
        .prop_map(|(gap, namespace, name, labels, node, delete)| Change { gap, namespace, name, labels, node, delete })
}

/// Changes of few objects, which come and go.
pub(super) fn bustle(most: usize) -> impl Strategy<Value = Vec<Change>> {
    let change = (1..3_u64, 1..3_usize, 0..3_usize, 0..3_usize, prop::bool::weighted(0.4))
        .prop_map(|(gap, name, labels, node, delete)| Change { gap, namespace: 0, name, labels, node, delete });
    prop::collection::vec(change, 0..most)
}

pub(super) fn predicates() -> Vec<Predicate> {
    let a = || Scope::namespace("a");
    vec![
        predicate(Scope::all(), "", ""),
        predicate(a(), "", ""),
        predicate(Scope::all(), "app=web", ""),
        predicate(a(), "app", ""),
        predicate(Scope::all(), "app notin (web)", ""),
        predicate(Scope::all(), "", "spec.nodeName=n1"),
        predicate(Scope::namespace("a-b"), "", "spec.nodeName=n2"),
        predicate(Scope::all(), "app=db", "spec.nodeName=n1"),
        predicate(Scope::all(), "", "spec.nodeName!=n1"),
        predicate(Scope::all(), "", "metadata.name=n1"),
        predicate(Scope::all(), "", "metadata.name=n1,metadata.namespace=b"),
        predicate(a(), "app=web", "metadata.name=n2"),
        predicate(a(), "", "metadata.namespace=b"),
    ]
}

pub(super) fn select(state: &State, predicate: &Predicate) -> State {
    state
        .iter()
        .filter(|(_, object)| predicate.matches(object))
        .map(|(key, object)| (key.clone(), object.clone()))
        .collect()
}

impl Model {
    pub(super) fn new(rv: u64) -> Self {
        Self {
            rv,
            state: State::new(),
            past: BTreeMap::from([(rv, State::new())]),
            together: HashSet::new(),
            gaps: Vec::new(),
            confirmed: HashSet::new(),
        }
    }

    /// The event that the apiserver would send, if there is one.
    pub(super) fn change(&mut self, change: &Change) -> Option<Sent> {
        let (namespace, name) = (NAMESPACES[change.namespace], format!("n{}", change.name));
        let key = format!("{namespace}/{name}");
        let rv = self.rv + change.gap;
        let new = |uid: &str| object_of(uid, namespace, &name, rv, LABELS[change.labels], NODES[change.node]);
        let event = match (self.state.get(&key), change.delete) {
            (None, true) => return None,
            (Some(old), true) => {
                let raw = old.raw().unwrap();
                let last = Object::new(old.key.clone(), ResourceVersion(rv), old.attributes.clone(), raw);
                self.state.remove(&key);
                Sent::Event(EventType::Deleted, last)
            }
            (old, false) => {
                let kind = if old.is_some() { EventType::Modified } else { EventType::Added };
                let uid = old.map_or_else(|| format!("u{rv}"), |old| old.attributes.uid().to_owned());
                self.state.insert(key, Arc::new(new(&uid)));
                Sent::Event(kind, new(&uid))
            }
        };
        self.rv = rv;
        self.past.insert(rv, self.state.clone());
        Some(event)
    }

    /// The events of objects that expire, all at one revision.
    pub(super) fn expire(&mut self, gap: u64, keys: &[(usize, usize)]) -> Sent {
        let rv = self.rv + gap;
        let key = |(namespace, name): &(usize, usize)| format!("{}/n{name}", NAMESPACES[*namespace]);
        let gone: Vec<_> = keys.iter().filter_map(|at| self.state.remove(&key(at))).collect();
        if !gone.is_empty() {
            self.rv = rv;
            self.past.insert(rv, self.state.clone());
            self.together.insert(rv);
        }
        let at = ResourceVersion(rv);
        let last = |old: Arc<Object>| Object::new(old.key.clone(), at, old.attributes.clone(), old.raw().unwrap());
        Sent::Together(gone.into_iter().map(last).collect())
    }

    pub(super) fn at(&self, rv: u64) -> &State {
        self.past.range(..=rv).next_back().expect("a state of every revision asked for").1
    }

    pub(super) fn known(&self, rv: u64) -> bool {
        self.confirmed.contains(&rv) || !self.gaps.iter().any(|(from, to)| *from < rv && rv < *to)
    }
}
