//! Informers of group versions that get another server.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Factory, Informer};
use crate::apiserver::discovery::{Shareable, Unshareable};
use crate::cache::{Floor, history_of};
use crate::meta::{Gvr, Resource};

impl Factory {
    /// A proof that answers of this resource may be shared by clients with different identities.
    ///
    /// # Errors
    /// An aggregated API server answers, or may do so.
    pub async fn shareable(&self, resource: &Arc<Resource>) -> Result<Shareable, Unshareable> {
        // An informer that starts before they were read may be of another server than it seems.
        self.discovery().follow_services();
        self.discovery().servers().shareable(resource).await
    }

    /// Whether an aggregated API server is known to serve a group version, or any version of a group.
    pub fn is_aggregated(&self, group: &str, version: Option<&str>) -> bool {
        let versions = self.discovery().servers().aggregated(group);
        versions.iter().any(|known| version.is_none_or(|version| **known == *version))
    }

    /// What stands for the group of a resource in [`crate::cache::Floors`]. An aggregated API server may serve one version of
    /// the group only, and has a store of its own.
    pub fn store_of<'n>(&self, gvr: &'n Gvr) -> Cow<'n, str> {
        self.discovery().follow_definitions_of(&gvr.group);
        let is_apart = self.discovery().servers().is_aggregated(gvr);
        if is_apart { gvr.api_version().into() } else { Cow::Borrowed(&*gvr.group) }
    }

    /// See [`crate::cache::Floors::of`].
    pub fn floor(&self, gvr: &Gvr) -> Arc<Floor> {
        self.floors().of(&self.store_of(gvr), &gvr.resource)
    }

    /// The running informers whose revisions are those of a resource.
    pub fn of_history(&self, gvr: &Gvr) -> Vec<Arc<Informer>> {
        let store = self.store_of(gvr);
        let of = history_of(&store, &gvr.resource);
        self.those(|key| history_of(&self.store_of(&key.gvr), &key.gvr.resource) == of)
    }

    /// Does not wait for any answer: what such an informer receives next may be from the other server.
    pub(super) async fn stop_moved(&self) {
        let servers = self.discovery().servers();
        let mut changes = servers.changes();
        loop {
            for informer in self.informers() {
                if servers.since(&informer.key.gvr) != informer.since {
                    tracing::info!(informer = %informer.key, "another server may serve the resource, informer stopped");
                    self.remove(&informer);
                }
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}
