//! How large a state is that is being read, and whether it fits.

use std::sync::Arc;

use crate::cache::{Arriving, Budget, Full, Writer};
use crate::meta::Object;

/// The size of a state that is being read.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// The cost of those of its objects that the cache does not have yet.
    pub(super) bytes: usize,
    pub(super) objects: usize,
    arriving: Arriving,
}

/// The part that was read of a state that did not fit. It avoids reading the state again and again just to find out
/// that it does not fit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) bytes: usize,
    pub(super) objects: usize,
    /// How often it may still be relied on: objects can become smaller, too.
    pub(super) trusted: u8,
}

// === impl Load ===

impl Load {
    /// Adds one object.
    pub(super) fn take(&mut self, writer: &Writer, object: Object) -> Result<Arc<Object>, Full> {
        let object = match writer.known(object) {
            Ok(known) => return Ok(known),
            Err(object) => object,
        };
        let object = Arc::new(object);
        self.bytes += Budget::cost(object.size());
        self.objects += 1;
        self.bytes = self.bytes.saturating_sub(self.arriving.take(writer, &object));
        writer.account().load(self.bytes).map(|()| object)
    }
}
