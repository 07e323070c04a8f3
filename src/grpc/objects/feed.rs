//! The event source of a watch: either its position in the cache, or a task that takes its events from the cache and
//! merges them until the consumer is ready.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep};

use super::conflate::{Change, Conflator};
use crate::grpc::metrics::GrpcMetrics;
use crate::lifecycle;
use crate::memory::{HURRY, Ledger, Level, Pressure, Reservation};
use crate::meta::{Object, ObjectKey, ResourceVersion};
use crate::reads::{CacheWatcher, EndReason, WatcherEvent};

/// One item of a watch, and the revision up to which the client has all changes once the item is delivered.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) event: WatcherEvent,
    pub(super) complete: ResourceVersion,
    /// See [`CacheWatcher::received`].
    pub(super) received: Option<Instant>,
}

#[derive(Debug)]
pub(super) enum Feed {
    Direct(CacheWatcher),
    Conflated(Conflated),
}

/// The consumer's side of a merging task.
#[derive(Debug)]
pub(super) struct Conflated {
    shared: Arc<SharedPending>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct SharedPending {
    pending: Mutex<Pending>,
    /// Notifies the task that an item was taken.
    taken: Notify,
    pressure: Pressure,
    metrics: Arc<GrpcMetrics>,
}

/// The pending state of an object, as in a [`WatcherEvent`], and when it was received.
type Latest = (Arc<Object>, Option<ResourceVersion>, Option<Instant>);

#[derive(Debug)]
struct Pending {
    conflator: Conflator<ObjectKey, Latest>,
    /// The revision of the snapshot, until the end of the snapshot is delivered.
    snapshot: Option<ResourceVersion>,
    /// The number of pending objects of the snapshot.
    unsent: usize,
    in_snapshot: bool,
    bookmark: bool,
    end: Option<EndReason>,
    waker: Option<Waker>,
    /// The counts that were last added to the gauges.
    counted: (usize, usize),
    /// The memory for what is pending here and nowhere else.
    own: Reservation,
    /// The most bytes of it, so that one watch leaves room for others.
    most_own: usize,
}

/// The most pending changes of one conflated watch, by number and by bytes. A watch that exceeds either is reset, unless its
/// snapshot is still being sent: then no more is taken.
const MAX_PENDING: usize = 100_000;
const MAX_PENDING_BYTES: usize = 256 << 20;
/// The limit in bytes while memory is short: a pending change may hold the last reference to an object.
const SHORT_PENDING_BYTES: usize = 1 << 20;
/// The steps in bytes by which memory is reserved.
const STEP: usize = 1 << 10;
/// One watch may hold this part of the memory for all answers.
const SHARE: usize = 8;
/// What needs no more bytes than this is no reason to end a watch, or to take no more of its snapshot.
const LITTLE: usize = 16 << 10;
/// The most objects of a snapshot that are taken before the consumer asks for them.
const SNAPSHOT_AHEAD: usize = 4096;
/// The most events that are taken in one turn of the task.
const TURN: usize = 1024;

// === impl Feed ===

impl Feed {
    /// Returns the next item, or the reason why the watch has ended.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Item, EndReason>> {
        match self {
            Self::Direct(watcher) => match std::task::ready!(watcher.poll_next(cx)) {
                Some(event) => {
                    Poll::Ready(Ok(Item { event, complete: watcher.complete(), received: watcher.received() }))
                }
                None => Poll::Ready(Err(watcher.end_reason().unwrap_or(EndReason::Stopped))),
            },
            Self::Conflated(conflated) => conflated.shared.poll_next(cx),
        }
    }

    /// See [`CacheWatcher::is_caught_up`].
    pub(super) fn is_caught_up(&self) -> bool {
        matches!(self, Self::Direct(watcher) if watcher.is_caught_up())
    }

    /// See [`CacheWatcher::is_paused`].
    pub(super) fn is_paused(&self) -> bool {
        matches!(self, Self::Direct(watcher) if watcher.is_paused())
    }

    /// Requests the end of the watch. Pending merged changes are not sent; the resume token does not cover them.
    pub(super) fn end(&mut self) {
        match self {
            Self::Direct(watcher) => watcher.end(true),
            Self::Conflated(conflated) => {
                conflated.task.abort();
                conflated.shared.over(EndReason::Drained);
            }
        }
    }
}

