//! One client's watch: a place in the history, not a queue.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use super::groups::WatchGroup;
use super::initial::{Listing, Replay, Step};
use super::invariants::{Invariant, violated};
use super::ring::Next;
use super::schedule::Schedule;
use super::shared::Shared;
use super::store::Snapshot;
use crate::meta::{EventType, Object, ResourceVersion, Status, WatchCacheEvent};
use crate::selector::Predicate;

/// What a watch asks for.
#[derive(Clone, Debug)]
pub struct WatchSpec {
    pub predicate: Predicate,
    pub start: WatchStart,
    /// Bookmarks about every minute and shortly before the deadline.
    pub bookmarks: bool,
    /// A bookmark that marks the end of the initial events ([`WatchStart::State`] only), whatever `bookmarks` says.
    pub initial_end: bool,
    /// The clean end.
    pub deadline: Instant,
}

/// Where a watch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// With an ADDED for every object of the present state.
    State,
    /// After a revision, with the events since. One of the future is accepted: nothing up to it is delivered.
    After(ResourceVersion),
    /// After the present state.
    Now,
}

/// One item of a watch.
#[derive(Clone, Debug)]
pub enum WatcherEvent {
    Event {
        kind: EventType,
        object: Arc<Object>,
        /// What `metadata.resourceVersion` must say instead of the object's own: of an object that left the
        /// selection, the last state that matched is sent with the revision at which it left.
        rv: Option<ResourceVersion>,
    },
    Bookmark {
        rv: ResourceVersion,
        initial_end: bool,
    },
    /// Ends the stream. The cache never sends one; it is here for those who answer in its place.
    Error(Box<Status>),
}

/// Why a watcher ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    Deadline,
    /// The window has passed an event that the watcher had not taken.
    TooSlow,
    /// A relist found an object gone that the watcher holds: when it went is unknown.
    Relisted,
    /// The cache gave up its state.
    NotReady,
    /// The writer is gone: the informer stopped.
    Stopped,
    /// Asked to end ([`super::WatchCache::end_watchers`], [`CacheWatcher::end`]).
    Drained,
}

/// A watcher. It registers with [`super::WatchCache::watch`] and leaves when dropped.
///
/// Its life is an initial part, from an immutable snapshot or from the history, and then its group's ring. It holds
/// no events: a client that does not read costs its place in the ring. Poll it from a task of a tokio runtime with time.
#[derive(Debug)]
pub struct CacheWatcher {
    membership: Membership,
    phase: Phase,
    initial_end: bool,
    /// What the initial part covers: no live event or bookmark up to it is delivered.
    live_after: ResourceVersion,
    /// The last event's or bookmark's revision, from the end of the initial list on.
    last: ResourceVersion,
    schedule: Schedule,
    drain: Option<bool>,
    end: Option<EndReason>,
    received: Option<Instant>,
}

/// A watcher's place in its group, given up on drop.
#[derive(Debug)]
pub(super) struct Membership {
    pub(super) shared: Arc<Shared>,
    pub(super) group: Arc<WatchGroup>,
    pub(super) slot: u32,
    left: bool,
}

#[derive(Debug)]
pub(super) enum Phase {
    Listing(Box<Listing>),
    Replay(Box<Replay>),
    InitialEnd,
    Live,
}

// === impl WatcherEvent ===

impl WatcherEvent {
    /// A change as a predicate sees it.
    pub(super) fn of(kind: EventType, event: &WatchCacheEvent) -> Self {
        match (&event.prev, kind) {
            (Some(prev), EventType::Deleted) if event.kind != EventType::Deleted => {
                Self::Event { kind, object: prev.clone(), rv: Some(event.rv) }
            }
            _ => Self::Event { kind, object: event.object.clone(), rv: None },
        }
    }
}

// === impl EndReason ===

impl EndReason {
    /// Whether the cache ended the watcher although nobody asked for it.
    pub fn is_termination(self) -> bool {
        matches!(self, Self::TooSlow | Self::Relisted | Self::NotReady)
    }

