//! The writer of a watch cache, which puts each event into its state and its window.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::time::Instant;

use super::budget::Account;
use super::difference::Difference;
use super::order::Order;
use super::shared::SharedCache;
use super::spec::EndReason;
use super::store::{Snapshot, Store};
use crate::codec::Form;
use crate::meta::{EventType, Object, ObjectKey, ResourceVersion, WatchCacheEvent};

/// The exclusive writer of a watch cache. When it is dropped, the cache stops: it is not ready, and all watchers are
/// ended.
#[derive(Debug)]
pub struct Writer {
    pub(super) shared: Arc<SharedCache>,
    store: Store,
    /// Zero unless synced.
    rv: ResourceVersion,
    synced: bool,
    /// The history's head after the writer's last event.
    head: u64,
}

/// How a list affected the open watchers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// No watcher was ended: all continue as if there had been no gap. Always true for a first sync.
    pub continued: bool,
    /// Watchers that were ended.
    pub ended: usize,
    /// Objects of the list that are new or changed.
    pub changed: usize,
    /// Objects that are no longer there.
    pub deleted: usize,
}

/// Why an event was not taken. The reflector must list again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    #[error("an event came before the first list")]
    NotSynced,
    #[error("the resource version went back from {current} to {rv}")]
    WentBack { rv: ResourceVersion, current: ResourceVersion },
}

/// Why a list was not taken. The cache does not change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplaceError {
    /// From an apiserver that is behind, or from a store that was rewound; only [`Writer::not_ready`] allows an older
    /// list.
    #[error("the list at resource version {rv} is older than the cache at {current}")]
    WentBack { rv: ResourceVersion, current: ResourceVersion },
    /// The list does not show a single revision.
    #[error("the list at resource version {list} has {key} at {rv}")]
    Ahead { key: ObjectKey, rv: ResourceVersion, list: ResourceVersion },
}

// === impl Writer ===

impl Writer {
    pub(super) fn new(shared: Arc<SharedCache>) -> Self {
        let head = shared.dispatched.load(Ordering::Acquire);
        Self { shared, store: Store::default(), rv: ResourceVersion::ZERO, synced: false, head }
    }

    /// Whether readers have a state.
    pub fn is_ready(&self) -> bool {
        self.shared.is_published()
    }

    /// The revision up to which the cache is complete; zero unless synced.
    pub fn resource_version(&self) -> ResourceVersion {
        self.rv
    }

    /// The revision up to which all changes have come: [`Self::resource_version`], or one less while more deletions of that
    /// revision may follow.
    pub fn certain(&self) -> ResourceVersion {
        self.shared.certain(self.rv)
    }

    /// Whether the present state has this object.
    pub fn holds(&self, key: &ObjectKey) -> bool {
        self.store.get(key).is_some()
    }

    /// Returns the object of the cache if it is the same to the last byte, so that reading a state again costs no more
    /// than its changes.
    ///
    /// # Errors
    /// The given object, if the cache has a different one or none. It shares what it has in common with others.
    #[expect(clippy::result_large_err, reason = "no error: the object is given back to be kept")]
    pub fn known(&self, mut object: Object) -> Result<Arc<Object>, Object> {
        match self.store.get(&object.key) {
            Some(held) if held.rv == object.rv && held.is_written_as(&object) => Ok(held.clone()),
            held => {
                self.shared.keeper.share(&mut object, held.map(Arc::as_ref));
                Err(object)
            }
        }
    }

    pub fn is_pinned(&self) -> bool {
        self.shared.config.pinned
    }

    /// The memory that this cache takes of what all may use: a new state is reported to it while it is read, and it tells when
    /// the state must be given up ([`Self::not_ready`]).
    pub fn account(&self) -> &Account {
        &self.shared.keeper.account
    }

    /// When the state was last given up.
    pub fn reset_at(&self) -> Option<Order> {
        self.shared.state.lock().reset_at
    }

