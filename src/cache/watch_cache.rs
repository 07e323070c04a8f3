//! The readers' handle to a cache.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::config::CacheConfig;
use super::dispatcher::Dispatcher;
use super::groups::view;
use super::initial::Replay;
use super::membership::Membership;
use super::order::Order;
use super::packer_task::PackerTask;
use super::ready::Readiness;
use super::ring::Basis;
use super::shared::SharedCache;
use super::spec::{WatchSpec, WatchStart};
use super::stats::{CacheStats, Standing};
use super::store::Snapshot;
use super::watcher::{CacheWatcher, Phase};
use crate::codec::Form;
use crate::meta::ResourceVersion;
use crate::selector::Predicate;

/// A cache as its readers see it. Cloning only increments a reference count.
#[derive(Clone, Debug)]
pub struct WatchCache {
    shared: Arc<SharedCache>,
}

/// Why there is no state for a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    #[error("the cache is not ready")]
    NotReady,
    #[error("the window no longer reaches back to this revision")]
    TooOld,
    #[error("the cache has not reached this revision")]
    TooNew,
}

/// Why a revision was not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    #[error("the cache is not ready")]
    NotReady,
    #[error("the cache is at {current} only")]
    Timeout { current: ResourceVersion },
}

/// Why a watch cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    #[error("the cache is not ready")]
    NotReady,
    /// `oldest_minus_1` is the oldest revision that a watch may start after; the apiserver's message names it.
    #[error("too old resource version: {rv} ({oldest_minus_1})")]
    TooOld { rv: ResourceVersion, oldest_minus_1: ResourceVersion },
}

// === impl WatchCache ===

impl WatchCache {
    pub(super) fn new(shared: Arc<SharedCache>) -> Self {
        Self { shared }
    }

    pub fn config(&self) -> &CacheConfig {
        &self.shared.config
    }

    pub fn ready(&self) -> Readiness {
        self.shared.ready.readiness()
    }

    /// Takes no lock.
    pub fn is_ready(&self) -> bool {
        self.shared.is_published()
    }

    /// Waits until the cache is ready, its writer is gone, or the deadline passes. Returns the readiness.
    pub async fn wait_ready(&self, deadline: Instant) -> Readiness {
        timeout_at(deadline, self.shared.ready.wait_ready()).await.ok();
        self.ready()
    }

    /// Waits until the cache is ready, or until its writer is gone.
    pub async fn ready_or_stopped(&self) {
        self.shared.ready.wait_ready().await;
    }

    /// Whether its writer is gone.
    pub fn is_stopped(&self) -> bool {
        self.shared.ready.is_stopped()
    }

    /// How TypeMeta is encoded in this cache's objects, once known.
    pub fn form(&self) -> Option<Arc<Form>> {
        self.shared.form.load_full()
    }

    /// Upstream's own bookmark object of this type, once seen.
    pub fn bookmark_template(&self) -> Option<Bytes> {
        self.shared.bookmark_template.load().as_deref().cloned()
    }

    /// See [`super::Writer::set_bookmark_template`].
    pub fn set_bookmark_template(&self, template: Bytes) {
        self.shared.bookmark_template.store(Some(Arc::new(template)));
    }

    /// The revision up to which this cache is complete; zero unless ready.
    pub fn resource_version(&self) -> ResourceVersion {
        self.shared.ready.rv()
    }

    /// The newest revision whose state is known: [`Self::resource_version`], or a later one that was confirmed.
    pub fn newest(&self) -> ResourceVersion {
        self.shared.ready.newest()
    }

    /// Identifies the history that the revisions belong to. It changes when a state was given up, because revisions may
    /// restart.
    pub fn generation(&self) -> u64 {
        self.shared.state.lock().generation
    }

    /// When the present generation began. Anything that was read from the store before that says nothing about this
    /// generation.
    pub fn began(&self) -> Order {
        self.shared.state.lock().began
    }

    /// Accepts `snapshot` as the state at `rv` as well, because the store was seen to hold exactly its objects at that
    /// revision. `asked` is a moment before the store was read. Returns false if there is a newer state by now, or
    /// none.
    ///
    /// This says nothing about the events up to `rv`: an object may have been created and deleted in between, and its
    /// events may still arrive. So from now on reads are answered with the state at `rv`. Watches may begin there, and
    /// get no event up to `rv`. Running watches still get these events, and no bookmark at `rv` before the events have
    /// reached it.
    pub fn confirm(&self, snapshot: &Snapshot, rv: ResourceVersion, asked: Order) -> bool {
        self.shared.confirm(snapshot, rv, asked)
    }

    /// The newest revision after `rv` at which this cache may have shown a change that `predicate` selects; `None` if
    /// it has shown none. It is exact for the last few hundred events. Otherwise it may be too new, but never too old.
    pub fn shown_since(&self, rv: ResourceVersion, predicate: &Predicate) -> Option<ResourceVersion> {
        // Checked without the lock: caches of one resource are usually at about the same revision.
        if self.resource_version() <= rv {
            return None;
        }
        self.shared.state.lock().history.concerned_since(rv, |event| view(predicate, event).is_some())
    }

