//! The sliding window of events of a watch cache. A watch may start from it, and an Exact list may be rebuilt from it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::checkpoints::{Checkpoints, Mark, Rebuild};
use super::store::Store;
use crate::meta::{EventType, ResourceVersion, WatchCacheEvent};

/// The limits of the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) min_age: Duration,
    pub(super) min_events: usize,
    pub(super) max_events: usize,
    pub(super) max_bytes: usize,
}

/// The sliding window: the newest events, in order, each with the object before it.
#[derive(Debug)]
pub(super) struct History {
    limits: Limits,
    events: VecDeque<WindowEntry>,
    /// Position of the front of `events`. Positions count all events in the life of the cache and are never reused.
    first: u64,
    /// Memory that the window uses in addition to the store.
    bytes: usize,
    /// The same if all packed objects became plain.
    plain_bytes: usize,
    /// Everything that has left the window so far.
    left: Left,
    /// Revision of the last list: events up to it are kept only for watchers that were already open.
    list_rv: ResourceVersion,
    /// The oldest deliverable revision minus one.
    floor: ResourceVersion,
    checkpoints: Checkpoints,
    /// Counts lists. A state that was rebuilt before the last list is invalid after it.
    epoch: u64,
}

#[derive(Debug)]
struct WindowEntry {
    event: Arc<WatchCacheEvent>,
    at: Instant,
    memory: Memory,
}

/// The memory of an event in addition to the store, at most 4 GiB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// In bytes, with objects in the form that they had when the event was added.
    pub(super) present: u32,
    /// In bytes, once packed objects have become plain.
    pub(super) plain: u32,
}

/// The total of everything that has left the window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Left {
    pub(super) events: u64,
    pub(super) bytes: u64,
}

/// The requested position has left the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Passed;

/// The first position. There is room before it for events that are added later by a backfill.
pub(super) const FIRST: u64 = 1 << 62;

/// Maximum number of events examined under the lock for one read: about ten microseconds.
const LOOKS: usize = 256;

// === impl History ===