    /// The newest revision for which readers have received answers: [`Self::resource_version`], or a later one whose
    /// state was confirmed. Zero unless synced.
    pub fn newest(&self) -> ResourceVersion {
        self.shared.ready.newest()
    }

    /// Applies one watch event. The event type is corrected according to the store: ADDED of a held key is a
    /// modification, MODIFIED of an unknown key is an addition, and DELETED of an unknown key only proves progress. For
    /// DELETED, the object is upstream's, with the resourceVersion of the deletion.
    ///
    /// Waits while the dispatcher is [`super::CacheConfig::max_lag`] events behind.
    ///
    /// # Errors
    /// The revision does not grow, or there was no list yet; the cache does not change.
    pub async fn apply(&mut self, kind: EventType, mut object: Object) -> Result<(), ApplyError> {
        let received = Instant::now();
        self.wait_for_dispatcher().await;
        if !self.synced {
            return Err(ApplyError::NotSynced);
        }
        let rv = object.rv;
        if rv <= self.rv {
            return Err(ApplyError::WentBack { rv, current: self.rv });
        }
        let prev = self.store.get(&object.key).cloned();
        let kind = match (kind, &prev) {
            (EventType::Deleted, None) => {
                self.progress(rv);
                return Ok(());
            }
            (EventType::Deleted, Some(_)) => EventType::Deleted,
            (_, Some(_)) => EventType::Modified,
            (_, None) => EventType::Added,
        };
        self.shared.keeper.share(&mut object, prev.as_deref());
        let event = WatchCacheEvent { kind, rv, object: Arc::new(object), prev, received };
        self.shared.keeper.pack_replaced(&event);
        self.store.apply(&event);
        self.rv = rv;
        self.commit([(event, self.store.clone())], None, true);
        self.shared.counters.events.add(1);
        Ok(())
    }

    /// Applies deletions of one revision: objects with a time to live share a lease of etcd, and expire together.
    /// Readers see all of the deletions or none. Deletions of objects that the store does not hold only prove progress.
    /// Unless it is `sure` that they are all, nothing claims their revision before later progress, or a bookmark there.
    ///
    /// Waits like [`Self::apply`].
    ///
    /// # Errors
    /// The errors of [`Self::apply`]. The cache does not change then.
    pub async fn delete_together(&mut self, objects: Vec<Object>, sure: bool) -> Result<(), ApplyError> {
        let received = Instant::now();
        self.wait_for_dispatcher().await;
        if !self.synced {
            return Err(ApplyError::NotSynced);
        }
        let Some(rv) = objects.first().map(|object| object.rv) else { return Ok(()) };
        if let Some(other) = objects.iter().find(|object| object.rv != rv || object.rv <= self.rv) {
            return Err(ApplyError::WentBack { rv: other.rv, current: self.rv });
        }
        let mut events = Vec::with_capacity(objects.len());
        for mut object in objects {
            let Some(prev) = self.store.remove(&object.key) else { continue };
            self.shared.keeper.share(&mut object, Some(&prev));
            let (object, prev) = (Arc::new(object), Some(prev));
            let event = WatchCacheEvent { kind: EventType::Deleted, rv, object, prev, received };
            self.shared.keeper.pack_replaced(&event);
            events.push((event, self.store.clone()));
        }
        self.rv = rv;
        self.shared.counters.events.add(events.len() as u64);
        self.commit(events, None, sure);
        Ok(())
    }

    /// Applies an upstream bookmark: the cache is complete up to `rv`. Returns false and does nothing if the cache is
    /// already past `rv`, or not synced.
    pub fn progress(&mut self, rv: ResourceVersion) -> bool {
        self.progress_as_of(rv, None)
    }

    fn progress_as_of(&mut self, rv: ResourceVersion, asked: Option<Order>) -> bool {
        if !self.synced || rv < self.rv {
            return false;
        }
        if rv > self.certain() {
            self.rv = rv;
            self.commit([], asked, true);
        }
        true
    }

    /// If more deletions of the present revision followed, they would have come by now. That shows nothing of the store.
    pub fn ends_doubt(&mut self) {
        let moved = self.shared.state.lock().moved;
        self.progress_as_of(self.rv, Some(moved));
    }

