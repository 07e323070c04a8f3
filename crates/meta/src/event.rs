//! One change of a resource, with the state before it.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Object, ObjectKey, ResourceVersion};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    Added,
    Modified,
    Deleted,
}

/// A change as the watch cache stores it. What a watcher sees (the object entered, stayed in, or left its selection)
/// is computed from `object` and `prev`, not from `kind`.
#[derive(Debug)]
pub struct WatchCacheEvent {
    pub kind: EventType,
    /// The revision of the change: that of the object, or for a deletion that of the deletion.
    pub rv: ResourceVersion,
    /// The new state. For a deletion, the last state with the resourceVersion of the deletion, as the apiserver sends
    /// it.
    pub object: Arc<Object>,
    /// The state in the cache before the change.
    pub prev: Option<Arc<Object>>,
    /// When the event arrived from the apiserver.
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
