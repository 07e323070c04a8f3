//! A watcher's place in the group of its predicate.

use std::sync::Arc;

use super::group::WatchGroup;
use super::shared::SharedCache;
use crate::selector::Predicate;

/// A watcher's place in its group, released on drop.
#[derive(Debug)]
pub(super) struct Membership {
    pub(super) shared: Arc<SharedCache>,
    pub(super) group: Arc<WatchGroup>,
    pub(super) slot: u32,
    left: bool,
}

// === impl Membership ===

impl Membership {
    pub(super) fn join(shared: &Arc<SharedCache>, predicate: &Predicate) -> Self {
        let (group, slot) = shared.groups.write().join(predicate);
        Self { shared: shared.clone(), group, slot, left: false }
    }

    pub(super) fn leave(&mut self) {
        if !std::mem::replace(&mut self.left, true) {
            self.shared.groups.write().leave(&self.group, self.slot);
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.leave();
    }
}