    /// [`Self::progress`] by a proof that began at `asked`, which says nothing about a store that was restored since.
    pub fn progress_proved(&mut self, rv: ResourceVersion, asked: Order) {
        self.progress_as_of(rv, Some(asked));
    }

    /// Takes a whole list at the revision `rv`: the first one, or one after a gap in the events. Readers are served
    /// from the old state until the new one is complete.
    ///
    /// A relist continues open watches if that is possible exactly: changed objects are sent in order of their own
    /// revisions. For an object that is gone, the revision of the deletion is unknown, so exactly the watchers that
    /// hold it are ended. Watchers that began at a revision inside the gap are ended, too: their clients may hold objects
    /// that came and went there, or that were selected only there. All watchers are ended if an object has different
    /// contents at the same revision. The changes inside the gap stay unknown: new watches and exact reads start at `rv`.
    ///
    /// # Errors
    /// The list is older than the cache, or does not show a single revision; the cache does not change.
    pub async fn replace(&mut self, objects: Vec<Arc<Object>>, rv: ResourceVersion) -> Result<Replaced, ReplaceError> {
        // A list shows the newest revision, so it cannot be below a confirmed one.
        let newest = self.rv.max(self.newest());
        if rv < newest {
            return Err(ReplaceError::WentBack { rv, current: newest });
        }
        if let Some(object) = objects.iter().find(|object| object.rv > rv) {
            return Err(ReplaceError::Ahead { key: object.key.clone(), rv: object.rv, list: rv });
        }
        let difference = Difference::between(&self.store, objects).await;
        let (changed, deleted) = (difference.changed.len(), difference.deleted.len());
        self.shared.counters.replaced.add(1);
        let (lacks, certain) = (self.shared.state.lock().lacks.take(), self.certain());
        let lacks_after = lacks.map_or(certain, |lacks| lacks.min(certain));
        if self.synced && rv == self.rv && difference.is_empty() {
            self.progress(rv);
            self.settle();
            return Ok(Replaced { continued: true, ended: 0, changed, deleted });
        }
        // Nothing that readers were shown has changed up to `newest`.
        let explained = difference.follows(newest);
        let old = std::mem::replace(&mut self.store, difference.store);
        self.store.begin_lineage();
        let mut departed = difference.rewritten;
        let mut state = self.shared.state.lock();
        // Before watches end: those that have reached it lack what only the list shows.
        self.shared.listed_rv.store(rv.0, Ordering::Release);
        let ended = if self.synced && explained {
            let mut groups = self.shared.groups.write();
            let ended = groups.close_holders(&difference.deleted, EndReason::Relisted) + groups.lose((self.rv, rv));
            drop(groups);
            let now = Instant::now();
            for event in difference.changed {
                self.shared.append(&mut state, event, &self.store, now);
            }
            state.gap_end = state.history.head();
            self.shared.add_gap(&mut state, lacks_after, rv);
            state.history.cut(rv);
            ended
        } else {
            // First sync, or a list that contradicts the received events: no watch can continue.
            departed.extend(difference.changed.into_iter().filter_map(|event| event.prev));
            let ended = self.shared.forget(&mut state, rv, EndReason::Relisted);
            if self.synced || lacks.is_some() {
                self.shared.add_gap(&mut state, ResourceVersion::ZERO, rv);
            }
            ended
        };
        self.head = state.history.head();
        self.shared.publish(&mut state, Snapshot::new(rv, self.store.clone()));
        self.shared.ready.ready(rv);
        drop(state);
        departed.extend(difference.deleted);
        // Often the last reference to many objects, so it is not dropped under the lock.
        self.shared.keeper.lend_replaced(old, departed.iter());
        drop(departed);
        self.settle();
        self.shared.work.notify_one();
        let continued = explained && ended == 0 || !self.synced;
        (self.rv, self.synced) = (rv, true);
        Ok(Replaced { continued, ended, changed, deleted })
    }

