//! When rights last changed, and how often since then it was time to ask again: what was decided under another stamp is not
//! taken for an answer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

/// Namespaces kept apart; beyond, all decisions are forgotten at once and counting starts anew.
const MAX_NAMESPACES: usize = 16_384;

/// The state of rights that a decision was made by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Moves with every change.
    pub change: u64,
    /// Moves when the change may have come to more authorizers than before.
    pub settle: u64,
}

/// Counts changes of rights, of all and of single namespaces. A right in a namespace depends on the roles in it and on
/// the cluster's, a right at the cluster scope on the cluster's alone.
#[derive(Debug)]
pub struct Stamps {
    marks: Mutex<Marks>,
    changes: watch::Sender<()>,
    watched: AtomicBool,
}

#[derive(Debug, Default)]
struct Marks {
    latest: u64,
    cluster: Stamp,
    namespaces: HashMap<Box<str>, Stamp>,
}

// === impl Stamps ===

impl Stamps {
    pub fn new() -> Self {
        Self { marks: Mutex::default(), changes: watch::Sender::new(()), watched: AtomicBool::new(false) }
    }

    /// The stamp of decisions that are made now.
    pub fn of(&self, namespace: &str) -> Stamp {
        let marks = self.marks.lock();
        let own = if namespace.is_empty() { None } else { marks.namespaces.get(namespace) };
        let Some(own) = own else { return marks.cluster };
        // The settling of both counts for a namespace, whichever of them has changed last.
        Stamp { change: own.change.max(marks.cluster.change), settle: own.settle + marks.cluster.settle }
    }

    /// Rights in one namespace have changed; with an empty one, rights anywhere.
    pub fn change(&self, namespace: &str) {
        let mut marks = self.marks.lock();
        marks.latest += 1;
        let stamp = Stamp { change: marks.latest, settle: 0 };
        if marks.is_of_all(namespace) {
            marks.cluster = stamp;
            // All of them are older than that.
            marks.namespaces.clear();
        } else {
            marks.namespaces.insert(namespace.into(), stamp);
        }
        drop(marks);
        self.nudge();
    }

    /// What was decided since the last change in a namespace, or anywhere, is to be asked for again.
    pub fn settle(&self, namespace: &str) {
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

    /// Wakes whoever waits for changes, though no right has changed.
    pub fn nudge(&self) {
        self.changes.send_modify(|_| ());
    }

    /// Whether changes are told as they happen.
    pub fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    pub fn set_watched(&self, watched: bool) {
        self.watched.store(watched, Ordering::Relaxed);
    }

    /// Moves whenever something is to be asked for again.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }
}

// === impl Marks ===

impl Marks {
    /// Whether what happens in a namespace is counted for all of them.
    fn is_of_all(&self, namespace: &str) -> bool {
        namespace.is_empty() || self.namespaces.len() >= MAX_NAMESPACES && !self.namespaces.contains_key(namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_its_own_changes_and_the_clusters() {
        let stamps = Stamps::new();
        let mut changes = stamps.changes();
        let now = || (stamps.of("a").change, stamps.of("b").change, stamps.of("").change);
        let (a, b, all) = now();
        stamps.change("a");
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        assert!(now().0 > a && (now().1, now().2) == (b, all));
        let a = now().0;
        stamps.change("");
        assert!(now().0 > a && now().1 > b && now().2 > all);
        assert!(changes.has_changed().unwrap());
    }

    #[test]
    fn no_stamp_comes_twice() {
        let stamps = Stamps::new();
        let mut seen = std::collections::HashSet::from([stamps.of("a")]);
        for (change, namespace) in
            [(true, "a"), (false, "a"), (false, ""), (true, ""), (false, "a"), (false, ""), (true, "a"), (false, "")]
        {
            let before = (stamps.of("a"), stamps.of("b"));
            if change {
                stamps.change(namespace);
            } else {
                stamps.settle(namespace);
            }
            assert!(seen.insert(stamps.of("a")), "{change} {namespace}: {seen:?}");
            assert_eq!(stamps.of("a").change != before.0.change, change, "settling changes no rights");
            assert_eq!(stamps.of("b") != before.1, namespace.is_empty(), "another namespace");
        }
    }

    #[test]
    fn namespaces_are_bounded_and_forgetting_them_forgets_decisions() {
        let stamps = Stamps::new();
        for n in 0..=MAX_NAMESPACES {
            stamps.change(&format!("n{n}"));
        }
        assert!(stamps.marks.lock().namespaces.is_empty());
        assert_eq!(stamps.of("n0"), stamps.of(""));
        assert_eq!(stamps.of("never").change, stamps.marks.lock().latest);
    }
}
