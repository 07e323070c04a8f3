//! The memory that all caches of the process may use together, for objects and windows.
//!
//! Each cache reports what it holds; nothing is measured. A new state that does not fit is not taken: its reader learns
//! this while the objects still arrive. If the caches outgrow the budget later, one has to go: the largest cache
//! is told to give up its state, pinned ones last, and its reads are then forwarded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::memory::{Level, Pressure};

/// The budget, shared by all caches of the process. Clones share it.
#[derive(Clone, Debug)]
pub struct Budget {
    inner: Arc<BudgetInner>,
}

/// The share of one cache; returned to the budget when dropped.
#[derive(Debug)]
pub struct Account {
    budget: Budget,
    id: u64,
    /// True once the cache must give up its state.
    recalled: watch::Receiver<bool>,
}

/// Bytes that do not belong to a cache: a state that was given up but lives until its last reader has sent it, or keys
/// that a state is compared with. Returned to the budget when dropped.
#[derive(Debug)]
pub struct Lent {
    budget: Budget,
    bytes: usize,
}

/// A state does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{need} bytes are too many for the caches' memory, of whose {limit} bytes {room} are free")]
pub struct Full {
    /// The requested bytes. The state may need more.
    pub need: usize,
    pub room: usize,
    pub limit: usize,
}

#[derive(Debug)]
struct BudgetInner {
    limit: usize,
    accounts: Mutex<Accounts>,
    /// If the process itself is short of memory, no new state is read, however little the caches hold.
    pressure: Pressure,
    recalls: AtomicU64,
}

#[derive(Debug, Default)]
struct Accounts {
    next: u64,
    /// Sum of all accounts that are not recalled.
    used: usize,
    /// Bytes of all [`Lent`].
    lent: usize,
    by_id: BTreeMap<u64, AccountEntry>,
}

#[derive(Debug)]
struct AccountEntry {
    pinned: bool,
    /// Bytes of the served state.
    held: usize,
    /// Bytes of a state that is being read.
    loading: usize,
    recall: watch::Sender<bool>,
}

/// Overhead of the allocator, the tree and the counters for one object, in addition to [`crate::meta::Object::size`].
const OBJECT: usize = 160;

// === impl Budget ===

impl Default for Budget {
    /// Without a limit.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl Budget {
    /// Creates a budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self::under(limit, Pressure::default())
    }

    /// Creates a budget of `limit` bytes that also considers the memory pressure of the process.
    pub fn under(limit: usize, pressure: Pressure) -> Self {
        let inner = BudgetInner { limit, accounts: Mutex::default(), pressure, recalls: AtomicU64::new(0) };
        Self { inner: Arc::new(inner) }
    }

    /// Creates the account of a cache; pinned caches are recalled last.
    pub fn account(&self, pinned: bool) -> Account {
        let (recall, recalled) = watch::channel(false);
        let mut accounts = self.inner.accounts.lock();
        let id = accounts.next;
        accounts.next += 1;
        accounts.by_id.insert(id, AccountEntry { pinned, held: 0, loading: 0, recall });
        Account { budget: self.clone(), id, recalled }
    }

    pub fn limit(&self) -> usize {
        self.inner.limit
    }

    /// The bytes that all caches hold or are reading, and those of given-up states that still have readers.
    pub fn used(&self) -> usize {
        let accounts = self.inner.accounts.lock();
        accounts.used + accounts.lent
    }

    /// Reserves bytes for something other than a state. Call this before reading; no cache is recalled for it.
    ///
    /// # Errors
    /// The bytes do not fit in addition to what the caches hold and a tenth for their growth, or the process does not
    /// have plenty of memory.
    pub fn lend(&self, bytes: usize) -> Result<Lent, Full> {
        let BudgetInner { limit, pressure, .. } = &*self.inner;
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

    /// Tells the largest cache to give up its state, pinned caches last. Returns false if no cache has a state.
    pub fn recall(&self) -> bool {
        self.inner.recall(&mut self.inner.accounts.lock())
    }

    /// The cost of an object of this size.
    pub fn cost(size: usize) -> usize {
        size + OBJECT
    }

    /// The cost of a store with this many objects and bytes.
    pub(super) fn cost_of(objects: usize, bytes: usize) -> usize {
        bytes + objects * OBJECT
    }
}

// === impl BudgetInner ===

impl BudgetInner {
    fn recall(&self, accounts: &mut Accounts) -> bool {
        let victim = accounts.largest(false).or_else(|| accounts.largest(true));
        victim.is_some_and(|id| self.take_from(accounts, id))
    }

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
    /// The account that holds the most, among those that are not recalled.
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

