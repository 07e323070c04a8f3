//! How a cache reports its memory, and how it learns of a recall.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::budget::Full;
use super::shared::{CacheState, SharedCache};
use super::writer::Writer;
use crate::meta::Object;

// === impl Writer ===

impl Writer {
    /// Returns the object of the cache if it is the same to the last byte, so that reading a state again costs no more
    /// than its changes.
    ///
    /// # Errors
    /// The given object, if the cache has a different one or none. It shares what it has in common with others.
    #[expect(clippy::result_large_err, reason = "no error: the object is given back to be kept")]
    pub fn known(&self, mut object: Object) -> Result<Arc<Object>, Object> {
        match self.store.get(&object.key) {
            Some(held) if held.rv == object.rv && held.is_written_as(&object) => Ok(held.clone()),
            held => {
                self.shared.share(&mut object, held.map(Arc::as_ref));
                Err(object)
            }
        }
    }

    /// Reports how many bytes ([`super::Budget::cost`]) of a new state were read so far, in addition to the present state.
    ///
    /// # Errors
    /// The state does not fit, and must not be read further.
    pub fn load(&self, bytes: usize) -> Result<(), Full> {
        self.shared.account.load(bytes)
    }

    pub fn is_pinned(&self) -> bool {
        self.shared.config.pinned
    }

    /// Resolves when the state must be given up ([`Self::not_ready`]), because all caches together use too much memory.
    pub fn recalled(&self) -> impl Future<Output = ()> + Send + use<> {
        self.shared.account.recalled()
    }

    /// Whether the state must be given up.
    pub fn is_recalled(&self) -> bool {
        self.shared.account.is_recalled()
    }

    /// Updates the account after a whole state was taken.
    pub(super) fn settle(&self) {
        let held = {
            let mut state = self.shared.state.lock();
            state.backfilled.clear();
            self.shared.held(&self.store, &state.history)
        };
        self.shared.account.settle(held);
    }

    /// Updates the account after events. If memory is short, the window shrinks first.
    pub(super) fn charge(&self, state: &mut CacheState, now: Instant) {
        // From here on it is counted with the rest of the window.
        state.backfilled.clear();
        let SharedCache { account, dispatched, .. } = &*self.shared;
        let excess = account.excess(self.shared.held(&self.store, &state.history));
        if excess > 0 {
            state.history.shrink(excess, now, dispatched.load(Ordering::Acquire));
        }
        account.hold(self.shared.held(&self.store, &state.history));
    }
}
