//! Extends the window into the past, with events from before the first list that the apiserver still has.
//!
//! The window of a cache that was just filled begins with its list, so a watch from an older revision could not
//! continue. A backfill consists of the events between an older revision and the list, and the state of each changed
//! object at the older revision. It is used only if it leads to exactly the listed state.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::budget::{Account, Full};
use super::history::memory;
use super::shared::SharedCache;
use super::store::Snapshot;
use super::watch_cache::WatchCache;
use crate::meta::{EventType, Object, ObjectKey, ResourceVersion, WatchCacheEvent};

/// A backfill while it is read. The cache does not change until it is complete. A backfill that is dropped earlier
/// counts as failed.
#[derive(Debug)]
pub struct Backfill {
    shared: Arc<SharedCache>,
    /// The state that the events must lead to, at the revision after which the window begins.
    end: Snapshot,
    generation: u64,
    from: ResourceVersion,
    last: ResourceVersion,
    events: Vec<WatchCacheEvent>,
    /// The state of each object after its last event; `None` if it was deleted.
    held: HashMap<ObjectKey, Option<Arc<Object>>>,
    /// The first event of each object that existed before, in a state that is not known yet: the index into `events`.
    unknown: HashMap<ObjectKey, usize>,
    bytes: usize,
    /// The cache has it once the backfill is complete.
    account: Option<Account>,
}

