//! Changes that a stream owes: a client was shown an object, or has written it, at a revision that the stream must
//! deliver. Nothing needs to be asked to know that one that stands still is silent.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::Informer;
use crate::lifecycle;
use crate::meta::{Origin, ResourceVersion};
use crate::upstream::reflector::Position;

/// A stream that delivers nothing for this long, although it owes something, is silent.
const SILENT: Duration = Duration::from_secs(5);
/// What has arrived meanwhile is taken within this time, also if the whole process had been stopped.
const TAKEN: Duration = Duration::from_millis(500);
/// How often a stream may deliver something else instead.
const OTHERS: usize = 12;
/// How long a list may take that replaces what a stream did not deliver.
const LISTED: Duration = Duration::from_secs(60);

// === impl Informer ===

impl Informer {
    /// An object of the informer's namespace is or was at this revision.
    pub fn must_deliver(self: &Arc<Self>, rv: ResourceVersion) {
        let scope = &self.key.scope;
        let selects = !(scope.field_selector.is_empty() && scope.label_selector.is_empty());
        // The revisions of aggregated servers need not follow any rule.
        let is_unruly = self.resource.origin == Origin::Unknown;
        if selects || is_unruly || !self.cache.is_ready() || self.cache.resource_version() >= rv {
            return;
        }
        let owed = &mut self.stall.0.lock().owed;
        if owed.replace(owed.unwrap_or(rv).max(rv)).is_some() {
            return;
        }
        let informer = Arc::clone(self);
        lifecycle::spawn("await-event", async move { informer.await_owed().await });
    }

    async fn await_owed(&self) {
        for _ in 0..OTHERS {
            let (at, from) = (self.reflector.position(), self.cache.resource_version());
            let Some(owed) = self.stall.0.lock().owed else { return };
            if self.cache.wait_for(owed, Instant::now() + SILENT).await.is_ok() {
                let newest = self.cache.newest();
                let owed = &mut self.stall.0.lock().owed;
                if owed.take_if(|owed| newest >= *owed).is_some() {
                    return;
                }
                continue;
            }
            sleep(TAKEN).await;
            if self.stands_at(at) && self.cache.resource_version() == from && !self.pays(at, from, owed).await {
                break;
            }
        }
        self.stall.0.lock().owed = None;
    }

    /// The stream stands still and has not delivered what it owes. It is opened anew, and listed if that does not help.
    /// Returns false if not even the list has what is owed: the store may have been set back since.
    async fn pays(&self, at: Position, from: ResourceVersion, owed: ResourceVersion) -> bool {
        let before = self.reflector.status().relists;
        let why = format!("an object was shown at resource version {owed}, after {from}");
        let restarts = self.report(why, at);
        if !self.has_missed_again(from, restarts).await {
            return true;
        }
        let listed = self.reflector.wait_for(|status| status.relists > before);
        timeout(LISTED, listed).await.is_err() || self.cache.newest() >= owed
    }
}
