//! The generation of the rights: when they last changed, and how often since then it was time to ask again. A decision
//! of another generation is not used.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

/// The most namespaces with their own generation. Beyond that, all decisions are dropped and counting starts again.
const MAX_NAMESPACES: usize = 16_384;

/// The state of the rights that a decision was made with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Generation {
    /// Changes with every change of rights.
    pub change: u64,
    /// Changes when the last change may have reached more authorizers than before.
    pub settle: u64,
}

/// Counts changes of rights, for the cluster and for single namespaces. A right in a namespace depends on the roles in
/// it and on the cluster's roles. A right at cluster scope depends on the cluster's roles only.
#[derive(Debug, Default)]
pub(super) struct RbacGenerations {
    marks: Mutex<Marks>,
    changes: watch::Sender<()>,
    watched: AtomicBool,
}

#[derive(Debug, Default)]
struct Marks {
    latest: u64,
    cluster: Generation,
    namespaces: HashMap<Box<str>, Generation>,
}

// === impl RbacGenerations ===

impl RbacGenerations {
    /// The generation for decisions that are made now.
    pub(super) fn of(&self, namespace: &str) -> Generation {
        let marks = self.marks.lock();
        let own = if namespace.is_empty() { None } else { marks.namespaces.get(namespace) };
        let Some(own) = own else { return marks.cluster };
        // A namespace counts the settling of both, whichever of them changed last.
        Generation { change: own.change.max(marks.cluster.change), settle: own.settle + marks.cluster.settle }
    }

    /// Records a change of rights in one namespace, or anywhere if `namespace` is empty.
    pub(super) fn change(&self, namespace: &str) {
        let mut marks = self.marks.lock();
        marks.latest += 1;
        let generation = Generation { change: marks.latest, settle: 0 };
        if marks.is_of_all(namespace) {
            marks.cluster = generation;
            // All of them are older than this change.
            marks.namespaces.clear();
        } else {
            marks.namespaces.insert(namespace.into(), generation);
        }
        drop(marks);
        self.nudge();
    }

    /// Records that all decisions since the last change in a namespace, or anywhere, must be made again.
    pub(super) fn settle(&self, namespace: &str) {
        let mut marks = self.marks.lock();
        let mark = if marks.is_of_all(namespace) {
            &mut marks.cluster
        } else {
            marks.namespaces.entry(namespace.into()).or_default()
        };
        mark.settle += 1;
        drop(marks);
        self.nudge();
    }

    /// Wakes everything that waits for changes, although no right has changed.
    pub(super) fn nudge(&self) {
        self.changes.send_modify(|_| ());
    }

    /// Whether changes are seen as they happen.
    pub(super) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    pub(super) fn set_watched(&self, watched: bool) {
        self.watched.store(watched, Ordering::Relaxed);
    }

    /// Notifies whenever something must be checked again.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }
}

// === impl Marks ===

impl Marks {
    /// Whether a change in this namespace counts for all namespaces.
    fn is_of_all(&self, namespace: &str) -> bool {
        namespace.is_empty() || self.namespaces.len() >= MAX_NAMESPACES && !self.namespaces.contains_key(namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_counts_where_it_holds_and_no_stamp_comes_twice() {
        let generations = RbacGenerations::default();
        let mut changes = generations.changes();
        let mut seen = std::collections::HashSet::from([generations.of("a")]);
        for (is_change, namespace) in
            [(true, "a"), (false, "a"), (false, ""), (true, ""), (false, "a"), (false, ""), (true, "a"), (false, "")]
        {
            let places = ["a", "b", ""];
            let before = places.map(|place| generations.of(place));
            changes.mark_unchanged();
            if is_change {
                generations.change(namespace);
            } else {
                generations.settle(namespace);
            }
            assert!(changes.has_changed().unwrap(), "it is time to ask again");
            let now = places.map(|place| generations.of(place));
            assert!(seen.insert(now[0]), "{is_change} {namespace}: {seen:?}");
            for ((place, before), now) in places.into_iter().zip(before).zip(now) {
                let concerned = namespace.is_empty() || namespace == place;
                assert_eq!(now != before, concerned, "{is_change} {namespace}: {place}");
                let is_newer = [now.change > before.change, now.change == before.change];
                let changes = concerned && is_change;
                assert_eq!(is_newer, [changes, !changes], "{namespace}: {place}: settling changes no rights");
            }
        }
    }

    #[test]
    fn namespaces_are_bounded_and_forgetting_them_forgets_decisions() {
        let generations = RbacGenerations::default();
        for n in 0..=MAX_NAMESPACES {
            generations.change(&format!("n{n}"));
        }
        assert!(generations.marks.lock().namespaces.is_empty());
        assert_eq!(generations.of("n0"), generations.of(""));
        assert_eq!(generations.of("never").change, generations.marks.lock().latest);
    }
}
