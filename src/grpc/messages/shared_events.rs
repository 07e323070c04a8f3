//! The newest events in encoded form, shared between watches that send the same objects in the same form. The first
//! watch encodes an event; the others reuse the bytes.
//!
//! If there are many others, each thread copies an event. So the threads do not change the same reference counts with each
//! message.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::message::EncodedEvent;
use super::render::{self, Rendering};
use crate::codec::Form;
use crate::grpc::pb::v1;
use crate::meta::{Damaged, Encoding, Gvr, Object, ResourceVersion};

/// The properties that must be equal for sharing.
type Key = (Gvr, Encoding, Rendering);

/// The shared events of the whole process. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub(in crate::grpc) struct SharedEvents(Arc<Registry>);

#[derive(Debug, Default)]
struct Registry {
    groups: Mutex<HashMap<Key, Weak<SharedGroup>>>,
    /// The total size in bytes of all kept events.
    bytes: AtomicUsize,
}

/// A group of watches that share events. The watches hold it; it is dropped with the last of them.
pub(in crate::grpc) struct SharedGroup {
    key: Key,
    registry: Arc<Registry>,
    recent: Mutex<VecDeque<Recent>>,
}

/// The copy of a thread.
struct Copied {
    group: Weak<SharedGroup>,
    recent: Recent,
}

struct Recent {
    /// While this reference exists, the memory of the object is not reused. So its address identifies the object.
    object: Weak<Object>,
    kind: v1::event::Type,
    rv: ResourceVersion,
    event: EncodedEvent,
}

/// The most events that one group keeps. Watches that are further behind encode events themselves.
const KEPT: usize = 16;
/// The size limit of a kept event, and of the events of all groups. Beyond them, each watch encodes events itself.
const LARGEST: usize = 64 << 10;
const MOST: usize = 8 << 20;
/// The fewest watches for which a thread copies an event, and the most bytes that it copies.
const MANY: usize = 8;
const COPIED: usize = 16 << 10;

thread_local! {
    /// The event that this thread has sent last.
    static LAST: RefCell<Option<Copied>> = const { RefCell::new(None) };
}

// === impl SharedEvents ===

impl SharedEvents {
    /// Returns the group of a watch.
    pub(in crate::grpc) fn group(&self, gvr: &Gvr, encoding: Encoding, rendering: &Rendering) -> Arc<SharedGroup> {
        let key = (gvr.clone(), encoding, rendering.clone());
        let mut groups = self.0.groups.lock();
        if let Some(group) = groups.get(&key).and_then(Weak::upgrade) {
            return group;
        }
        let group = Arc::new(SharedGroup { key: key.clone(), registry: self.0.clone(), recent: Mutex::default() });
        groups.insert(key, Arc::downgrade(&group));
        group
    }
}

// === impl SharedGroup ===

impl SharedGroup {
    /// Returns the encoded event of an object. `rv` is the revision of the event if it differs from that of the
    /// object.
    ///
    /// # Errors
    /// The bytes of the object are damaged.
    pub(in crate::grpc) fn event(
        self: &Arc<Self>,
        form: &Form,
        kind: v1::event::Type,
        object: &Arc<Object>,
        rv: Option<ResourceVersion>,
    ) -> Result<EncodedEvent, Damaged> {
        // A single watch has no other watch to share with.
        let watches = Arc::strong_count(self);
        if watches < 2 {
            return self.encode(form, kind, object, rv);
        }
        let at = rv.unwrap_or(object.rv);
        let is_it =
            |it: &Recent| it.rv == at && it.kind == kind && std::ptr::eq(it.object.as_ptr(), Arc::as_ptr(object));
        LAST.with_borrow_mut(|last| {
            if let Some(Copied { group, recent }) = last
                && is_it(recent)
                && std::ptr::eq(group.as_ptr(), Arc::as_ptr(self))
            {
                return Ok(recent.event.clone());
            }
            let found = self.recent.lock().iter().rev().find(|it| is_it(it)).map(|it| it.event.clone());
            let event = match found {
                Some(event) => event,
                None => {
                    let event = self.encode(form, kind, object, rv)?;
                    self.keep(Recent { object: Arc::downgrade(object), kind, rv: at, event: event.clone() });
                    event
                }
            };
            if watches < MANY || event.len() > COPIED {
                return Ok(event);
            }
            let recent = Recent { object: Arc::downgrade(object), kind, rv: at, event: event.copied() };
            let copied = last.insert(Copied { group: Arc::downgrade(self), recent });
            Ok(copied.recent.event.clone())
        })
    }

    /// Encodes an event without sharing, for an object that other watches do not send now.
    ///
    /// # Errors
    /// The bytes of the object are damaged.
    pub(in crate::grpc) fn encode(
        &self,
        form: &Form,
        kind: v1::event::Type,
        object: &Object,
        rv: Option<ResourceVersion>,
    ) -> Result<EncodedEvent, Damaged> {
        let (_, _, rendering) = &self.key;
        let key = render::key(object, rv.unwrap_or(object.rv));
        Ok(EncodedEvent::new(kind, key, rendering.is_partial(), rendering.bytes(form, object, rv)?))
    }

