//! Informers of group versions that get another server.

use std::sync::Arc;

use super::Factory;
use crate::apiserver::discovery::{Shareable, Unshareable};
use crate::meta::Resource;

impl Factory {
    /// A proof that answers of this resource may be shared by clients with different identities.
    ///
    /// # Errors
    /// An aggregated API server answers, or may do so.
    pub async fn shareable(&self, resource: &Arc<Resource>) -> Result<Shareable, Unshareable> {
        self.discovery().servers().shareable(resource).await
    }

    /// Whether an aggregated API server is known to serve a group version, or any version of a group.
    pub fn is_aggregated(&self, group: &str, version: Option<&str>) -> bool {
        let versions = self.discovery().servers().aggregated(group);
        versions.iter().any(|known| version.is_none_or(|version| **known == *version))
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
