//! What the clients of the demo asked for and received.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::load::Load;

/// Counters that all clients of the demo share.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) requests: AtomicU64,
    /// Changes, without the initial state and without bookmarks.
    pub(super) events: AtomicU64,
    /// Bytes of bodies as received: a compressed body counts compressed.
    pub(super) bytes: AtomicU64,
    open: AtomicU64,
    /// Watches that have ended.
    ended: AtomicU64,
    any: Outcomes,
    newest: Outcomes,
}

#[derive(Debug, Default)]
struct Outcomes {
    answered: AtomicU64,
    refused: AtomicU64,
}

/// The state that a list asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// Any state: `resourceVersion=0`.
    Any,
    /// The newest one, which has to be proved.
    Newest,
}

/// A copy of the counters of watches and lists at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reads {
    pub(super) open: u64,
    pub(super) ended: u64,
    pub(super) any: Lists,
    pub(super) newest: Lists,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lists {
    pub(super) answered: u64,
    pub(super) refused: u64,
}

/// An open watch. Dropping it counts its end.
#[derive(Debug)]
pub(super) struct OpenWatch(Arc<Tally>);

// === impl Tally ===

impl Tally {
    /// What the clients would have cost the apiserver, had they spoken to it directly.
    pub(super) fn load(&self) -> Load {
        Load {
            requests: get(&self.requests),
            watches: get(&self.open),
            events: get(&self.events),
            bytes: get(&self.bytes),
        }
    }

    pub(super) fn reads(&self) -> Reads {
        let lists = |of: &Outcomes| Lists { answered: get(&of.answered), refused: get(&of.refused) };
        Reads { open: get(&self.open), ended: get(&self.ended), any: lists(&self.any), newest: lists(&self.newest) }
    }

    pub(super) fn opened(self: &Arc<Self>) -> OpenWatch {
        add(&self.requests, 1);
        add(&self.open, 1);
        OpenWatch(self.clone())
    }

    /// A list was answered. `bytes`: the length of its body.
    pub(super) fn answered(&self, wants: Wants, bytes: u64) {
        add(&self.requests, 1);
        add(&self.bytes, bytes);
        add(&self.outcomes(wants).answered, 1);
    }

    /// A list was refused, or not answered. It is not added to the load.
    pub(super) fn refused(&self, wants: Wants) {
        add(&self.outcomes(wants).refused, 1);
    }

    pub(super) fn received(&self, events: u64, bytes: usize) {
        add(&self.events, events);
        add(&self.bytes, bytes as u64);
    }

    fn outcomes(&self, wants: Wants) -> &Outcomes {
        match wants {
            Wants::Any => &self.any,
            Wants::Newest => &self.newest,
        }
    }
}

// === impl Reads ===

impl Reads {
    /// What has happened since `before`. The number of open watches is the current one.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            open: self.open,
            ended: self.ended.saturating_sub(before.ended),
            any: self.any.since(before.any),
            newest: self.newest.since(before.newest),
        }
    }
}

// === impl Lists ===

impl Lists {
    fn since(self, before: Self) -> Self {
        Self {
            answered: self.answered.saturating_sub(before.answered),
            refused: self.refused.saturating_sub(before.refused),
        }
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        add(&self.0.ended, 1);
    }
}

fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_lists_and_ended_watches_are_no_load() {
        let tally = Arc::<Tally>::default();
        let first = tally.opened();
        let _second = tally.opened();
        tally.received(3, 300);
        tally.answered(Wants::Newest, 50);
        let before = tally.reads();
        drop(first);
        tally.refused(Wants::Newest);
        tally.answered(Wants::Any, 7);
        assert_eq!(tally.load(), Load { requests: 4, watches: 1, events: 3, bytes: 357 });
        let since = tally.reads().since(before);
        assert_eq!((since.open, since.ended), (1, 1));
        assert_eq!(since.any, Lists { answered: 1, refused: 0 });
        assert_eq!(since.newest, Lists { answered: 0, refused: 1 });
    }
}
