//! What the writer, the dispatcher, the readers and the watchers of one watch cache share.
//!
//! Lock order: `state`, then `groups`, then a group's ring, then those of the keeper. No task waits while it holds one of them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::config::CacheConfig;
use super::groups::WatchGroups;
use super::history::History;
use super::invariants::{Invariant, violated};
use super::keeper::ObjectKeeper;
use super::order::Order;
use super::ready::Ready;
use super::spec::EndReason;
use super::stats::Counters;
use super::store::{Snapshot, SnapshotInner, Store};
use crate::codec::Form;
use crate::meta::{EventType, ResourceVersion, WatchCacheEvent};

/// A watch cache, as its writer, dispatcher, readers and watchers share it.
#[derive(Debug)]
pub(super) struct SharedCache {
    pub(super) config: CacheConfig,
    pub(super) keeper: ObjectKeeper,
    pub(super) state: Mutex<CacheState>,
    /// The newest known state, for readers that must not wait; empty unless ready.
    published: ArcSwapOption<SnapshotInner>,
    pub(super) ready: Ready,
    pub(super) groups: RwLock<WatchGroups>,
    /// All events up to this revision are in the rings of all groups that select them.
    pub(super) dispatched_rv: AtomicU64,
    /// The present revision, if more deletions of it may follow; otherwise zero.
    pub(super) unsure: AtomicU64,
    /// The revision of the last list. Events up to it stand for a gap, or are older.
    pub(super) listed_rv: AtomicU64,
    /// Position of the first event that is not dispatched.
    pub(super) dispatched: AtomicU64,
    /// Wakes the dispatcher when there are events or progress.
    pub(super) work: Notify,
    /// Wakes the writer when the dispatcher has advanced.
    pub(super) moved: Notify,
    /// Watchers end once they have caught up: [`SharedCache::DRAINING`], with or without a last bookmark.
    pub(super) draining: AtomicU64,
    pub(super) dispatcher_runs: AtomicBool,
    pub(super) counters: Counters,
    pub(super) form: ArcSwapOption<Form>,
    pub(super) bookmark_template: ArcSwapOption<Bytes>,
}

/// The state that changes together with every event.
#[derive(Debug)]
pub(super) struct CacheState {
    /// The state that the events have reached. Present while ready.
    pub(super) current: Option<Snapshot>,
    /// A state that the store was seen to have at a revision that the events have not reached.
    pub(super) confirmed: Option<Snapshot>,
    /// Earlier revisions of the confirmed state, in order, so that paged lists that began there can continue.
    /// [`CONFIRMATIONS`] at most.
    pub(super) confirmed_before: VecDeque<ResourceVersion>,
    pub(super) history: History,
    /// Counts how often revisions may have restarted.
    pub(super) generation: u64,
    /// When the present generation began.
    pub(super) began: Order,
    /// When the state was last given up. What was known of the store before may be of a history that was rolled back.
    pub(super) reset_at: Option<Order>,
    /// When the state last changed or was found at a later revision.
    pub(super) moved: Order,
    /// Events before this position stand for the gap before a relist. Their revisions are no real states of their own,
    /// so no bookmark may name one.
    pub(super) gap_end: u64,
    /// A list took the place of events since the state was last given up.
    pub(super) has_gap: bool,
    /// See [`super::Writer::lacks_after`].
    pub(super) lacks: Option<ResourceVersion>,
}

/// How many revisions of one confirmed state are remembered, in 64 KiB: those of two minutes if readers share questions,
/// which are 60 a second. The stream has had an event or a bookmark by then. Older pages are forwarded. No range of revisions
/// would do, because an object may have come and gone between two of them.
const CONFIRMATIONS: usize = 8192;

// === impl CacheState ===

impl CacheState {
    /// See [`History::beginning`]. Nothing leads to a window that begins with a gap.
    pub(super) fn beginning(&self) -> Option<ResourceVersion> {
        self.history.beginning().filter(|_| !self.has_gap)
    }

    /// The revision of the last change, or of the list that the window begins with.
    pub(super) fn changed(&self) -> ResourceVersion {
        self.history.newest().unwrap_or_default().max(self.history.floor())
    }

    /// The state at a revision that the events have not reached, if it was confirmed there.
    pub(super) fn confirmed_at(&self, rv: ResourceVersion) -> Option<Snapshot> {
        let confirmed = self.confirmed.as_ref()?;
        let seen = rv == confirmed.rv() || self.confirmed_before.binary_search(&rv).is_ok();
        seen.then(|| Snapshot::new(rv, confirmed.store().clone()))
    }

    fn unconfirm(&mut self) {
        self.confirmed = None;
        // This also frees the memory.
        self.confirmed_before = VecDeque::new();
    }
}

// === impl SharedCache ===

impl SharedCache {
    pub(super) const SERVING: u64 = 0;
    pub(super) const DRAINING: u64 = 1;
    pub(super) const DRAINING_WITH_BOOKMARK: u64 = 2;

