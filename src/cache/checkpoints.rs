//! Known states within the window of a watch cache, from which others are rebuilt.
//!
//! A snapshot per event would cost several KiB of copied tree nodes each. Instead there is a checkpoint every 256 to
//! 4096 events. The state at any revision between two checkpoints is rebuilt by undoing events from the later one.

use std::collections::VecDeque;
use std::sync::Arc;

use super::store::Store;
use crate::meta::WatchCacheEvent;

/// The known states, each with its position in the window.
#[derive(Debug)]
pub(super) struct Checkpoints {
    regular: VecDeque<Mark>,
    /// Recently rebuilt states: the pages of one list ask for the same revision repeatedly.
    rebuilt: VecDeque<Mark>,
    /// The position of the last regular one, or of the last list.
    last: u64,
}

/// The state after all events before `position`.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) position: u64,
    pub(super) store: Store,
}

/// The steps from a known state to an older one; executed without any lock.
#[derive(Debug)]
pub(super) struct Rebuild {
    pub(super) epoch: u64,
    pub(super) position: u64,
    pub(super) store: Store,
    /// Newest first.
    pub(super) undo: Vec<Arc<WatchCacheEvent>>,
}

/// Number of rebuilt states that are kept; each one keeps its own tree nodes in memory.
pub(super) const REBUILT: usize = 8;

// === impl Checkpoints ===

impl Checkpoints {
    /// None yet. `head` is the position of the next event.
    pub(super) fn new(head: u64) -> Self {
        Self { regular: VecDeque::new(), rebuilt: VecDeque::new(), last: head }
    }

    /// The window has grown to `head`, with the state `store`.
    pub(super) fn reached(&mut self, head: u64, store: &Store) {
        if head - self.last >= spacing(store.len()) {
            self.last = head;
            self.regular.push_back(Mark { position: head, store: store.clone() });
        }
    }

    /// The window begins at `first` now.
    pub(super) fn evict(&mut self, first: u64) {
        while self.regular.front().is_some_and(|mark| mark.position < first) {
            self.regular.pop_front();
        }
        self.rebuilt.retain(|mark| mark.position >= first);
    }

    /// The first state at `target` or later.
    pub(super) fn next(&self, target: u64) -> Option<Mark> {
        let later = self.regular.iter().chain(&self.rebuilt).filter(|mark| mark.position >= target);
        later.min_by_key(|mark| mark.position).cloned()
    }

    /// Keeps a state that was rebuilt, unless it is kept already.
    pub(super) fn remember(&mut self, rebuilt: &Rebuild) {
        if self.rebuilt.iter().any(|mark| mark.position == rebuilt.position) {
            return;
        }
        if self.rebuilt.len() == REBUILT {
            self.rebuilt.pop_front();
        }
        self.rebuilt.push_back(Mark { position: rebuilt.position, store: rebuilt.store.clone() });
    }

    /// How many there are, and how many that were rebuilt.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.regular.len(), self.rebuilt.len())
    }
}

/// Number of events between checkpoints. A checkpoint costs at most the tree's own nodes, about 24 bytes per object,
/// and undoing an event costs about a microsecond. So checkpoints are dense for a small store, and a large store is
/// rebuilt within milliseconds.
fn spacing(objects: usize) -> u64 {
    (objects as u64 / 16).clamp(256, 4096)
}

// === impl Rebuild ===

impl Rebuild {
    pub(super) fn run(&mut self) -> Store {
        for event in self.undo.drain(..) {
            self.store.undo(&event);
        }
        self.store.clone()
    }
}
