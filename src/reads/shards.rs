//! Shard selectors: whether a read asks for a part of its selection, and what a list returns about its shard.

use std::sync::Arc;

use crate::codec::Shape;
use crate::informer::ShardSupport;
use crate::meta::{Origin, Resource};
use crate::selector::ShardSelector;

use super::plan::ListPlan;
use super::resolved::{Resolved, Shard};
use super::{ForwardReason, ReadRequest, Reads};

impl Reads {
    /// Returns `None` if there is no shard selector, or if the apiserver ignores it.
    ///
    /// # Errors
    /// It is unknown how the apiserver treats the selector, or the selector cannot be parsed.
    pub(super) async fn shard(
        &self,
        request: &ReadRequest,
        resource: &Resource,
    ) -> Result<Option<Shard>, ForwardReason> {
        let text = &request.options.shard_selector;
        if text.is_empty() {
            return Ok(None);
        }
        // Do not ask an apiserver that is down.
        match self.factory.shard_support(resource, request.stale).await {
            ShardSupport::Ignored => Ok(None),
            ShardSupport::Evaluated { counts } => {
                let selector = ShardSelector::parse(text).ok_or(ForwardReason::Unsupported)?;
                Ok(Some(Shard { selector: Arc::new(selector), counts }))
            }
            ShardSupport::Unknown => Err(ForwardReason::Unsupported),
        }
    }
}

/// Whether the number of remaining objects in the apiserver's page cannot be predicted. From etcd the apiserver reads
/// in chunks, and counts from the last chunk on.
pub(super) fn is_counted_otherwise(read: &Resolved, request: &ReadRequest, plan: &ListPlan) -> bool {
    let Some(shard) = read.shard.as_ref().filter(|_| plan.limit.is_some() && read.selectors.is_none()) else {
        return false;
    };
    shard.counts.is_none_or(|counts| counts && request.gvr.is_events())
}

/// The selector that a list repeats: only lists of built-in types have a field for it.
pub(super) fn repeated(read: &Resolved) -> Option<String> {
    let has_place = read.resource.origin == Origin::BuiltIn && read.shape == Shape::Full;
    read.shard.as_ref().filter(|_| has_place).map(|shard| shard.selector.to_string())
}