    pub(super) fn new(config: CacheConfig) -> Self {
        let keeper = ObjectKeeper::new(&config);
        let history = History::new(config.limits());
        let groups = WatchGroups::new(config.trigger);
        let dispatched = AtomicU64::new(history.head());
        let state = CacheState {
            current: None,
            confirmed: None,
            confirmed_before: VecDeque::new(),
            history,
            generation: 0,
            began: Order::now(),
            reset_at: None,
            moved: Order::now(),
            gap_end: 0,
            has_gap: false,
            lacks: None,
        };
        Self {
            config,
            keeper,
            state: Mutex::new(state),
            published: ArcSwapOption::empty(),
            ready: Ready::new(),
            groups: RwLock::new(groups),
            dispatched_rv: AtomicU64::new(0),
            unsure: AtomicU64::new(0),
            listed_rv: AtomicU64::new(0),
            dispatched,
            work: Notify::new(),
            moved: Notify::new(),
            draining: AtomicU64::new(Self::SERVING),
            dispatcher_runs: AtomicBool::new(false),
            counters: Counters::default(),
            form: ArcSwapOption::empty(),
            bookmark_template: ArcSwapOption::empty(),
        }
    }

    /// Takes no lock.
    pub(super) fn snapshot(&self) -> Option<Snapshot> {
        self.published.load_full().map(|inner| Snapshot { inner })
    }

    /// The revision up to which all changes have come, of a state at `rv`: one less while more deletions of `rv` may follow.
    pub(super) fn certain(&self, rv: ResourceVersion) -> ResourceVersion {
        let is_sure = self.unsure.load(Ordering::Acquire) != rv.0;
        if is_sure { rv } else { ResourceVersion(rv.0.saturating_sub(1)) }
    }

    pub(super) fn is_published(&self) -> bool {
        self.published.load().is_some()
    }

    /// Publishes a new state to all readers. The caller holds the state lock and has already updated the history.
    pub(super) fn publish(&self, state: &mut CacheState, snapshot: Snapshot) {
        if let Some(current) = &state.current
            && snapshot.rv() < current.rv()
        {
            let detail = format_args!("{} after {}", snapshot.rv(), current.rv());
            violated(Invariant::NeverGoesBack, &self.config.resource, detail);
        }
        if state.confirmed.as_ref().is_none_or(|confirmed| confirmed.rv() <= snapshot.rv()) {
            state.unconfirm();
            self.published.store(Some(snapshot.inner.clone()));
        }
        state.current = Some(snapshot);
        self.unsure.store(0, Ordering::Release);
        state.moved = Order::now();
    }

    /// See [`super::WatchCache::confirm`].
    pub(super) fn confirm(&self, snapshot: &Snapshot, rv: ResourceVersion, asked: Order) -> bool {
        let mut state = self.state.lock();
        let newest = self.published.load().as_ref().is_some_and(|newest| Arc::ptr_eq(newest, &snapshot.inner));
        let holds = newest && state.began < asked;
        if holds && rv > snapshot.rv() {
            let confirmed = Snapshot::new(rv, snapshot.store().clone());
            self.published.store(Some(confirmed.inner.clone()));
            if let Some(before) = state.confirmed.replace(confirmed) {
                if state.confirmed_before.len() >= CONFIRMATIONS {
                    state.confirmed_before.pop_front();
                }
                state.confirmed_before.push_back(before.rv());
            }
            self.ready.confirmed(rv);
            state.moved = asked;
        }
        holds
    }

    /// Appends an event; `after` is the state after it.
    pub(super) fn append(&self, state: &mut CacheState, event: WatchCacheEvent, after: &Store, now: Instant) {
        let newest = state.history.floor().max(state.history.newest().unwrap_or_default());
        let together = event.kind == EventType::Deleted && state.history.newest() == Some(event.rv);
        if event.rv <= newest && !together {
            let detail = format_args!("{} of {} after {newest}", event.rv, event.key());
            violated(Invariant::HistoryContiguous, &self.config.resource, detail);
        }
        state.history.push(Arc::new(event), after, now);
    }

    /// A list at `to` took the place of the events after `from`. All caches of the resource share this: its readers come from
    /// one to another, and come back after the state was given up.
    pub(super) fn add_gap(&self, state: &mut CacheState, from: ResourceVersion, to: ResourceVersion) {
        state.has_gap = true;
        self.config.floor.lacks(from, to);
    }

    /// Raises the floor of the resource, so that no other answer shows an older state. It must be raised before the cache
    /// stops to answer, and clients come to others.
    pub(super) fn leave(&self) {
        let state = self.state.lock();
        if state.current.is_some() {
            let (floor, newest) = (&self.config.floor, self.ready.newest());
            floor.left(state.changed(), newest);
            if let Some(lacks) = state.lacks {
                floor.left_lacking(lacks, newest);
            }
        }
    }

    /// Gives the state up: revisions may restart after this. All watchers end.
    pub(super) fn reset(&self, why: &str, reason: EndReason, stopped: bool) {
        let mut state = self.state.lock();
        self.published.store(None);
        state.current = None;
        state.reset_at = Some(Order::now());
        self.ready.not_ready(why, stopped);
        self.forget(&mut state, ResourceVersion::ZERO, reason);
    }

    /// Ends all watchers and empties the history; the next event follows `rv`.
    pub(super) fn forget(&self, state: &mut CacheState, rv: ResourceVersion, reason: EndReason) -> usize {
        state.generation += 1;
        state.began = Order::now();
        state.unconfirm();
        state.history.reset(rv);
        state.gap_end = 0;
        state.has_gap = false;
        let ended = self.groups.write().close_all(reason, state.generation);
        // Not before the groups are closed, because watchers use this as the revision of a bookmark.
        self.dispatched.store(state.history.head(), Ordering::Release);
        self.dispatched_rv.store(rv.0, Ordering::Release);
        ended
    }
}