    /// The revision of the last change that is known, at which the state was the present one. Zero unless ready.
    pub fn changed(&self) -> ResourceVersion {
        self.quiet_since().map(|(changed, ..)| changed).unwrap_or_default()
    }

    /// Two revisions with the same state: nothing happened after the first, up to and including the second. The cache
    /// is complete up to the second. Also returns when it came to that. `None` unless ready.
    pub fn quiet_since(&self) -> Option<(ResourceVersion, ResourceVersion, Order)> {
        let state = self.shared.state.lock();
        state.current.as_ref()?;
        Some((state.changed(), self.shared.ready.rv(), state.moved))
    }

    #[cfg(test)]
    pub(crate) fn is_inside_gap(&self, rv: ResourceVersion) -> bool {
        self.shared.config.floor.gap_around(rv).is_some()
    }

    /// The newest known revision, if `other` is not there yet. `None` if `other` has given its state up since this cache
    /// came to that revision: the store may have been restored from a backup, and this cache may not know it yet.
    pub fn newest_before(&self, other: &Self) -> Option<ResourceVersion> {
        let newest = self.newest();
        // Checked without the lock: caches of one resource are usually at about the same revision.
        if newest <= other.newest() {
            return None;
        }
        let reset = other.shared.state.lock().reset_at;
        let state = self.shared.state.lock();
        reset.is_none_or(|reset| reset < state.moved).then(|| self.newest())
    }

