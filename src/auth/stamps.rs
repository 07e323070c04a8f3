//! When rights last changed: decisions made under an older stamp are not looked at again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

/// Namespaces kept apart; beyond, all decisions are forgotten at once and counting starts anew.
const MAX_NAMESPACES: usize = 16_384;

/// Counts changes of rights, of all and of single namespaces. A right in a namespace depends on the roles in it and on
/// the cluster's, a right at the cluster scope on the cluster's alone.
#[derive(Debug)]
pub struct Stamps {
    marks: Mutex<Marks>,
    changes: watch::Sender<u64>,
    watched: AtomicBool,
}

#[derive(Debug, Default)]
struct Marks {
    latest: u64,
    cluster: u64,
    namespaces: HashMap<Box<str>, u64>,
}

// === impl Stamps ===

impl Stamps {
    pub fn new() -> Self {
        Self { marks: Mutex::default(), changes: watch::Sender::new(0), watched: AtomicBool::new(false) }
    }

    /// The stamp of decisions that are made now.
    pub fn of(&self, namespace: &str) -> u64 {
        let marks = self.marks.lock();
        let own = if namespace.is_empty() { None } else { marks.namespaces.get(namespace) };
        own.copied().unwrap_or(0).max(marks.cluster)
    }

    /// Rights in one namespace have changed; with an empty one, rights anywhere.
    pub fn change(&self, namespace: &str) {
        let mut marks = self.marks.lock();
        marks.latest += 1;
        let latest = marks.latest;
        if namespace.is_empty()
            || (marks.namespaces.len() >= MAX_NAMESPACES && !marks.namespaces.contains_key(namespace))
        {
            marks.cluster = latest;
            // All of them are older than that.
            marks.namespaces.clear();
        } else {
            marks.namespaces.insert(namespace.into(), latest);
        }
        drop(marks);
        self.changes.send_replace(latest);
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

    /// Moves with every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_its_own_changes_and_the_clusters() {
        let stamps = Stamps::new();
        let mut changes = stamps.changes();
        let (a, b, all) = (stamps.of("a"), stamps.of("b"), stamps.of(""));
        stamps.change("a");
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        assert!(stamps.of("a") > a && stamps.of("b") == b && stamps.of("") == all);
        let a = stamps.of("a");
        stamps.change("");
        assert!(stamps.of("a") > a && stamps.of("b") > b && stamps.of("") > all);
        assert!(changes.has_changed().unwrap());
    }

    #[test]
    fn namespaces_are_bounded_and_forgetting_them_forgets_decisions() {
        let stamps = Stamps::new();
        for n in 0..=MAX_NAMESPACES {
            stamps.change(&format!("n{n}"));
        }
        assert!(stamps.marks.lock().namespaces.is_empty());
        assert_eq!(stamps.of("n0"), stamps.of(""));
        assert_eq!(stamps.of("never"), stamps.marks.lock().latest);
    }
}
