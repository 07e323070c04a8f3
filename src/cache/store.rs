//! The objects of one resource, sorted by key, and immutable views of them.

use std::ops::Bound;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use imbl::OrdMap;

use super::budget::Lent;
use crate::meta::{EventType, Object, ObjectKey, ResourceVersion, Scope, WatchCacheEvent};

/// Objects by key, in the apiserver's order. Cloning takes constant time: clones share the tree, and a later change
/// copies only the nodes on its path.
#[derive(Clone, Debug)]
pub(super) struct Store {
    map: OrdMap<ObjectKey, Arc<Object>>,
    /// Sum of [`Object::size`].
    bytes: usize,
    lineage: u64,
    /// Set when the cache gives the state up, or reads another one: what only its snapshots hold is counted while any of
    /// them lives.
    lent: Arc<OnceLock<Departed>>,
}

/// What is counted of a state that the cache no longer has.
#[derive(Debug)]
pub(super) struct Departed {
    _lent: Lent,
    saved: Arc<AtomicI64>,
    bytes: i64,
}

/// Identifies a state of one resource: states with the same id hold the same objects with the same bytes. The revision
/// alone is not enough: stores are restored from backups, and a change of schema rewrites objects at their old
/// revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StateId {
    lineage: u64,
    rv: ResourceVersion,
}

/// The last lineage number of all caches of the process.
static LINEAGES: AtomicU64 = AtomicU64::new(1);

/// The state of one resource at one resourceVersion. Cloning takes constant time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(super) inner: Arc<SnapshotInner>,
}

#[derive(Debug)]
pub(super) struct SnapshotInner {
    rv: ResourceVersion,
    store: Store,
}

// === impl Store ===

impl Default for Store {
    fn default() -> Self {
        let lineage = LINEAGES.fetch_add(1, Ordering::Relaxed);
        Self { map: OrdMap::new(), bytes: 0, lineage, lent: Arc::default() }
    }
}

