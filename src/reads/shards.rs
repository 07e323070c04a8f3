//! Shard selectors: whether a read asks for a part of its selection, and what a list then tells of itself.

use std::sync::Arc;

use crate::codec::Shape;
use crate::informer::ShardSupport;
use crate::meta::{Origin, Resource};
use crate::selector::ShardSelector;

use super::plan::ListPlan;
use super::service::Resolved;
use super::{ForwardReason, ReadRequest, Reads};

/// The shard that a read asks for.
pub(super) struct Shard {
    pub(super) selector: Arc<ShardSelector>,
    /// Whether a page tells how many objects follow, those of other shards included, where no other selector is given.
    pub(super) counts: Option<bool>,
}

impl Reads {
    /// `None` if there is no shard selector, or the apiserver ignores it.
    ///
    /// # Errors
    /// What the apiserver makes of the selector is unknown here, or the selector is not understood.
    pub(super) async fn shard(
        &self,
        request: &ReadRequest,
        resource: &Resource,
    ) -> Result<Option<Shard>, ForwardReason> {
        let text = &request.options.shard_selector;
        if text.is_empty() {
            return Ok(None);
        }
        // An apiserver that is away need not be asked.
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

/// Whether it is unknown what a page would tell of the objects that follow. From etcd the apiserver reads in portions, and
/// counts from the last of them on.
pub(super) fn is_counted_otherwise(read: &Resolved, request: &ReadRequest, plan: &ListPlan) -> bool {
    let Some(shard) = read.shard.as_ref().filter(|_| plan.limit.is_some() && read.selectors.is_none()) else {
        return false;
    };
    shard.counts.is_none_or(|counts| counts && request.gvr.is_events())
}

/// The selector that a list repeats: only lists of built-in types have a place for it.
pub(super) fn repeated(read: &Resolved) -> Option<String> {
    let has_place = read.resource.origin == Origin::BuiltIn && read.shape == Shape::Full;
    read.shard.as_ref().filter(|_| has_place).map(|shard| shard.selector.to_string())
}
