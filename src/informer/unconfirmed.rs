//! States of an earlier process, for reads that take an old state while the apiserver has not answered this process yet.
//!
//! They are apart from the informers. No watch begins in them, no event follows them, and no informer starts from what
//! is known of their resources. With the first answer that this process gets, whatever it says, all of them are given
//! up for good: from then on, a saved state is only used after the apiserver has confirmed it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::kept::{Keeper, Kept};
use super::key::scope_predicate;
use super::saved_states::{LastSeen, State};
use super::{Factory, InformerKey, InformerScope};
use crate::cache::{self, CacheConfig, WatchCache};
use crate::lifecycle;
use crate::meta::{Encoding, Gvr, Resource};
use crate::selector::Predicate;
use crate::snapshots::Saved;

// === impl Factory ===

impl Factory {
    /// Whether anything has answered at the apiserver's address since the process started.
    pub fn has_heard(&self) -> bool {
        self.upstream().has_heard()
    }

    /// A resource as an earlier process knew it. Nothing but [`Self::unconfirmed`] may be derived from it.
    pub async fn saved_resource(&self, gvr: &Gvr) -> Option<Arc<Resource>> {
        self.keeper()?.last_seen().await?.resources.get(gvr).cloned()
    }

    /// The state of an earlier process that covers `predicate`, and how old it is. `None` if there is none, if it could
    /// not be read before the deadline, or if anything has answered by now.
    pub async fn unconfirmed(
        &self,
        resource: &Resource,
        predicate: &Predicate,
        encoding: Encoding,
        deadline: Instant,
    ) -> Option<(WatchCache, Duration)> {
        let keeper = self.keeper()?;
        for scope in self.saved_scopes(resource, predicate) {
            let key = InformerKey { gvr: resource.gvr.clone(), scope, encoding };
            let Some(kept) = keeper.of(&key, resource, self.rules()) else { continue };
            let (keeper, config, most) =
                (Arc::clone(keeper), self.cache_config(&key.gvr, resource), self.most_informers());
            // The load goes on if this reader gives up.
            let load = async move { keeper.unconfirmed_state(&kept, config, most).await };
            let found = timeout_at(deadline, lifecycle::spawn("unconfirmed", load)).await;
            if let Ok(Ok(Some(found))) = found {
                return Some(found);
            }
        }
        None
    }

    /// The scopes of informers that may have been kept and hold what a read selects.
    fn saved_scopes(&self, resource: &Resource, predicate: &Predicate) -> Vec<InformerScope> {
        let mut scopes = self.rules().scopes(&resource.gvr);
        if scopes.is_empty() {
            let namespace = predicate.scope.namespace.clone().filter(|_| resource.namespaced);
            scopes.push(InformerScope::default());
            scopes
                .extend(namespace.map(|namespace| InformerScope { namespace: Some(namespace), ..Default::default() }));
        }
        scopes.retain(|scope| scope_predicate(resource, scope).is_some_and(|selects| predicate.implies(&selects)));
        scopes
    }
}

// === impl Keeper ===

impl Keeper {
    async fn last_seen(&self) -> Option<&LastSeen> {
        let read = || async {
            let seen = self.snapshots.last_seen(self.upstream.authority().to_string(), self.authorities()).await?;
            let resources = seen.resources.into_iter();
            let resources = resources.map(|resource| (resource.gvr.clone(), Arc::new(resource))).collect();
            Some(LastSeen { cluster: seen.cluster, resources })
        };
        self.unconfirmed.last_seen.get_or_init(read).await.as_ref()
    }

    async fn unconfirmed_state(&self, kept: &Kept, config: CacheConfig, most: usize) -> Option<(WatchCache, Duration)> {
        let mut states = self.unconfirmed.states.lock().await;
        if !states.contains_key(&kept.key) && states.len() < most && !self.upstream.has_heard() {
            let cluster = self.last_seen().await?.cluster.clone();
            let (mut writer, cache) = cache::new(config);
            let state = match kept.of(cluster).load_to_serve(writer.restoration()).await {
                Saved::Missing => return None,
                Saved::Unusable => None,
                Saved::State(saved, time) => {
                    let restored = writer.restore(*saved).map(|()| State::new(writer, cache, time));
                    restored.inspect_err(|error| tracing::warn!(key = %kept.key, %error, "snapshot not served")).ok()
                }
            };
            if state.is_some() {
                tracing::info!(key = %kept.key, "served from its snapshot, marked as old, until the apiserver answers");
            }
            states.insert(kept.key.clone(), state);
        }
        if self.upstream.has_heard() {
            states.clear();
        }
        let state = states.get(&kept.key)?.as_ref()?;
        self.snapshots.age(state.time).map(|age| (state.cache.clone(), age))
    }

    /// Gives up what must no longer be served.
    pub(super) fn tidy(&self) {
        if self.upstream.has_heard() {
            self.unconfirmed.clear();
        }
    }
}
