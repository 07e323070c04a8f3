//! The state behind the keys: the latest state of every object, and the last state of deleted objects until a worker
//! has handled the deletion. It is level-triggered: intermediate states are not kept.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use super::core::Why;
use informerd_meta::{EventType, Object, ObjectKey, ResourceVersion};

/// The objects of one selection. They are shared with their cache for as long as it has them, so an object costs only its
/// key and a pointer. [`Level::own`] counts what no cache has.
#[derive(Debug, Default)]
pub struct Level {
    objects: BTreeMap<ObjectKey, Known>,
    deleted: HashMap<ObjectKey, Deleted>,
    max_deleted: usize,
    /// The number of the current snapshot. An object that was not in the last snapshot is deleted.
    generation: u64,
    synced: bool,
    /// The number of the last deletion.
    last_deletion: u64,
    /// The memory of the deletions in bytes, and that of objects that their cache may have given up.
    deleted_bytes: usize,
    given_up_bytes: usize,
}

/// The state of a key. It has both values if an object was deleted and another one was created with the same name.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub object: Option<Arc<Object>>,
    /// The last state of the most recent object of this name whose deletion was not handled yet.
    pub deleted: Option<Deleted>,
}

/// An object that was deleted or is no longer selected.
#[derive(Clone, Debug)]
pub struct Deleted {
    /// Its last state.
    pub object: Arc<Object>,
    /// The revision of the deletion, or that of the last state if the revision of the deletion is unknown.
    pub rv: ResourceVersion,
    /// Tells it from the other deletions of this name. Whoever remembers the number holds no memory of the object.
    pub number: u64,
}

/// A queue must end, because it would hold too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    #[error("more than {0} deletions wait to be handled")]
    Deletions(usize),
    #[error("there is no memory for the {0} bytes of objects that only this queue holds")]
    Memory(usize),
}

#[derive(Debug)]
struct Known {
    object: Arc<Object>,
    generation: u64,
}

/// The memory of a deletion beside its object in bytes: its entries here and in the queue.
const DELETION: usize = 512;

// === impl Level ===

impl Level {
    /// `max_deleted` limits the unhandled deletions. The cache limits the objects.
    pub fn new(max_deleted: usize) -> Self {
        Self { max_deleted, ..Self::default() }
    }

    /// Applies one change. Returns its meaning for the queue, or `None` if it is not new. `rv` is the revision at
    /// which an object left the selection, if the object does not contain it.
    ///
    /// # Errors
    /// There are too many unhandled deletions; this one is lost.
    pub fn apply(
        &mut self,
        kind: EventType,
        object: Arc<Object>,
        rv: Option<ResourceVersion>,
    ) -> Result<Option<Why>, Full> {
        let key = object.key.clone();
        if kind == EventType::Deleted {
            if self.objects.remove(&key).is_none() {
                return Ok(None);
            }
            self.bury(object, rv)?;
            return Ok(Some(Why::DELETED));
        }
        let generation = self.generation;
        let known = Known { object: object.clone(), generation };
        let Some(before) = self.objects.insert(key, known).map(|known| known.object) else {
            return Ok(Some(if self.synced { Why::ADDED } else { Why::INITIAL }));
        };
        if before.attributes.uid() != object.attributes.uid() {
            // The object was deleted and created again in the meantime.
            let mut why = Why::DELETED;
            why.join(Why::ADDED);
            self.bury(before, None)?;
            return Ok(Some(why));
        }
        Ok((before.rv != object.rv).then_some(Why::MODIFIED))
    }

    /// Starts a snapshot. Each of its objects follows by [`Level::apply`].
    pub fn begin(&mut self) {
        self.generation += 1;
        self.given_up_bytes = 0;
    }

    /// Ends a snapshot. Objects that were not in it are deleted. Returns their keys.
    ///
    /// # Errors
    /// There are too many unhandled deletions.
    pub fn finish(&mut self) -> Result<Vec<ObjectKey>, Full> {
        self.synced = true;
        let gone = self.objects.iter().filter(|(_, known)| known.generation < self.generation);
        let keys: Vec<_> = gone.map(|(key, _)| key.clone()).collect();
        for key in &keys {
            if let Some(Known { object, .. }) = self.objects.remove(key) {
                self.bury(object, None)?;
            }
        }
        Ok(keys)
    }