    /// Bytes of caches that were told to give up their state but have not done so yet.
    fn leaving(&self) -> usize {
        let leaving = self.by_id.values().filter(|entry| entry.is_recalled());
        leaving.map(|entry| entry.held + entry.loading).sum()
    }
}

// === impl AccountEntry ===

impl AccountEntry {
    fn is_recalled(&self) -> bool {
        *self.recall.borrow()
    }
}

// === impl Account ===

impl Account {
    /// Reports the bytes that are held now. If all accounts together exceed the limit, a cache is recalled, perhaps
    /// this one.
    pub(super) fn hold(&self, bytes: usize) {
        let inner = &self.budget.inner;
        let mut accounts = inner.accounts.lock();
        let before = accounts.by_id.get(&self.id).map_or(0, |entry| entry.held);
        accounts.set(self.id, Some(bytes), None);
        while accounts.used > inner.limit && inner.recall(&mut accounts) {}
        drop(accounts);
        inner.pressure.grow(bytes.saturating_sub(before));
    }

    /// By how many bytes all accounts together would exceed the limit if this one held `bytes`.
    pub(super) fn excess(&self, bytes: usize) -> usize {
        let inner = &self.budget.inner;
        let accounts = inner.accounts.lock();
        let held = accounts.by_id.get(&self.id).filter(|entry| !entry.is_recalled()).map_or(0, |entry| entry.held);
        (accounts.used - held).saturating_add(bytes).saturating_sub(inner.limit)
    }

    /// Reports the bytes ([`Budget::cost`]) of a new state that were read so far, in addition to those that are held. A tenth of
    /// the budget is reserved for the growth of what is held. For a pinned cache, caches that are not pinned are recalled.
    ///
    /// # Errors
    /// The state does not fit, and must not be read further. The last successful report stays valid.
    pub fn load(&self, bytes: usize) -> Result<(), Full> {
        let inner = &self.budget.inner;
        let mut accounts = inner.accounts.lock();
        loop {
            let Some(entry) = accounts.by_id.get(&self.id) else { return Ok(()) };
            let (pinned, loading, recalled) = (entry.pinned, entry.loading, entry.is_recalled());
            let mut others = if recalled { accounts.used } else { accounts.used - loading } + accounts.lent;
            if !pinned {
                // A pinned cache need not wait for these.
                others += accounts.leaving();
            }
            let room = (inner.limit - inner.limit / 10).saturating_sub(others);
            // While memory is not short yet, a state that is held may be read again; only new states are refused.
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

    /// A state was taken or given up: nothing is being read any more, and this many bytes are held. No lock of the cache may
    /// be held: this waits for the system while memory is short.
    pub(super) fn settle(&self, bytes: usize) {
        self.abandon();
        self.hold(bytes);
    }

    /// The new state was not read to its end, and its objects are dropped: nothing is being read any more.
    pub fn abandon(&self) {
        self.budget.inner.accounts.lock().set(self.id, None, Some(0));
    }

    /// Whether a state is being read.
    pub(super) fn is_loading(&self) -> bool {
        self.budget.inner.accounts.lock().by_id.get(&self.id).is_some_and(|entry| entry.loading > 0)
    }

    /// Nothing is held or being read, and the recall is cleared.
    pub(super) fn clear(&self) {
        let mut accounts = self.budget.inner.accounts.lock();
        accounts.set(self.id, Some(0), Some(0));
        if let Some(entry) = accounts.by_id.get(&self.id) {
            entry.recall.send_replace(false);
        }
    }

    /// Counts bytes that the cache no longer has, but its readers, until the returned value is dropped. They are there, so
    /// they are counted whether they fit or not.
    pub(super) fn depart(&self, bytes: usize) -> Lent {
        self.budget.inner.accounts.lock().lent += bytes;
        Lent { budget: self.budget.clone(), bytes }
    }

    /// Moves the held bytes out of this account until the returned value is dropped. Call [`Self::clear`] afterwards.
    pub(super) fn lend(&self) -> Lent {
        let mut accounts = self.budget.inner.accounts.lock();
        let bytes = accounts.by_id.get(&self.id).map_or(0, |entry| entry.held);
        accounts.set(self.id, Some(0), None);
        accounts.lent += bytes;
        Lent { budget: self.budget.clone(), bytes }
    }

    /// Resolves once the cache must give up its state, because all caches together use too much memory.
    pub fn recalled(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut recalled = self.recalled.clone();
        async move {
            // The sender lives as long as the account.
            if recalled.wait_for(|recalled| *recalled).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Whether the state must be given up.
    pub fn is_recalled(&self) -> bool {
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
