//! What clients saw, held against what the log of the resource says. There is one checker for reads, for the states that
//! watches have at their bookmarks, and for events and writes, each of which shows one object.
//!
//! What was seen must be so in the log at one revision: the one that it names, or for one object some revision. This is not
//! older than any write that had been acknowledged before the read began, and not older than what clients had been shown
//! before the read began.

use std::collections::BTreeMap;

use serde_json::Value;

use super::client::{key, rv};

/// Keys and revisions of what was read.
pub(crate) type State = BTreeMap<String, u64>;

/// Those of a list's items.
pub(crate) fn state(list: &Value) -> State {
    list["items"].as_array().unwrap().iter().map(|item| (key(item), rv(item))).collect()
}

/// An event of the log: the object's state after it, or none after a deletion.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub rv: u64,
    pub key: String,
    pub group: String,
    pub deleted: bool,
}

/// The events of one collection, from the beginning.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    pub events: Vec<Logged>,
    /// The places of each key's events.
    by_key: BTreeMap<String, Vec<usize>>,
}

/// The part of a collection that a read selects: a namespace, and the value of the label `group`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selected {
    pub namespace: Option<String>,
    pub group: Option<String>,
}

/// What a read says it is of.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// A state of the whole selection: the first `limit` of it if there is one.
    Collection { rv: u64, state: State, of: Selected, limit: Option<usize> },
    /// The same of a merged watch over gRPC: what has changed while it waited is as it was then.
    Merged { rv: u64, state: State, of: Selected },
    /// One object, or that there is none.
    Object { key: String, rv: Option<u64> },
}

/// One read.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub what: String,
    /// Places in the order of all beginnings and ends. What began at 0 may be as old as it likes, as the state of a watch.
    pub began: u64,
    pub ended: u64,
    /// How many writes of each key were acknowledged when it began.
    pub acknowledged: BTreeMap<String, usize>,
    /// The oldest revision that it may be of, and the newest.
    pub from: u64,
    pub until: u64,
    pub seen: Seen,
}

impl Selected {
    pub(crate) fn selects(&self, key: &str, group: &str) -> bool {
        let inside = |namespace: &String| key.split_once('/').is_some_and(|(of, _)| of == namespace);
        self.namespace.as_ref().is_none_or(inside) && self.group.as_ref().is_none_or(|of| of == group)
    }
}

impl Log {
    pub(crate) fn push(&mut self, event: Logged) {
        self.by_key.entry(event.key.clone()).or_default().push(self.events.len());
        self.events.push(event);
    }

    /// The store was set back to this revision.
    pub(crate) fn rewind(&mut self, rv: u64) {
        let events = std::mem::take(self).events;
        events.into_iter().filter(|event| event.rv <= rv).for_each(|event| self.push(event));
    }

    pub(crate) fn push_event(&mut self, event: &Value) {
        let object = &event["object"];
        self.push(Logged {
            rv: rv(object),
            key: key(object),
            group: object["metadata"]["labels"]["group"].as_str().unwrap_or_default().to_owned(),
            deleted: event["type"] == "DELETED",
        });
    }

    /// The event that made a key what it is at a revision.
    fn last(&self, places: &[usize], at: u64) -> Option<&Logged> {
        let count = places.partition_point(|&place| self.events[place].rv <= at);
        let event = &self.events[places[count.checked_sub(1)?]];
        (!event.deleted).then_some(event)
    }

    /// The state at a revision.
    pub(crate) fn state(&self, at: u64, of: &Selected) -> State {
        let there = self.by_key.values().filter_map(|places| self.last(places, at));
        there.filter(|event| of.selects(&event.key, &event.group)).map(|event| (event.key.clone(), event.rv)).collect()
    }

