//! What a cache says of its memory, and what it hears of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::budget::{Budget, Full};
use super::shared::State;
use super::writer::Writer;
use crate::meta::Object;

// === impl Writer ===

impl Writer {
    /// The object as the cache has it, if it is the same to the last byte: a state that is read anew costs no more than
    /// what has changed.
    ///
    /// # Errors
    /// The object itself, where the cache has another or none.
    #[expect(clippy::result_large_err, reason = "no error: the object is given back to be kept")]
    pub fn known(&self, object: Object) -> Result<Arc<Object>, Object> {
        match self.store.get(&object.key) {
            Some(held) if held.rv == object.rv && held.is_written_as(&object) => Ok(held.clone()),
            _ => Err(object),
        }
    }

    /// Says how many bytes ([`Budget::cost`]) of a new state have been read so far, beside the present one.
    ///
    /// # Errors
    /// It does not fit, and is not to be read on.
    pub fn load(&self, bytes: usize) -> Result<(), Full> {
        self.account.load(bytes)
    }

    pub fn is_pinned(&self) -> bool {
        self.shared.config.pinned
    }

    /// Resolves when the state is to be given up ([`Self::not_ready`]), because all caches together have too much.
    pub fn recalled(&self) -> impl Future<Output = ()> + Send + use<> {
        self.account.recalled()
    }

    /// Whether the state is to be given up.
    pub fn is_recalled(&self) -> bool {
        self.account.is_recalled()
    }

    /// A whole state was taken.
    pub(super) fn settle(&self) {
        let window = {
            let mut state = self.shared.state.lock();
            state.backfilled.clear();
            state.history.bytes()
        };
        self.account.settle(self.cost() + window);
    }

    /// After events. The window is the first to give room.
    pub(super) fn charge(&self, state: &mut State, now: Instant) {
        let cost = self.cost();
        // Counted with the rest from here on.
        state.backfilled.clear();
        let excess = self.account.excess(cost + state.history.bytes());
        if excess > 0 {
            state.history.shrink(excess, now, self.shared.dispatched.load(Ordering::Acquire));
        }
        self.account.hold(cost + state.history.bytes());
    }

    fn cost(&self) -> usize {
        Budget::cost_of(self.store.len(), self.store.bytes())
    }
}
