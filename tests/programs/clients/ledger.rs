//! What happened at the server, event by event, and whether a client saw exactly that.

#![allow(clippy::expect_used, clippy::panic, reason = "a test that reads nonsense is over")]

use std::collections::BTreeMap;

use serde::Deserialize;

pub(crate) use crate::support::history::State;

/// One line of a client; see the README of this directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Line {
    pub t: String,
    pub key: String,
    pub rv: String,
    pub old_rv: String,
    pub initial: bool,
    pub unknown: bool,
    pub items: BTreeMap<String, String>,
    pub message: String,
    pub i: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Added,
    Modified,
    Deleted,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Change {
    pub rv: u64,
    pub key: String,
    pub kind: Kind,
}

/// The server's own account of one resource under one selector.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// What was there before the first change.
    pub initial: State,
    pub changes: Vec<Change>,
}

/// A callback of a client's informer.
#[derive(Clone, Debug)]
struct Callback {
    /// `None` for a client that does not say whether an object is new.
    kind: Option<Kind>,
    key: String,
    rv: u64,
    line: Line,
}

// === impl Ledger ===

impl Ledger {
    /// What is there after the last change.
    pub(crate) fn last(&self) -> State {
        self.after(self.changes.len())
    }

    fn after(&self, changes: usize) -> State {
        let mut state = self.initial.clone();
        for change in &self.changes[..changes] {
            match change.kind {
                Kind::Deleted => state.remove(&change.key),
                Kind::Added | Kind::Modified => state.insert(change.key.clone(), change.rv),
            };
        }
        state
    }

    /// Everything that is wrong with what one informer printed from its start to its `STATE`; nothing if it saw all
    /// that happened, once and in order.
    pub(crate) fn check(&self, lines: &[Line]) -> Vec<String> {
        let mut wrong = Vec::new();
        let callbacks = self.callbacks(lines, &mut wrong);
        self.check_keys(&callbacks, false, &mut wrong);
        self.check_history(&callbacks, &mut wrong);
        wrong
    }

    /// The same for an informer that may have been cut off, and so missed what was between two states: no key went back,
    /// and it ended with what is there.
    pub(crate) fn check_end_of_interrupted(&self, lines: &[Line]) -> Vec<String> {
        let mut wrong = Vec::new();
        let callbacks = self.callbacks(lines, &mut wrong);
        self.check_keys(&callbacks, true, &mut wrong);
        wrong
    }

    /// The callbacks of an informer whose final state is the server's.
    fn callbacks(&self, lines: &[Line], wrong: &mut Vec<String>) -> Vec<Callback> {
        let mut callbacks = Vec::new();
        let mut states = Vec::new();
        for line in lines {
            let kind = match line.t.as_str() {
                "ADDED" => Some(Kind::Added),
                "MODIFIED" => Some(Kind::Modified),
                "DELETED" => Some(Kind::Deleted),
                "APPLIED" => None,
                "SYNCED" => continue,
                "STATE" => {
                    let version = |rv: &String| rv.parse::<u64>().expect("a resourceVersion");
                    states.push(line.items.iter().map(|(key, rv)| (key.clone(), version(rv))).collect::<State>());
                    continue;
                }
                other => {
                    wrong.push(format!("{other}: {} {}", line.key, line.message));
                    continue;
                }
            };
            let Ok(rv) = line.rv.parse() else {
                wrong.push(format!("not a resourceVersion: {line:?}"));
                continue;
            };
            callbacks.push(Callback { kind, key: line.key.clone(), rv, line: line.clone() });
        }
        match states.as_slice() {
            [state] if *state == self.last() => {}
            [state] => {
                wrong.push(format!("ended with other objects than the server: {}", difference(&self.last(), state)));
            }
            states => wrong.push(format!("{} final states", states.len())),
        }
        callbacks
    }

    /// What holds for every key by itself, whatever happened at the server.
    fn check_keys(&self, callbacks: &[Callback], is_interrupted: bool, wrong: &mut Vec<String>) {
        let mut newest = State::new();
        let mut held = State::new();
        for Callback { kind, key, rv, line } in callbacks {
            // A relist shows an unchanged object again, and a deletion it finds out has the last version that was seen.
            let is_back = |before: &u64| before > rv || !is_interrupted && before == rv;
            if let Some(before) = newest.insert(key.clone(), *rv).filter(is_back) {
                wrong.push(format!("the resourceVersion went from {before} to {rv}: {line:?}"));
            }
            let holds = held.get(key).map(u64::to_string);
            match (kind, &holds) {
                _ if is_interrupted => {}
                (Some(Kind::Added), Some(_)) => wrong.push(format!("added what was there: {line:?}")),
                (Some(Kind::Modified | Kind::Deleted), None) => {
                    wrong.push(format!("changed what was not there: {line:?}"));
                }
                _ => {}
            }
            if !is_interrupted && !line.old_rv.is_empty() && Some(&line.old_rv) != holds.as_ref() {
                wrong.push(format!("the object before was {holds:?}: {line:?}"));
            }
            if !is_interrupted && line.unknown {
                wrong.push(format!("the deletion was not seen, only found out: {line:?}"));
            }
            match kind {
                Some(Kind::Deleted) => held.remove(key),
                _ => held.insert(key.clone(), *rv),
            };
        }
        if held != self.last() {
            wrong.push(format!("the events do not lead to the server's objects: {}", difference(&self.last(), &held)));
        }
    }

