//! The resources in use, with the servers that serve them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::changed::Subject;
use super::parse::ApiResource;
use informerd_meta::{Gvr, Resource};

/// The answers of [`super::Discovery::resolve`]. There are at most as many as resources, and resources being asked for.
#[derive(Debug, Default)]
pub(super) struct Resolutions {
    entries: Mutex<HashMap<Gvr, Entry>>,
}

#[derive(Debug, Default)]
struct Entry {
    /// How often something that concerns the resource has changed.
    changes: u64,
    last: Option<Resolved>,
    /// When a question for it last failed.
    failed: Option<Instant>,
    /// Held while asking, so that readers share an answer.
    asking: Arc<tokio::sync::Mutex<()>>,
}

/// An answer. It stays usable after a change until a newer one arrives.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) resource: Arc<Resource>,
    /// The value of [`Entry::changes`] when it was asked for.
    pub(super) changes: u64,
    /// When to ask again which server serves it; `None` while nothing changes.
    pub(super) until: Option<Instant>,
}

// === impl Resolutions ===

impl Resolutions {
    /// The answer, if nothing has changed since it was asked for.
    pub(super) fn current(&self, gvr: &Gvr) -> Option<Arc<Resource>> {
        let entries = self.entries.lock();
        let entry = entries.get(gvr)?;
        let is_current = |known: &&Resolved| {
            known.changes == entry.changes && known.until.is_none_or(|until| Instant::now() < until)
        };
        entry.last.as_ref().filter(is_current).map(|known| Arc::clone(&known.resource))
    }

    /// The last answer, which may be outdated.
    pub(super) fn last(&self, gvr: &Gvr) -> Option<Arc<Resource>> {
        self.entries.lock().get(gvr)?.last.as_ref().map(|known| Arc::clone(&known.resource))
    }

    /// When a question failed that has not been answered since.
    pub(super) fn failed(&self, gvr: &Gvr) -> Option<Instant> {
        self.entries.lock().get(gvr)?.failed
    }

    /// Returns the lock that a reader holds while it asks for this resource.
    pub(super) fn asking(&self, gvr: &Gvr) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.entries.lock().entry(gvr.clone()).or_default().asking)
    }

    /// How often the resource has changed. Whoever asks says this with the answer.
    pub(super) fn changes(&self, gvr: &Gvr) -> u64 {
        self.entries.lock().get(gvr).map_or(0, |entry| entry.changes)
    }

    pub(super) fn answered(&self, gvr: Gvr, resolved: Resolved) {
        let mut entries = self.entries.lock();
        let entry = entries.entry(gvr).or_default();
        (entry.last, entry.failed) = (Some(resolved), None);
    }

    pub(super) fn has_failed(&self, gvr: &Gvr) {
        if let Some(entry) = self.entries.lock().get_mut(gvr) {
            entry.failed = Some(Instant::now());
        }
    }

    /// Whether the subject is in use.
    pub(super) fn uses(&self, subject: &Subject) -> bool {
        self.entries.lock().keys().any(|gvr| subject.concerns(gvr))
    }

    pub(super) fn changed(&self, subject: &Subject) {
        for (gvr, entry) in &mut *self.entries.lock() {
            entry.changes += u64::from(subject.concerns(gvr));
        }
    }

    /// Compares with what discovery says now: of one group, or of all.
    pub(super) fn compare<'a>(&self, group: Option<&str>, now: impl Fn(&Gvr) -> Option<&'a ApiResource>) {
        self.entries.lock().retain(|gvr, entry| {
            if group.is_some_and(|group| group != &*gvr.group) {
                return true;
            }
            let found = now(gvr);
            // Without an answer, somebody may be asking on the grounds of what discovery said before.
            let is_same = entry.last.as_ref().zip(found).is_some_and(|(last, found)| is_as(&last.resource, found));
            entry.changes += u64::from(!is_same);
            // Whoever is asking must find that something has changed.
            found.is_some() || Arc::strong_count(&entry.asking) > 1
        });
    }
}

/// Names other than the plural one do not matter here.
fn is_as(resource: &Resource, found: &ApiResource) -> bool {
    (&*resource.kind, resource.namespaced, resource.verbs) == (&*found.kind, found.namespaced, found.verbs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_that_is_gone_has_changed_for_those_who_are_asking() {
        let (resolutions, gvr) = (Resolutions::default(), Gvr::new("example.com", "v1", "widgets"));
        let asking = resolutions.asking(&gvr);
        let before = resolutions.changes(&gvr);
        resolutions.compare(None, |_| None);
        assert!(resolutions.changes(&gvr) > before);
        drop(asking);
        resolutions.compare(None, |_| None);
        assert!(resolutions.entries.lock().is_empty());
    }
}
