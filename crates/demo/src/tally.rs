//! What the clients of one side of the demo have noticed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters that all clients of one side share.
#[derive(Debug, Default)]
pub(super) struct Tally {
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
    pub(super) fn reads(&self) -> Reads {
        let lists = |of: &Outcomes| Lists { answered: get(&of.answered), refused: get(&of.refused) };
        Reads { open: get(&self.open), ended: get(&self.ended), any: lists(&self.any), newest: lists(&self.newest) }
    }

    pub(super) fn opened(self: &Arc<Self>) -> OpenWatch {
        add(&self.open, 1);
        OpenWatch(self.clone())
    }

    pub(super) fn answered(&self, wants: Wants) {
        add(&self.outcomes(wants).answered, 1);
    }

    /// A list was refused, or not answered.
    pub(super) fn refused(&self, wants: Wants) {
        add(&self.outcomes(wants).refused, 1);
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
    fn since_a_moment() {
        let tally = Arc::<Tally>::default();
        let first = tally.opened();
        let _second = tally.opened();
        tally.answered(Wants::Newest);
        let before = tally.reads();
        drop(first);
        tally.refused(Wants::Newest);
        tally.answered(Wants::Any);
        let since = tally.reads().since(before);
        assert_eq!((since.open, since.ended), (1, 1));
        assert_eq!(since.any, Lists { answered: 1, refused: 0 });
        assert_eq!(since.newest, Lists { answered: 0, refused: 1 });
    }
}
