//! How far a watcher has come, and what it may claim to have delivered.
//!
//! The revision of the last event is not always such a claim. Objects that expire together are deleted at one revision,
//! one event each. And a relist stands for many changes: its events come in the order of their revisions, but each
//! object has only its last one. Who continued after one of these events, here or elsewhere, would miss the rest.

use crate::meta::{EventType, ResourceVersion};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reached {
    /// The revision of the last event or bookmark, or of the initial list.
    pub(super) last: ResourceVersion,
    /// All changes up to this revision were delivered, once the initial list is.
    pub(super) complete: ResourceVersion,
}

/// What is known to follow an event.
#[derive(Clone, Copy, Debug)]
pub(super) enum Following {
    /// An event of this revision.
    Event(ResourceVersion),
    /// No event up to this revision.
    NothingUpTo(ResourceVersion),
    Unknown,
}

// === impl Reached ===

impl Reached {
    pub(super) fn at(rv: ResourceVersion) -> Self {
        Self { last: rv, complete: rv }
    }

    /// An event was delivered. `listed` is the revision of the last list: nothing is known of the single revisions
    /// before it.
    pub(super) fn event(
        &mut self,
        kind: EventType,
        rv: ResourceVersion,
        following: Following,
        listed: ResourceVersion,
    ) {
        let before = ResourceVersion(rv.0.saturating_sub(1));
        let complete = match following {
            Following::Event(next) if next <= rv => before,
            Following::Event(_) => rv,
            // Not more than is needed: watches whose messages are the same share them.
            Following::NothingUpTo(quiet) if quiet >= rv => {
                if rv < listed {
                    quiet
                } else {
                    rv
                }
            }
            // Only deletions share a revision.
            Following::NothingUpTo(_) | Following::Unknown if kind == EventType::Deleted => before,
            Following::NothingUpTo(_) | Following::Unknown => rv,
        };
        self.last = rv;
        if complete >= listed {
            self.complete = self.complete.max(complete);
        }
    }

    /// Everything up to `rv` was delivered.
    pub(super) fn caught_up(&mut self, rv: ResourceVersion) {
        if rv >= self.last {
            self.complete = self.complete.max(rv);
        }
    }

    /// Whether changes up to the last revision may follow.
    pub(super) fn is_split(self) -> bool {
        self.complete < self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_claimed_was_delivered() {
        let rv = ResourceVersion;
        let (changed, deleted) = (EventType::Modified, EventType::Deleted);
        for (kind, following, complete) in [
            (changed, Following::Event(rv(21)), 20),
            (changed, Following::NothingUpTo(rv(19)), 20),
            (changed, Following::NothingUpTo(rv(25)), 20),
            (changed, Following::Unknown, 20),
            (deleted, Following::Event(rv(20)), 19),
            (deleted, Following::Event(rv(21)), 20),
            (deleted, Following::NothingUpTo(rv(19)), 19),
            (deleted, Following::NothingUpTo(rv(20)), 20),
            (deleted, Following::Unknown, 19),
        ] {
            let mut reached = Reached::at(rv(10));
            reached.event(kind, rv(20), following, rv(10));
            assert_eq!((reached.last, reached.complete), (rv(20), rv(complete)), "{kind:?} {following:?}");
            assert_eq!(reached.is_split(), complete < 20);
            // It stands for a gap up to 30.
            let mut reached = Reached::at(rv(10));
            reached.event(kind, rv(20), following, rv(30));
            assert_eq!((reached.complete, reached.is_split()), (rv(10), true), "{kind:?} {following:?}");
            reached.caught_up(rv(19));
            assert!(reached.is_split());
            reached.caught_up(rv(30));
            assert_eq!((reached.complete, reached.is_split()), (rv(30), false));
        }
        let mut reached = Reached::at(rv(10));
        reached.event(changed, rv(20), Following::NothingUpTo(rv(35)), rv(30));
        assert_eq!(reached.complete, rv(35), "the gap is over");
    }
}
