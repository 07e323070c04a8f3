//! Lists: complete, exact, and in pages of one snapshot.

use crate::cache::Walk;
use crate::codec::ListMetaOut;
use crate::informer::Use;
use crate::meta::{ContinueToken, ObjectKey, ResourceVersion, Verb};
use crate::selector::FieldSelector;

use super::plan::{At, Freshness, ListPlan};
use super::resolved::Resolved;
use super::service::served;
use super::shards::is_counted_otherwise;
use super::unserved::Unserved;
use super::{ForwardReason, ListAnswer, ListIdentity, ListItems, Outcome, ReadRequest, Reads, plan, shards};

impl Reads {
    pub async fn list(&self, request: &ReadRequest) -> Outcome<ListAnswer> {
        self.answered("list", request, || self.try_list(request), |answer| answer.served).await
    }

    async fn try_list(&self, request: &ReadRequest) -> Result<ListAnswer, Unserved> {
        request.options.validate().map_err(|_| ForwardReason::Invalid)?;
        let mut read = self.resolve(request).await?;
        let uncached = request.gvr.is_events();
        let plan = plan::list(&request.options, read.mode(Verb::List), uncached)?;
        if is_narrowed(&read, request, &plan) || is_counted_otherwise(&read, request, &plan) {
            return Err(ForwardReason::Unsupported.into());
        }
        if let At::Latest(freshness) = plan.state {
            read.hurry(Verb::List, freshness);
        }
        read.rows = self.charged(&read, plan.state);
        let (informer, form, waited) = self.synced(&mut read).await?;
        let (snapshot, waited_fresh) = self.state(&informer, &read, plan.state).await?;
        let rv = snapshot.rv();
        let after = plan.after.map(|start| absolute(request.namespace.as_deref(), &start));
        let identity = ListIdentity {
            state: snapshot.id(),
            predicate: read.predicate.clone(),
            after: after.clone(),
            limit: plan.limit,
        };
        let shard = shards::repeated(&read);
        let is_counted = read.selectors.is_none() && read.shard.as_ref().is_none_or(|shard| shard.counts == Some(true));
        let walk = Walk::new(snapshot, read.predicate, after);
        let mut answer = ListAnswer {
            form,
            shape: read.shape,
            meta: ListMetaOut { rv, shard, ..ListMetaOut::default() },
            items: ListItems::new(walk.clone(), plan.limit),
            served: served(&informer, waited.max(waited_fresh), rv),
            rent: Some(informer.rent(false)),
            identity,
        };
        if let Some(limit) = plan.limit {
            let is_latest = matches!(plan.state, At::Latest(_));
            self.page(request, walk, limit, is_counted, is_latest, &mut answer).await;
        }
        answer.meta.items_len = answer.items.measure(&answer.form, answer.shape).await?;
        Ok(answer)
    }

    /// How the list counts towards the start of an informer. Short programs ask for the newest state of a namespace or a selection
    /// once or twice, which an informer cannot save. After a list of any state, client-go watches.
    pub(super) fn charged(&self, read: &Resolved, state: At) -> Use {
        let is_any = matches!(state, At::Latest(Freshness::Any | Freshness::NotOlderThan(_)));
        let pays = !is_any && read.may_choose(Verb::List) && !self.serves_while_away(&read.resource.gvr);
        Use { pays, past: pays && matches!(state, At::Exact(_)), ..read.rows }
    }

    /// Fills in what follows a page like the apiserver: it stops after `limit` objects, and has a continue token iff any object
    /// follows, selected or not. It finds the newest state by its index where it has one, and then only what that finds
    /// counts.
    async fn page(
        &self,
        request: &ReadRequest,
        mut walk: Walk,
        limit: usize,
        is_counted: bool,
        is_latest: bool,
        answer: &mut ListAnswer,
    ) {
        let all = walk.clone().in_all_shards();
        let (mut found, mut more) = (0, true);
        while more && found < limit {
            more = walk.step(limit - found, |_| found += 1);
            if more && found < limit {
                tokio::task::yield_now().await;
            }
        }
        if let Some(indexed) = answer.identity.predicate.indexed().filter(|_| more && is_latest) {
            more = walk.is_followed_by(indexed).await;
        }
        if let (true, Some(last)) = (more, walk.into_after()) {
            answer.meta.continue_token = Some(token(request, answer.meta.rv, &last));
            if is_counted {
                let identity = &answer.identity;
                let predicate = identity.predicate.clone().in_all_shards();
                let whole = ListIdentity { predicate, limit: None, ..identity.clone() };
                let rest = self.counts.get_with(whole.clone(), all.count()).await - found as u64;
                // The remaining objects are counted once, and the number is passed on from page to page, unless objects
                // of other shards lie in between.
                if whole.predicate == identity.predicate {
                    self.counts.insert(ListIdentity { after: Some(last), ..whole }, rest).await;
                }
                answer.meta.remaining = i64::try_from(rest).ok();
            }
        }
    }
}

/// The apiserver reads single keys and narrowed namespaces at old revisions from etcd, which uses different tokens.
pub(super) fn is_narrowed(read: &Resolved, request: &ReadRequest, plan: &ListPlan) -> bool {
    let narrows = || {
        let scope = &read.predicate.scope;
        scope.name.is_some() || scope.namespace != request.namespace || names_one(request)
    };
    (matches!(plan.state, At::Exact(_)) || plan.limit.is_some()) && narrows()
}

/// Whether the apiserver takes a name or a namespace from the field selector. It takes that of the first term, also if
/// another term contradicts it. The predicate is empty then, and has no name.
fn names_one(request: &ReadRequest) -> bool {
    let text = &request.options.field_selector;
    let Some(fields) = (!text.is_empty()).then(|| FieldSelector::parse(text).ok()).flatten() else { return false };
    let is_exact = |label| fields.requires_exact_match(label).is_some();
    is_exact("metadata.name") || request.namespace.is_none() && is_exact("metadata.namespace")
}

/// A token in the apiserver's form: relative to the request's scope. It has a leading slash if it comes from the watch
/// cache, and none if it comes from etcd.
fn token(request: &ReadRequest, rv: ResourceVersion, key: &ObjectKey) -> String {
    let relative = if request.namespace.is_some() { key.name() } else { key.as_str() };
    let root = if request.gvr.is_events() { "" } else { "/" };
    ContinueToken { rv: i64::try_from(rv.get()).unwrap_or(i64::MAX), start: format!("{root}{relative}") }.encode()
}

/// The key in a token's start.
fn absolute(namespace: Option<&str>, start: &str) -> ObjectKey {
    ObjectKey::new(namespace.unwrap_or_default(), start.trim_start_matches('/'))
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