    /// The initial objects are those of one moment, and from there on every change came once and in order.
    fn check_history(&self, callbacks: &[Callback], wrong: &mut Vec<String>) {
        let marked = callbacks.iter().take_while(|callback| callback.line.initial).count();
        if let Some(late) = callbacks[marked..].iter().find(|callback| callback.line.initial) {
            wrong.push(format!("an initial object came late: {:?}", late.line));
        }
        let fits = |changes: usize, initial: usize| {
            let (initial, live) = callbacks.split_at(initial);
            let objects: State = initial.iter().map(|callback| (callback.key.clone(), callback.rv)).collect();
            let added = initial.iter().all(|callback| callback.kind != Some(Kind::Deleted));
            added
                && objects.len() == initial.len()
                && objects == self.after(changes)
                && live.len() == self.changes.len() - changes
                && live.iter().zip(&self.changes[changes..]).all(|(callback, change)| callback.is(change))
        };
        let found = (0..=self.changes.len()).any(|changes| {
            let live = self.changes.len() - changes;
            callbacks
                .len()
                .checked_sub(live)
                .is_some_and(|initial| (marked == 0 || marked == initial) && fits(changes, initial))
        });
        if !found {
            let seen: Vec<_> = callbacks.iter().map(|callback| (callback.rv, callback.kind, &callback.key)).collect();
            wrong.push(format!("what was seen fits into no part of the history: {seen:?}\n    {:?}", self.changes));
        }
    }
}

// === impl Callback ===

impl Callback {
    fn is(&self, change: &Change) -> bool {
        let kind = match self.kind {
            Some(kind) => kind == change.kind,
            None => change.kind != Kind::Deleted,
        };
        kind && self.rv == change.rv && self.key == change.key
    }
}

/// What the events of one informer lead to.
pub(crate) fn held<'a>(lines: impl IntoIterator<Item = &'a Line>) -> State {
    let mut state = State::new();
    for line in lines {
        match line.t.as_str() {
            "ADDED" | "MODIFIED" | "APPLIED" => {
                state.insert(line.key.clone(), line.rv.parse().unwrap_or_default());
            }
            "DELETED" => {
                state.remove(&line.key);
            }
            _ => {}
        }
    }
    state
}

fn difference(expected: &State, found: &State) -> String {
    let mut out = Vec::new();
    for (key, rv) in expected {
        match found.get(key) {
            Some(other) if other == rv => {}
            Some(other) => out.push(format!("{key} is {rv}, not {other}")),
            None => out.push(format!("{key} of {rv} is missing")),
        }
    }
    out.extend(found.keys().filter(|key| !expected.contains_key(*key)).map(|key| format!("{key} is not there")));
    out.truncate(12);
    out.join(", ")
}

// === corruptions ===

/// Ways to spoil what a client printed, each of which [`Ledger::check`] has to notice. None applies to a log that has
/// nothing to spoil.
pub(crate) fn corruptions(lines: &[Line]) -> Vec<(&'static str, Vec<Line>)> {
    let is_event = |line: &Line| matches!(line.t.as_str(), "ADDED" | "MODIFIED" | "APPLIED" | "DELETED");
    let live: Vec<usize> = (0..lines.len()).filter(|at| is_event(&lines[*at]) && !lines[*at].initial).collect();
    let mut out = Vec::new();
    let mut spoil = |what, change: &dyn Fn(&mut Vec<Line>)| {
        let mut spoiled = lines.to_vec();
        change(&mut spoiled);
        assert_ne!(spoiled, lines, "{what} changed nothing");
        out.push((what, spoiled));
    };
    if let Some(first) = lines.iter().position(is_event) {
        spoil("the first event lost", &|lines| drop(lines.remove(first)));
        spoil("the first event doubled", &|lines| lines.insert(first, lines[first].clone()));
    }
    for part in [1, 2, 3] {
        let Some(&at) = live.get(live.len() * part / 4) else { continue };
        spoil("an event lost", &|lines| drop(lines.remove(at)));
        spoil("an event doubled", &|lines| lines.insert(at, lines[at].clone()));
        spoil("an event again at the end", &|lines| lines.insert(live[live.len() - 1] + 1, lines[at].clone()));
        spoil("another resourceVersion", &|lines| lines[at].rv.push('1'));
        spoil("another key", &|lines| lines[at].key.push('x'));
        spoil("a deletion made of it", &|lines| {
            lines[at].t = if lines[at].t == "DELETED" { "ADDED" } else { "DELETED" }.to_owned();
        });
    }
    // Initial objects may come in any order, and a client that does not mark them may have one for every leading event.
    let marks = lines.iter().any(|line| line.initial);
    let unordered = if marks { 0 } else { live.iter().take_while(|at| lines[**at].t == "ADDED").count() };
    for pair in live[unordered..].windows(2).step_by(7) {
        spoil("two events swapped", &|lines| lines.swap(pair[0], pair[1]));
    }
    let recreated = live.windows(2).find(|pair| {
        lines[pair[0]].key == lines[pair[1]].key && lines[pair[0]].t == "DELETED" && lines[pair[1]].t != "DELETED"
    });
    if let Some(pair) = recreated {
        spoil("deleted after it was created again", &|lines| lines.swap(pair[0], pair[1]));
        spoil("a recreation merged", &|lines| drop(lines.remove(pair[0])));
    }
    if let Some(at) = lines.iter().position(|line| line.t == "STATE" && !line.items.is_empty()) {
        spoil("an object missing in the end", &|lines| drop(lines[at].items.pop_first()));
        spoil("an old object in the end", &|lines| {
            lines[at].items.first_entry().expect("not empty").insert("1".to_owned());
        });
        spoil("an object too many in the end", &|lines| {
            lines[at].items.insert("a/b".to_owned(), "1".to_owned());
        });
    }
    out
}