    /// The watch of the objects cannot be opened: their cache may have given them up. They are counted until the next
    /// snapshot starts, each with a part for every holder, since the levels of other groups may have the same objects.
    pub fn count_objects(&mut self) {
        let part = |known: &Known| known.object.size() / Arc::strong_count(&known.object);
        self.given_up_bytes = self.objects.values().map(part).sum();
    }

    /// The memory of what no cache has, in bytes.
    pub fn own(&self) -> usize {
        self.deleted_bytes + self.given_up_bytes
    }

    pub fn state(&self, key: &ObjectKey) -> State {
        let object = self.objects.get(key).map(|known| known.object.clone());
        State { object, deleted: self.deleted.get(key).cloned() }
    }

    /// Records that a worker has handled the deletion with this number.
    pub fn handled(&mut self, key: &ObjectKey, number: u64) {
        if self.deleted.get(key).is_some_and(|kept| kept.number == number)
            && let Some(handled) = self.deleted.remove(key)
        {
            self.deleted_bytes -= cost(&handled.object);
        }
    }

    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.objects.contains_key(key)
    }

    /// The keys of the objects that come after this one, in their order.
    pub fn keys_after(&self, after: Option<&ObjectKey>) -> impl Iterator<Item = &ObjectKey> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.objects.range::<ObjectKey, _>((from, Bound::Unbounded)).map(|(key, _)| key)
    }

    /// Whether a complete snapshot was received.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    pub fn objects(&self) -> usize {
        self.objects.len()
    }

    pub fn deletions(&self) -> usize {
        self.deleted.len()
    }

    /// `rv`: that of the deletion, if it is known.
    fn bury(&mut self, object: Arc<Object>, rv: Option<ResourceVersion>) -> Result<(), Full> {
        let key = object.key.clone();
        if self.deleted.len() >= self.max_deleted && !self.deleted.contains_key(&key) {
            return Err(Full::Deletions(self.max_deleted));
        }
        self.last_deletion += 1;
        self.deleted_bytes += cost(&object);
        let deleted = Deleted { rv: rv.unwrap_or(object.rv), object, number: self.last_deletion };
        if let Some(before) = self.deleted.insert(key, deleted) {
            self.deleted_bytes -= cost(&before.object);
        }
        Ok(())
    }
}

