//! How a cache reports its memory, and how it learns of a recall.

use std::sync::Arc;

use super::budget::Full;
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
                self.shared.keeper.share(&mut object, held.map(Arc::as_ref));
                Err(object)
            }
        }
    }

    /// Reports how many bytes ([`super::Budget::cost`]) of a new state were read so far, in addition to the present state.
    ///
    /// # Errors
    /// The state does not fit, and must not be read further.
    pub fn load(&self, bytes: usize) -> Result<(), Full> {
        self.shared.keeper.load(bytes)
    }

    /// The new state was not read to its end, and its objects are dropped.
    pub fn abandon(&self) {
        self.shared.keeper.abandon();
    }

    pub fn is_pinned(&self) -> bool {
        self.shared.keeper.is_pinned()
    }

    /// Resolves when the state must be given up ([`Self::not_ready`]), because all caches together use too much memory.
    pub fn recalled(&self) -> impl Future<Output = ()> + Send + use<> {
        self.shared.keeper.recalled()
    }

    /// Whether the state must be given up.
    pub fn is_recalled(&self) -> bool {
        self.shared.keeper.is_recalled()
    }

    /// Counts a whole state that was taken.
    pub(super) fn settle(&self) {
        let taken = self.shared.keeper.bytes_of_whole(&self.store, &self.shared.state.lock().history);
        self.shared.keeper.settle(taken);
    }
}
