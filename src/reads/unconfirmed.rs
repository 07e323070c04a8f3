//! Reads that are answered from the state of an earlier process, because the apiserver has not answered this one yet.

use std::sync::Arc;

use tokio::time::{Instant, timeout};

use super::plan::{At, Freshness};
use super::resolved::Resolved;
use super::unserved::Unserved;
use super::{ForwardReason, ReadRequest, Reads, Served, Waited};
use crate::cache::Snapshot;
use crate::codec::Form;
use crate::meta::{Encoding, Resource, ResourceVersion};

impl Reads {
    /// What is known of the resource of a request, and whether only an earlier process knew it.
    pub(super) async fn known(&self, request: &ReadRequest) -> Option<(Arc<Resource>, bool)> {
        if request.stale && !self.factory.has_heard() {
            let saved = timeout(self.config.not_synced.wait, self.factory.saved_resource(&request.gvr)).await;
            return Some((saved.ok()??, true));
        }
        Some((self.factory.resource(&request.gvr).await.ok()??, false))
    }

    /// The state for a read of a resource that is only known from an earlier process. It raises no floor: the store may
    /// be another one by now.
    pub(super) async fn unconfirmed(
        &self,
        read: &mut Resolved,
        at: At,
    ) -> Result<(Arc<Form>, Snapshot, Served), Unserved> {
        let deadline = Instant::now() + self.config.not_synced.wait;
        let (cache, age) = loop {
            let Resolved { resource, predicate, encoding, .. } = &*read;
            match self.factory.unconfirmed(resource, predicate, *encoding, deadline).await {
                Some(found) => break found,
                None => read.shape = read.json_fallback.take().ok_or(ForwardReason::NotSynced)?,
            }
            read.encoding = Encoding::Json;
        };
        let form = cache.form().ok_or(ForwardReason::NotSynced)?;
        let snapshot = match at {
            At::Latest(freshness) => {
                let least = if let Freshness::NotOlderThan(rv) = freshness { rv } else { ResourceVersion::ZERO };
                cache.snapshot().filter(|snapshot| snapshot.rv() >= least)
            }
            At::Exact(rv) => cache.snapshot_at(rv).ok(),
        };
        let snapshot = snapshot.ok_or(ForwardReason::NotFresh)?;
        read.is_still_shareable()?;
        // Without its age it must not be served.
        let heard = Some(Instant::now().checked_sub(age).ok_or(ForwardReason::NotFresh)?);
        let served = Served { waited: Waited::Nothing, rv: snapshot.rv(), heard };
        Ok((read.written(form), snapshot, served))
    }
}
