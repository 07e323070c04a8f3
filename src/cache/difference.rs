//! What a list says other than the store it replaces.

use std::sync::Arc;

use tokio::time::Instant;

use super::store::Store;
use crate::meta::{EventType, Object, ResourceVersion, WatchCacheEvent};

#[derive(Debug)]
pub(super) struct Difference {
    /// The listed state. Objects that are the same are the old ones, so that their bytes are held once.
    pub(super) store: Store,
    /// In order of the objects' revisions.
    pub(super) changed: Vec<WatchCacheEvent>,
    /// What the old store held and the list does not; also the old one of two objects with the same name.
    pub(super) deleted: Vec<Arc<Object>>,
    /// An object reads otherwise at the same revision: the apiserver writes it in another way now, as after a change of
    /// a custom resource's schema, and nobody has been told.
    rewritten: bool,
    /// When the list was complete.
    received: Instant,
}

/// Objects looked at before other tasks may run: about a millisecond.
const STRIDE: usize = 1024;

// === impl Difference ===

impl Difference {
    pub(super) async fn between(old: &Store, mut objects: Vec<Arc<Object>>) -> Self {
        // Lists arrive sorted, which costs one comparison an object. Of a key listed twice the newer counts.
        objects.sort_by(|a, b| a.key.cmp(&b.key).then(b.rv.cmp(&a.rv)));
        objects.dedup_by(|b, a| a.key == b.key);
        let mut difference = Self {
            store: old.clone(),
            changed: Vec::new(),
            deleted: Vec::new(),
            rewritten: false,
            received: Instant::now(),
        };
        let mut held = old.iter().peekable();
        for (i, object) in objects.into_iter().enumerate() {
            while let Some(gone) = held.next_if(|held| held.key < object.key) {
                difference.delete(gone);
            }
            match held.next_if(|held| held.key == object.key) {
                Some(held) if held.rv == object.rv && held.attributes.uid() == object.attributes.uid() => {
                    if !held.is_written_as(&object) {
                        difference.store.insert(object);
                        difference.rewritten = true;
                    }
                }
                held => difference.change(held, object),
            }
            if i % STRIDE == STRIDE - 1 {
                tokio::task::yield_now().await;
            }
        }
        for gone in held {
            difference.delete(gone);
        }
        difference.changed.sort_by_key(|event| event.rv);
        difference
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.deleted.is_empty() && !self.rewritten
    }

    /// Whether all of it can have happened after `rv`, one change at a time. If not, events are missing from before.
    pub(super) fn follows(&self, rv: ResourceVersion) -> bool {
        !self.rewritten
            && self.changed.first().is_none_or(|event| event.rv > rv)
            && self.changed.is_sorted_by(|a, b| a.rv < b.rv)
    }

    fn change(&mut self, held: Option<&Arc<Object>>, object: Arc<Object>) {
        let prev = match held {
            Some(held) if held.attributes.uid() != object.attributes.uid() => {
                self.deleted.push(held.clone());
                None
            }
            held => held.cloned(),
        };
        let kind = if prev.is_some() { EventType::Modified } else { EventType::Added };
        let received = self.received;
        let event = WatchCacheEvent { kind, rv: object.rv, object, prev, received };
        self.store.apply(&event);
        self.changed.push(event);
    }

    fn delete(&mut self, gone: &Arc<Object>) {
        self.store.remove(&gone.key);
        self.deleted.push(gone.clone());
    }
}
