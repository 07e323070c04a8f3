//! The ring buffer of one group: its live events, and the positions of its watchers in them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};

use parking_lot::{Mutex, MutexGuard};
use slab::Slab;

use super::spec::EndReason;
use super::stats::Standing;
use super::store::Snapshot;
use crate::meta::{EventType, ResourceVersion, WatchCacheEvent};

/// The ring buffer of a group, and how often it has changed.
#[derive(Debug, Default)]
pub(super) struct SharedRing {
    ring: Mutex<Ring>,
    changes: Changes,
}

/// How often an entry was added to the ring, wakers were taken from it, or it was closed. All watchers read this with
/// each event, so it has a line of the processor's cache for itself.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Changes(AtomicU64);

/// The ring buffer of the events that one predicate selects, in order, each with the event type that it has for this
/// predicate. Entries leave when all watchers have passed them, and soon after their event is evicted from the
/// window.
#[derive(Debug, Default)]
pub(super) struct Ring {
    entries: VecDeque<RingEntry>,
    /// Number of the front entry. Entries are numbered from the creation of the group.
    base: u64,
    /// The newest revision that has left with the window.
    dropped: ResourceVersion,
    slots: Slab<Slot>,
    /// The length at which the ring looks for entries that all watchers have passed.
    trim_at: usize,
    /// It has entries whose watchers were not yet woken.
    touched: bool,
    closed: Option<EndReason>,
}

/// An event, and its type for the predicate of the group.
#[derive(Debug)]
pub(super) struct RingEntry {
    pub(super) event: Arc<WatchCacheEvent>,
    pub(super) kind: EventType,
}

/// What a watcher finds at its position.
#[derive(Debug)]
pub(super) enum Next<'a> {
    /// The entry, and the revision of the one that follows it, if there is one.
    Entry(&'a RingEntry, Option<ResourceVersion>),
    CaughtUp,
    /// The watcher was ended, or its next entry was dropped, and its initial part does not cover it.
    End(EndReason),
}

/// The state of one watcher. It is stored here and not in the watcher, so that a client that is never polled does not
/// keep anything in memory.
#[derive(Debug)]
struct Slot {
    cursor: u64,
    waker: Option<Waker>,
    basis: Basis,
}

/// What the cache knows of what a watcher's client holds.
#[derive(Debug)]
pub(super) enum Basis {
    /// All of it: the client has a state that the cache had or was told of, and the events since then.
    Known,
    /// The same; the watcher still has to send the objects of this state.
    Listing(Snapshot),
    /// The client has the state of this revision, which the events had not reached when the watcher began.
    Ahead(ResourceVersion),
    /// The events will never show what the client has: a relist took their place. The watcher ends.
    Lost,
}

/// A ring shorter than this is not trimmed.
const SHORT: usize = 64;

/// The memory of one watcher in its group.
#[cfg(test)]
pub(super) const SLOT_SIZE: usize = size_of::<Option<Slot>>();

// === impl SharedRing ===

impl SharedRing {
    pub(super) fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock()
    }

    /// As long as this number stays the same, a watcher whose waker is stored in the ring has nothing to look for there.
    /// A number that is read while the ring is locked is that of the ring's present content.
    pub(super) fn changes(&self) -> u64 {
        self.changes.0.load(Ordering::Acquire)
    }

    /// Returns true if this is the first entry since the watchers of the group were woken.
    pub(super) fn push(&self, entry: RingEntry) -> bool {
        self.change().push(entry)
    }

    pub(super) fn take_wakers(&self, wakers: &mut Vec<Waker>) {
        self.change().take_wakers(wakers);
    }

    /// Ends all watchers and returns their number.
    pub(super) fn close(&self, reason: EndReason, wakers: &mut Vec<Waker>) -> usize {
        self.change().close(reason, wakers)
    }

    /// Ends the watchers that began ahead of the events, between these revisions. Returns their number.
    pub(super) fn lose(&self, between: (ResourceVersion, ResourceVersion), wakers: &mut Vec<Waker>) -> usize {
        self.change().lose(between, wakers)
    }

    /// Counts before the change, so a watcher that reads the old number has not missed the change yet.
    fn change(&self) -> MutexGuard<'_, Ring> {
        let ring = self.ring.lock();
        self.changes.0.fetch_add(1, Ordering::Release);
        ring
    }
}

// === impl Ring ===

