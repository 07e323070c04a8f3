//! What the clients of one side of the demo have noticed.

use std::sync::Arc;

use tokio::sync::watch;

use super::simulated::Running;

/// One side of the comparison: an apiserver, and what its clients have noticed.
#[derive(Clone)]
pub(super) struct Side {
    pub(super) apiserver: Running,
    pub(super) tally: Arc<Tally>,
}

/// Counters that all clients of one side share.
#[derive(Debug, Default)]
pub(super) struct Tally(watch::Sender<Reads>);

/// The state that a list asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// Any state: `resourceVersion=0`.
    Any,
    /// The newest one, which has to be proved.
    Newest,
}

/// The counters of watches and lists at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reads {
    pub(super) open: u64,
    /// Watches that have ended.
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
        *self.0.borrow()
    }

    pub(super) fn opened(self: &Arc<Self>) -> OpenWatch {
        self.0.send_modify(|reads| reads.open += 1);
        OpenWatch(self.clone())
    }

    pub(super) fn answered(&self, wants: Wants) {
        self.0.send_modify(|reads| reads.lists(wants).answered += 1);
    }

    /// A list was refused, or not answered.
    pub(super) fn refused(&self, wants: Wants) {
        self.0.send_modify(|reads| reads.lists(wants).refused += 1);
    }
}

// === impl Reads ===

impl Reads {
    fn lists(&mut self, wants: Wants) -> &mut Lists {
        match wants {
            Wants::Any => &mut self.any,
            Wants::Newest => &mut self.newest,
        }
    }

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
        self.0.0.send_modify(|reads| {
            reads.open -= 1;
            reads.ended += 1;
        });
    }
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
