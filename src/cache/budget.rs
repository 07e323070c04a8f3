//! The memory that the caches of the process may use together, objects and windows.
//!
//! Each cache says what it holds; nothing is measured. What does not fit when a state is read is not taken: the reader
//! hears of it while the objects still come. What outgrows the budget later has to go: the largest cache that is not
//! pinned is told to give up its state, and its reads are then forwarded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::memory::{Level, Pressure};

/// Shared by all caches of the process. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Budget {
    inner: Arc<Inner>,
}

/// What one cache has of the budget; given back when dropped.
#[derive(Debug)]
pub struct Account {
    budget: Budget,
    id: u64,
    /// True once the cache is to give up its state.
    recalled: watch::Receiver<bool>,
}

/// Bytes that are no cache's any more, or never were: a state that was given up and lives until the last of its readers has
/// sent it, or keys that a state is compared with. Given back when dropped.
#[derive(Debug)]
pub struct Lent {
    budget: Budget,
    bytes: usize,
}

/// A state does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{need} bytes are too many for the caches' memory, of whose {limit} bytes {room} are free")]
pub struct Full {
    /// What was asked for. What is needed may be more.
    pub need: usize,
    pub room: usize,
    pub limit: usize,
}

#[derive(Debug)]
struct Inner {
    limit: usize,
    accounts: Mutex<Accounts>,
    /// Where the process itself is short of memory, whatever the caches have, nothing new is read.
    pressure: Pressure,
    recalls: AtomicU64,
}

#[derive(Debug, Default)]
struct Accounts {
    next: u64,
    /// Sum of all that are not recalled.
    used: usize,
    /// Bytes of all [`Lent`].
    lent: usize,
    by_id: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    pinned: bool,
    /// Bytes of the state that is served.
    held: usize,
    /// Bytes of a state that is being read.
    loading: usize,
    recall: watch::Sender<bool>,
}

/// Allocator, tree and counters of one object, beyond [`crate::meta::Object::size`].
const OBJECT: usize = 160;

// === impl Budget ===

impl Default for Budget {
    /// Without a bound.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl Budget {
    /// In bytes.
    pub fn new(limit: usize) -> Self {
        Self::under(limit, Pressure::default())
    }

    /// In bytes, of a process whose memory is looked at.
    pub fn under(limit: usize, pressure: Pressure) -> Self {
        let inner = Inner { limit, accounts: Mutex::default(), pressure, recalls: AtomicU64::new(0) };
        Self { inner: Arc::new(inner) }
    }

    /// An account of a cache; pinned ones are the last to be recalled.
    pub fn account(&self, pinned: bool) -> Account {
        let (recall, recalled) = watch::channel(false);
        let mut accounts = self.inner.accounts.lock();
        let id = accounts.next;
        accounts.next += 1;
        accounts.by_id.insert(id, Entry { pinned, held: 0, loading: 0, recall });
        Account { budget: self.clone(), id, recalled }
    }

    pub fn limit(&self) -> usize {
        self.inner.limit
    }

    /// What all caches hold and are reading, and what readers still have of states that were given up.
    pub fn used(&self) -> usize {
        let accounts = self.inner.accounts.lock();
        accounts.used + accounts.lent
    }

    /// Bytes for what is no state. They are asked for before they are read, and nobody is recalled for them.
    ///
    /// # Errors
    /// They do not fit beside what the caches hold, less a tenth for that to grow, or memory is not plenty.
    pub fn lend(&self, bytes: usize) -> Result<Lent, Full> {
        let Inner { limit, pressure, .. } = &*self.inner;
        let mut accounts = self.inner.accounts.lock();
        let others = accounts.used + accounts.lent + accounts.leaving();
        let room = if pressure.level() > Level::Calm { 0 } else { (limit - limit / 10).saturating_sub(others) };
        if bytes > room {
            return Err(Full { need: bytes, room, limit: *limit });
        }
        accounts.lent += bytes;
        drop(accounts);
        pressure.grow(bytes);
        Ok(Lent { budget: self.clone(), bytes })
    }

    /// How often a cache was told to give up its state.
    pub fn recalls(&self) -> u64 {
        self.inner.recalls.load(Ordering::Relaxed)
    }

    /// Tells the largest cache to give up its state, pinned ones last. False if there is none that has one.
    pub fn recall(&self) -> bool {
        let mut accounts = self.inner.accounts.lock();
        let victim = accounts.largest(false).or_else(|| accounts.largest(true));
        victim.is_some_and(|id| self.inner.take_from(&mut accounts, id))
    }

    /// What an object of this size costs.
    pub fn cost(size: usize) -> usize {
        size + OBJECT
    }

    /// What a store with so many objects of so many bytes costs.
    pub(super) fn cost_of(objects: usize, bytes: usize) -> usize {
        bytes + objects * OBJECT
    }
}

// === impl Inner ===

impl Inner {
    fn take_from(&self, accounts: &mut Accounts, id: u64) -> bool {
        let Some(entry) = accounts.by_id.get(&id) else { return false };
        entry.recall.send_replace(true);
        accounts.used -= entry.held + entry.loading;
        self.recalls.fetch_add(1, Ordering::Relaxed);
        true
    }
}

// === impl Accounts ===