// === impl Conflated ===

impl Conflated {
    pub(super) fn start(watcher: CacheWatcher, in_snapshot: bool, ledger: &Ledger, metrics: &Arc<GrpcMetrics>) -> Self {
        let pending = Pending {
            conflator: Conflator::new(),
            snapshot: None,
            unsent: 0,
            in_snapshot,
            bookmark: false,
            end: None,
            waker: None,
            counted: (0, 0),
            own: ledger.nothing(),
            most_own: ledger.limit() / SHARE,
        };
        let (pressure, metrics) = (ledger.pressure().clone(), Arc::clone(metrics));
        let shared = Arc::new(SharedPending { pending: Mutex::new(pending), taken: Notify::new(), pressure, metrics });
        let task = lifecycle::spawn("conflate", Arc::clone(&shared).run(watcher));
        Self { shared, task }
    }
}

impl Drop for Conflated {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl SharedPending ===

impl SharedPending {
    async fn run(self: Arc<Self>, mut watcher: CacheWatcher) {
        let mut levels = self.pressure.changes();
        let mut left = TURN;
        loop {
            // Wait for the consumer while a snapshot is sent: the cache holds its objects anyway, and a new snapshot would
            // need no less.
            while self.pending.lock().is_far_ahead(self.pressure.level()) {
                let is_short = self.pressure.level() == Level::Short;
                tokio::select! {
                    () = self.taken.notified() => {}
                    Ok(()) = levels.changed() => {}
                    // The cache may have replaced the objects by now, so that they are held here alone.
                    () = sleep(HURRY), if is_short => return self.over(EndReason::TooSlow),
                }
            }
            // A long window or snapshot is not taken in one turn. But who yields too often falls out of a short window.
            if left == 0 {
                yield_now().await;
                left = TURN;
            }
            left -= 1;
            let next = match watcher.next().now_or_never() {
                Some(next) => Some(next),
                None if watcher.is_paused() => {
                    left = 0;
                    continue;
                }
                None => {
                    left = TURN;
                    tokio::select! {
                        next = watcher.next() => Some(next),
                        // A watch without new events may have to go, too.
                        Ok(()) = levels.changed() => None,
                    }
                }
            };
            let fits = match next {
                None => self.with(|pending| pending.fits(self.pressure.level())),
                Some(Some(event)) => self.with(|pending| {
                    pending.take(event, watcher.complete(), watcher.received());
                    pending.fits(self.pressure.level())
                }),
                Some(None) => return self.over(watcher.end_reason().unwrap_or(EndReason::Stopped)),
            };
            if !fits {
                return self.over(EndReason::TooSlow);
            }
        }
    }

    fn over(&self, reason: EndReason) {
        self.with(|pending| {
            pending.end.get_or_insert(reason);
            // The pending changes are still in the cache, or no longer needed.
            pending.conflator = Conflator::new();
            // It would name what is not sent any more, or come before the end of the snapshot.
            pending.bookmark = false;
            pending.give_back();
        });
    }

    /// Changes the pending state and wakes the consumer.
    fn with<T>(&self, change: impl FnOnce(&mut Pending) -> T) -> T {
        let mut pending = self.pending.lock();
        let merged = pending.conflator.merged();
        let result = change(&mut pending);
        self.metrics.conflated.inc_by(pending.conflator.merged().saturating_sub(merged));
        self.count(&mut pending);
        let waker = pending.waker.take();
        drop(pending);
        if let Some(waker) = waker {
            waker.wake();
        }
        result
    }

    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Result<Item, EndReason>> {
        let mut pending = self.pending.lock();
        let next = pending.next();
        pending.give_back();
        self.count(&mut pending);
        match next {
            Some(item) => {
                drop(pending);
                self.taken.notify_one();
                Poll::Ready(Ok(item))
            }
            None => match pending.end {
                Some(reason) => Poll::Ready(Err(reason)),
                None => {
                    pending.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            },
        }
    }

    fn count(&self, pending: &mut Pending) {
        let now = (pending.conflator.len(), pending.conflator.bytes());
        self.metrics.pending.inc_by(change(pending.counted.0, now.0));
        self.metrics.pending_bytes.inc_by(change(pending.counted.1, now.1));
        pending.counted = now;
    }
}

impl Drop for SharedPending {
    fn drop(&mut self) {
        let pending = self.pending.get_mut();
        self.metrics.pending.inc_by(change(pending.counted.0, 0));
        self.metrics.pending_bytes.inc_by(change(pending.counted.1, 0));
    }
}

/// The difference to add to a gauge.
fn change(from: usize, to: usize) -> i64 {
    i64::try_from(to).unwrap_or(i64::MAX) - i64::try_from(from).unwrap_or(i64::MAX)
}

// === impl Pending ===

impl Pending {
    /// The consumer does not have the whole snapshot yet.
    fn is_sending_snapshot(&self) -> bool {
        self.in_snapshot || self.snapshot.is_some()
    }

