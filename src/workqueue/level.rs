//! The state behind the keys: the latest state of every object, and the last state of deleted objects until a worker
//! has handled the deletion. It is level-triggered: intermediate states are not kept.

use std::collections::HashMap;
use std::sync::Arc;

use super::core::Why;
use crate::meta::{EventType, Object, ObjectKey, ResourceVersion};

/// The objects of one selection. They are shared with their cache, so an object costs only its key and a pointer.
#[derive(Debug)]
pub(crate) struct Level {
    objects: HashMap<ObjectKey, Known>,
    deleted: HashMap<ObjectKey, Deleted>,
    max_deleted: usize,
    /// The number of the current snapshot. An object that was not in the last snapshot is deleted.
    generation: u64,
    synced: bool,
}

/// The state of a key. It has both values if an object was deleted and another one was created with the same name.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub object: Option<Arc<Object>>,
    /// The last state of the most recent object of this name whose deletion was not handled yet.
    pub deleted: Option<Deleted>,
}

/// An object that was deleted or is no longer selected.
#[derive(Clone, Debug)]
pub(crate) struct Deleted {
    /// Its last state.
    pub object: Arc<Object>,
    /// The revision of the deletion, or that of the last state if the revision of the deletion is unknown.
    pub rv: ResourceVersion,
}

/// There are more unhandled deletions than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {0} deletions wait to be handled")]
pub(crate) struct Full(pub usize);

#[derive(Debug)]
struct Known {
    object: Arc<Object>,
    generation: u64,
}

// === impl Level ===

impl Level {
    /// `max_deleted` limits the unhandled deletions. The cache limits the objects.
    pub(crate) fn new(max_deleted: usize) -> Self {
        Self { objects: HashMap::new(), deleted: HashMap::new(), max_deleted, generation: 0, synced: false }
    }

    /// Applies one change. Returns its meaning for the queue, or `None` if it is not new. `rv` is the revision at
    /// which an object left the selection, if the object does not contain it.
    ///
    /// # Errors
    /// There are too many unhandled deletions; this one is lost.
    pub(crate) fn apply(
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
            self.bury(Deleted { rv: rv.unwrap_or(object.rv), object })?;
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
            self.bury(Deleted { rv: before.rv, object: before })?;
            return Ok(Some(why));
        }
        Ok((before.rv != object.rv).then_some(Why::MODIFIED))
    }

    /// Starts a snapshot. Each of its objects follows by [`Level::apply`].
    pub(crate) fn begin(&mut self) {
        self.generation += 1;
    }

    /// Ends a snapshot. Objects that were not in it are deleted. Returns their keys.
    ///
    /// # Errors
    /// There are too many unhandled deletions.
    pub(crate) fn finish(&mut self) -> Result<Vec<ObjectKey>, Full> {
        self.synced = true;
        let generation = self.generation;
        let gone: Vec<_> = self.objects.extract_if(|_, known| known.generation < generation).collect();
        let keys = gone.iter().map(|(key, _)| key.clone()).collect();
        gone.into_iter().try_for_each(|(_, Known { object, .. })| self.bury(Deleted { rv: object.rv, object }))?;
        Ok(keys)
    }

    pub(crate) fn state(&self, key: &ObjectKey) -> State {
        let object = self.objects.get(key).map(|known| known.object.clone());
        State { object, deleted: self.deleted.get(key).cloned() }
    }

    /// Records that a worker has handled the deletion that was sent to it.
    pub(crate) fn handled(&mut self, shown: &Deleted) {
        let key = &shown.object.key;
        if self.deleted.get(key).is_some_and(|kept| Arc::ptr_eq(&kept.object, &shown.object)) {
            self.deleted.remove(key);
        }
    }

    pub(crate) fn contains(&self, key: &ObjectKey) -> bool {
        self.objects.contains_key(key)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.objects.keys()
    }

    /// Whether a complete snapshot was received.
    pub(crate) fn is_synced(&self) -> bool {
        self.synced
    }

    pub(crate) fn objects(&self) -> usize {
        self.objects.len()
    }

    pub(crate) fn deletions(&self) -> usize {
        self.deleted.len()
    }

    fn bury(&mut self, deleted: Deleted) -> Result<(), Full> {
        let key = deleted.object.key.clone();
        if self.deleted.len() >= self.max_deleted && !self.deleted.contains_key(&key) {
            return Err(Full(self.max_deleted));
        }
        self.deleted.insert(key, deleted);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::meta::{AttributesBuilder, Raw};

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
        level.handled(&shown);
        assert_eq!(level.deletions(), 1, "it is another one by now");
        let shown = level.state(&key("a")).deleted.unwrap();
        level.handled(&shown);
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
        assert_eq!(removed(&mut level, &objects[2]), Err(Full(2)));
        let again = object("a", "9", 8);
        added(&mut level, &again);
        assert!(removed(&mut level, &again).is_ok(), "a newer one takes the older one's place");
    }
}