/// The memory of a deletion in bytes.
fn cost(object: &Object) -> usize {
    object.size() + DELETION
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use informerd_meta::{AttributesBuilder, Raw};

    fn object(name: &str, uid: &str, rv: u64) -> Arc<Object> {
        let raw = Raw::new(Bytes::from_static(b"{},"), 0..2, 0..0);
        Arc::new(Object::new(ObjectKey::new("ns", name), ResourceVersion(rv), AttributesBuilder::new(uid).build(), raw))
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("ns", name)
    }

    fn added(level: &mut Level, object: &Arc<Object>) -> Option<Why> {
        level.apply(EventType::Added, object.clone(), None).unwrap()
    }

    fn removed(level: &mut Level, object: &Arc<Object>) -> Result<Option<Why>, Full> {
        level.apply(EventType::Deleted, object.clone(), None)
    }

    fn synced(objects: &[Arc<Object>]) -> Level {
        let mut level = Level::new(2);
        level.begin();
        for object in objects {
            assert_eq!(added(&mut level, object), Some(Why::INITIAL));
        }
        assert_eq!(level.finish(), Ok(vec![]));
        level
    }

    #[test]
    fn a_whole_state_tells_what_is_gone_and_what_is_new() {
        let (a, b) = (object("a", "1", 5), object("b", "2", 6));
        let mut level = synced(&[a.clone(), b.clone()]);
        level.begin();
        assert_eq!(added(&mut level, &a), None, "the same state");
        assert_eq!(added(&mut level, &object("c", "3", 9)), Some(Why::ADDED));
        assert_eq!(level.finish(), Ok(vec![key("b")]));
        assert!(level.state(&key("b")).object.is_none());
        assert_eq!(level.state(&key("b")).deleted.map(|gone| gone.rv), Some(b.rv), "the last state that is known");
        assert_eq!((level.objects(), level.deletions()), (2, 1));
    }

    #[test]
    fn a_deletion_is_kept_until_it_is_handled() {
        let mut level = synced(&[object("a", "1", 5)]);
        assert_eq!(removed(&mut level, &object("a", "1", 7)), Ok(Some(Why::DELETED)));
        let shown = level.state(&key("a")).deleted.unwrap();
        assert_eq!(added(&mut level, &object("a", "2", 8)), Some(Why::ADDED));
        let state = level.state(&key("a"));
        assert!(state.object.is_some() && state.deleted.is_some(), "a recreation hides no deletion");
        assert_eq!(removed(&mut level, &object("a", "2", 9)), Ok(Some(Why::DELETED)));
        level.handled(&key("a"), shown.number);
        assert_eq!(level.deletions(), 1, "it is another one by now");
        let shown = level.state(&key("a")).deleted.unwrap();
        level.handled(&key("a"), shown.number);
        assert_eq!(level.deletions(), 0);
    }

    #[test]
    fn what_left_the_selection_has_the_revision_at_which_it_did() {
        let a = object("a", "1", 5);
        let mut level = synced(std::slice::from_ref(&a));
        level.apply(EventType::Deleted, a, Some(ResourceVersion(9))).unwrap();
        assert_eq!(level.state(&key("a")).deleted.map(|gone| gone.rv.get()), Some(9));
    }

    #[test]
    fn another_uid_is_a_deletion_that_nobody_saw() {
        let mut level = synced(&[object("a", "1", 5)]);
        level.begin();
        let why = added(&mut level, &object("a", "2", 9)).unwrap();
        assert!(why.contains(Why::DELETED) && why.contains(Why::ADDED));
        assert_eq!(level.finish(), Ok(vec![]));
        assert_eq!(level.state(&key("a")).deleted.map(|gone| gone.rv.get()), Some(5));
    }

    #[test]
    fn deletions_have_a_bound() {
        let objects = [object("a", "1", 1), object("b", "2", 2), object("c", "3", 3)];
        let mut level = synced(&objects);
        for gone in &objects[..2] {
            assert!(removed(&mut level, gone).is_ok());
        }
        assert_eq!(removed(&mut level, &objects[2]), Err(Full::Deletions(2)));
        let again = object("a", "9", 8);
        added(&mut level, &again);
        assert!(removed(&mut level, &again).is_ok(), "a newer one takes the older one's place");
    }

    #[test]
    fn a_deletion_is_counted_until_it_is_handled_or_replaced() {
        let objects = [object("a", "1", 5), object("b", "2", 6)];
        let mut level = synced(&objects);
        assert_eq!(level.own(), 0, "the cache has them");
        for gone in &objects {
            removed(&mut level, gone).unwrap();
        }
        let each = cost(&objects[0]);
        assert!(each > DELETION);
        let first = level.state(&key("a")).deleted.unwrap().number;
        let again = object("a", "9", 8);
        added(&mut level, &again);
        removed(&mut level, &again).unwrap();
        assert_eq!(level.own(), 2 * each);
        level.handled(&key("a"), first);
        assert_eq!(level.own(), 2 * each, "it is not there any more");
        for name in ["a", "b"] {
            let number = level.state(&key(name)).deleted.unwrap().number;
            level.handled(&key(name), number);
        }
        assert_eq!(level.own(), 0);
    }

    #[test]
    fn objects_that_the_cache_may_have_given_up_are_counted_until_the_next_snapshot() {
        let a = object("a", "1", 5);
        let (size, mut level) = (a.size(), synced(std::slice::from_ref(&a)));
        level.count_objects();
        assert_eq!(level.own(), size / 2, "somebody else has it, too");
        drop(a);
        level.count_objects();
        assert_eq!(level.own(), size);
        level.begin();
        assert_eq!(level.own(), 0);
    }

    #[test]
    fn keys_are_walked_in_steps() {
        let level = synced(&["a", "b", "c"].map(|name| object(name, name, 5)));
        let step = |after: &str| level.keys_after(Some(&key(after))).take(2).cloned().collect::<Vec<_>>();
        assert_eq!(level.keys_after(None).take(2).cloned().collect::<Vec<_>>(), [key("a"), key("b")]);
        assert_eq!((step("a"), step("b"), step("c")), (vec![key("b"), key("c")], vec![key("c")], vec![]));
    }
}
