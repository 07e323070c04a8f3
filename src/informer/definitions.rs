//! What discovery knows of definitions, and informers whose definition changes, or has changed.

use std::sync::Arc;

use super::{Factory, Informer};
use crate::lifecycle;
use crate::meta::Gvr;

// === impl Factory ===

impl Factory {
    /// See [`crate::apiserver::discovery::Discovery::may_lack`].
    pub fn may_lack(&self, group: &str, version: Option<&str>) -> bool {
        self.discovery().may_lack(group, version)
    }

    /// See [`crate::apiserver::discovery::Discovery::serves`].
    pub fn serves(&self, gvr: &Gvr) -> bool {
        self.discovery().serves(gvr)
    }

    /// See [`crate::apiserver::discovery::Discovery::may_exist`].
    pub fn may_exist(&self, group: &str, resource: &str) -> bool {
        self.discovery().may_exist(group, resource)
    }

    /// Looks once more at the definition of an informer that was just started. A change just before that was seen by
    /// nobody: the read had already looked, and the informer did not run yet.
    pub(super) fn confirm_definition(&self, informer: Arc<Informer>) {
        let factory = self.clone();
        lifecycle::spawn("definition", async move { factory.recheck_definition(&informer).await });
    }

    /// A CRD or an APIService has changed: stops the informers whose resource is different now, or no longer exists.
    /// Returns false if the apiserver could not answer for all of them; those keep running until it can.
    pub(super) async fn recheck_definitions(&self) -> bool {
        let mut sure = true;
        for informer in self.informers() {
            sure &= self.recheck_definition(&informer).await;
        }
        sure
    }

    async fn recheck_definition(&self, informer: &Arc<Informer>) -> bool {
        let gvr = &informer.key.gvr;
        match self.discovery().resolve(&gvr.group, &gvr.version, &gvr.resource).await {
            Ok(Some(now)) if informer.is_of(&now) => {}
            Ok(_) => {
                tracing::info!(informer = %informer.key, "resource definition changed, informer stopped");
                self.remove(informer);
            }
            Err(error) => {
                tracing::debug!(informer = %informer.key, %error, "definition not checked");
                return false;
            }
        }
        true
    }
}
