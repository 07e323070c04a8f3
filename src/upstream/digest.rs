//! A collection as the store has it at one moment: its keys and their revisions, without the objects.
//!
//! Revisions are the store's own count of changes, so an object that has the same revision is the same object, and a
//! collection with the same keys at the same revisions is the same collection.

use std::sync::Arc;

use crate::cache::{Order, Snapshot};
use crate::meta::{Object, ObjectKey, ResourceVersion, Scope};
use crate::selector::Predicate;

#[derive(Debug)]
pub(super) struct Digest {
    /// What the store was at.
    pub(super) rv: ResourceVersion,
    /// Before the store was read.
    pub(super) asked: Order,
    /// By key; `None` if there are more objects than were asked for.
    objects: Option<Vec<(ObjectKey, ResourceVersion)>>,
}

// === impl Digest ===

impl Digest {
    /// `objects` are all there are, in any order; `None` if there are more than were asked for.
    pub(super) fn new(
        rv: ResourceVersion,
        asked: Order,
        mut objects: Option<Vec<(ObjectKey, ResourceVersion)>>,
    ) -> Self {
        // As they are listed, but that is the server's affair.
        if let Some(objects) = &mut objects {
            objects.sort_unstable();
        }
        Self { rv, asked, objects }
    }

    /// All there are, by key; `None` if they were more than asked for.
    pub(super) fn objects(&self) -> Option<&[(ObjectKey, ResourceVersion)]> {
        self.objects.as_deref()
    }

    /// Whether the snapshot holds exactly these objects in the part that was read, and so is its state at [`Self::rv`].
    pub(super) fn is_of(&self, snapshot: &Snapshot, part: Option<&Predicate>) -> bool {
        let Some(objects) = &self.objects else { return false };
        let scope = part.map_or_else(Scope::default, |part| part.scope.clone());
        let selected = |object: &&Arc<Object>| part.is_none_or(|part| part.is_scope_only() || part.matches(object));
        let ours = snapshot.range(&scope, None).filter(selected).map(|object| (&object.key, object.rv));
        ours.eq(objects.iter().map(|(key, rv)| (key, *rv)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::cache::{self, CacheConfig};
    use crate::meta::{AttributesBuilder, Gvr, Object, Raw};

    fn object(namespace: &str, name: &str, rv: u64) -> Arc<Object> {
        let raw = Raw::new(Bytes::from_static(b"{}"), 0..0, 0..0);
        Arc::new(Object::new(
            ObjectKey::new(namespace, name),
            ResourceVersion(rv),
            AttributesBuilder::new("u").build(),
            raw,
        ))
    }

    fn digest(objects: &[(&str, &str, u64)]) -> Digest {
        let objects =
            objects.iter().map(|(namespace, name, rv)| (ObjectKey::new(namespace, name), ResourceVersion(*rv)));
        Digest::new(ResourceVersion(90), Order::now(), Some(objects.collect()))
    }

    #[tokio::test]
    async fn equal_means_every_key_at_its_revision_and_no_other() {
        let (mut writer, cache) = cache::new(CacheConfig::new(Gvr::new("", "v1", "configmaps")));
        // `a-b` sorts before `a/`: by the whole key, not by namespace.
        let objects = vec![object("a-b", "y", 7), object("a", "x", 5)];
        writer.replace(objects, ResourceVersion(10)).await.unwrap();
        let snapshot = cache.snapshot().unwrap();
        let same = [("a", "x", 5), ("a-b", "y", 7)];
        assert!(digest(&same).is_of(&snapshot, None));
        for (what, other) in [
            ("fewer", &same[..1]),
            ("more", &[same[0], same[1], ("b", "z", 8)]),
            ("another revision", &[("a", "x", 6), same[1]]),
            ("another name", &[("a", "w", 5), same[1]]),
            ("another namespace", &[("c", "x", 5), same[1]]),
            ("twice the same", &[same[0], same[0]]),
        ] {
            assert!(!digest(other).is_of(&snapshot, None), "{what}");
        }
        let part = Digest::new(ResourceVersion(90), Order::now(), None);
        assert!(!part.is_of(&snapshot, None), "only a part of the collection");
        let namespace = |name: &str| Predicate::scoped(Scope { namespace: Some(name.into()), name: None });
        assert!(digest(&same[..1]).is_of(&snapshot, Some(&namespace("a"))));
        assert!(!digest(&same[..1]).is_of(&snapshot, Some(&namespace("a-b"))));
        assert!(!digest(&same).is_of(&snapshot, Some(&namespace("a"))));
        assert!(digest(&[]).is_of(&snapshot, Some(&namespace("none"))));
    }
}
