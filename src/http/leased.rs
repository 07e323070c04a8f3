//! A watch that ends when the right to it does.

use std::task::{Context, Poll};

use bytes::Bytes;

use super::read::{EventSource, WatcherEvent};
use crate::auth::Lease;
use crate::auth::audit::Entry;

/// The events of a watch, as long as its client may see them. The lease is asked before every event: what happened
/// after the right was gone is not told.
pub struct Leased {
    events: Box<dyn EventSource>,
    /// `None` once the right is gone.
    lease: Option<Lease>,
    /// Tells of the end when it is dropped.
    _told: Option<Entry>,
}

// === impl Leased ===

impl Leased {
    pub fn new(events: Box<dyn EventSource>, lease: Lease, told: Option<Entry>) -> Self {
        Self { events, lease: Some(lease), _told: told }
    }
}

impl EventSource for Leased {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatcherEvent>> {
        let Some(lease) = &mut self.lease else { return Poll::Ready(None) };
        match lease.poll_gone(cx) {
            Poll::Ready(status) => {
                self.lease = None;
                Poll::Ready(Some(WatcherEvent::Error(status)))
            }
            Poll::Pending => self.events.poll_next(cx),
        }
    }

    fn end(&mut self) {
        self.events.end();
    }

    fn bookmark_template(&self) -> Option<Bytes> {
        self.events.bookmark_template()
    }
}