    #[cfg(test)]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::TooSlow => "too_slow",
            Self::Relisted => "relisted",
            Self::NotReady => "not_ready",
            Self::Stopped => "stopped",
            Self::Drained => "drained",
        }
    }
}

// === impl CacheWatcher ===

impl CacheWatcher {
    pub(super) fn new(membership: Membership, spec: &WatchSpec) -> Self {
        let period = membership.shared.config.bookmark_period;
        Self {
            membership,
            phase: Phase::Live,
            initial_end: spec.initial_end,
            live_after: ResourceVersion::ZERO,
            last: ResourceVersion::ZERO,
            schedule: Schedule::new(spec, period),
            drain: None,
            end: None,
            received: None,
        }
    }

    /// The next item; `None` is the clean end, after which there is nothing. Cheap to call in a loop: a burst is one
    /// short lock per event.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatcherEvent>> {
        self.received = None;
        if self.end.is_some() {
            return Poll::Ready(None);
        }
        let now = Instant::now();
        if self.schedule.is_over(now) {
            return self.finish(EndReason::Deadline);
        }
        loop {
            let step = match &mut self.phase {
                Phase::Listing(listing) => listing.step(&self.membership),
                Phase::Replay(replay) => replay.step(&self.membership),
                Phase::InitialEnd => {
                    self.go_live(now, true);
                    self.membership.shared.counters.bookmarks.add(1);
                    return Poll::Ready(Some(WatcherEvent::Bookmark { rv: self.live_after, initial_end: true }));
                }
                Phase::Live => return self.poll_live(now, cx),
            };
            match step {
                Step::Object(object) => {
                    return Poll::Ready(Some(WatcherEvent::Event { kind: EventType::Added, object, rv: None }));
                }
                Step::Event(kind, event) => {
                    self.delivering(&event);
                    return Poll::Ready(Some(WatcherEvent::of(kind, &event)));
                }
                Step::Done if self.initial_end && matches!(self.phase, Phase::Listing(_)) => {
                    self.phase = Phase::InitialEnd;
                }
                Step::Done => self.go_live(now, false),
                Step::Pause => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Step::End(reason) => return self.finish(reason),
            }
        }
    }

    /// The next item, waiting for it.
    pub async fn next(&mut self) -> Option<WatcherEvent> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The revision its live events follow.
    pub fn starts_after(&self) -> ResourceVersion {
        self.live_after
    }

    /// Sets the time between bookmarks for this watcher alone.
    pub fn set_bookmark_period(&mut self, period: Duration) {
        self.schedule.set_period(Instant::now(), period);
    }

    /// When the item that was polled last came from the apiserver, if it is an event that the watch was there for: what it
    /// begins with is as old as it is.
    pub fn received(&self) -> Option<Instant> {
        self.received
    }

    /// Why the watcher ended, once it has.
    pub fn end_reason(&self) -> Option<EndReason> {
        self.end
    }

    /// Ends this watcher as soon as it has delivered what there is, with a last bookmark if it takes bookmarks and
    /// `last_bookmark` says so. It is to be polled after this.
    pub fn end(&mut self, last_bookmark: bool) {
        self.drain = Some(last_bookmark);
    }

    /// Starts the initial part, with the state to list, if any; `last` is what the first replayed event must follow.
    /// False if the group has ended.
    pub(super) fn begin(
        &mut self,
        phase: Phase,
        listed: Option<Snapshot>,
        last: ResourceVersion,
        live_after: ResourceVersion,
    ) -> bool {
        {
            let mut ring = self.membership.group.ring.lock();
            if ring.closed().is_some() {
                return false;
            }
            ring.pin(self.membership.slot, listed);
        }
        self.last = last;
        self.live_after = live_after;
        match phase {
            Phase::Live => self.go_live(Instant::now(), false),
            phase => self.phase = phase,
        }
        true
    }

    #[cfg(test)]
    pub(super) fn closed(&self) -> Option<EndReason> {
        self.membership.group.ring.lock().closed()
    }

    fn go_live(&mut self, now: Instant, marked: bool) {
        self.phase = Phase::Live;
        self.last = self.live_after;
        self.schedule.start(now, marked);
    }

    fn poll_live(&mut self, mut now: Instant, cx: &mut Context<'_>) -> Poll<Option<WatcherEvent>> {
        loop {
            // Before the look at the ring: what is dispatched up to here is then in the ring, so with nothing left
            // there a bookmark of this revision overtakes nothing.
            let dispatched = ResourceVersion(self.membership.shared.dispatched_rv.load(Ordering::Acquire));
            match self.next_entry(cx) {
                Next::Entry(entry) => {
                    self.delivering(&entry.event);
                    self.received = Some(entry.event.received);
                    return Poll::Ready(Some(WatcherEvent::of(entry.kind, &entry.event)));
                }
                Next::CaughtUp => {}
                Next::Overtaken => return self.finish(EndReason::TooSlow),
                Next::Closed(reason) => return self.finish(reason),
            }
            if let Some(last_bookmark) = self.draining() {
                self.drain = Some(false);
                return match self.bookmark(dispatched) {
                    Some(bookmark) if last_bookmark && self.schedule.takes_bookmarks() => Poll::Ready(Some(bookmark)),
                    _ => self.finish(EndReason::Drained),
                };
            }
            if self.schedule.is_due(now) {
                if self.last > self.live_after && dispatched < self.last {
                    // In the middle of a batch, at whose end this watcher is woken.
                    self.schedule.postpone(now);
                } else {
                    self.schedule.advance(now);
                    if let Some(bookmark) = self.bookmark(dispatched) {
                        return Poll::Ready(Some(bookmark));
                    }
                }
            }
            ready!(self.schedule.poll(cx));
            now = Instant::now();
            if self.schedule.is_over(now) {
                return self.finish(EndReason::Deadline);
            }
        }
    }

    /// The next live entry that the initial part does not cover: it was put there between joining the group and
    /// taking the snapshot, or before a revision of the future was reached.
    fn next_entry(&mut self, cx: &Context<'_>) -> Next {
        let mut ring = self.membership.group.ring.lock();
        loop {
            match ring.next(self.membership.slot, cx) {
                Next::Entry(entry) if entry.event.rv <= self.live_after => {}
                next => return next,
            }
        }
    }

    fn draining(&self) -> Option<bool> {
        self.drain.or_else(|| match self.membership.shared.draining.load(Ordering::Acquire) {
            Shared::SERVING => None,
            how => Some(how == Shared::DRAINING_WITH_BOOKMARK),
        })
    }

    fn bookmark(&mut self, dispatched: ResourceVersion) -> Option<WatcherEvent> {
        if dispatched <= self.live_after || dispatched < self.last {
            return None;
        }
        self.last = dispatched;
        self.membership.shared.counters.bookmarks.add(1);
        Some(WatcherEvent::Bookmark { rv: dispatched, initial_end: false })
    }

    fn delivering(&mut self, event: &WatchCacheEvent) {
        let rv = event.rv;
        // Objects that expire together are deleted at one revision.
        if rv < self.last || rv == self.last && event.kind != EventType::Deleted {
            let resource = &self.membership.shared.config.resource;
            violated(Invariant::WatcherOrder, resource, format_args!("event {rv} after {}", self.last));
        }
        self.last = rv;
    }

    fn finish(&mut self, reason: EndReason) -> Poll<Option<WatcherEvent>> {
        let counters = &self.membership.shared.counters;
        counters.terminated.add(u64::from(reason.is_termination()));
        counters.too_slow.add(u64::from(reason == EndReason::TooSlow));
        self.end = Some(reason);
        self.phase = Phase::Live;
        // Not only when dropped: a client may take its time to notice.
        self.membership.leave();
        Poll::Ready(None)
    }
}

// === impl Membership ===

impl Membership {
    pub(super) fn join(shared: &Arc<Shared>, predicate: &Predicate) -> Self {
        let (group, slot) = shared.groups.write().join(predicate);
        Self { shared: shared.clone(), group, slot, left: false }
    }

    fn leave(&mut self) {
        if !std::mem::replace(&mut self.left, true) {
            self.shared.groups.write().leave(&self.group, self.slot);
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.leave();
    }
}
