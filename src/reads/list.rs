//! Lists: complete, exact, and in pages of one snapshot.

use std::sync::Arc;

use tracing::Instrument as _;

use crate::cache::{Snapshot, SnapshotError};
use crate::codec::ListMetaOut;
use crate::informer::Informer;
use crate::meta::{ContinueToken, Object, ObjectKey, ResourceVersion, Verb};
use crate::selector::Predicate;

use super::plan::{Freshness, ListPlan, ListState};
use super::service::{Resolved, Unserved, served};
use super::{ForwardReason, ListAnswer, ListIdentity, ListItems, Outcome, ReadRequest, Reads, Waited, plan, spans};

/// One page of a snapshot.
struct Page {
    objects: Vec<Arc<Object>>,
    continue_after: Option<ObjectKey>,
    remaining: Option<i64>,
}

impl Reads {
    pub async fn list(&self, request: &ReadRequest) -> Outcome<ListAnswer> {
        let span = spans::begin("list", &request.gvr, request.namespace.as_deref());
        let result = self.try_list(request).instrument(span.clone()).await;
        spans::end(&span, &result, |answer| answer.served);
        self.outcome(request.stale, result, |answer| answer.served.waited)
    }

    async fn try_list(&self, request: &ReadRequest) -> Result<ListAnswer, Unserved> {
        request.options.validate().map_err(|_| ForwardReason::Invalid)?;
        let mut read = self.resolve(request).await?;
        let uncached = is_uncached(request);
        let plan = match plan::list(&request.options, read.mode(Verb::List), uncached) {
            Ok(plan) => plan,
            Err(reason) => {
                if reason == ForwardReason::Consistent {
                    self.demand(&read).await;
                }
                return Err(reason.into());
            }
        };
        if is_narrowed(&read, request, &plan) {
            return Err(ForwardReason::Unsupported.into());
        }
        if let ListState::Latest(freshness) = plan.state {
            read.hurry(Verb::List, freshness);
        }
        let (informer, form, waited) = self.synced(&mut read).await?;
        let (snapshot, rv, waited_fresh) = self.state(&informer, &read, &plan).await?;
        let after = plan.after.map(|start| absolute(request.namespace.as_deref(), &start));
        let identity = ListIdentity {
            state: snapshot.id(),
            predicate: read.predicate.clone(),
            after: after.clone(),
            limit: plan.limit,
        };
        let mut answer = ListAnswer {
            form,
            shape: read.shape,
            meta: ListMetaOut { rv, ..ListMetaOut::default() },
            items: ListItems::Page(Vec::new()),
            served: served(&informer, waited.or(waited_fresh), rv),
            identity,
        };
        match plan.limit {
            None => answer.items = ListItems::Matching { snapshot, predicate: read.predicate, after },
            Some(limit) => {
                let unselected = request.options.label_selector.is_empty() && request.options.field_selector.is_empty();
                let page = page(&snapshot, &read.predicate, after.as_deref(), limit, unselected);
                answer.meta.continue_token = page.continue_after.map(|key| token(request, rv, &key));
                answer.meta.remaining = page.remaining;
                answer.items = ListItems::Page(page.objects);
            }
        }
        answer.meta.items_len = answer.items.measure(&answer.form, answer.shape).await;
        Ok(answer)
    }

    /// The snapshot a plan reads, and the revision the answer carries.
    async fn state(
        &self,
        informer: &Arc<Informer>,
        read: &Resolved,
        plan: &ListPlan,
    ) -> Result<(Snapshot, ResourceVersion, Waited), Unserved> {
        match plan.state {
            ListState::Latest(freshness) => {
                let (snapshot, waited) = self.fresh(informer, read, freshness, Verb::List).await?;
                let rv = snapshot.rv();
                read.floor.raise(rv);
                Ok((snapshot, rv, waited))
            }
            ListState::Exact(rv) => {
                let (_, waited) = self.fresh(informer, read, Freshness::NotOlderThan(rv), Verb::List).await?;
                match informer.cache.snapshot_at(rv) {
                    Ok(snapshot) => Ok((snapshot, rv, waited)),
                    Err(SnapshotError::NotReady) => Err(ForwardReason::NotSynced.into()),
                    Err(SnapshotError::TooOld | SnapshotError::TooNew) => Err(ForwardReason::OutsideWindow.into()),
                }
            }
        }
    }
}

/// The apiserver reads single keys and narrowed namespaces at old revisions from etcd, with other tokens.
pub(super) fn is_narrowed(read: &Resolved, request: &ReadRequest, plan: &ListPlan) -> bool {
    let narrowed = read.predicate.scope.name.is_some() || read.predicate.scope.namespace != request.namespace;
    narrowed && (matches!(plan.state, ListState::Exact(_)) || plan.limit.is_some())
}

/// The resources the kube-apiserver keeps no watch cache for.
pub(super) fn is_uncached(request: &ReadRequest) -> bool {
    &*request.gvr.resource == "events" && matches!(&*request.gvr.group, "" | "events.k8s.io")
}

/// A page as the apiserver cuts it: it stops after `limit` matches, and goes on iff any object follows, matching or not.
fn page(snapshot: &Snapshot, predicate: &Predicate, after: Option<&str>, limit: usize, unselected: bool) -> Page {
    let mut page = Page { objects: Vec::with_capacity(limit.min(1024)), continue_after: None, remaining: None };
    if predicate.matches_nothing() {
        return page;
    }
    let mut items = snapshot.range(&predicate.scope, after);
    let mut last = None;
    for object in items.by_ref() {
        last = Some(object);
        if predicate.matches(object) {
            page.objects.push(object.clone());
            if page.objects.len() == limit {
                break;
            }
        }
    }
    if page.objects.len() == limit && items.next().is_some() {
        page.continue_after = last.map(|object| object.key.clone());
        if unselected {
            // One was taken to see that there is more.
            page.remaining = i64::try_from(1 + items.count()).ok();
        }
    }
    page
}

/// A token in the form of the apiserver's: relative to the request's scope, with a leading slash if it is of the watch
/// cache, and without if it is of etcd.
fn token(request: &ReadRequest, rv: ResourceVersion, key: &ObjectKey) -> String {
    let relative = if request.namespace.is_some() { key.name() } else { key.as_str() };
    let root = if is_uncached(request) { "" } else { "/" };
    ContinueToken { rv: i64::try_from(rv.get()).unwrap_or(i64::MAX), start: format!("{root}{relative}") }.encode()
}

/// The flat key a token's start names.
fn absolute(namespace: Option<&str>, start: &str) -> String {
    let relative = start.trim_start_matches('/');
    match namespace {
        Some(namespace) => format!("{namespace}/{relative}"),
        None => relative.to_owned(),
    }
}
