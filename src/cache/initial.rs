//! The initial part of a watch: the objects of a snapshot, or the events since a revision.

use std::sync::Arc;

use super::groups::view;
use super::walk::{LOOKS, Walk};
use super::watcher::{EndReason, Membership};
use crate::meta::{EventType, Object, ObjectKey, WatchCacheEvent};

/// The next result of the initial part.
#[derive(Debug)]
pub(super) enum Step {
    Object(Arc<Object>),
    Event(EventType, Arc<WatchCacheEvent>),
    Done,
    /// Many objects were examined and none was found: let other tasks run, and continue.
    Pause,
    End(EndReason),
}

/// A walk by key through the snapshot that the watcher's slot pins. Objects are taken in small batches, because the
/// tree cannot be borrowed from one poll to the next.
#[derive(Debug, Default)]
pub(super) struct Listing {
    after: Option<ObjectKey>,
    batch: std::vec::IntoIter<Arc<Object>>,
    walked: bool,
}

/// A walk through the history, by position.
#[derive(Debug)]
pub(super) struct Replay {
    position: u64,
    until: u64,
    batch: std::vec::IntoIter<Arc<WatchCacheEvent>>,
}

/// Number of objects or events held at once.
const BATCH: usize = 64;

// === impl Listing ===

impl Listing {
    pub(super) fn step(&mut self, membership: &Membership) -> Step {
        if let Some(object) = self.batch.next() {
            return Step::Object(object);
        }
        if self.walked {
            return Step::Done;
        }
        let pinned = membership.group.ring.lock().pinned(membership.slot);
        let snapshot = match pinned {
            Ok(snapshot) => snapshot,
            Err(reason) => return Step::End(reason),
        };
        let mut walk = Walk::new(snapshot, membership.group.predicate.clone(), self.after.take());
        let mut batch = Vec::new();
        self.walked = !walk.step(BATCH, |object| batch.push(object.clone()));
        self.after = walk.into_after();
        if self.walked {
            membership.group.ring.lock().pin(membership.slot, None);
        }
        self.batch = batch.into_iter();
        match self.batch.next() {
            Some(object) => Step::Object(object),
            None if self.walked => Step::Done,
            None => Step::Pause,
        }
    }
}

// === impl Replay ===

impl Replay {
    /// The events from one position to before another.
    pub(super) fn new(position: u64, until: u64) -> Self {
        Self { position, until, batch: Vec::new().into_iter() }
    }

    pub(super) fn step(&mut self, membership: &Membership) -> Step {
        let predicate = &membership.group.predicate;
        let mut looked = 0;
        loop {
            for event in self.batch.by_ref() {
                if let Some(kind) = view(predicate, &event) {
                    return Step::Event(kind, event);
                }
            }
            if self.position >= self.until {
                return Step::Done;
            }
            if looked >= LOOKS {
                return Step::Pause;
            }
            if let Some(reason) = membership.group.ring.lock().closed() {
                return Step::End(reason);
            }
            let mut batch = Vec::new();
            let read = membership.shared.state.lock().history.read(self.position, self.until, BATCH, &mut batch);
            if read.is_err() {
                return Step::End(EndReason::TooSlow);
            }
            self.position += batch.len() as u64;
            looked += batch.len();
            self.batch = batch.into_iter();
        }
    }
}
