//! Named readiness latches. The process is ready when every latch is released. The registry can list the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The latches of the process. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    inner: Arc<Mutex<Inner>>,
}

/// A latch that must be released before the process is ready. If it is dropped without being released, it has failed
/// permanently: a task that died never makes the process ready.
#[derive(Debug)]
#[must_use = "a latch that is dropped at once has failed"]
pub struct Latch {
    registry: Registry,
    id: u64,
    released: bool,
}

/// One latch, released or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub name: String,
    /// The reason why the process is not ready; `None` once the latch is released.
    pub pending: Option<PendingState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingState {
    /// Not released yet.
    Waiting,
    /// Dropped without being released.
    Failed,
    /// Readiness was withdrawn until the end of the process.
    Withdrawn,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    /// By id, so that they are listed in the order of their creation. Latches are created when the process starts, so
    /// there are few.
    checks: BTreeMap<u64, Check>,
}

// === impl Registry ===

impl Registry {
    /// Adds a latch. The process is not ready until it is released.
    pub fn latch(&self, name: impl Into<String>) -> Latch {
        let id = self.add(name.into(), PendingState::Waiting);
        Latch { registry: self.clone(), id, released: false }
    }

    /// Makes the process not ready until its end. The reason is used as the name (at the start of a drain).
    pub fn withdraw(&self, reason: impl Into<String>) {
        self.add(reason.into(), PendingState::Withdrawn);
    }

    pub fn is_ready(&self) -> bool {
        self.inner.lock().checks.values().all(|check| check.pending.is_none())
    }

    /// All latches, oldest first.
    pub fn checks(&self) -> Vec<Check> {
        self.inner.lock().checks.values().cloned().collect()
    }

    fn add(&self, name: String, state: PendingState) -> u64 {
        let mut inner = self.inner.lock();
        inner.next += 1;
        let id = inner.next;
        inner.checks.insert(id, Check { name, pending: Some(state) });
        id
    }
}

// === impl Latch ===

impl Latch {
    pub fn release(mut self) {
        self.released = true;
        self.set(None);
    }

    fn set(&self, pending: Option<PendingState>) {
        if let Some(check) = self.registry.inner.lock().checks.get_mut(&self.id) {
            check.pending = pending;
        }
    }
}

impl Drop for Latch {
    fn drop(&mut self) {
        if !self.released {
            self.set(Some(PendingState::Failed));
        }
    }
}
