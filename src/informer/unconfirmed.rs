//! States of an earlier process, for reads that take an old state while the apiserver has not answered this process yet.
//!
//! They are apart from the informers. No watch begins in them, no event follows them, and no informer starts from what
//! is known of their resources. With the first answer that this process gets, whatever it says, all of them are given
//! up for good: from then on, a saved state is only used after the apiserver has confirmed it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OnceCell};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::coverage::scope_predicate;
use super::kept::{Keeper, Kept};
use super::{Factory, InformerKey, InformerScope};
use crate::cache::{self, CacheConfig, WatchCache, Writer};
use crate::lifecycle;
use crate::meta::{Encoding, Gvr, Resource};
use crate::selector::Predicate;
use crate::snapshots::{Cluster, Saved};

/// The states that were read, and what is known of the cluster.
#[derive(Default)]
pub(super) struct Unconfirmed {
    last_seen: OnceCell<Option<LastSeen>>,
    /// `None` for files that cannot be used. Held while a file is read: one at a time.
    states: Mutex<HashMap<InformerKey, Option<State>>>,
}

/// The cluster that was last seen where the apiserver should be.
struct LastSeen {
    cluster: Cluster,
    resources: HashMap<Gvr, Arc<Resource>>,
}

/// A state that an earlier process saved. It has a cache of its own, which nothing is written to.
struct State {
    cache: WatchCache,
    /// When its file was last written to, in seconds since 1970.
    time: i64,
    /// Empty once the memory was needed for something else: the cache then has no state.
    writer: Arc<parking_lot::Mutex<Option<Writer>>>,
    _alive: DropGuard,
}

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

// === impl Unconfirmed ===

impl Unconfirmed {
    /// To be called once anything has answered. Does not wait: whoever reads a file gives all states up afterwards.
    pub(super) fn clear(&self) {
        if let Ok(mut states) = self.states.try_lock() {
            states.clear();
        }
    }
}

// === impl State ===

impl State {
    fn new(writer: Writer, cache: WatchCache, time: i64) -> Self {
        let (stop, recalled) = (CancellationToken::new(), writer.recalled());
        let writer = Arc::new(parking_lot::Mutex::new(Some(writer)));
        let (stopped, held) = (stop.clone(), Arc::clone(&writer));
        lifecycle::spawn("unconfirmed", async move {
            tokio::select! {
                () = recalled => drop(held.lock().take()),
                () = stopped.cancelled() => {}
            }
        });
        Self { cache, time, writer, _alive: stop.drop_guard() }
    }
}

impl Drop for State {
    /// At once, so that the memory is free for what comes next.
    fn drop(&mut self) {
        drop(self.writer.lock().take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Budget;
    use crate::codec::Form;
    use crate::codec::json::Style;
    use crate::meta::{AttributesBuilder, Object, ObjectKey, Raw, ResourceVersion};

    /// A state of one object, in a budget that has nothing else.
    fn state(budget: &Budget) -> (State, WatchCache) {
        let config = CacheConfig { budget: budget.clone(), ..CacheConfig::new(Gvr::new("", "v1", "configmaps")) };
        let (mut writer, cache) = cache::new(config);
        let mut saved = writer.restoration();
        let raw = Raw::new("{\"metadata\":{\"name\":\"one\"}},".into(), 12..26, 0..0);
        let attributes = AttributesBuilder::new("uid").build();
        saved.insert(Object::new(ObjectKey::new("a", "one"), ResourceVersion(1), attributes, raw)).unwrap();
        saved.begin(ResourceVersion(2), 1).unwrap();
        saved.set_form(Form::new(Encoding::Json, Style::Stripped, "v1", "ConfigMap", "ConfigMapList"));
        assert!(budget.used() > 0, "also while it is read");
        writer.restore(saved).unwrap();
        (State::new(writer, cache.clone(), 0), cache)
    }

    #[tokio::test]
    async fn a_state_that_is_given_up_leaves_its_memory_at_once() {
        let budget = Budget::new(1 << 20);
        let (state, cache) = state(&budget);
        assert!(budget.used() > 0 && cache.snapshot().is_some());
        drop(state);
        assert!(budget.used() == 0 && cache.snapshot().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_state_whose_memory_is_needed_is_given_up() {
        let budget = Budget::new(1 << 20);
        let (_state, cache) = state(&budget);
        assert!(budget.recall());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(budget.used() == 0 && cache.snapshot().is_none());
    }
}
