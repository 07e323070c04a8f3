//! What a consumer has not taken yet, with the changes of one key merged: the latest state, and never a deletion or a
//! new object of the same name left out.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use crate::meta::{EventType, ResourceVersion};

/// Pending changes by key. `K` names an object, `V` is its state.
#[derive(Debug)]
pub(super) struct Conflator<K, V> {
    runs: BTreeMap<Place, Run<K, V>>,
    /// The last run of each key that has any.
    last: HashMap<K, Place>,
    sequence: u64,
    bytes: usize,
    /// Everything up to here was pushed.
    seen: ResourceVersion,
    /// Changes that were merged into another.
    merged: u64,
}

/// Where a run stands: by the first change in it. Objects of the snapshot stand before all changes.
type Place = (ResourceVersion, u64);

#[derive(Debug)]
struct Run<K, V> {
    key: K,
    kind: EventType,
    value: V,
    /// The revision of the last change that went into it.
    rv: ResourceVersion,
    size: usize,
}

/// One change on its way to the consumer.
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
            seen: ResourceVersion::ZERO,
            merged: 0,
        }
    }

    /// Runs that wait.
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Bytes of what waits, as its pusher counted them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes that the consumer will not see since later ones took their place.
    pub(super) fn merged(&self) -> u64 {
        self.merged
    }

    /// An object of the snapshot.
    pub(super) fn state(&mut self, key: K, change: Change<V>, size: usize) {
        self.put(ResourceVersion::ZERO, key, change, size);
    }

    /// A change after everything before; its revision is not lower.
    pub(super) fn push(&mut self, key: K, change: Change<V>, size: usize) {
        self.seen = self.seen.max(change.rv);
        let last = self.last.get(&key).and_then(|place| self.runs.get_mut(place));
        let merges = last.filter(|run| match change.kind {
            // The object was there before, and is not what it was.
            EventType::Modified => run.kind != EventType::Deleted,
            // The consumer holds it, and needs no state in between.
            EventType::Deleted => run.kind == EventType::Modified,
            EventType::Added => false,
        });
        let Some(run) = merges else {
            let first = change.rv;
            return self.put(first, key, change, size);
        };
        if change.kind == EventType::Deleted {
            run.kind = EventType::Deleted;
        }
        self.bytes = self.bytes + size - run.size;
        (run.value, run.rv, run.size) = (change.value, change.rv, size);
        self.merged += 1;
    }

    /// There was nothing more up to this revision.
    pub(super) fn reached(&mut self, rv: ResourceVersion) {
        self.seen = self.seen.max(rv);
    }

    /// The change that has waited longest.
    pub(super) fn pop(&mut self) -> Option<Change<V>> {
        let (place, run) = self.runs.pop_first()?;
        self.bytes -= run.size;
        if self.last.get(&run.key) == Some(&place) {
            self.last.remove(&run.key);
        }
        Some(Change { kind: run.kind, value: run.value, rv: run.rv })
    }

    /// Up to where nothing waits.
    pub(super) fn complete(&self) -> ResourceVersion {
        match self.runs.first_key_value() {
            Some(((first, _), _)) => ResourceVersion(first.get().saturating_sub(1)),
            None => self.seen,
        }
    }

    fn put(&mut self, first: ResourceVersion, key: K, change: Change<V>, size: usize) {
        let place = (first, self.sequence);
        self.sequence += 1;
        self.bytes += size;
        self.last.insert(key.clone(), place);
        let Change { kind, value, rv } = change;
        self.runs.insert(place, Run { key, kind, value, rv, size });
    }
}

#[cfg(test)]
#[path = "conflate_tests.rs"]
mod tests;
