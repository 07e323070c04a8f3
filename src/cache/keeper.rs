//! The memory of one watch cache: what its objects share, in which form they are kept, and what the budget counts.
//!
//! The writer of the cache says what it takes, replaces and gives up. It knows neither how objects are packed nor what they cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::budget::{Account, Budget};
use super::config::CacheConfig;
use super::history::History;
use super::store::{Departed, Store};
use crate::meta::{LabelSets, Object, WatchCacheEvent};
use crate::packing::{MOST_READS, Packer, PackingForm};

/// Keeps the objects of one cache. Under its locks, only that of the budget is taken.
#[derive(Debug)]
pub(super) struct ObjectKeeper {
    /// What the cache holds, as the budget knows it.
    pub(super) account: Account,
    pub(super) packer: Packer,
    /// The bytes that packing saves in objects that only snapshots of earlier states hold.
    departed: Arc<AtomicI64>,
    /// The label sets of all objects of the cache.
    labels: Mutex<LabelSets>,
    /// The accounts of events that were added to the window, until the window is counted again.
    added: Mutex<Vec<Account>>,
}

// === impl ObjectKeeper ===

impl ObjectKeeper {
    pub(super) fn new(config: &CacheConfig) -> Self {
        Self {
            account: config.budget.account(config.pinned),
            packer: config.packing.packer(config.form),
            departed: Arc::default(),
            labels: Mutex::default(),
            added: Mutex::default(),
        }
    }

    /// The cache takes an object. The object shares what it has in common with the version before it, or else its labels with any
    /// object.
    pub(super) fn share(&self, object: &mut Object, prev: Option<&Object>) {
        if !prev.is_some_and(|prev| object.share(prev)) {
            object.share_labels(&mut self.labels.lock());
        }
    }

    /// An object was replaced or deleted: only watchers that are behind read it from now on. It is kept as the difference
    /// from its next version. If that is large, it is packed like the others.
    pub(super) fn pack_replaced(&self, event: &WatchCacheEvent) {
        let Some(prev) = event.prev.as_ref().filter(|_| self.packer.form() != PackingForm::Plain) else { return };
        prev.replaced_by(&event.object);
        if self.packer.is_active() {
            prev.pack(&self.packer, MOST_READS);
        }
    }

    /// The memory of objects that would need `plain` bytes if they were plain, and of what they share.
    pub(super) fn present_bytes(&self, plain: usize) -> usize {
        let plain = plain + self.labels.lock().size();
        // Those of earlier states are not among the objects that are counted here.
        let saved = self.packer.saved() - self.departed.load(Ordering::Relaxed);
        let saved = isize::try_from(saved).unwrap_or(isize::MAX);
        plain.saturating_add_signed(saved.saturating_neg())
    }

    /// The memory of this state and of the window, in their present form.
    fn held(&self, store: &Store, history: &History) -> usize {
        self.present_bytes(Budget::cost_of(store.len(), store.bytes()) + history.plain_bytes())
    }

    /// Counts what the cache holds: this state and window. If memory is short, the window shrinks first, by events before the position
    /// `dispatched`.
    pub(super) fn count(&self, store: &Store, history: &mut History, now: Instant, dispatched: u64) {
        // These events are counted with the window now.
        self.added.lock().clear();
        let excess = self.account.excess(self.held(store, history));
        if excess > 0 {
            history.shrink(excess, now, dispatched);
        }
        self.count_again(store, history);
    }

    /// Counts the same state again, after objects were packed, or events have left the window.
    pub(super) fn count_again(&self, store: &Store, history: &History) {
        self.added.lock().clear();
        self.account.hold(self.held(store, history));
    }

    /// The bytes of a whole state that the cache has taken, for [`Account::settle`].
    pub(super) fn bytes_of_whole(&self, store: &Store, history: &History) -> usize {
        self.added.lock().clear();
        self.held(store, history)
    }

    /// The cache holds nothing but `state`, and gives it up. It is counted for as long as a snapshot of it lives.
    pub(super) fn give_up(&self, state: Store) {
        let saved = saved(state.iter());
        state.lend(Departed::new(self.account.lend(), &self.departed, saved));
        self.account.clear();
        self.added.lock().clear();
        *self.labels.lock() = LabelSets::default();
    }

    /// The cache has replaced `state`, and no longer has these objects of it. They are counted for as long as a snapshot of it
    /// lives.
    pub(super) fn lend_replaced<'a>(&self, state: Store, objects: impl Iterator<Item = &'a Arc<Object>> + Clone) {
        let (present, saved) = (objects.clone().map(|object| object.present_size()).sum(), saved(objects));
        state.lend(Departed::new(self.account.depart(present), &self.departed, saved));
    }

    /// Events were added to the window. Their account counts them until the window is counted again.
    pub(super) fn add_account(&self, account: Option<Account>) {
        self.added.lock().extend(account);
    }
}

/// What these objects need less than if they were plain.
fn saved<'a>(objects: impl Iterator<Item = &'a Arc<Object>>) -> usize {
    objects.map(|object| object.size().saturating_sub(object.present_size())).sum()
}
