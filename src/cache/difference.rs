//! The difference between a list and the store that it replaces.

use std::sync::Arc;

use tokio::time::Instant;

use super::store::Store;
use crate::meta::{EventType, Object, ResourceVersion, WatchCacheEvent};

#[derive(Debug)]
pub(super) struct Difference {
    /// The listed state. Unchanged objects are the old instances, so that their bytes are held only once.
    pub(super) store: Store,
    /// Sorted by the objects' revisions.
    pub(super) changed: Vec<WatchCacheEvent>,
    /// Objects of the old store that are not in the list; also the old one of two objects with the same name.
    pub(super) deleted: Vec<Arc<Object>>,
    /// Objects of the old store that have different contents at the same revision. The apiserver now encodes them in another
    /// way, for example after a change of a custom resource's schema, and no event has reported this.
    pub(super) rewritten: Vec<Arc<Object>>,
    /// When the list was complete.
    received: Instant,
}

/// Number of objects examined before other tasks may run: about a millisecond.
const STRIDE: usize = 1024;

// === impl Difference ===

impl Difference {
    pub(super) async fn between(old: &Store, mut objects: Vec<Arc<Object>>) -> Self {
        // Lists arrive sorted, so this costs one comparison per object. If a key is listed twice, the newer object
        // counts.
        objects.sort_by(|a, b| a.key.cmp(&b.key).then(b.rv.cmp(&a.rv)));
        objects.dedup_by(|b, a| a.key == b.key);
        let mut difference = Self {
            store: old.clone(),
            changed: Vec::new(),
            deleted: Vec::new(),
            rewritten: Vec::new(),
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
                        difference.rewritten.extend(difference.store.insert(object));
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

    /// Whether there is no difference.
    pub(super) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.deleted.is_empty() && self.rewritten.is_empty()
    }

    /// Whether all changes can have happened after `rv`, one at a time. If not, earlier events are missing.
    pub(super) fn follows(&self, rv: ResourceVersion) -> bool {
        self.rewritten.is_empty()
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
