//! Reads one object by its name.

use crate::codec::Shape;
use crate::codec::json::is_list_like;
use crate::meta::{ObjectKey, Origin, Verb, errors};

use super::plan::Freshness;
use super::resolved::Resolved;
use super::service::served;
use super::unserved::Unserved;
use super::{ConsistentReads, ForwardReason, GetAnswer, Outcome, ReadRequest, Reads, plan};

impl Reads {
    /// Gets the object that `request` names. A missing object is refused with the apiserver's 404.
    pub async fn get(&self, request: &ReadRequest) -> Outcome<GetAnswer> {
        self.answered("get", request, || self.try_get(request), |answer| answer.served).await
    }

    async fn try_get(&self, request: &ReadRequest) -> Result<GetAnswer, Unserved> {
        let mode = self.modes(&request.gvr).consistent.of(Verb::Get, request.local, request.own_credentials);
        let freshness = plan::get(&request.options, if request.stale { ConsistentReads::Cache } else { mode })?;
        let Some(name) = request.name.as_deref() else { return Err(ForwardReason::Invalid.into()) };
        let mut read = self.resolve(request).await?;
        if self.is_lone_get(&read, freshness, true) {
            return Err(ForwardReason::Consistent.into());
        }
        read.hurry(Verb::Get, freshness);
        let (informer, form, waited) = self.synced(&mut read).await?;
        let (snapshot, waited_fresh) = self.fresh(&informer, &read, freshness, Verb::Get).await?;
        let key = ObjectKey::new(request.namespace.as_deref().unwrap_or(""), name);
        let Some(object) = snapshot.get(&key) else {
            // A client that accepts only a transform gets its errors in a form that the apiserver chooses.
            if read.shape != Shape::Full {
                return Err(ForwardReason::Encoding.into());
            }
            // No other cache may show it from an older state.
            read.floor.raise(snapshot.rv());
            informer.serves();
            return Err(Unserved::Refuse(Box::new(errors::not_found(&request.gvr, name))));
        };
        // The apiserver fails to read such an object as a list, and answers 500.
        let is_custom = matches!(read.resource.origin, Origin::Custom { .. });
        if is_custom && is_list_like(&object.raw_for_upkeep()?.item()) {
            return Err(ForwardReason::Unsupported.into());
        }
        read.floor.raise(object.rv);
        let served = served(&informer, waited.max(waited_fresh), snapshot.rv());
        let rent = Some(informer.rent(false));
        Ok(GetAnswer { form, shape: read.shape, object: object.clone(), served, rent })
    }

    /// Whether a get is forwarded because it would not be cheaper otherwise.
    pub(super) fn is_lone_get(&self, read: &Resolved, freshness: Freshness, is_counted: bool) -> bool {
        freshness == Freshness::Consistent
            && read.mode(Verb::Get) == ConsistentReads::Auto
            && self.factory.is_lone_get(read.sought(), is_counted)
    }
}
