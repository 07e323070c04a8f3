//! One change of a resource, with what was there before it.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Object, ObjectKey, ResourceVersion};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    Added,
    Modified,
    Deleted,
}

/// A change as the watch cache keeps it. A watcher's own view of it (entered, stayed in, left its selection) is
/// computed from `object` and `prev`, not from `kind`.
#[derive(Debug)]
pub struct WatchCacheEvent {
    pub kind: EventType,
    /// The revision of the change: the object's own, and for a deletion the deletion's.
    pub rv: ResourceVersion,
    /// The new state; for a deletion the last state with the deletion's resourceVersion, as the apiserver sends it.
    pub object: Arc<Object>,
    /// What the cache held before.
    pub prev: Option<Arc<Object>>,
    /// When it came from the apiserver.
    pub received: Instant,
}

impl EventType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

impl WatchCacheEvent {
    pub fn key(&self) -> &ObjectKey {
        &self.object.key
    }
}