    /// Whether nothing more should be taken before the consumer has taken something.
    fn is_far_ahead(&self, level: Level) -> bool {
        let is_enough = self.in_snapshot && self.unsent >= SNAPSHOT_AHEAD;
        self.is_sending_snapshot() && (is_enough || self.is_too_much(level))
    }

    fn is_too_much(&self, level: Level) -> bool {
        let most = if level == Level::Short { SHORT_PENDING_BYTES } else { MAX_PENDING_BYTES };
        let lacks_memory = self.needs() > self.own.bytes().max(LITTLE);
        lacks_memory || self.conflator.len() > MAX_PENDING || self.conflator.bytes() > most
    }

    /// The memory for what nobody else holds.
    fn needs(&self) -> usize {
        self.conflator.own().next_multiple_of(STEP)
    }

    fn give_back(&mut self) {
        self.own.shrink(self.own.bytes().saturating_sub(self.needs()));
    }

    /// Reserves memory, or gives it back. Returns false if the watch has to end, because there is too little.
    fn fits(&mut self, level: Level) -> bool {
        self.give_back();
        let (needs, more) = (self.needs(), self.needs().saturating_sub(self.own.bytes()));
        if more > 0 && needs <= self.most_own {
            // Without the memory, it goes on with little, or waits. `is_too_much` sees that it has none.
            let can_do_without = needs <= LITTLE || self.is_sending_snapshot();
            let _grown = if can_do_without { self.own.try_grow(more) } else { self.own.grow(more) };
        }
        self.is_sending_snapshot() || !self.is_too_much(level)
    }

    /// `complete` is the revision up to which all changes were taken with this one.
    fn take(&mut self, event: WatcherEvent, complete: ResourceVersion, received: Option<Instant>) {
        // A task that was told to end goes on until it waits for something. What it takes comes after changes that were dropped.
        if self.end.is_some() {
            return;
        }
        match event {
            WatcherEvent::Event { kind, object, rv: shown } => {
                let (key, size, rv) = (object.key.clone(), object.size(), shown.unwrap_or(object.rv));
                let change = Change { kind, value: (object, shown, received), rv };
                if self.in_snapshot {
                    self.unsent += 1;
                    self.conflator.state(key, change, size);
                } else {
                    self.conflator.push(key, change, size);
                    self.conflator.reached(complete);
                }
            }
            WatcherEvent::Bookmark { initial_end: true, .. } => {
                self.in_snapshot = false;
                self.snapshot = Some(complete);
                self.conflator.reached(complete);
            }
            WatcherEvent::Bookmark { rv, .. } => {
                self.conflator.reached(rv);
                self.bookmark = true;
            }
            WatcherEvent::Error(_) => {}
        }
    }

    fn next(&mut self) -> Option<Item> {
        if self.unsent == 0
            && let Some(rv) = self.snapshot.take()
        {
            let event = WatcherEvent::Bookmark { rv, initial_end: true };
            return Some(Item { event, complete: rv, received: None });
        }
        if let Some(Change { kind, value: (object, rv, received), .. }) = self.conflator.pop() {
            self.unsent = self.unsent.saturating_sub(1);
            let event = WatcherEvent::Event { kind, object, rv };
            return Some(Item { event, complete: self.conflator.complete(), received });
        }
        if std::mem::take(&mut self.bookmark) {
            let rv = self.conflator.complete();
            let event = WatcherEvent::Bookmark { rv, initial_end: false };
            return Some(Item { event, complete: rv, received: None });
        }
        None
    }
}

#[cfg(test)]
#[path = "feed_tests.rs"]
mod tests;