/// Why a window was not extended. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackfillError {
    #[error("the events are more than the window may hold")]
    Window,
    #[error(transparent)]
    Memory(#[from] Full),
    /// The events contradict each other or the listed state.
    #[error("the events do not lead to the present window: {0}")]
    Doubtful(&'static str),
    #[error("the window is another one by now")]
    Moved,
}

use BackfillError::Doubtful;

// === impl WatchCache ===

impl WatchCache {
    /// The oldest revision that a watch may start after; `None` unless ready.
    pub fn window_floor(&self) -> Option<ResourceVersion> {
        let shared = self.shared();
        let state = shared.state.lock();
        state.current.as_ref().map(|_| state.history.floor())
    }

    /// Whether the window holds all events since its first list.
    pub fn is_whole(&self) -> bool {
        self.shared().state.lock().beginning().is_some()
    }

    /// Begins to extend the window back to a revision before it. Returns `None` if there is nothing to add, or if a
    /// watch could not continue to the present: the window has dropped events, or it contains a gap.
    pub fn backfill(&self, from: ResourceVersion) -> Option<Backfill> {
        let shared = self.shared();
        let (generation, floor) = {
            let state = shared.state.lock();
            state.current.as_ref()?;
            (state.generation, state.beginning()?)
        };
        if from >= floor {
            return None;
        }
        let end = self.snapshot_at(floor).ok()?;
        let account = shared.config.budget.account(false);
        shared.counters.backfills.add(1);
        Some(Backfill {
            shared,
            end,
            generation,
            from,
            last: from,
            events: Vec::new(),
            held: HashMap::new(),
            unknown: HashMap::new(),
            bytes: 0,
            account: Some(account),
        })
    }
}

// === impl Backfill ===

impl Backfill {
    /// The revision that the events follow.
    pub fn from(&self) -> ResourceVersion {
        self.from
    }

    /// The revision up to which the events are needed, inclusive.
    pub fn until(&self) -> ResourceVersion {
        self.end.rv()
    }

    /// Adds the next event, as sent by the apiserver.
    ///
    /// # Errors
    /// There is not enough memory for it, or it does not follow the earlier events.
    pub fn push(&mut self, kind: EventType, mut object: Object) -> Result<(), BackfillError> {
        if object.rv <= self.last || object.rv > self.until() {
            return Err(Doubtful("they are out of order"));
        }
        self.last = object.rv;
        let prev = self.held.get(&object.key).cloned().flatten();
        self.shared.keeper.share(&mut object, prev.as_deref());
        let object = match self.end.get(&object.key) {
            // The store already has this object.
            Some(held) if held.rv == object.rv && kind != EventType::Deleted => held.clone(),
            _ => Arc::new(object),
        };
        let prev = match (self.held.get(&object.key), kind) {
            (None | Some(None), EventType::Added) => None,
            (None, EventType::Modified | EventType::Deleted) => {
                self.unknown.insert(object.key.clone(), self.events.len());
                None
            }
            (Some(Some(prev)), EventType::Modified | EventType::Deleted) => Some(prev.clone()),
            (Some(_), _) => return Err(Doubtful("an object came twice, or went without having been there")),
        };
        let left = (kind != EventType::Deleted).then(|| object.clone());
        self.held.insert(object.key.clone(), left);
        let received = Instant::now();
        let event = WatchCacheEvent { kind, rv: object.rv, object, prev, received };
        self.shared.keeper.pack_replaced(&event);
        let bytes = memory(&event);
        self.events.push(event);
        self.grow(bytes)
    }

    /// The objects whose state at [`Self::from`] is needed.
    pub fn unknown(&self) -> Vec<ObjectKey> {
        self.unknown.keys().cloned().collect()
    }

    /// Adds the state of an object at [`Self::from`]. Objects that are not needed are ignored.
    ///
    /// # Errors
    /// There is not enough memory for it, or its revision is too new.
    pub fn was(&mut self, mut object: Object) -> Result<(), BackfillError> {
        let Some(event) = self.unknown.remove(&object.key) else { return Ok(()) };
        if object.rv > self.from {
            return Err(Doubtful("a state of then is of a later revision"));
        }
        let Some(event) = self.events.get_mut(event) else { return Ok(()) };
        self.shared.keeper.share(&mut object, Some(&event.object));
        let before = memory(event);
        event.prev = Some(Arc::new(object));
        self.shared.keeper.pack_replaced(event);
        let size = memory(event) - before;
        self.grow(size)
    }

    fn grow(&mut self, bytes: usize) -> Result<(), BackfillError> {
        self.bytes += bytes;
        let config = &self.shared.config;
        if self.events.len() > config.window_max_events || self.bytes > config.window_max_bytes {
            return Err(BackfillError::Window);
        }
        self.account.as_ref().map_or(Ok(()), |account| account.load(self.bytes).map_err(BackfillError::from))
    }

    /// Completes the backfill after all events up to and including [`Self::until`] were added. The window now begins
    /// after [`Self::from`]. Returns the number of added events.
    ///
    /// # Errors
    /// The events do not lead to the state at the beginning of the window, or the window has changed in the meantime.
    pub fn finish(mut self) -> Result<usize, BackfillError> {
        if !self.unknown.is_empty() {
            return Err(Doubtful("an object changed that was not there"));
        }
        let reached = self.held.iter().all(|(key, held)| {
            let listed = self.end.get(key).map(|object| object.rv);
            listed == held.as_ref().map(|object| object.rv)
        });
        let newer = self.end.store().iter().filter(|object| object.rv > self.from).count();
        if !reached || newer != self.held.values().flatten().count() {
            return Err(Doubtful("they come to another state than was listed"));
        }
        let events = std::mem::take(&mut self.events);
        let count = events.len();
        let shared = self.shared.clone();
        let mut state = shared.state.lock();
        if state.generation != self.generation || state.beginning() != Some(self.end.rv()) {
            return Err(BackfillError::Moved);
        }
        if !state.history.has_room(count, self.bytes) {
            return Err(BackfillError::Window);
        }
        state.history.prepend(events, self.from, Instant::now());
        shared.listed_rv.store(self.from.0, Ordering::Release);
        shared.keeper.add_account(self.account.take());
        drop(state);
        shared.counters.backfilled_events.add(count as u64);
        Ok(count)
    }
}

impl Drop for Backfill {
    fn drop(&mut self) {
        if self.account.is_some() {
            self.shared.counters.backfills_failed.add(1);
        }
    }
}

#[cfg(test)]
#[path = "backfill_tests.rs"]
mod tests;