    /// The states of a key from one revision to another, each with the first revision of it.
    fn states(&self, key: &str, from: u64, until: u64) -> Vec<(u64, Option<u64>)> {
        let places = self.by_key.get(key).map_or(&[][..], Vec::as_slice);
        let mut states = vec![(from, self.last(places, from).map(|event| event.rv))];
        let later =
            places.iter().map(|&place| &self.events[place]).filter(|event| event.rv > from && event.rv <= until);
        states.extend(later.map(|event| (event.rv, (!event.deleted).then_some(event.rv))));
        states
    }

    /// The revision of the newest of the first so many writes of each key.
    fn newest(&self, writes: &BTreeMap<String, usize>) -> u64 {
        let place = |(key, count): (&String, &usize)| self.by_key.get(key)?.get(count.checked_sub(1)?).copied();
        writes.iter().filter_map(place).map(|place| self.events[place].rv).max().unwrap_or(0)
    }

    /// Everything that is wrong with these reads.
    pub(crate) fn check(&self, reads: &[Read]) -> Vec<String> {
        let mut wrong = Vec::new();
        let (mut by_begin, mut by_end): (Vec<usize>, Vec<usize>) =
            ((0..reads.len()).collect(), (0..reads.len()).collect());
        by_begin.sort_by_key(|&n| reads[n].began);
        by_end.sort_by_key(|&n| reads[n].ended);
        // The earliest revision that each read can be of; and the newest of those that had ended.
        let (mut shown, mut newest) = (vec![0; reads.len()], (0, None));
        let mut ended = by_end.into_iter().peekable();
        for n in by_begin {
            while let Some(before) = ended.next_if(|&before| reads[before].ended < reads[n].began) {
                newest = newest.max((shown[before], Some(before)));
            }
            match self.place(&reads[n], newest.0) {
                Ok(rv) => shown[n] = rv,
                Err(why) => {
                    let before = newest.1.map(|before: usize| &reads[before]);
                    wrong.push(format!("{}: {why}\n  {:?}\n  after {before:?}", reads[n].what, reads[n]));
                }
            }
        }
        wrong
    }

    /// What a read has shown, after one of `newest` has ended: the earliest revision of which it can be, as far as clients know.
    /// That it asked for the newest state says nothing of other objects than the one that it got.
    fn place(&self, read: &Read, newest: u64) -> Result<u64, String> {
        let known = self.newest(&read.acknowledged);
        let (from, known) = (read.from.max(known), known.max(newest));
        match &read.seen {
            Seen::Collection { rv, .. } | Seen::Merged { rv, .. } if *rv < from => {
                Err(format!("of {rv}, though a write at {from} was acknowledged before"))
            }
            Seen::Collection { rv, .. } | Seen::Merged { rv, .. } if *rv < newest => {
                Err(format!("of {rv}, after one of {newest} had ended"))
            }
            Seen::Collection { rv, .. } | Seen::Merged { rv, .. } if *rv > read.until => {
                Err(format!("of {rv}, when {} was the newest", read.until))
            }
            Seen::Collection { rv, state, of, limit } => {
                let expected = self.state(*rv, of).into_iter().take(limit.unwrap_or(usize::MAX)).collect();
                if *state == expected { Ok(*rv) } else { Err(format!("not the state at {rv}, which is {expected:?}")) }
            }
            Seen::Merged { rv, state, of } => {
                let expected = self.state(*rv, of);
                let is_one = |(key, at): (&String, &u64)| {
                    self.states(key, *rv, read.until).iter().any(|(_, state)| *state == Some(*at))
                };
                let is_it = state.keys().eq(expected.keys()) && state.iter().all(is_one);
                if is_it { Ok(*rv) } else { Err(format!("not of {rv} or later, when it was {expected:?}")) }
            }
            Seen::Object { key, rv } => {
                let states = self.states(key, from.max(newest), read.until);
                if !states.iter().any(|(_, state)| state == rv) {
                    return Err(format!("the states since {from} and {newest} are {states:?}"));
                }
                let shown = self.states(key, known, read.until).into_iter().find(|(_, state)| state == rv);
                Ok(shown.map_or(known, |(first, _)| first))
            }
        }
    }
}
