//! A simple model of an apiserver: its states by revision, and what it sends. For the tests of this module.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::testing::*;
use super::*;
use crate::meta::{EventType, Object, Scope};
use crate::selector::{Clause, CompiledFields, LabelSelector, Predicate, ValueSet};

/// The objects at one moment.
pub(super) type State = BTreeMap<String, Arc<Object>>;

const NAMESPACES: [&str; 3] = ["a", "a-b", "b"];
const LABELS: [&[(&str, &str)]; 3] = [&[], &[("app", "db")], &[("app", "web")]];
const NODES: [&str; 3] = ["", "n1", "n2"];

#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) gap: u64,
    pub(super) namespace: usize,
    pub(super) name: usize,
    pub(super) labels: usize,
    pub(super) node: usize,
    pub(super) delete: bool,
}

/// What the apiserver sends to the cache.
#[derive(Clone)]
pub(super) enum Sent {
    Event(EventType, Arc<Object>),
    Together(Vec<Arc<Object>>),
    Progress,
}

/// The state of the apiserver, and its history: from its first revision, or since its objects were all rewritten.
#[derive(Clone)]
pub(super) struct Model {
    pub(super) first: u64,
    pub(super) rv: u64,
    pub(super) state: State,
    /// The state from each revision on.
    past: BTreeMap<u64, State>,
    /// What it has sent, by revision.
    pub(super) log: Vec<(u64, Sent)>,
    /// Deleted objects as they were sent, by revision and key.
    pub(super) deleted: HashMap<(u64, String), Arc<Object>>,
    /// Revisions at which several objects were deleted.
    pub(super) together: HashSet<u64>,
    /// The members that its objects are written with.
    style: String,
    /// It goes on with the history before it.
    pub(super) goes_on: bool,
}

/// What a watch that lives through a relist is told of the revisions in between: each object as it was listed, from its
/// own revision on.
pub(super) struct Gap {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) old: State,
    pub(super) list: State,
}

pub(super) fn predicates() -> Vec<Predicate> {
    let a = || Scope::namespace("a");
    let names = |names: &[&str]| ValueSet::names(names.iter().map(|name| (*name).to_owned()));
    let clause = |scope, labels: &str, sets| {
        Clause::new(scope, LabelSelector::parse(labels).unwrap(), CompiledFields::default(), sets)
    };
    vec![
        Predicate::union(vec![clause(a(), "app=web", vec![]), clause(Scope::all(), "app=db", vec![names(&["n1"])])]),
        Predicate::union(vec![clause(a(), "app", vec![]), clause(a(), "", vec![names(&["n1", "n2"])])]),
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
    let selected = state.iter().filter(|(_, object)| predicate.matches(object));
    selected.map(|(key, object)| (key.clone(), object.clone())).collect()
}

/// An object with its own bytes: the cache may pack those that it was given.
pub(super) fn copy(object: &Object) -> Object {
    Object::new(object.key.clone(), object.rv, object.attributes.clone(), object.raw().unwrap())
}

pub(super) fn text(object: &Object) -> String {
    String::from_utf8(object.raw().unwrap().framed().to_vec()).unwrap()
}

/// Whether both are the same object to the last byte.
pub(super) fn is_same(a: Option<&Arc<Object>>, b: Option<&Arc<Object>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => {
            Arc::ptr_eq(a, b)
                || (&a.key, a.rv) == (&b.key, b.rv)
                    && a.attributes == b.attributes
                    && a.raw().unwrap().framed() == b.raw().unwrap().framed()
        }
        (a, b) => a.is_none() && b.is_none(),
    }
}

pub(super) fn assert_same<'a>(held: impl IntoIterator<Item = &'a Arc<Object>>, wanted: &State, what: &str) {
    let held: Vec<_> = held.into_iter().collect();
    let same = held.len() == wanted.len() && held.iter().zip(wanted.values()).all(|(a, b)| is_same(Some(a), Some(b)));
    if !same {
        let texts = |objects: Vec<&Arc<Object>>| objects.into_iter().map(|object| text(object)).collect::<Vec<_>>();
        assert_eq!(texts(held), texts(wanted.values().collect()), "{what}");
        panic!("other attributes: {what}");
    }
}

// === impl Model ===

impl Model {
    pub(super) fn new(rv: u64) -> Self {
        Self::of(rv, State::new(), ",\"spec\":0".to_owned())
    }

    fn of(rv: u64, state: State, style: String) -> Self {
        let past = BTreeMap::from([(rv, state.clone())]);
        let (log, deleted, together) = Default::default();
        Self { first: rv, rv, state, past, log, deleted, together, style, goes_on: false }
    }