impl Accounts {
    /// The one that holds most, of those that are not recalled.
    fn largest(&self, pinned: bool) -> Option<u64> {
        let of_kind = self.by_id.iter().filter(|(_, entry)| entry.pinned == pinned && !entry.is_recalled());
        let (id, entry) = of_kind.max_by_key(|(_, entry)| entry.held + entry.loading)?;
        (entry.held + entry.loading > 0).then_some(*id)
    }

    fn set(&mut self, id: u64, held: Option<usize>, loading: Option<usize>) {
        let Some(entry) = self.by_id.get_mut(&id) else { return };
        let before = entry.held + entry.loading;
        entry.held = held.unwrap_or(entry.held);
        entry.loading = loading.unwrap_or(entry.loading);
        if !entry.is_recalled() {
            self.used = self.used - before + entry.held + entry.loading;
        }
    }

    /// Bytes of caches that were told to give up their state and have not done so yet.
    fn leaving(&self) -> usize {
        let leaving = self.by_id.values().filter(|entry| entry.is_recalled());
        leaving.map(|entry| entry.held + entry.loading).sum()
    }
}

// === impl Entry ===

impl Entry {
    fn is_recalled(&self) -> bool {
        *self.recall.borrow()
    }
}

// === impl Account ===

impl Account {
    /// Says what is held now. Where that is too much for all together, somebody is recalled, perhaps this one.
    pub(super) fn hold(&self, bytes: usize) {
        let inner = &self.budget.inner;
        let mut accounts = inner.accounts.lock();
        let before = accounts.by_id.get(&self.id).map_or(0, |entry| entry.held);
        accounts.set(self.id, Some(bytes), None);
        while accounts.used > inner.limit {
            let victim = accounts.largest(false).or_else(|| accounts.largest(true));
            if !victim.is_some_and(|id| inner.take_from(&mut accounts, id)) {
                break;
            }
        }
        drop(accounts);
        inner.pressure.grow(bytes.saturating_sub(before));
    }

    /// By how many bytes all together are beyond the limit when this one holds `bytes`.
    pub(super) fn excess(&self, bytes: usize) -> usize {
        let inner = &self.budget.inner;
        let accounts = inner.accounts.lock();
        let held = accounts.by_id.get(&self.id).filter(|entry| !entry.is_recalled()).map_or(0, |entry| entry.held);
        (accounts.used - held).saturating_add(bytes).saturating_sub(inner.limit)
    }

    /// Says what has been read so far of a new state, beside what is held. A tenth of the budget is left for what is
    /// held to grow. For a pinned cache those that are not have to go.
    ///
    /// # Errors
    /// It does not fit. What was said before stands.
    pub(super) fn load(&self, bytes: usize) -> Result<(), Full> {
        let inner = &self.budget.inner;
        let mut accounts = inner.accounts.lock();
        loop {
            let Some(entry) = accounts.by_id.get(&self.id) else { return Ok(()) };
            let (pinned, loading, recalled) = (entry.pinned, entry.loading, entry.is_recalled());
            let mut others = if recalled { accounts.used } else { accounts.used - loading } + accounts.lent;
            if !pinned {
                // A pinned cache need not wait for them.
                others += accounts.leaving();
            }
            let room = (inner.limit - inner.limit / 10).saturating_sub(others);
            // Before memory is short, a state that is held and only read anew does not have to go.
            let most = if entry.held == 0 { Level::Calm } else { Level::Tight };
            let hinder = recalled || inner.pressure.level() > most && bytes > loading;
            if bytes <= room && !hinder {
                accounts.set(self.id, None, Some(bytes));
                drop(accounts);
                inner.pressure.grow(bytes.saturating_sub(loading));
                return Ok(());
            }
            let other = accounts.largest(false).filter(|id| pinned && !hinder && *id != self.id);
            if !other.is_some_and(|id| inner.take_from(&mut accounts, id)) {
                let room = if hinder { 0 } else { room };
                return Err(Full { need: bytes, room, limit: inner.limit });
            }
        }
    }

    /// A state was taken, or given up: nothing is being read any more, and this much is held.
    pub(super) fn settle(&self, bytes: usize) {
        self.budget.inner.accounts.lock().set(self.id, None, Some(0));
        self.hold(bytes);
    }

    /// Nothing is held, and nothing is asked for.
    pub(super) fn clear(&self) {
        let mut accounts = self.budget.inner.accounts.lock();
        accounts.set(self.id, Some(0), Some(0));
        if let Some(entry) = accounts.by_id.get(&self.id) {
            entry.recall.send_replace(false);
        }
    }

    /// What was held, apart from this cache, until that is dropped; then [`Self::clear`].
    pub(super) fn lend(&self) -> Lent {
        let mut accounts = self.budget.inner.accounts.lock();
        let bytes = accounts.by_id.get(&self.id).map_or(0, |entry| entry.held);
        accounts.set(self.id, Some(0), None);
        accounts.lent += bytes;
        Lent { budget: self.budget.clone(), bytes }
    }

    /// Resolves once the cache is to give up its state; never before.
    pub(super) fn recalled(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut recalled = self.recalled.clone();
        async move {
            // The sender lives as long as the account.
            if recalled.wait_for(|recalled| *recalled).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    pub(super) fn is_recalled(&self) -> bool {
        *self.recalled.borrow()
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let mut accounts = self.budget.inner.accounts.lock();
        accounts.set(self.id, Some(0), Some(0));
        accounts.by_id.remove(&self.id);
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.budget.inner.accounts.lock().lent -= self.bytes;
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