    /// The newest known state, `None` unless ready. Takes no lock.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.shared.snapshot()
    }

    /// The state at a revision: the newest one that is not newer. Exact inside the window. It costs at most a few
    /// milliseconds, and almost nothing if the same revision is asked for again, as by the pages of one list. Its
    /// [`Snapshot::rv`] is the requested revision.
    ///
    /// # Errors
    /// The revision is below the window or above the present revision, or the cache is not ready.
    pub fn snapshot_at(&self, rv: ResourceVersion) -> Result<Snapshot, SnapshotError> {
        let mut rebuild = {
            let state = self.shared.state.lock();
            let current = state.current.as_ref().ok_or(SnapshotError::NotReady)?;
            if rv == current.rv() {
                return Ok(current.clone());
            }
            if rv > current.rv() {
                return state.confirmed_at(rv).ok_or(SnapshotError::TooNew);
            }
            if rv < state.history.floor() {
                return Err(SnapshotError::TooOld);
            }
            state.history.rebuild(rv, current.store())
        };
        // Not under the lock.
        let store = rebuild.run();
        self.shared.state.lock().history.remember(&rebuild);
        Ok(Snapshot::new(rv, store))
    }

    /// Returns the newest state as soon as it is not older than `rv`.
    ///
    /// # Errors
    /// The deadline passes, or the cache is not ready or stops being ready.
    pub async fn wait_for(&self, rv: ResourceVersion, deadline: Instant) -> Result<Snapshot, WaitError> {
        loop {
            let snapshot = self.snapshot().ok_or(WaitError::NotReady)?;
            if snapshot.rv() >= rv {
                return Ok(snapshot);
            }
            if timeout_at(deadline, self.shared.ready.wait_for(rv)).await.is_err() {
                return Err(WaitError::Timeout { current: snapshot.rv() });
            }
        }
    }

    /// Registers a watcher.
    ///
    /// # Errors
    /// The cache is not ready, or the window no longer reaches back to the start revision.
    #[expect(clippy::needless_pass_by_value, reason = "a spec is made for one watch")]
    pub fn watch(&self, spec: WatchSpec) -> Result<CacheWatcher, WatchError> {
        loop {
            // There is no gap and no duplicate, wherever the dispatcher is. Three moments matter:
            // J: the watcher joins its group and remembers the end of the ring.
            // S: under the state lock, the revision R = `live_after` is taken, with the snapshot or the head of the
            // history.
            // D: an event e is dispatched, which looks up the groups.
            // If e > R: e is appended to the history after S, so D follows S, which follows J. The lookup finds the
            // group, e is put after the remembered end, and is delivered once, from there.
            // If e <= R: e is in the snapshot, or in the history before its head, which the initial part delivers. If D
            // follows J, the ring contains e too; there it is skipped by its revision.
            // In a confirmed state, R is ahead of the events. Events after S and up to R do not change that state, and
            // they are skipped by their revision, too.
            // The state lock also covers the code that ends groups: a group that is not closed at S belongs to the
            // state of S.
            let membership = Membership::join(&self.shared, &spec.predicate);
            let mut watcher = CacheWatcher::new(membership, &spec);
            if self.start(&mut watcher, &spec)? {
                return Ok(watcher);
            }
        }
    }

    /// The moment S of a registration; returns false if the group was ended before it.
    fn start(&self, watcher: &mut CacheWatcher, spec: &WatchSpec) -> Result<bool, WatchError> {
        let state = self.shared.state.lock();
        let current = state.current.as_ref().ok_or(WatchError::NotReady)?;
        let rv = current.rv();
        let newest = state.confirmed.as_ref().unwrap_or(current);
        let (phase, basis, last, live_after) = match spec.start {
            WatchStart::State => {
                (Phase::Listing(Box::default()), Basis::Listing(newest.clone()), newest.rv(), newest.rv())
            }
            WatchStart::Now => (Phase::Live, Basis::Known, newest.rv(), newest.rv()),
            WatchStart::After(after) if after >= rv => {
                let is_known = after == rv || state.confirmed_at(after).is_some();
                (Phase::Live, if is_known { Basis::Known } else { Basis::Ahead(after) }, after, after)
            }
            WatchStart::After(after) => {
                let oldest_minus_1 = state.history.floor();
                if after < oldest_minus_1 {
                    return Err(WatchError::TooOld { rv: after, oldest_minus_1 });
                }
                let (from, head) = (state.history.position_after(after), state.history.head());
                // Not `rv`: the store may have advanced since the last event without a change of this resource. The
                // watcher does not know this yet, and is told by a bookmark, as by the apiserver.
                let last = state.history.newest().unwrap_or_default();
                (Phase::Replay(Box::new(Replay::new(from, head))), Basis::Known, after, after.max(last))
            }
        };
        Ok(watcher.begin(phase, basis, last, live_after))
    }

    /// Dispatches events to watchers until dropped. Must run once per cache, in its own task: without it no watcher
    /// gets a live event, and the writer waits when [`CacheConfig::max_lag`] events are undispatched.
    pub fn run_dispatcher(&self) -> impl Future<Output = ()> + Send + 'static {
        let shared = self.shared.clone();
        async move {
            if shared.dispatcher_runs.swap(true, Ordering::AcqRel) {
                tracing::error!(resource = %shared.config.resource, "a second dispatcher was started, and does nothing");
                return std::future::pending().await;
            }
            Dispatcher::new(shared).run().await;
        }
    }

    /// Packs objects that nobody reads until dropped, or until the cache stops. Must run at most once per cache, in its
    /// own task. Without it nothing is packed.
    pub fn run_packer(&self) -> impl Future<Output = ()> + Send + 'static {
        PackerTask::new(self.shared.clone()).run()
    }

    /// Ends all watchers, including future ones, as soon as each has delivered its pending events. If `last_bookmark`
    /// is true, watchers that take bookmarks first get one to resume from.
    pub fn end_watchers(&self, last_bookmark: bool) {
        // Before clients come to others.
        self.shared.leave();
        let how = if last_bookmark { SharedCache::DRAINING_WITH_BOOKMARK } else { SharedCache::DRAINING };
        self.shared.draining.store(how, Ordering::Release);
        self.shared.groups.read().wake_all();
    }

    pub fn stats(&self) -> CacheStats {
        let shared = &self.shared;
        let (watchers, groups) = {
            let groups = shared.groups.read();
            (groups.watchers(), groups.len())
        };
        let counters = &shared.counters;
        let state = shared.state.lock();
        CacheStats {
            state: shared.ready.readiness(),
            rv: shared.ready.rv(),
            dispatched_rv: ResourceVersion(shared.dispatched_rv.load(Ordering::Acquire)),
            objects: state.current.as_ref().map_or(0, Snapshot::len),
            bytes: shared.keeper.present_bytes(state.current.as_ref().map_or(0, Snapshot::bytes)),
            window_events: state.history.len(),
            window_bytes: state.history.bytes(),
            window_oldest_rv: state.history.oldest(),
            window_floor: state.history.floor(),
            window_age: state.history.age(Instant::now()),
            watchers,
            groups,
            events_total: counters.events.get(),
            dispatched_total: counters.dispatched.get(),
            evaluated_total: counters.evaluated.get(),
            replaced_total: counters.replaced.get(),
            lagged_total: counters.lagged.get(),
            terminated_total: counters.terminated.get(),
            too_slow_total: counters.too_slow.get(),
            bookmarks_total: counters.bookmarks.get(),
            backfills_total: counters.backfills.get(),
            backfills_failed_total: counters.backfills_failed.get(),
            backfilled_events_total: counters.backfilled_events.get(),
        }
    }

    /// Examines every watcher: only for a metrics scrape, not for a request.
    pub fn standing(&self) -> Standing {
        let groups = self.shared.groups.read();
        groups.iter().fold(Standing::default(), |sum, group| group.ring.lock().standing(sum))
    }

    pub(super) fn shared(&self) -> Arc<SharedCache> {
        self.shared.clone()
    }
}