    /// The store as it was at an earlier revision: what follows is another history.
    pub(super) fn rewound(&self, rv: u64) -> Self {
        let mut model = self.clone();
        model.past.retain(|at, _| *at <= rv);
        model.log.retain(|(at, _)| *at <= rv);
        model.together.retain(|at| *at <= rv);
        (model.rv, model.state) = (rv, self.at(rv).clone());
        (model.style, model.goes_on) = (format!("{}1", self.style), false);
        model
    }

    /// The apiserver writes all objects otherwise from now on, at the revisions that they have.
    pub(super) fn rewritten(&self) -> Self {
        let style = format!("{}2", self.style);
        let written = self.state.iter().map(|(key, object)| (key.clone(), again(&style, object, object.rv.0)));
        Self { goes_on: true, ..Self::of(self.rv, written.collect(), style.clone()) }
    }

    fn step(&mut self, rv: u64, sent: Sent) {
        self.rv = rv;
        self.past.insert(rv, self.state.clone());
        self.log.push((rv, sent));
    }

    /// A change of one object, unless there is nothing to delete.
    pub(super) fn change(&mut self, change: &Change) {
        let (namespace, name) = (NAMESPACES[change.namespace], format!("n{}", change.name));
        let key = format!("{namespace}/{name}");
        let rv = self.rv + change.gap;
        if change.delete {
            return self.delete(rv, &[key]);
        }
        let uid = self.state.get(&key).map(|old| old.attributes.uid().to_owned());
        let kind = if uid.is_some() { EventType::Modified } else { EventType::Added };
        let uid = uid.unwrap_or_else(|| format!("u{rv}"));
        let object = Arc::new(made(&self.style, &uid, namespace, &name, rv, LABELS[change.labels], change.node));
        self.state.insert(key, object.clone());
        self.step(rv, Sent::Event(kind, object));
    }

    /// Objects that expire, all at one revision.
    pub(super) fn expire(&mut self, gap: u64, keys: &[(usize, usize)]) {
        let keys: Vec<_> = keys.iter().map(|(namespace, name)| format!("{}/n{name}", NAMESPACES[*namespace])).collect();
        self.delete(self.rv + gap, &keys);
    }

    fn delete(&mut self, rv: u64, keys: &[String]) {
        let gone: Vec<_> = keys.iter().filter_map(|key| self.state.remove(key)).collect();
        let style = format!("{},\"gone\":1", self.style);
        let last: Vec<_> = gone.iter().map(|old| again(&style, old, rv)).collect();
        self.deleted.extend(last.iter().map(|last| ((rv, last.key.as_str().to_owned()), last.clone())));
        match &last[..] {
            [] => {}
            [one] => self.step(rv, Sent::Event(EventType::Deleted, one.clone())),
            _ => {
                self.together.insert(rv);
                self.step(rv, Sent::Together(last));
            }
        }
    }

    pub(super) fn progress(&mut self, gap: u64) {
        self.step(self.rv + gap, Sent::Progress);
    }

    pub(super) fn at(&self, rv: u64) -> &State {
        assert!(rv <= self.rv, "there is no state at {rv} yet");
        self.past.range(..=rv).next_back().expect("a state of every revision asked for").1
    }

    /// Whether an object was another one at any revision after `from`, up to `to`.
    pub(super) fn has_changed(&self, key: &str, from: u64, to: u64) -> bool {
        let was = self.at(from).get(key);
        from < to && self.past.range(from + 1..=to).any(|(_, state)| !is_same(state.get(key), was))
    }
}

fn made(style: &str, uid: &str, namespace: &str, name: &str, rv: u64, labels: &[(&str, &str)], node: usize) -> Object {
    let members = format!("{style},\"uid\":\"{uid}\",\"labels\":{labels:?},\"node\":{node}");
    object_with(&members, uid, namespace, name, rv, labels, NODES[node])
}

/// The same object in another style, at this revision.
fn again(style: &str, old: &Object, rv: u64) -> Arc<Object> {
    let labels: Vec<_> = old.attributes.labels().collect();
    let node = NODES.iter().position(|node| *node == old.attributes.field(0)).unwrap();
    Arc::new(made(style, old.attributes.uid(), old.key.namespace(), old.key.name(), rv, &labels, node))
}

// === impl Gap ===

impl Gap {
    /// The state that a watch has after the events up to `rv`.
    pub(super) fn at(&self, rv: u64) -> Option<State> {
        let listed = self.list.iter().filter(|(_, object)| object.rv.0 <= rv);
        let state = || self.old.iter().chain(listed).map(|(key, object)| (key.clone(), object.clone())).collect();
        self.contains(rv).then(state)
    }

    pub(super) fn contains(&self, rv: u64) -> bool {
        self.from < rv && rv < self.to
    }
}