impl History {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            events: VecDeque::new(),
            first: FIRST,
            bytes: 0,
            plain_bytes: 0,
            left: Left::default(),
            list_rv: ResourceVersion::ZERO,
            floor: ResourceVersion::ZERO,
            checkpoints: Checkpoints::new(FIRST),
            epoch: 0,
        }
    }

    /// Appends an event; `after` is the state after it. Its revision must be greater than all before, or the same if
    /// objects were deleted together.
    pub(super) fn push(&mut self, event: Arc<WatchCacheEvent>, after: &Store, now: Instant) {
        let memory = Memory::of(&event);
        self.count(memory);
        self.events.push_back(WindowEntry { event, at: now, memory });
        self.checkpoints.reached(self.head(), after);
    }

    /// Drops events that are too old or too many, but never `keep`, the first event that is not yet dispatched, or
    /// later ones.
    pub(super) fn evict(&mut self, now: Instant, keep: u64) {
        self.evict_to(self.limits.max_bytes, now, keep);
    }

    /// Like [`Self::evict`], but continues until `excess` bytes are free.
    pub(super) fn shrink(&mut self, excess: usize, now: Instant, keep: u64) {
        self.evict_to(self.bytes.saturating_sub(excess), now, keep);
    }

    fn evict_to(&mut self, max_bytes: usize, now: Instant, keep: u64) {
        let before = self.first;
        while self.first < keep
            && let Some(front) = self.events.front()
        {
            let crowded = self.events.len() > self.limits.max_events || self.bytes > max_bytes;
            let stale = self.events.len() > self.limits.min_events
                && now.saturating_duration_since(front.at) > self.limits.min_age;
            if !crowded && !stale {
                break;
            }
            let memory = front.memory;
            self.bytes -= memory.present as usize;
            self.plain_bytes -= memory.plain as usize;
            self.left.events += 1;
            self.left.bytes += u64::from(memory.present);
            let rv = front.event.rv;
            self.events.pop_front();
            self.first += 1;
            if rv > self.list_rv {
                // The next event may have the same revision.
                self.floor = self.events.front().map_or(rv, |front| rv.max(ResourceVersion(front.event.rv.0 - 1)));
            }
        }
        if self.first > before {
            self.checkpoints.evict(self.first);
        }
    }

    /// Called after a list at `rv` whose difference was pushed. Open watches continue through it. But no new watch may
    /// start, and no state is known, before `rv`, because the changes in between are unknown.
    pub(super) fn cut(&mut self, rv: ResourceVersion) {
        self.list_rv = rv;
        self.floor = rv;
        self.epoch += 1;
        self.checkpoints = Checkpoints::new(self.head());
    }

    /// Drops everything; the next event follows `rv`.
    pub(super) fn reset(&mut self, rv: ResourceVersion) {
        self.first = self.head();
        self.events.clear();
        (self.bytes, self.plain_bytes) = (0, 0);
        self.cut(rv);
    }

    /// The revision after which the window begins, if it still holds all events since then: nothing was dropped, and no
    /// event stands for a gap.
    pub(super) fn beginning(&self) -> Option<ResourceVersion> {
        let whole = self.floor == self.list_rv && self.oldest().is_none_or(|oldest| oldest > self.floor);
        whole.then_some(self.floor)
    }

    pub(super) fn has_room(&self, events: usize, bytes: usize) -> bool {
        self.events.len() + events <= self.limits.max_events && self.bytes + bytes <= self.limits.max_bytes
    }

    /// Adds the events after `from` before all others. They get the age of new events.
    pub(super) fn prepend(&mut self, events: Vec<WatchCacheEvent>, from: ResourceVersion, now: Instant) {
        self.first -= events.len() as u64;
        for event in events.into_iter().rev() {
            let memory = Memory::of(&event);
            self.count(memory);
            self.events.push_front(WindowEntry { event: Arc::new(event), at: now, memory });
        }
        self.list_rv = from;
        self.floor = from;
    }

    /// Changes whenever a whole state was taken: states and positions from before do not lead to those after it.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The position of the next event.
    pub(super) fn head(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// The oldest deliverable revision minus one: the oldest revision that a watch may start after, and the oldest
    /// known state.
    pub(super) fn floor(&self) -> ResourceVersion {
        self.floor
    }

    /// Revision of the oldest event in the window.
    pub(super) fn oldest(&self) -> Option<ResourceVersion> {
        self.events.front().map(|entry| entry.event.rv)
    }

    pub(super) fn newest(&self) -> Option<ResourceVersion> {
        self.events.back().map(|entry| entry.event.rv)
    }

    /// The newest revision after `rv` of an event that `concerns` accepts. Events that cannot be examined, because they
    /// are before the window or beyond [`LOOKS`], count as accepted.
    pub(super) fn concerned_since(
        &self,
        rv: ResourceVersion,
        concerns: impl Fn(&WatchCacheEvent) -> bool,
    ) -> Option<ResourceVersion> {
        let known = rv.max(self.floor);
        let newer = self.events.iter().rev().map(|entry| &entry.event).take_while(|event| event.rv > known);
        let found = newer.enumerate().find(|(looked, event)| *looked >= LOOKS || concerns(event));
        found.map(|(_, event)| event.rv).or((self.floor > rv).then_some(self.floor))
    }

    pub(super) fn age(&self, now: Instant) -> Duration {
        self.events.front().map_or(Duration::ZERO, |entry| now.saturating_duration_since(entry.at))
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What the window would use if all its packed objects became plain.
    pub(super) fn plain_bytes(&self) -> usize {
        self.plain_bytes
    }

    fn count(&mut self, memory: Memory) {
        self.bytes += memory.present as usize;
        self.plain_bytes += memory.plain as usize;
    }

    pub(super) fn left(&self) -> Left {
        self.left
    }

    /// Position of the first event with a revision greater than `rv`.
    pub(super) fn position_after(&self, rv: ResourceVersion) -> u64 {
        self.first + self.events.partition_point(|entry| entry.event.rv <= rv) as u64
    }

    /// The revision up to which the events before `position` are complete. That is the revision of the event before it,
    /// or one less if the next event has the same revision; but at least that of the last list.
    pub(super) fn before(&self, position: u64) -> Option<ResourceVersion> {
        let index = position.checked_sub(self.first + 1)? as usize;
        let rv = self.events.get(index)?.event.rv;
        let is_split = self.events.get(index + 1).is_some_and(|next| next.event.rv == rv);
        let complete = if is_split { ResourceVersion(rv.0 - 1) } else { rv };
        Some(complete.max(self.list_rv))
    }

    /// Appends up to `max` events to `out`, starting at `position` and ending before `until`.
    pub(super) fn read(
        &self,
        position: u64,
        until: u64,
        max: usize,
        out: &mut impl Extend<Arc<WatchCacheEvent>>,
    ) -> Result<(), Passed> {
        let Some(from) = position.checked_sub(self.first) else { return Err(Passed) };
        let until = until.min(self.head()).saturating_sub(self.first);
        // At most the length of the deque, so it fits into usize.
        let (from, until) = (from as usize, until as usize);
        if from < until {
            out.extend(self.events.range(from..until).take(max).map(|entry| entry.event.clone()));
        }
        Ok(())
    }

    /// Returns how to rebuild the newest state that is not newer than `rv`, which must not be below the floor.
    /// `current` is the state at the head.
    pub(super) fn rebuild(&self, rv: ResourceVersion, current: &Store) -> Rebuild {
        let target = self.position_after(rv);
        let from = self.checkpoints.next(target);
        let from = from.unwrap_or_else(|| Mark { position: self.head(), store: current.clone() });
        let (start, end) = ((target - self.first) as usize, (from.position - self.first) as usize);
        let undo = self.events.range(start..end).rev().map(|entry| entry.event.clone()).collect();
        Rebuild { epoch: self.epoch, position: target, store: from.store, undo }
    }

    /// Keeps a rebuilt state for the next page.
    pub(super) fn remember(&mut self, rebuilt: &Rebuild) {
        if rebuilt.epoch == self.epoch && (self.first..self.head()).contains(&rebuilt.position) {
            self.checkpoints.remember(rebuilt);
        }
    }
}

/// The memory of an event in addition to the store if its objects are plain.
pub(super) fn memory(event: &WatchCacheEvent) -> usize {
    Memory::of(event).plain as usize
}

// === impl Memory ===

impl Memory {
    /// The store has the new object, so this counts the object that it replaced, and the last state of a deleted one.
    pub(super) fn of(event: &WatchCacheEvent) -> Self {
        let own = std::mem::size_of::<WatchCacheEvent>() + std::mem::size_of::<WindowEntry>();
        let (present, most) = event.prev.as_ref().map_or((0, 0), |prev| prev.size_beside(&event.object));
        let deleted = if event.kind == EventType::Deleted { event.object.size() } else { 0 };
        let sum = |bytes: usize| u32::try_from(own + deleted + bytes).unwrap_or(u32::MAX);
        Self { present: sum(present), plain: sum(most) }
    }
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
