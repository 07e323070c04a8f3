//! A cache of metadata that was put into the order of the struct, for the other watchers of the same event.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use informerd_meta::ResourceVersion;

/// The most recent results. The address of the input selects the slot. A watcher takes up to 64 events at once, so
/// many results are in use at the same time. An entry keeps its input alive, so the address identifies the input.
#[derive(Clone, Debug, Default)]
pub(super) struct Ordered {
    entries: Arc<Mutex<Vec<Option<Entry>>>>,
}

#[derive(Debug)]
struct Entry {
    metadata: Bytes,
    rv: ResourceVersion,
    ordered: Bytes,
}

const PLACES: usize = 128;

// === impl Ordered ===

impl Ordered {
    /// Returns the cached result for this metadata and resourceVersion, or calls `order` to compute it. `order` runs
    /// outside the lock.
    pub(super) fn get_or_insert(
        &self,
        metadata: &Bytes,
        rv: ResourceVersion,
        order: impl FnOnce() -> Option<Bytes>,
    ) -> Option<Bytes> {
        // Addresses are multiples of at least 16, so drop the low bits. Multiply by a large odd number to spread the
        // rest.
        let place = ((metadata.as_ptr() as usize >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) % PLACES;
        let same = |entry: &Entry| {
            entry.metadata.as_ptr() == metadata.as_ptr() && entry.metadata.len() == metadata.len() && entry.rv == rv
        };
        if let Some(Some(entry)) = self.entries.lock().get(place)
            && same(entry)
        {
            return Some(entry.ordered.clone());
        }
        let ordered = order()?;
        let entry = Entry { metadata: metadata.clone(), rv, ordered: ordered.clone() };
        let mut entries = self.entries.lock();
        if entries.is_empty() {
            entries.resize_with(PLACES, || None);
        }
        let old = entries.get_mut(place).and_then(|slot| slot.replace(entry));
        drop(entries);
        // Drop it outside the lock: it is often the last reference to an object.
        drop(old);
        Some(ordered)
    }
}

/// The contents of a cache do not affect equality.
impl PartialEq for Ordered {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Ordered {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_ordered_once_and_each_by_itself() {
        let (ordered, mut made) = (Ordered::default(), 0);
        let inputs: Vec<Bytes> = (0..40).map(|i| Bytes::from(vec![b'a' + (i % 26); 32])).collect();
        for (input, rv) in inputs.iter().flat_map(|input| [(input, 1), (input, 1), (input, 2)]) {
            let result = ordered.get_or_insert(input, ResourceVersion(rv), || {
                made += 1;
                Some(Bytes::from(format!("{rv}{}", input[0])))
            });
            assert_eq!(result.unwrap(), format!("{rv}{}", input[0]));
        }
        assert_eq!(made, 80, "twice each: of two revisions");
    }

    #[test]
    fn failure_is_not_remembered() {
        let (ordered, input) = (Ordered::default(), Bytes::from(vec![b'a'; 32]));
        assert_eq!(ordered.get_or_insert(&input, ResourceVersion(1), || None), None);
        assert!(ordered.get_or_insert(&input, ResourceVersion(1), || Some(Bytes::new())).is_some());
    }
}