impl Ring {
    /// Adds a watcher after all entries, and returns its place.
    pub(super) fn join(&mut self) -> u32 {
        let cursor = self.end();
        let slot = self.slots.insert(Slot { cursor, waker: None, basis: Basis::Known });
        // A watcher is small, and four billion of them do not fit into memory.
        u32::try_from(slot).unwrap_or(u32::MAX)
    }

    pub(super) fn leave(&mut self, slot: u32) {
        self.slots.try_remove(slot as usize);
    }

    pub(super) fn watchers(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn closed(&self) -> Option<EndReason> {
        self.closed
    }

    /// Why the watcher ends, if it was ended.
    pub(super) fn ended(&self, slot: u32) -> Option<EndReason> {
        let is_lost = |slot: &Slot| matches!(slot.basis, Basis::Lost);
        self.closed.or_else(|| self.slots.get(slot as usize).is_some_and(is_lost).then_some(EndReason::Relisted))
    }

    /// Adds the progress of these watchers to that of others.
    pub(super) fn standing(&self, of_others: Standing) -> Standing {
        let end = self.end();
        self.slots.iter().fold(of_others, |sum, (_, slot)| match slot.basis {
            Basis::Listing(_) => Standing { listing: sum.listing + 1, ..sum },
            _ => Standing { behind: sum.behind + usize::from(slot.cursor < end), ..sum },
        })
    }

    pub(super) fn set_basis(&mut self, slot: u32, basis: Basis) {
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            slot.basis = basis;
        }
    }

    /// The state that the watcher lists, unless it can no longer continue from it.
    pub(super) fn listed(&self, slot: u32) -> Result<Snapshot, EndReason> {
        if let Some(reason) = self.closed {
            return Err(reason);
        }
        match self.slots.get(slot as usize).map(|slot| &slot.basis) {
            Some(Basis::Listing(snapshot)) => Ok(snapshot.clone()),
            _ => Err(EndReason::TooSlow),
        }
    }

    fn push(&mut self, entry: RingEntry) -> bool {
        if self.entries.len() >= self.trim_at.max(SHORT) {
            self.trim_passed();
        }
        self.entries.push_back(entry);
        !std::mem::replace(&mut self.touched, true)
    }

