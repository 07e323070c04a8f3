//! The states that an earlier process saved, as they are held until the apiserver answers this process.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{Mutex, OnceCell};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::InformerKey;
use crate::cache::{WatchCache, Writer};
use crate::lifecycle;
use crate::meta::{Gvr, Resource};
use crate::snapshots::Cluster;

/// The states that were read, and what is known of the cluster.
#[derive(Default)]
pub(super) struct Unconfirmed {
    pub(super) last_seen: OnceCell<Option<LastSeen>>,
    /// `None` for files that cannot be used. Held while a file is read: one at a time.
    pub(super) states: Mutex<HashMap<InformerKey, Option<State>>>,
}

/// The cluster that was last seen where the apiserver should be.
pub(super) struct LastSeen {
    pub(super) cluster: Cluster,
    pub(super) resources: HashMap<Gvr, Arc<Resource>>,
}

/// A state that an earlier process saved. It has a cache of its own, which nothing is written to.
pub(super) struct State {
    pub(super) cache: WatchCache,
    /// When its file was last written to, in seconds since 1970.
    pub(super) time: i64,
    /// Empty once the memory was needed for something else: the cache then has no state.
    writer: Arc<parking_lot::Mutex<Option<Writer>>>,
    _alive: DropGuard,
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
    pub(super) fn new(writer: Writer, cache: WatchCache, time: i64) -> Self {
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
    use std::time::Duration;

    use super::*;
    use crate::cache::{self, Budget, CacheConfig};
    use crate::codec::Form;
    use crate::codec::json::Style;
    use crate::meta::{AttributesBuilder, Encoding, Object, ObjectKey, Raw, ResourceVersion};

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
