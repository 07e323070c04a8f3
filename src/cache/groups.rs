//! The groups of the fan-out: watchers with an equal predicate share one. An index finds the groups that an event may
//! concern.

use std::collections::HashMap;
use std::sync::Arc;

use super::group::{Place, WatchGroup};
use super::group_index::Bucket;
use super::ring::{RingEntry, SharedRing};
use super::spec::EndReason;
use crate::lifecycle::wakes;
use crate::meta::{EventType, Object, ObjectKey, ResourceVersion, WatchCacheEvent};
use crate::selector::Predicate;

/// The groups of one cache. As in the apiserver, an event is offered to the scopes {namespace, name}, {namespace},
/// {name} and {}. In each scope it is offered to the groups without a trigger value, and to those with the trigger
/// value of the object or the previous object. Groups without a trigger value that require labels are found by one of
/// these labels, which the apiserver does not do: so an event costs nothing for those that select other objects.
#[derive(Debug, Default)]
pub(super) struct WatchGroups {
    /// Index of the trigger field in the resource's field table.
    trigger: Option<usize>,
    generation: u64,
    watchers: usize,
    by_predicate: HashMap<Predicate, Arc<WatchGroup>>,
    everywhere: Bucket,
    by_namespace: HashMap<Arc<str>, Bucket>,
    by_name: HashMap<Arc<str>, Bucket>,
    by_key: HashMap<ObjectKey, Bucket>,
}

/// Above this many evaluations, a relist does not search for the groups that its deletions concern, but ends all of
/// them.
pub(super) const MAX_RELIST_EVALUATIONS: usize = 200_000;

/// The event type for a predicate; `None` if the event does not concern it.
pub(super) fn view(predicate: &Predicate, event: &WatchCacheEvent) -> Option<EventType> {
    let now = event.kind != EventType::Deleted && predicate.matches(&event.object);
    let before = event.prev.as_deref().is_some_and(|prev| predicate.matches(prev));
    match (before, now) {
        (false, true) => Some(EventType::Added),
        (true, true) => Some(EventType::Modified),
        (true, false) => Some(EventType::Deleted),
        (false, false) => None,
    }
}

// === impl WatchGroups ===

