//! The changes that a consumer has not taken yet. Changes of the same key are merged into the latest state. A
//! deletion is never dropped, and neither is a new object of the same name.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use crate::meta::{EventType, ResourceVersion};

/// Pending changes by key. `K` identifies an object, `V` is its state.
#[derive(Debug)]
pub(super) struct Conflator<K, V> {
    runs: BTreeMap<Place, Run<K, V>>,
    /// The last run of each key that has a run.
    last: HashMap<K, Place>,
    sequence: u64,
    bytes: usize,
    /// The part of `bytes` that is no object's present state: nobody else may hold it.
    gone: usize,
    /// All changes up to this revision were pushed. Others of the revision that was pushed last may follow.
    seen: ResourceVersion,
    /// The number of changes that were merged into another change.
    merged: u64,
}

/// The position of a run, which is that of its first change. Objects of the snapshot come before all changes.
pub(in crate::grpc) type Place = (ResourceVersion, u64);

#[derive(Debug)]
struct Run<K, V> {
    key: K,
    kind: EventType,
    value: V,
    /// The revision up to which all changes were pushed before its first one.
    before: ResourceVersion,
    /// The revision of the last change that was merged into it.
    rv: ResourceVersion,
    size: usize,
    /// Its state is not the object's present one: it was deleted.
    is_gone: bool,
}

/// The memory of a run in both maps, beside its state.
const RUN: usize = 256;

/// One change for the consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change<V> {
    pub(super) kind: EventType,
    pub(super) value: V,
    pub(super) rv: ResourceVersion,
}

// === impl Conflator ===

impl<K: Clone + Eq + Hash, V> Conflator<K, V> {
    pub(super) fn new() -> Self {
        Self {
            runs: BTreeMap::new(),
            last: HashMap::new(),
            sequence: 0,
            bytes: 0,
            gone: 0,
            seen: ResourceVersion::ZERO,
            merged: 0,
        }
    }

    /// The number of pending runs.
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// The size of the pending changes in bytes, as counted by the caller that pushed them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The memory that these changes need by themselves, however many others hold the present objects.
    pub(super) fn own(&self) -> usize {
        self.gone + self.runs.len() * RUN
    }

    /// The number of changes that the consumer will not see because later ones replaced them.
    pub(super) fn merged(&self) -> u64 {
        self.merged
    }

    /// Adds an object of the snapshot.
    pub(super) fn state(&mut self, key: K, change: Change<V>, size: usize) {
        self.put(ResourceVersion::ZERO, key, change, size);
    }

    /// Adds a change. Its revision must not be lower than the revisions of earlier changes, and only deletions may share
    /// one. [`Self::reached`] tells when there are no more.
    pub(super) fn push(&mut self, key: K, change: Change<V>, size: usize) {
        let last = self.last.get(&key).and_then(|place| self.runs.get_mut(place));
        let merges = last.filter(|run| match change.kind {
            // The object existed before. Only its state changed.
            EventType::Modified => run.kind != EventType::Deleted,
            // The consumer already has the object and does not need the state in between.
            EventType::Deleted => run.kind == EventType::Modified,
            EventType::Added => false,
        });
        let Some(run) = merges else {
            let first = change.rv;
            return self.put(first, key, change, size);
        };
        if change.kind == EventType::Deleted {
            run.kind = EventType::Deleted;
            run.is_gone = true;
            self.gone += size;
        }
        self.bytes = self.bytes + size - run.size;
        (run.value, run.rv, run.size) = (change.value, change.rv, size);
        self.merged += 1;
    }

    /// Records that there are no more changes up to this revision.
    pub(super) fn reached(&mut self, rv: ResourceVersion) {
        self.seen = self.seen.max(rv);
    }

    /// Takes the change that was pending the longest.
    pub(super) fn pop(&mut self) -> Option<Change<V>> {
        let (place, run) = self.runs.pop_first()?;
        self.bytes -= run.size;
        self.gone -= if run.is_gone { run.size } else { 0 };
        if self.last.get(&run.key) == Some(&place) {
            self.last.remove(&run.key);
        }
        Some(Change { kind: run.kind, value: run.value, rv: run.rv })
    }

    /// The revision up to which no change is pending.
    pub(super) fn complete(&self) -> ResourceVersion {
        match self.runs.first_key_value() {
            Some((_, run)) => run.before,
            None => self.seen,
        }
    }

    fn put(&mut self, first: ResourceVersion, key: K, change: Change<V>, size: usize) {
        let place = (first, self.sequence);
        self.sequence += 1;
        self.bytes += size;
        let before = self.last.insert(key.clone(), place);
        // The state before it stays until the consumer takes it, but is no longer that of the object.
        if let Some(run) = before.and_then(|before| self.runs.get_mut(&before)).filter(|run| !run.is_gone) {
            run.is_gone = true;
            self.gone += run.size;
        }
        let Change { kind, value, rv } = change;
        let is_gone = kind == EventType::Deleted;
        self.gone += if is_gone { size } else { 0 };
        self.runs.insert(place, Run { key, kind, value, before: self.seen, rv, size, is_gone });
    }
}

#[cfg(test)]
#[path = "conflate_tests.rs"]
mod tests;
