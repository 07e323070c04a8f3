//! The initial part of a watch: the objects of a snapshot, or the events since a revision.

use std::sync::Arc;

use super::groups::view;
use super::membership::Membership;
use super::reached::Following;
use super::ring::Basis;
use super::spec::EndReason;
use super::walk::{LOOKS, Walk};
use crate::meta::{EventType, Object, ObjectKey, WatchCacheEvent};

/// The next result of the initial part.
#[derive(Debug)]
pub(super) enum InitialStep {
    Object(Arc<Object>),
    Event(EventType, Arc<WatchCacheEvent>, Following),
    Done,
    /// Many objects or events were examined: let other tasks run, and continue.
    Pause,
    End(EndReason),
}

/// A walk by key through the snapshot that the watcher's slot holds. Objects are taken in small batches, because the
/// tree cannot be borrowed from one poll to the next.
#[derive(Debug, Default)]
pub(super) struct Listing {
    after: Option<ObjectKey>,
    batch: std::vec::IntoIter<Arc<Object>>,
    walked: bool,
    /// The objects that were examined since the last pause.
    looked: usize,
}

/// A walk through the history, by position.
#[derive(Debug)]
pub(super) struct Replay {
    position: u64,
    until: u64,
    batch: std::vec::IntoIter<Arc<WatchCacheEvent>>,
    /// The events that were read since the last pause.
    looked: usize,
}

/// Number of objects or events held at once.
const BATCH: usize = 64;

// === impl Listing ===

impl Listing {
    pub(super) fn step(&mut self, membership: &Membership) -> InitialStep {
        loop {
            if let Some(object) = self.batch.next() {
                return InitialStep::Object(object);
            }
            if self.walked {
                return InitialStep::Done;
            }
            // Also when a batch is empty and others follow: so many were examined for it.
            if self.looked >= LOOKS {
                self.looked = 0;
                return InitialStep::Pause;
            }
            let listed = membership.group.ring.lock().listed(membership.slot);
            let snapshot = match listed {
                Ok(snapshot) => snapshot,
                Err(reason) => return InitialStep::End(reason),
            };
            let mut walk = Walk::new(snapshot, membership.group.predicate.clone(), self.after.take());
            let mut batch = Vec::new();
            self.walked = !walk.step(BATCH, |object| batch.push(object.clone()));
            self.looked += walk.looked();
            self.after = walk.into_after();
            if self.walked {
                membership.group.ring.lock().set_basis(membership.slot, Basis::Known);
            }
            self.batch = batch.into_iter();
        }
    }
}

// === impl Replay ===

impl Replay {
    /// The events from one position to before another.
    pub(super) fn new(position: u64, until: u64) -> Self {
        Self { position, until, batch: Vec::new().into_iter(), looked: 0 }
    }

    pub(super) fn step(&mut self, membership: &Membership) -> InitialStep {
        let predicate = &membership.group.predicate;
        loop {
            while let Some(event) = self.batch.next() {
                if let Some(kind) = view(predicate, &event) {
                    let following = match self.batch.as_slice().first() {
                        Some(next) => Following::Event(next.rv),
                        None if self.position < self.until => Following::Unknown,
                        // Events of one revision come into the history together, unless it is not sure that they are all.
                        None => Following::NothingUpTo(membership.shared.certain(event.rv)),
                    };
                    return InitialStep::Event(kind, event, following);
                }
            }
            if self.position >= self.until {
                return InitialStep::Done;
            }
            if self.looked >= LOOKS {
                self.looked = 0;
                return InitialStep::Pause;
            }
            if let Some(reason) = membership.group.ring.lock().closed() {
                return InitialStep::End(reason);
            }
            let mut batch = Vec::new();
            let read = membership.shared.state.lock().history.read(self.position, self.until, BATCH, &mut batch);
            if read.is_err() {
                return InitialStep::End(EndReason::TooSlow);
            }
            self.position += batch.len() as u64;
            self.looked += batch.len();
            self.batch = batch.into_iter();
        }
    }
}
