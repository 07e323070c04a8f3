//! Which informers are kept on disk, and under which names.

use std::sync::Arc;

use tokio::sync::OnceCell;

use super::{InformerKey, Rules};
use crate::apiserver::UpstreamError;
use crate::apiserver::client::Upstream;
use crate::cache::{Restoration, WatchCache};
use crate::meta::{Encoding, Origin, Resource};
use crate::selector;
use crate::snapshots::{Cluster, Identity, Snapshot, Snapshots, fingerprint};
use crate::upstream::identity::cluster;
use crate::upstream::reflector::LoadSaved;

/// The snapshots of all informers.
pub(super) struct Keeper {
    snapshots: Snapshots,
    upstream: Upstream,
    /// The cluster, once it is known; `None` inside if the apiserver does not say it.
    cluster: OnceCell<Option<Cluster>>,
}

/// The snapshot of one informer, as far as it is known without the apiserver.
pub(super) struct Kept {
    keeper: Arc<Keeper>,
    resource: String,
    definition: String,
    fields: String,
    key: InformerKey,
}

// === impl Keeper ===

impl Keeper {
    pub(super) fn new(snapshots: Snapshots, upstream: Upstream) -> Self {
        Self { snapshots, upstream, cluster: OnceCell::new() }
    }

    /// The snapshot of an informer; `None` if it is not kept.
    pub(super) fn of(self: &Arc<Self>, key: &InformerKey, resource: &Resource, rules: &Rules) -> Option<Arc<Kept>> {
        // The cells of tables depend on the time at which they were printed, and other servers' revisions need not
        // follow any rule.
        if key.encoding == Encoding::Table || !rules.keeps(&key.gvr, self.snapshots.is_encrypted()) {
            return None;
        }
        let definition = match &resource.origin {
            Origin::BuiltIn => String::new(),
            Origin::Custom { definition, .. } => definition.to_string(),
            Origin::Unknown => return None,
        };
        let fields = fingerprint(format!("{:?}", selector::field_table(resource)).as_bytes());
        let resource = key.gvr.to_string();
        Some(Arc::new(Kept { keeper: Arc::clone(self), resource, definition, fields, key: key.clone() }))
    }

    /// # Errors
    /// The apiserver does not answer now.
    async fn cluster(&self) -> Result<Option<&Cluster>, UpstreamError> {
        let found = self.cluster.get_or_try_init(|| async {
            match cluster(&self.upstream).await {
                Ok(found) => {
                    let authorities = fingerprint(&self.upstream.certificates().authorities.concat());
                    Ok(Some(Cluster { uid: found.uid, authorities, version: found.version }))
                }
                Err(error) if matches!(error.code(), Some(403 | 404)) && error.is_refusal() => {
                    let what_to_do = "snapshots are off: informerd must be allowed to get the namespace kube-system and /version, which identify the cluster";
                    tracing::warn!(%error, "{what_to_do}");
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        });
        found.await.map(Option::as_ref)
    }
}

// === impl Kept ===

impl Kept {
    async fn snapshot(&self) -> Result<Option<Snapshot>, UpstreamError> {
        let Some(cluster) = self.keeper.cluster().await?.cloned() else { return Ok(None) };
        let scope = &self.key.scope;
        let identity = Identity {
            cluster,
            resource: self.resource.clone(),
            definition: self.definition.clone(),
            namespace: scope.namespace.as_deref().unwrap_or_default().to_owned(),
            field_selector: scope.field_selector.to_string(),
            label_selector: scope.label_selector.to_string(),
            encoding: self.key.encoding.as_str().to_owned(),
            fields: self.fields.clone(),
        };
        Ok(Some(self.keeper.snapshots.of(identity)))
    }

    /// Reads the saved state for the reflector.
    pub(super) fn load(self: Arc<Self>) -> LoadSaved {
        Box::new(move |restoration: Restoration| {
            let kept = Arc::clone(&self);
            Box::pin(async move {
                let snapshot = kept.snapshot().await?;
                match snapshot {
                    Some(snapshot) => Ok(snapshot.load(restoration).await),
                    None => Ok(None),
                }
            })
        })
    }

    /// Keeps the snapshot up to date, as long as the cache has a writer.
    pub(super) async fn record(self: Arc<Self>, cache: WatchCache) {
        // The cluster is known before the cache is ready, because the reflector has asked for it.
        cache.ready_or_stopped().await;
        if let Ok(Some(snapshot)) = self.snapshot().await {
            snapshot.record(cache).await;
        }
    }
}
