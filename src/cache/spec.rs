//! The parameters of a watch, its items, and the reasons for its end.

use std::sync::Arc;

use tokio::time::Instant;

use crate::meta::{EventType, Object, ResourceVersion, Status, WatchCacheEvent};
use crate::selector::Predicate;

/// The parameters of a watch.
#[derive(Clone, Debug)]
pub struct WatchSpec {
    pub predicate: Predicate,
    pub start: WatchStart,
    /// Bookmarks about once a minute and shortly before the deadline.
    pub bookmarks: bool,
    /// A bookmark that marks the end of the initial events ([`WatchStart::State`] only), regardless of `bookmarks`.
    pub initial_end: bool,
    /// The time of the clean end.
    pub deadline: Instant,
}

/// Where a watch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// With an ADDED event for every object of the present state.
    State,
    /// After a revision, with the events since then. A future revision is accepted: no event up to it is delivered.
    After(ResourceVersion),
    /// After the present state.
    Now,
}

/// One item of a watch.
#[derive(Clone, Debug)]
pub enum WatcherEvent {
    Event {
        kind: EventType,
        object: Arc<Object>,
        /// The value for `metadata.resourceVersion` if it differs from the object's own. When an object leaves the
        /// selection, its last matching state is sent with the revision at which it left.
        rv: Option<ResourceVersion>,
    },
    Bookmark {
        rv: ResourceVersion,
        initial_end: bool,
    },
    /// Ends the stream. The cache never sends it; it is for code that answers in place of the cache.
    Error(Box<Status>),
}

/// Why a watcher ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    Deadline,
    /// An event that the watcher had not received yet has left the window.
    TooSlow,
    /// A relist did not contain an object that the watcher holds: the revision of its deletion is unknown. Or the
    /// watcher began at a revision of which the cache knows nothing, because a relist took the place of its events.
    Relisted,
    /// The cache gave up its state.
    NotReady,
    /// The writer is gone because the informer stopped.
    Stopped,
    /// Asked to end ([`super::WatchCache::end_watchers`], [`super::CacheWatcher::end`]).
    Drained,
}

// === impl WatcherEvent ===

impl WatcherEvent {
    /// A change as it appears to a predicate.
    pub(super) fn of(kind: EventType, event: &WatchCacheEvent) -> Self {
        match (&event.prev, kind) {
            (Some(prev), EventType::Deleted) if event.kind != EventType::Deleted => {
                Self::Event { kind, object: prev.clone(), rv: Some(event.rv) }
            }
            _ => Self::Event { kind, object: event.object.clone(), rv: None },
        }
    }
}

// === impl EndReason ===

impl EndReason {
    /// Whether the cache ended the watcher without a request to do so.
    pub fn is_termination(self) -> bool {
        matches!(self, Self::TooSlow | Self::Relisted | Self::NotReady)
    }

    #[cfg(test)]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::TooSlow => "too_slow",
            Self::Relisted => "relisted",
            Self::NotReady => "not_ready",
            Self::Stopped => "stopped",
            Self::Drained => "drained",
        }
    }
}
