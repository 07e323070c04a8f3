//! The watch of one client: a cursor in the ring buffer of its group, not a queue.

use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use super::initial::{InitialStep, Listing, Replay};
use super::invariants::{Invariant, violated};
use super::membership::Membership;
use super::reached::{Following, Reached};
use super::ring::{Basis, Next, RingEntry};
use super::schedule::Schedule;
use super::shared::SharedCache;
use super::spec::{EndReason, WatchSpec, WatcherEvent};
use crate::meta::{EventType, ResourceVersion};

/// A watcher: the cursor of one watch. It is registered by [`super::WatchCache::watch`] and leaves when dropped.
///
/// It starts with an initial part, from an immutable snapshot or from the history, and then follows its group's ring.
/// It holds no events: a client that does not read only costs its place in the ring. Poll it from a task of a tokio
/// runtime with time enabled.
#[derive(Debug)]
pub struct CacheWatcher {
    membership: Membership,
    phase: Phase,
    initial_end: bool,
    /// Whether a bookmark that is due comes even if the revision did not move.
    is_steady: bool,
    /// The revision that the initial part covers: no live event or bookmark up to it is delivered.
    live_after: ResourceVersion,
    reached: Reached,
    schedule: Schedule,
    /// The changes of the group when the waker of the schedule was also stored in the ring. As long as the group has no
    /// more changes, the ring is not looked at: the processors would pass its lock to each other. Otherwise [`NOWHERE`].
    waits_at: u64,
    drain: Option<bool>,
    end: Option<EndReason>,
    /// Belongs to the item that was polled last.
    delivered: Delivered,
    is_paused: bool,
}

/// What else is known about an item.
#[derive(Clone, Copy, Debug, Default)]
struct Delivered {
    /// When it came from the apiserver, if it is a live event.
    received: Option<Instant>,
    /// From then until it was polled, in microseconds.
    lag: u32,
    /// Nothing follows yet.
    is_last: bool,
}

/// What a watcher takes from the ring.
enum LiveItem {
    Event {
        event: WatcherEvent,
        kind: EventType,
        rv: ResourceVersion,
        received: Instant,
        next: Option<ResourceVersion>,
    },
    CaughtUp,
    End(EndReason),
}

#[derive(Debug)]
pub(super) enum Phase {
    Listing(Box<Listing>),
    Replay(Box<Replay>),
    InitialEnd,
    Live,
}

/// A number of changes that no group reaches.
const NOWHERE: u64 = u64::MAX;

// === impl CacheWatcher ===

impl CacheWatcher {
    pub(super) fn new(membership: Membership, spec: &WatchSpec) -> Self {
        let period = membership.shared.config.bookmark_period;
        Self {
            membership,
            phase: Phase::Live,
            initial_end: spec.initial_end,
            is_steady: false,
            live_after: ResourceVersion::ZERO,
            reached: Reached::default(),
            schedule: Schedule::new(spec, period),
            waits_at: NOWHERE,
            drain: None,
            end: None,
            delivered: Delivered::default(),
            is_paused: false,
        }
    }