    /// Returns the entry at the watcher's position, and moves the watcher on. If no entry follows, the waker is stored.
    /// The watcher does without entries up to the revision `covered`.
    pub(super) fn next(&mut self, slot: u32, covered: ResourceVersion, cx: &Context<'_>) -> Next<'_> {
        if let Some(reason) = self.ended(slot) {
            return Next::End(reason);
        }
        let Some(slot) = self.slots.get_mut(slot as usize) else { return Next::End(EndReason::TooSlow) };
        if slot.cursor < self.base && self.dropped <= covered {
            slot.cursor = self.base;
        }
        let Some(offset) = slot.cursor.checked_sub(self.base) else { return Next::End(EndReason::TooSlow) };
        // At most the length of the deque, so it fits into usize.
        if let Some(entry) = self.entries.get(offset as usize) {
            slot.cursor += 1;
            let following = self.entries.get(offset as usize + 1).map(|entry| entry.event.rv);
            if following.is_none() {
                slot.register(cx.waker());
            }
            return Next::Entry(entry, following);
        }
        slot.register(cx.waker());
        Next::CaughtUp
    }

    fn take_wakers(&mut self, wakers: &mut Vec<Waker>) {
        self.touched = false;
        wakers.extend(self.slots.iter_mut().filter_map(|(_, slot)| slot.waker.take()));
    }

    fn close(&mut self, reason: EndReason, wakers: &mut Vec<Waker>) -> usize {
        self.closed = Some(reason);
        self.entries = VecDeque::new();
        self.slots.iter_mut().for_each(|(_, slot)| slot.basis = Basis::Known);
        self.take_wakers(wakers);
        self.watchers()
    }

    fn lose(&mut self, (from, to): (ResourceVersion, ResourceVersion), wakers: &mut Vec<Waker>) -> usize {
        let mut lost = 0;
        for (_, slot) in &mut self.slots {
            if matches!(slot.basis, Basis::Ahead(at) if from < at && at < to) {
                slot.basis = Basis::Lost;
                wakers.extend(slot.waker.take());
                lost += 1;
            }
        }
        lost
    }

    /// Drops the entries whose event has left the window, and the entries that all watchers have passed.
    pub(super) fn trim(&mut self, oldest: ResourceVersion) {
        let before = self.base;
        while let Some(rv) = self.entries.front().map(|entry| entry.event.rv).filter(|rv| *rv < oldest) {
            self.entries.pop_front();
            self.base += 1;
            self.dropped = rv;
        }
        if self.base > before {
            // An overtaken watcher ends at its next poll, and need not hold an old state until then.
            let (base, dropped) = (self.base, self.dropped);
            let overtaken = self.slots.iter_mut().filter(|(_, slot)| slot.cursor < base);
            let lists = |basis: &Basis| matches!(basis, Basis::Listing(state) if state.rv() < dropped);
            overtaken.filter(|(_, slot)| lists(&slot.basis)).for_each(|(_, slot)| slot.basis = Basis::Known);
        }
        self.trim_passed();
        if self.entries.capacity() > 4 * self.entries.len().max(SHORT) {
            self.entries.shrink_to(2 * self.entries.len());
        }
    }

    fn trim_passed(&mut self) {
        let end = self.end();
        let passed = self.slots.iter().map(|(_, slot)| slot.cursor).min().unwrap_or(end);
        while self.base < passed && self.entries.pop_front().is_some() {
            self.base += 1;
        }
        // Doubling keeps the cost of the search through all watchers low per entry.
        self.trim_at = 2 * self.entries.len();
    }

    fn end(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    #[cfg(test)]
    pub(super) fn events(&self) -> impl Iterator<Item = &Arc<WatchCacheEvent>> {
        self.entries.iter().map(|entry| &entry.event)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

// === impl Slot ===

impl Slot {
    fn register(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::cache::testing::plain;

    fn push(ring: &mut Ring, rv: u64) {
        let object = Arc::new(plain("a", "b", rv));
        let event = WatchCacheEvent {
            kind: EventType::Modified,
            rv: object.rv,
            prev: Some(object.clone()),
            object,
            received: tokio::time::Instant::now(),
        };
        ring.push(RingEntry { event: Arc::new(event), kind: EventType::Modified });
    }

    fn next(ring: &mut Ring, slot: u32) -> Option<u64> {
        match ring.next(slot, ResourceVersion::ZERO, &Context::from_waker(Waker::noop())) {
            Next::Entry(entry, _) => Some(entry.event.rv.0),
            _ => None,
        }
    }

    #[test]
    fn entries_leave_when_all_who_are_there_have_passed_them() {
        for leaves in [false, true] {
            let mut ring = Ring::default();
            let (fast, slow) = (ring.join(), ring.join());
            for rv in 1..=10_000 {
                push(&mut ring, rv);
                assert_eq!(next(&mut ring, fast), Some(rv));
                if rv % 2 == 0 {
                    assert_eq!(next(&mut ring, slow), Some(rv / 2));
                }
            }
            assert!((5_000..7_000).contains(&ring.len()), "{}", ring.len());
            if leaves {
                ring.leave(slow);
            }
            while next(&mut ring, slow).is_some() {}
            ring.trim(ResourceVersion(1));
            assert_eq!((ring.len(), ring.watchers()), (0, 2 - usize::from(leaves)));
            assert!(ring.entries.capacity() <= 4 * SHORT);
            assert_eq!(ring.join() == slow, leaves, "its place is reused");
        }
    }

    #[test]
    fn the_window_overtakes_a_watcher_and_frees_its_snapshot() {
        let mut ring = Ring::default();
        let [here, gone, covered] = [(); 3].map(|()| ring.join());
        for (slot, rv) in [(here, 0), (gone, 3), (covered, 4)] {
            ring.set_basis(slot, Basis::Listing(Snapshot::empty(ResourceVersion(rv))));
        }
        for rv in 1..=10 {
            push(&mut ring, rv);
        }
        for _ in 0..4 {
            next(&mut ring, here);
        }
        ring.trim(ResourceVersion(5));
        assert!(ring.listed(here).is_ok() && ring.listed(covered).is_ok());
        assert_eq!(ring.listed(gone).unwrap_err(), EndReason::TooSlow);
        let cx = Context::from_waker(Waker::noop());
        assert!(matches!(ring.next(gone, ResourceVersion(3), &cx), Next::End(EndReason::TooSlow)));
        assert!(matches!(ring.next(covered, ResourceVersion(4), &cx), Next::Entry(entry, _) if entry.event.rv.0 == 5));
        assert_eq!(next(&mut ring, here), Some(5));
        ring.close(EndReason::Relisted, &mut Vec::new());
        let lists = |(_, slot): (usize, &Slot)| matches!(slot.basis, Basis::Listing(_));
        assert!(ring.len() == 0 && !ring.slots.iter().any(lists), "whoever does not look holds nothing");
    }
}
