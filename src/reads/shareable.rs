//! Whether an answer may be shared by clients with different identities. That of an aggregated API server may depend on
//! who asks, and here informerd has asked.

use std::sync::Arc;

use super::resolved::Resolved;
use super::{ForwardReason, Reads, Refusal};
use crate::informer::{Informer, Shareable, Unshareable};
use crate::meta::Resource;

impl Reads {
    /// The proof for a read of this resource. `None` if none is needed: for clients without an identity, all of whom read
    /// as informerd, and for groups that the configuration names.
    ///
    /// # Errors
    /// An aggregated API server answers, or may do so.
    pub(super) async fn shareable(
        &self,
        resource: &Arc<Resource>,
        identified: bool,
    ) -> Result<Option<Shareable>, ForwardReason> {
        if !identified || self.shares(&resource.gvr.group) {
            return Ok(None);
        }
        Ok(Some(self.factory.shareable(resource).await?))
    }

    /// Whether the configuration says that the answers of a group do not depend on who asks.
    fn shares(&self, group: &str) -> bool {
        self.config.shared_groups.iter().any(|shared| **shared == *group)
    }

    /// Why a typed read is not served of a resource that discovery does not have. If a server of the group has not said what
    /// there is, the resource may exist: the REST side forwards the request then. Without a version, any version is meant.
    pub(super) fn unknown(&self, group: &str, version: Option<&str>, identified: bool) -> Refusal {
        if !self.factory.may_lack(group, version) {
            return Refusal::UnknownResource;
        }
        if identified && !self.shares(group) && self.factory.is_aggregated(group, version) {
            return ForwardReason::Aggregated.into();
        }
        Refusal::Unreachable(format!("the server of {group} does not say what it has"))
    }
}

// === impl Resolved ===

impl Resolved {
    /// # Errors
    /// What the informer holds may be from another server than the proof is about. It is about to stop.
    pub(super) fn may_use(&self, informer: &Informer) -> Result<(), ForwardReason> {
        let is_covered = self.proof.as_ref().is_none_or(|proof| informer.is_covered_by(proof));
        if is_covered { Ok(()) } else { Err(Unshareable::Unknown.into()) }
    }

    /// Must be called after the last wait, for what was read before.
    ///
    /// # Errors
    /// The proof does not hold any more.
    pub(super) fn is_still_shareable(&self) -> Result<(), ForwardReason> {
        if self.proof.as_ref().is_none_or(Shareable::holds) { Ok(()) } else { Err(Unshareable::Unknown.into()) }
    }
}

impl From<Unshareable> for ForwardReason {
    fn from(why: Unshareable) -> Self {
        match why {
            Unshareable::Aggregated => Self::Aggregated,
            // It passes: an informer has to start, or the APIServices have to be read.
            Unshareable::Unknown => Self::NotSynced,
        }
    }
}

#[cfg(test)]
#[path = "shareable_tests.rs"]
mod tests;