    /// Events after `rv` may be missing, although later ones were taken. Once a list shows what is missing, clients must not
    /// continue from a revision between the two.
    pub fn lacks_after(&mut self, rv: ResourceVersion) {
        let mut state = self.shared.state.lock();
        state.lacks = Some(state.lacks.map_or(rv, |lacks| lacks.min(rv)));
    }

    /// Continues from a state that was published.
    pub(super) fn take(&mut self, store: Store, rv: ResourceVersion, head: u64) {
        (self.store, self.rv, self.synced, self.head) = (store, rv, true, head);
    }

    #[cfg(test)]
    pub(crate) fn cache(&self) -> super::WatchCache {
        super::WatchCache::new(Arc::clone(&self.shared))
    }

    /// Sets how TypeMeta is encoded in the objects; must be called before the first list.
    pub fn set_form(&mut self, form: Form) {
        self.shared.form.store(Some(Arc::new(form)));
    }

    /// Sets upstream's own bookmark object of this type.
    pub fn set_bookmark_template(&mut self, template: Bytes) {
        self.shared.bookmark_template.store(Some(Arc::new(template)));
    }

    /// Gives the state up: the cache answers nothing and all watchers are ended, until the next list, which may have
    /// any revision.
    pub fn not_ready(&mut self, why: impl AsRef<str>) {
        self.shared.leave();
        self.reset(why.as_ref(), EndReason::NotReady, false);
    }

    /// The same for a store that was rewound: what readers were shown no longer applies.
    pub fn rewound(&mut self, why: impl AsRef<str>) {
        self.lacks_after(ResourceVersion::ZERO);
        self.shared.config.floor.forget_gaps();
        self.reset(why.as_ref(), EndReason::NotReady, false);
    }

    fn reset(&mut self, why: &str, reason: EndReason, stopped: bool) {
        self.shared.reset(why, reason, stopped);
        self.shared.keeper.give_up(std::mem::take(&mut self.store));
        (self.rv, self.synced) = (ResourceVersion::ZERO, false);
    }

    /// Publishes one step: the events, if there are any, each with the state after it, and the state at the new
    /// revision. `asked` is when the proof of that revision began, if it is no event of the stream. Unless `sure`, more
    /// deletions of that revision may follow.
    fn commit(&mut self, events: impl IntoIterator<Item = (WatchCacheEvent, Store)>, asked: Option<Order>, sure: bool) {
        let snapshot = Snapshot::new(self.rv, self.store.clone());
        let mut state = self.shared.state.lock();
        let now = Instant::now();
        for (event, after) in events {
            self.shared.append(&mut state, event, &after, now);
        }
        if state.history.head() > self.head {
            let dispatched = self.shared.dispatched.load(Ordering::Acquire);
            state.history.evict(now, dispatched);
            self.head = state.history.head();
            self.shared.keeper.count(&self.store, &mut state.history, now, dispatched);
        }
        let moved = match asked {
            Some(asked) if self.rv >= self.shared.ready.newest() => asked,
            Some(_) => state.moved,
            None => Order::now(),
        };
        self.shared.publish(&mut state, snapshot);
        if !sure {
            self.shared.unsure.store(self.rv.0, Ordering::Release);
        }
        state.moved = moved;
        self.shared.ready.reached(self.rv);
        drop(state);
        self.shared.work.notify_one();
    }

    /// Counts a whole state that was taken.
    pub(super) fn settle(&self) {
        let taken = self.shared.keeper.bytes_of_whole(&self.store, &self.shared.state.lock().history);
        self.account().settle(taken);
    }

    async fn wait_for_dispatcher(&self) {
        let behind = || self.head.saturating_sub(self.shared.dispatched.load(Ordering::Acquire));
        if behind() < self.shared.config.max_lag {
            return;
        }
        self.shared.counters.lagged.add(1);
        while behind() >= self.shared.config.max_lag {
            self.shared.moved.notified().await;
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.leave();
        self.reset("the informer has stopped", EndReason::Stopped, true);
    }
}