    /// Polls the next item; `None` is the clean end, after which nothing follows. Cheap to call in a loop: each event
    /// of a burst costs one short lock.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatcherEvent>> {
        self.delivered = Delivered::default();
        self.is_paused = false;
        if self.end.is_some() {
            return Poll::Ready(None);
        }
        if matches!(self.phase, Phase::Live) {
            return self.poll_live(cx);
        }
        let now = Instant::now();
        if self.schedule.is_over(now) && !self.reached.is_split() {
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
                Phase::Live => return self.poll_live(cx),
            };
            match step {
                InitialStep::Object(object) => {
                    return Poll::Ready(Some(WatcherEvent::Event { kind: EventType::Added, object, rv: None }));
                }
                InitialStep::Event(kind, event, following) => {
                    self.delivering(event.kind, event.rv, following);
                    return Poll::Ready(Some(WatcherEvent::of(kind, &event)));
                }
                InitialStep::Done if self.initial_end && matches!(self.phase, Phase::Listing(_)) => {
                    self.phase = Phase::InitialEnd;
                }
                InitialStep::Done => self.go_live(now, false),
                InitialStep::Pause => {
                    self.is_paused = true;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                InitialStep::End(reason) => return self.finish(reason),
            }
        }
    }

    /// Waits for the next item.
    pub async fn next(&mut self) -> Option<WatcherEvent> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The revision after which its live events start.
    pub fn starts_after(&self) -> ResourceVersion {
        self.live_after
    }

    /// The revision up to which all changes were delivered. It can be less than the revision of the last event: others of
    /// the same revision may follow, or others that a relist has shown. Zero before the initial list is complete.
    pub fn complete(&self) -> ResourceVersion {
        match self.phase {
            Phase::Listing(_) | Phase::InitialEnd => ResourceVersion::ZERO,
            Phase::Replay(_) | Phase::Live => self.reached.complete,
        }
    }

    /// The revision of its last event, if it has ended although changes up to this revision may be missing: others of the
    /// same revision, or those that a list at the same revision has shown. Who continues after that event would never get
    /// them.
    pub fn cut_short_at(&self) -> Option<ResourceVersion> {
        let listed = || self.membership.shared.listed_rv.load(Ordering::Acquire);
        let is_listed = self.end == Some(EndReason::Relisted) && self.reached.last.0 >= listed();
        let split_at = self.split_at().filter(|_| self.end.is_some());
        if is_listed { Some(self.reached.last) } else { split_at }
    }

    /// The revision of its last event, if changes up to it may follow. Who ends it now tells its client the same.
    pub fn split_at(&self) -> Option<ResourceVersion> {
        self.reached.is_split().then_some(self.reached.last)
    }

    /// Sets the time between bookmarks for this watcher only. From now on they come even if the revision did not move:
    /// they tell the client that the watch lives. The apiserver, and so REST, leaves such bookmarks out.
    pub fn set_steady_bookmarks(&mut self, period: Duration) {
        self.is_steady = true;
        self.schedule.set_period(Instant::now(), period);
    }

    /// When the last polled item arrived from the apiserver, if it is a live event. `None` for initial events, because
    /// they may be much older than the watch.
    pub fn received(&self) -> Option<Instant> {
        self.delivered.received
    }

    /// How long the last polled item has been on its way through the cache. `None` as for [`Self::received`].
    pub fn lag(&self) -> Option<Duration> {
        self.delivered.received.map(|_| Duration::from_micros(self.delivered.lag.into()))
    }

    /// Whether the last polled item was the last for now. The next poll finds another one only if it arrives in the
    /// meantime.
    pub fn is_caught_up(&self) -> bool {
        self.delivered.is_last
    }

    /// Whether the last poll was pending only to let other futures run. The task was woken: there is more to do.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Why the watcher ended; `None` before it has.
    pub fn end_reason(&self) -> Option<EndReason> {
        self.end
    }

    /// Ends this watcher as soon as it has delivered all pending events. If the watcher takes bookmarks and
    /// `last_bookmark` is true, a last bookmark follows. The watcher must be polled after this.
    pub fn end(&mut self, last_bookmark: bool) {
        self.drain = Some(last_bookmark);
    }

    /// Starts the initial part. The first replayed event must follow `last`. Returns false if the group has ended.
    pub(super) fn begin(
        &mut self,
        phase: Phase,
        basis: Basis,
        last: ResourceVersion,
        live_after: ResourceVersion,
    ) -> bool {
        {
            let mut ring = self.membership.group.ring.lock();
            if ring.closed().is_some() {
                return false;
            }
            ring.set_basis(self.membership.slot, basis);
        }
        self.reached = Reached::at(last);
        self.live_after = live_after;
        match phase {
            Phase::Live => self.go_live(Instant::now(), false),
            phase => self.phase = phase,
        }
        true
    }

    #[cfg(test)]
    pub(super) fn group(&self) -> &std::sync::Arc<super::group::WatchGroup> {
        &self.membership.group
    }

    #[cfg(test)]
    pub(super) fn ended(&self) -> Option<EndReason> {
        self.membership.group.ring.lock().ended(self.membership.slot)
    }

    fn go_live(&mut self, now: Instant, marked: bool) {
        self.phase = Phase::Live;
        self.reached = Reached { last: self.live_after, complete: self.membership.shared.certain(self.live_after) };
        self.schedule.start(now, marked);
    }

    /// The clock is read once for each event, and once when there is none.
    fn poll_live(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatcherEvent>> {
        loop {
            // Read before the ring: all events that were dispatched up to this revision are then in the ring. So if the
            // ring is empty, a bookmark of this revision overtakes no event.
            let dispatched = ResourceVersion(self.membership.shared.dispatched_rv.load(Ordering::Acquire));
            match self.take(cx) {
                LiveItem::Event { event, kind, rv, received, next } => {
                    let now = Instant::now();
                    if self.schedule.is_over(now) && !self.reached.is_split() {
                        return self.finish(EndReason::Deadline);
                    }
                    self.delivering(kind, rv, next.map_or(Following::NothingUpTo(dispatched), Following::Event));
                    let lag = u32::try_from(now.saturating_duration_since(received).as_micros()).unwrap_or(u32::MAX);
                    self.delivered = Delivered { received: Some(received), lag, is_last: next.is_none() };
                    return Poll::Ready(Some(event));
                }
                LiveItem::CaughtUp => self.reached.caught_up(dispatched),
                LiveItem::End(reason) => return self.finish(reason),
            }
            // What becomes due after this moment wakes the task.
            let now = Instant::now();
            // A client that gets no bookmarks continues after its last event. So a watch that ends by itself first
            // delivers what belongs to that event. The dispatcher is at it; this looks again a moment later. It may take long
            // until the apiserver shows whether there is more.
            let is_sure = self.membership.shared.certain(self.reached.last) == self.reached.last;
            let waits_for_the_rest = is_sure && self.reached.is_split();
            if let Some(last_bookmark) = self.draining() {
                if !waits_for_the_rest {
                    self.drain = Some(false);
                    return match self.bookmark(dispatched) {
                        Some(bookmark) if last_bookmark && self.schedule.takes_bookmarks() => {
                            Poll::Ready(Some(bookmark))
                        }
                        _ => self.finish(EndReason::Drained),
                    };
                }
                // Not the deadline, which would end it without its bookmark.
                self.schedule.postpone(now);
            }
            ready!(self.schedule.poll(cx, now));
            if self.schedule.is_over(now) {
                if !waits_for_the_rest {
                    return self.finish(EndReason::Deadline);
                }
                self.schedule.put_off(now);
            }
            if self.schedule.is_due(now) {
                if is_sure && self.reached.last > self.live_after && dispatched < self.reached.last {
                    // In the middle of a batch; the watcher is woken at its end.
                    self.schedule.postpone(now);
                } else {
                    self.schedule.advance(now);
                    if let Some(bookmark) = self.bookmark(dispatched).or_else(|| self.repeated()) {
                        return Poll::Ready(Some(bookmark));
                    }
                }
            }
        }
    }

    /// Takes the next live event that the initial part does not cover. Covered entries were added between joining the
    /// group and taking the snapshot, or before a future start revision was reached. The ring is locked meanwhile, so the
    /// object is cloned and not the whole entry.
    fn take(&mut self, cx: &Context<'_>) -> LiveItem {
        let group = &self.membership.group;
        let is_known = self.schedule.wakes(cx.waker());
        if is_known && self.waits_at == group.ring.changes() {
            return LiveItem::CaughtUp;
        }
        let mut ring = group.ring.lock();
        let here = if is_known { group.ring.changes() } else { NOWHERE };
        self.waits_at = NOWHERE;
        loop {
            match ring.next(self.membership.slot, self.live_after, cx) {
                Next::Entry(entry, _) if entry.event.rv <= self.live_after => {}
                Next::Entry(RingEntry { event, kind }, next) => {
                    if next.is_none() {
                        self.waits_at = here;
                    }
                    return LiveItem::Event {
                        event: WatcherEvent::of(*kind, event),
                        kind: event.kind,
                        rv: event.rv,
                        received: event.received,
                        next,
                    };
                }
                Next::CaughtUp => {
                    self.waits_at = here;
                    return LiveItem::CaughtUp;
                }
                Next::End(reason) => return LiveItem::End(reason),
            }
        }
    }

    fn draining(&self) -> Option<bool> {
        self.drain.or_else(|| match self.membership.shared.draining.load(Ordering::Acquire) {
            SharedCache::SERVING => None,
            how => Some(how == SharedCache::DRAINING_WITH_BOOKMARK),
        })
    }

    fn bookmark(&mut self, dispatched: ResourceVersion) -> Option<WatcherEvent> {
        if dispatched <= self.live_after || dispatched < self.reached.last {
            return None;
        }
        self.reached = Reached::at(dispatched);
        self.membership.shared.counters.bookmarks.add(1);
        Some(WatcherEvent::Bookmark { rv: dispatched, initial_end: false })
    }

    /// A bookmark of the revision that the client already has.
    fn repeated(&self) -> Option<WatcherEvent> {
        self.is_steady.then(|| {
            self.membership.shared.counters.bookmarks.add(1);
            WatcherEvent::Bookmark { rv: self.reached.complete, initial_end: false }
        })
    }

    fn delivering(&mut self, kind: EventType, rv: ResourceVersion, following: Following) {
        let (shared, last) = (&self.membership.shared, self.reached.last);
        // Objects that expire together are deleted at the same revision.
        if rv < last || rv == last && kind != EventType::Deleted {
            violated(Invariant::WatcherOrder, &shared.config.resource, format_args!("event {rv} after {last}"));
        }
        let listed = ResourceVersion(shared.listed_rv.load(Ordering::Acquire));
        self.reached.event(kind, rv, following, listed);
    }

    fn finish(&mut self, reason: EndReason) -> Poll<Option<WatcherEvent>> {
        let counters = &self.membership.shared.counters;
        counters.terminated.add(u64::from(reason.is_termination()));
        counters.too_slow.add(u64::from(reason == EndReason::TooSlow));
        self.end = Some(reason);
        // A list that is not complete claims nothing at its end, either.
        let is_listing = matches!(self.phase, Phase::Listing(_) | Phase::InitialEnd);
        self.phase = if is_listing { Phase::InitialEnd } else { Phase::Live };
        // Leave now and not only on drop: a client may take a while to notice the end.
        self.membership.leave();
        Poll::Ready(None)
    }
}