impl WatchGroups {
    pub(super) fn new(trigger: Option<usize>) -> Self {
        Self { trigger, ..Self::default() }
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn len(&self) -> usize {
        self.by_predicate.len()
    }

    #[cfg(test)]
    pub(super) fn is_indexed_nowhere(&self) -> bool {
        self.everywhere.is_empty() && self.by_namespace.is_empty() && self.by_name.is_empty() && self.by_key.is_empty()
    }

    pub(super) fn watchers(&self) -> usize {
        self.watchers
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<WatchGroup>> {
        self.by_predicate.values()
    }

    /// Adds a watcher after the present entries; returns its group and its slot there.
    pub(super) fn join(&mut self, predicate: &Predicate) -> (Arc<WatchGroup>, u32) {
        self.watchers += 1;
        if let Some(group) = self.by_predicate.get(predicate) {
            let slot = group.ring.lock().join();
            return (group.clone(), slot);
        }
        let trigger = self.trigger.and_then(|_| predicate.trigger());
        let place = match predicate.matches_nothing() {
            true => Place::Plain,
            false => self.bucket(predicate).place(predicate, trigger),
        };
        let group = Arc::new(WatchGroup { predicate: predicate.clone(), ring: SharedRing::default(), place });
        let slot = group.ring.lock().join();
        self.by_predicate.insert(predicate.clone(), group.clone());
        if !predicate.matches_nothing() {
            self.bucket(predicate).insert(&group);
        }
        (group, slot)
    }

    /// Removes a watcher, and also its group if it was the last one.
    pub(super) fn leave(&mut self, group: &Arc<WatchGroup>, slot: u32) {
        let mut ring = group.ring.lock();
        ring.leave(slot);
        // A closed group is not in the index, and its watchers are not counted.
        if ring.closed().is_some() {
            return;
        }
        self.watchers -= 1;
        if ring.watchers() == 0 {
            drop(ring);
            self.remove(group);
        }
    }

    /// Offers an event to the groups that it may concern. Groups that take it are added to `touched`, once until their
    /// watchers are woken. Returns the number of evaluations.
    pub(super) fn dispatch(&self, event: &Arc<WatchCacheEvent>, touched: &mut Vec<Arc<WatchGroup>>) -> u64 {
        let mut evaluated = 0;
        self.concerned(&event.object, event.prev.as_deref(), |group| {
            evaluated += 1;
            if let Some(kind) = view(&group.predicate, event)
                && group.ring.push(RingEntry { event: event.clone(), kind })
            {
                touched.push(group.clone());
            }
        });
        evaluated
    }

    /// Ends the watchers that hold one of these objects. Returns their number.
    pub(super) fn close_holders(&mut self, deleted: &[Arc<Object>], reason: EndReason) -> usize {
        if deleted.len().saturating_mul(self.len()) > MAX_RELIST_EVALUATIONS {
            return self.close_all(reason, self.generation);
        }
        let mut holders: HashMap<*const WatchGroup, Arc<WatchGroup>> = HashMap::new();
        for object in deleted {
            self.concerned(object, None, |group| {
                if !holders.contains_key(&Arc::as_ptr(group)) && group.predicate.matches(object) {
                    holders.insert(Arc::as_ptr(group), group.clone());
                }
            });
        }
        let (mut wakers, mut ended) = (Vec::new(), 0);
        for group in holders.into_values() {
            self.remove(&group);
            ended += group.ring.close(reason, &mut wakers);
        }
        self.watchers -= ended;
        // Waking only schedules a task.
        wakes::together(wakers);
        ended
    }

    /// Ends the watchers that began ahead of the events, between these revisions. Returns their number.
    pub(super) fn lose(&self, between: (ResourceVersion, ResourceVersion)) -> usize {
        let mut wakers = Vec::new();
        let lost = self.iter().map(|group| group.ring.lose(between, &mut wakers)).sum();
        wakes::together(wakers);
        lost
    }

    /// Ends all watchers. Returns their number.
    pub(super) fn close_all(&mut self, reason: EndReason, generation: u64) -> usize {
        let mut wakers = Vec::new();
        let ended = self.iter().map(|group| group.ring.close(reason, &mut wakers)).sum();
        *self = Self { generation, ..Self::new(self.trigger) };
        wakes::together(wakers);
        ended
    }

    pub(super) fn wake_all(&self) {
        let mut wakers = Vec::new();
        for group in self.iter() {
            group.ring.take_wakers(&mut wakers);
        }
        wakes::together(wakers);
    }

    fn concerned<'a>(&'a self, object: &Object, prev: Option<&Object>, mut offer: impl FnMut(&'a Arc<WatchGroup>)) {
        let value = self.trigger.map(|field| object.attributes.field(field));
        let before = self.trigger.and_then(|field| prev.map(|prev| prev.attributes.field(field)));
        let before = before.filter(|before| Some(*before) != value);
        let key = &object.key;
        let scopes = [
            Some(&self.everywhere),
            self.by_namespace.get(key.namespace()),
            self.by_name.get(key.name()),
            self.by_key.get(key),
        ];
        for bucket in scopes.into_iter().flatten() {
            bucket.offer(object, prev, [value, before], &mut offer);
        }
    }

    fn bucket(&mut self, predicate: &Predicate) -> &mut Bucket {
        match (&predicate.scope.namespace, &predicate.scope.name) {
            (None, None) => &mut self.everywhere,
            (Some(namespace), None) => self.by_namespace.entry(namespace.clone()).or_default(),
            (None, Some(name)) => self.by_name.entry(name.clone()).or_default(),
            (Some(namespace), Some(name)) => self.by_key.entry(ObjectKey::new(namespace, name)).or_default(),
        }
    }

    fn remove(&mut self, group: &Arc<WatchGroup>) {
        let predicate = &group.predicate;
        self.by_predicate.remove(predicate);
        if predicate.matches_nothing() {
            return;
        }
        let bucket = self.bucket(predicate);
        bucket.remove(group);
        if !bucket.is_empty() {
            return;
        }
        match (&predicate.scope.namespace, &predicate.scope.name) {
            (None, None) => {}
            (Some(namespace), None) => drop(self.by_namespace.remove(namespace)),
            (None, Some(name)) => drop(self.by_name.remove(name)),
            (Some(namespace), Some(name)) => drop(self.by_key.remove(&ObjectKey::new(namespace, name))),
        }
    }
}
