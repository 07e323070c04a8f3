//! The contents of a collection in the store at one moment: its keys and their revisions, without the objects.
//!
//! A revision is the store's own change counter. So an object with the same revision is the same object, and a
//! collection with the same keys at the same revisions is the same collection.

use crate::cache::{Budget, Full, Lent, Order, Snapshot, Walk};
use crate::meta::{ObjectKey, ResourceVersion};
use crate::selector::Predicate;

#[derive(Debug)]
pub(in crate::upstream) struct Digest {
    /// The revision of the store.
    pub(in crate::upstream) rv: ResourceVersion,
    /// A moment before the store was read.
    pub(super) asked: Order,
    /// Sorted by key; `None` if there are more objects than were asked for.
    objects: Option<Vec<(ObjectKey, ResourceVersion)>>,
    /// The memory that the digest uses.
    _room: Lent,
}

/// Memory of a key and its revision: about a hundred bytes of text, and the entry itself.
const ENTRY: usize = 160;

// === impl Digest ===

impl Digest {
    /// Reserves memory for a digest of up to `objects` objects. Call this before reading them.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(super) fn room(budget: &Budget, objects: usize) -> Result<Lent, Full> {
        budget.lend(objects.saturating_mul(ENTRY))
    }

    /// `objects` are all objects of the collection, in any order; `None` if there are more than were asked for.
    pub(super) fn new(
        rv: ResourceVersion,
        asked: Order,
        mut objects: Option<Vec<(ObjectKey, ResourceVersion)>>,
        room: Lent,
    ) -> Self {
        // They arrive in list order, but that depends on the server.
        if let Some(objects) = &mut objects {
            objects.sort_unstable();
        }
        Self { rv, asked, objects, _room: room }
    }

    /// All objects by key; `None` if there were more than were asked for.
    pub(in crate::upstream) fn objects(&self) -> Option<&[(ObjectKey, ResourceVersion)]> {
        self.objects.as_deref()
    }

    /// Whether the snapshot holds exactly these objects in the part that was read, so that it is the state of that part
    /// at [`Self::rv`]. Yields to other tasks between the steps of a large comparison.
    pub(super) async fn is_of(&self, snapshot: &Snapshot, part: Option<&Predicate>) -> bool {
        let Some(objects) = &self.objects else { return false };
        if part.is_none() && snapshot.len() != objects.len() {
            return false;
        }
        let part = part.cloned().unwrap_or_else(Predicate::everything);
        let (mut walk, mut theirs) = (Walk::new(snapshot.clone(), part, None), objects.iter());
        let mut is_same = true;
        while walk.step(usize::MAX, |ours| {
            is_same = is_same && theirs.next().is_some_and(|(key, rv)| *key == ours.key && *rv == ours.rv);
        }) {
            if !is_same {
                return false;
            }
            tokio::task::yield_now().await;
        }
        is_same && theirs.next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::apiserver::testing::bare;
    use crate::cache::{self, CacheConfig};
    use crate::meta::{Gvr, Scope};

    fn room() -> Lent {
        Digest::room(&Budget::default(), 1).unwrap()
    }

    fn digest(objects: &[(&str, &str, u64)]) -> Digest {
        let objects =
            objects.iter().map(|(namespace, name, rv)| (ObjectKey::new(namespace, name), ResourceVersion(*rv)));
        Digest::new(ResourceVersion(90), Order::now(), Some(objects.collect()), room())
    }

    #[tokio::test]
    async fn equal_means_every_key_at_its_revision_and_no_other() {
        let (mut writer, cache) = cache::new(CacheConfig::new(Gvr::new("", "v1", "configmaps")));
        // `a-b` sorts before `a/`: the order is by the whole key, not by namespace.
        let objects = vec![Arc::new(bare("a-b", "y", 7)), Arc::new(bare("a", "x", 5))];
        writer.replace(objects, ResourceVersion(10)).await.unwrap();
        let snapshot = cache.snapshot().unwrap();
        let same = [("a", "x", 5), ("a-b", "y", 7)];
        assert!(digest(&same).is_of(&snapshot, None).await);
        for (what, other) in [
            ("fewer", &same[..1]),
            ("more", &[same[0], same[1], ("b", "z", 8)]),
            ("another revision", &[("a", "x", 6), same[1]]),
            ("another name", &[("a", "w", 5), same[1]]),
            ("another namespace", &[("c", "x", 5), same[1]]),
            ("twice the same", &[same[0], same[0]]),
        ] {
            assert!(!digest(other).is_of(&snapshot, None).await, "{what}");
        }
        let part = Digest::new(ResourceVersion(90), Order::now(), None, room());
        assert!(!part.is_of(&snapshot, None).await, "only a part of the collection");
        let namespace = |name: &str| Predicate::scoped(Scope { namespace: Some(name.into()), name: None });
        assert!(digest(&same[..1]).is_of(&snapshot, Some(&namespace("a"))).await);
        assert!(!digest(&same[..1]).is_of(&snapshot, Some(&namespace("a-b"))).await);
        assert!(!digest(&same).is_of(&snapshot, Some(&namespace("a"))).await);
        assert!(digest(&[]).is_of(&snapshot, Some(&namespace("none"))).await);
    }

    #[tokio::test]
    async fn others_get_their_turn_during_a_large_comparison() {
        let (mut writer, cache) = cache::new(CacheConfig::new(Gvr::new("", "v1", "configmaps")));
        let names: Vec<_> = (0..10_000).map(|n| format!("x{n}")).collect();
        let objects: Vec<_> = names.iter().map(|name| ("a", &**name, 5)).collect();
        let held = names.iter().map(|name| Arc::new(bare("a", name, 5))).collect();
        writer.replace(held, ResourceVersion(10)).await.unwrap();
        let (snapshot, digest) = (cache.snapshot().unwrap(), digest(&objects));
        let mut comparison = std::pin::pin!(digest.is_of(&snapshot, None));
        let mut turns = 0;
        let is_of = std::future::poll_fn(|cx| {
            turns += 1;
            comparison.as_mut().poll(cx)
        });
        assert!(is_of.await);
        assert!(turns >= 4, "{turns}");
    }
}