impl Store {
    /// After this, no state has the same id as an earlier one, whatever its revision.
    pub(super) fn begin_lineage(&mut self) {
        self.lent = Arc::default();
        self.lineage = LINEAGES.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that the cache has given the state up, or reads another one.
    pub(super) fn lend(self, lent: Departed) {
        // Set only once, because the cache continues with another store.
        self.lent.set(lent).ok();
    }

    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<Object>> {
        self.map.get(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.map.values()
    }

    /// The object with the greatest key.
    pub(super) fn last(&self) -> Option<&Arc<Object>> {
        self.map.get_max().map(|(_, object)| object)
    }

    pub(super) fn insert(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        self.bytes += object.size();
        let old = self.map.insert(object.key.clone(), object);
        self.bytes -= old.as_ref().map_or(0, |old| old.size());
        old
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Object>> {
        let old = self.map.remove(key);
        self.bytes -= old.as_ref().map_or(0, |old| old.size());
        old
    }

    pub(super) fn apply(&mut self, event: &WatchCacheEvent) {
        match event.kind {
            EventType::Added | EventType::Modified => self.insert(event.object.clone()),
            EventType::Deleted => self.remove(event.key()),
        };
    }

    /// Undoes an event, which must be the last one applied to this state.
    pub(super) fn undo(&mut self, event: &WatchCacheEvent) {
        match &event.prev {
            Some(prev) => self.insert(prev.clone()),
            None => self.remove(event.key()),
        };
    }
}

// === impl Departed ===

impl Departed {
    /// `saved` counts what the packed objects of such states need less than if they were plain, `bytes` of this one.
    pub(super) fn new(lent: Lent, saved: &Arc<AtomicI64>, bytes: usize) -> Self {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        saved.fetch_add(bytes, Ordering::Relaxed);
        Self { _lent: lent, saved: Arc::clone(saved), bytes }
    }
}

impl Drop for Departed {
    fn drop(&mut self) {
        self.saved.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

// === impl Snapshot ===

impl Snapshot {
    pub(super) fn new(rv: ResourceVersion, store: Store) -> Self {
        Self { inner: Arc::new(SnapshotInner { rv, store }) }
    }

    /// The revision of this state. It is greater than or equal to the revision of every object.
    pub fn rv(&self) -> ResourceVersion {
        self.inner.rv
    }

    /// A state without objects, with its own lineage.
    #[cfg(test)]
    pub fn empty(rv: ResourceVersion) -> Self {
        Self::new(rv, Store::default())
    }

    /// The same objects at a later revision, at which the store was seen to hold the objects that the reader asks for.
    #[must_use]
    pub fn seen_at(&self, rv: ResourceVersion) -> Self {
        Self::new(rv, self.inner.store.clone())
    }

    /// The number of objects in a namespace, counted up to `most`.
    pub fn count_up_to(&self, scope: &Scope, most: usize) -> usize {
        self.range(scope, None).take(most).count()
    }

    /// Identifies this state among all states of all caches.
    pub fn id(&self) -> StateId {
        StateId { lineage: self.inner.store.lineage, rv: self.inner.rv }
    }

    /// States of one lineage are connected by events. A whole state that was read anew begins another lineage.
    pub fn lineage(&self) -> u64 {
        self.inner.store.lineage
    }

    /// Number of objects in all namespaces.
    pub fn len(&self) -> usize {
        self.inner.store.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all objects ([`Object::size`]); shared with other snapshots.
    pub fn bytes(&self) -> usize {
        self.inner.store.bytes()
    }

    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<Object>> {
        self.inner.store.get(key)
    }

    /// The objects of a scope in key order, from the first key greater than `after`. It costs one search of the tree,
    /// or one search per namespace for a name across namespaces. After that, each object is one step.
    pub fn range<'a>(
        &'a self,
        scope: &'a Scope,
        after: Option<&str>,
    ) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        let one = |key: String| (self.between(Bound::Included(key.clone()), &Bound::Included(key), after), None);
        // A resource is either namespaced or not, so any key shows which.
        let is_namespaced = || self.inner.store.map.get_min().is_some_and(|(key, _)| key.as_str().contains('/'));
        let (range, named) = match (scope.namespace.as_deref(), scope.name.as_deref()) {
            (Some(namespace), Some(name)) => one(format!("{namespace}/{name}")),
            (Some(namespace), None) => {
                // '0' is the byte after '/'.
                let (first, end) = (format!("{namespace}/"), format!("{namespace}0"));
                (self.between(Bound::Included(first), &Bound::Excluded(end), after), None)
            }
            // In any namespace: not a range of keys.
            (None, Some(name)) if is_namespaced() => (None, Some(self.named(name, after))),
            (None, Some(name)) => one(name.to_owned()),
            (None, None) => (self.between(Bound::Unbounded, &Bound::Unbounded, after), None),
        };
        range.into_iter().flatten().chain(named.into_iter().flatten())
    }

    pub(super) fn store(&self) -> &Store {
        &self.inner.store
    }

    fn between<'a>(
        &'a self,
        lower: Bound<String>,
        upper: &Bound<String>,
        after: Option<&str>,
    ) -> Option<impl Iterator<Item = &'a Arc<Object>> + use<'a>> {
        let lower = match (lower, after) {
            (lower, None) => lower,
            (Bound::Included(start), Some(after)) if start.as_str() > after => Bound::Included(start),
            (_, Some(after)) => Bound::Excluded(after.to_owned()),
        };
        let empty = match (&lower, upper) {
            (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
            (Bound::Excluded(lower) | Bound::Included(lower), Bound::Included(upper) | Bound::Excluded(upper)) => {
                lower >= upper
            }
            _ => false,
        };
        let bounds = (as_str(&lower), as_str(upper));
        (!empty).then(|| self.inner.store.map.range::<_, str>(bounds).map(|(_, object)| object))
    }

    /// Iterates over the namespaces and looks up one key in each.
    fn named<'a>(&'a self, name: &'a str, after: Option<&str>) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        let map = &self.inner.store.map;
        let after = after.unwrap_or_default().to_owned();
        // The namespace of `after` may still contain the name.
        let mut next = after.split_once('/').map_or(String::new(), |(namespace, _)| format!("{namespace}/"));
        std::iter::from_fn(move || {
            loop {
                let (key, _) = map.range::<_, str>((Bound::Included(next.as_str()), Bound::Unbounded)).next()?;
                let namespace = key.namespace();
                let wanted = format!("{namespace}/{name}");
                let beyond = format!("{namespace}0");
                // Always moves forward, even if namespaced and cluster-scoped keys were mixed.
                next = if beyond.as_str() > key.as_str() { beyond } else { format!("{key}\0") };
                if wanted > after
                    && let Some(object) = map.get(wanted.as_str())
                {
                    return Some(object);
                }
            }
        })
    }
}

fn as_str(bound: &Bound<String>) -> Bound<&str> {
    bound.as_ref().map(String::as_str)
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