    /// Keeps the newest events, in the order of their revisions.
    fn keep(&self, recent: Recent) {
        let mut kept = self.recent.lock();
        if recent.event.len() > LARGEST || kept.back().is_some_and(|last| recent.rv < last.rv) {
            return;
        }
        if kept.len() >= KEPT
            && let Some(oldest) = kept.pop_front()
        {
            self.registry.bytes.fetch_sub(oldest.event.held(), Ordering::Relaxed);
        }
        let bytes = recent.event.held();
        if self.registry.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > MOST {
            self.registry.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return;
        }
        kept.push_back(recent);
    }
}

impl Drop for SharedGroup {
    fn drop(&mut self) {
        let bytes = self.recent.get_mut().iter().map(|recent| recent.event.held()).sum();
        self.registry.bytes.fetch_sub(bytes, Ordering::Relaxed);
        let mut groups = self.registry.groups.lock();
        // A new group may have been created in the meantime.
        if groups.get(&self.key).is_some_and(|group| group.strong_count() == 0) {
            groups.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::json::Style;
    use crate::http::testing::{object, packed};

    fn group(shared: &SharedEvents) -> Arc<SharedGroup> {
        let rendering = Rendering::new(0, None, &[]).unwrap();
        shared.group(&Gvr::new("", "v1", "configmaps"), Encoding::Json, &rendering)
    }

    /// Whether both groups use the same bytes for an object.
    fn share(groups: [&Arc<SharedGroup>; 2], object: &Arc<Object>) -> bool {
        let form = Form::new(Encoding::Json, Style::Inline, "v1", "ConfigMap", "ConfigMapList");
        let [one, other] = groups.map(|group| group.event(&form, v1::event::Type::Modified, object, None).unwrap());
        one.is_shared_with(&other)
    }

    #[test]
    fn an_event_is_encoded_once_for_all() {
        let shared = SharedEvents::default();
        let (one, other) = (group(&shared), group(&shared));
        let objects: Vec<_> = (0..2 * KEPT).map(|number| object(number, 100)).collect();
        for object in &objects {
            assert!(share([&one, &other], object));
        }
        assert!(!share([&one, &other], &objects[0]), "one that is far behind encodes for itself");
        assert!(share([&one, &other], &objects[2 * KEPT - 1]), "and takes nobody's place");
        assert!(shared.0.bytes.load(Ordering::Relaxed) >= KEPT * 100);
        drop((one, other));
        assert_eq!(shared.0.bytes.load(Ordering::Relaxed), 0);
        assert!(shared.0.groups.lock().is_empty());
    }

    #[test]
    fn each_thread_has_its_copy_for_many() {
        let shared = SharedEvents::default();
        let groups: Vec<_> = (0..MANY).map(|_| group(&shared)).collect();
        let form = Form::new(Encoding::Json, Style::Inline, "v1", "ConfigMap", "ConfigMapList");
        let (small, large) = (object(1, 100), object(2, COPIED));
        let events = |object: &Arc<Object>| {
            let event = |group: &Arc<SharedGroup>| group.event(&form, v1::event::Type::Modified, object, None).unwrap();
            [event(&groups[0]), event(&groups[1])]
        };
        for (object, is_copied) in [(&small, true), (&large, false)] {
            let [one, other] = events(object);
            let [elsewhere, _] = std::thread::scope(|scope| scope.spawn(|| events(object)).join().unwrap());
            assert!(one.is_shared_with(&other));
            assert_ne!(one.is_shared_with(&elsewhere), is_copied);
            assert!(one.has_bytes_of(&elsewhere));
        }
        let other = group(&SharedEvents::default());
        let _many: Vec<_> = (0..MANY).map(|_| Arc::clone(&other)).collect();
        let event = other.event(&form, v1::event::Type::Modified, &small, None).unwrap();
        assert!(!event.is_shared_with(&events(&small)[0]), "another group may render it in another way");
        let weak = Arc::downgrade(&large);
        drop(large);
        assert!(weak.upgrade().is_none(), "no thread keeps an object");
    }

    #[test]
    fn an_object_that_is_damaged_is_an_error_for_each() {
        let damaged = &packed(200, 1000)[0];
        damaged.spoil();
        let shared = SharedEvents::default();
        let form = Form::new(Encoding::Json, Style::Inline, "v1", "ConfigMap", "ConfigMapList");
        for group in [group(&shared), group(&shared)] {
            assert!(group.event(&form, v1::event::Type::Added, damaged, None).is_err());
            assert!(group.encode(&form, v1::event::Type::Added, damaged, None).is_err());
            assert!(group.key.2.object(&form, damaged).is_err());
        }
        assert_eq!(shared.0.bytes.load(Ordering::Relaxed), 0);
        let status = tonic::Status::from(crate::grpc::call::Error::from(Damaged));
        assert_eq!(status.code(), tonic::Code::Internal);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let shared = SharedEvents::default();
        let (one, other) = (group(&shared), group(&shared));
        assert!(!share([&one, &other], &object(1, LARGEST)));
        drop(other);
        assert!(!share([&one, &one], &object(2, 100)), "one that is alone keeps nothing");
        assert_eq!(shared.0.bytes.load(Ordering::Relaxed), 0);
        let other = group(&shared);
        assert!(share([&one, &other], &object(3, 100)));
        let each = shared.0.bytes.load(Ordering::Relaxed);
        for (rv, taken, is_kept) in [(4, MOST - each, true), (5, MOST - each + 1, false)] {
            shared.0.bytes.store(taken, Ordering::Relaxed);
            assert_eq!(share([&one, &other], &object(rv, 100)), is_kept);
        }
    }
}
