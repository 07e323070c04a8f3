//! A state that was saved, and the events that followed it, while they are read. The cache does not change before the
//! apiserver has confirmed that its history goes on from there.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::time::Instant;

use super::budget::{Account, Budget, Full};
use super::history::memory;
use super::packer_task::Arriving;
use super::shared::SharedCache;
use super::spec::EndReason;
use super::store::{Snapshot, Store};
use super::writer::Writer;
use crate::codec::Form;
use crate::meta::{EventType, Object, ObjectKey, ResourceVersion, WatchCacheEvent};
use crate::packing::Library;

/// A saved state and window. First all objects of the state are added, then its end, then the events.
#[derive(Debug)]
pub struct Restoration {
    shared: Arc<SharedCache>,
    /// What was read so far, until the cache counts it.
    account: Account,
    library: Library,
    form: Option<Form>,
    bookmark_template: Option<Bytes>,
    store: Store,
    /// The revision after which the events begin. Zero before the state is complete.
    from: ResourceVersion,
    rv: ResourceVersion,
    /// The revision before the last events, which are deletions of one revision. `None` if the state is known to be
    /// complete up to [`Self::rv`].
    unfinished: Option<ResourceVersion>,
    events: Vec<WatchCacheEvent>,
    bytes: usize,
    arriving: Arriving,
}

/// Why a saved state cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    #[error("does not fit into the memory of the caches")]
    Memory(#[from] Full),
    #[error("{0}")]
    Contradictory(&'static str),
}

use RestoreError::Contradictory;

// === impl Writer ===

impl Writer {
    /// Begins to read a saved state.
    pub fn restoration(&self) -> Restoration {
        let shared = Arc::clone(&self.shared);
        let library = Library::new(shared.keeper.packer.clone());
        let account = shared.config.budget.account(shared.config.pinned);
        Restoration {
            shared,
            account,
            library,
            form: None,
            bookmark_template: None,
            store: Store::default(),
            from: ResourceVersion::ZERO,
            rv: ResourceVersion::ZERO,
            unfinished: None,
            events: Vec::new(),
            bytes: 0,
            arriving: Arriving::default(),
        }
    }

    /// Takes a saved state as the first one of this cache: readers are served from it, and watches may start within its
    /// window. The apiserver must have accepted a watch from [`Restoration::rv`].
    ///
    /// # Errors
    /// The cache already has a state, or the saved one is not complete. The cache does not change.
    pub fn restore(&mut self, saved: Restoration) -> Result<(), RestoreError> {
        let Restoration { form, bookmark_template, mut store, from, rv, events, account, .. } = saved;
        let Some(form) = form.filter(|_| !from.is_zero() && self.resource_version().is_zero()) else {
            return Err(Contradictory("not complete"));
        };
        self.set_form(form);
        if let Some(template) = bookmark_template {
            self.set_bookmark_template(template);
        }
        store.begin_lineage();
        let mut state = self.shared.state.lock();
        self.shared.forget(&mut state, rv, EndReason::Relisted);
        state.history.prepend(events, from, Instant::now());
        self.shared.listed_rv.store(from.0, Ordering::Release);
        let head = state.history.head();
        state.history.evict(Instant::now(), head);
        self.shared.publish(&mut state, Snapshot::new(rv, store.clone()));
        self.shared.ready.ready(rv);
        // Before the window can be counted with the state.
        drop(account);
        drop(state);
        self.take(store, rv, head);
        self.settle();
        self.shared.work.notify_one();
        Ok(())
    }
}

// === impl Restoration ===

impl Restoration {
    pub fn library(&mut self) -> &mut Library {
        &mut self.library
    }

    pub fn set_form(&mut self, form: Form) {
        self.form = Some(form);
    }

    pub fn set_bookmark_template(&mut self, template: Bytes) {
        self.bookmark_template = Some(template);
    }

    /// The revision up to which the saved state is complete.
    pub fn rv(&self) -> ResourceVersion {
        self.rv
    }

    pub fn form(&self) -> Option<&Form> {
        self.form.as_ref()
    }

    /// Whether the state is complete. Events may follow.
    pub fn is_complete(&self) -> bool {
        !self.from.is_zero()
    }

    pub fn objects(&self) -> usize {
        self.store.len()
    }

    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// Takes an object from the front of saved bytes. `None` if it is malformed.
    pub fn load(&self, input: &mut &[u8]) -> Option<Object> {
        Object::load(input, &self.library, |key: &ObjectKey| self.store.get(key))
    }

    /// Adds an object of the state.
    ///
    /// # Errors
    /// There is no memory for it, or it is not the next one.
    pub fn insert(&mut self, mut object: Object) -> Result<(), RestoreError> {
        if !self.from.is_zero() || self.store.last().is_some_and(|last| last.key >= object.key) {
            return Err(Contradictory("its objects are out of order"));
        }
        self.shared.keeper.share(&mut object, None);
        let object = Arc::new(object);
        self.bytes += Budget::cost(object.present_size());
        self.bytes = self.bytes.saturating_sub(self.arriving.take_into(&self.shared, &object));
        self.account.load(self.bytes)?;
        self.rv = self.rv.max(object.rv);
        self.store.insert(object);
        Ok(())
    }

    /// The state is complete: it had `objects` objects, at `rv`.
    ///
    /// # Errors
    /// This contradicts what was added.
    pub fn begin(&mut self, rv: ResourceVersion, objects: usize) -> Result<(), RestoreError> {
        if !self.from.is_zero() || rv.is_zero() || rv < self.rv || objects != self.store.len() {
            return Err(Contradictory("its state is not complete"));
        }
        self.arriving = Arriving::default();
        (self.from, self.rv) = (rv, rv);
        Ok(())
    }

    /// Adds the next event.
    ///
    /// # Errors
    /// There is no memory for it, or it does not follow the state and the earlier events.
    pub fn push(&mut self, kind: EventType, mut object: Object) -> Result<(), RestoreError> {
        let rv = object.rv;
        // Objects that expire are deleted together at one revision.
        let together = kind == EventType::Deleted
            && self.events.last().is_some_and(|last| last.rv == rv && last.kind == EventType::Deleted);
        if self.from.is_zero() || rv < self.rv || rv == self.rv && !together {
            return Err(Contradictory("its events are out of order"));
        }
        let prev = self.store.get(&object.key).cloned();
        if prev.is_some() != (kind != EventType::Added) {
            return Err(Contradictory("its events contradict its state"));
        }
        if !together {
            self.unfinished = (kind == EventType::Deleted).then_some(self.rv);
        }
        self.shared.keeper.share(&mut object, prev.as_deref());
        let event = WatchCacheEvent { kind, rv, object: Arc::new(object), prev, received: Instant::now() };
        self.shared.keeper.pack_replaced(&event);
        self.bytes += memory(&event);
        self.account.load(self.bytes)?;
        self.store.apply(&event);
        self.events.push(event);
        self.rv = rv;
        Ok(())
    }

    /// The state is complete up to `rv`.
    pub fn progress(&mut self, rv: ResourceVersion) {
        if !self.from.is_zero() {
            self.rv = self.rv.max(rv);
            self.unfinished = None;
        }
    }

    /// Nothing follows. If the last events are deletions of one revision, and the file ended before it was said that they
    /// are all, they are undone: the apiserver sends them again.
    pub fn finish(&mut self) {
        let Some(before) = self.unfinished.take() else { return };
        while let Some(event) = self.events.pop_if(|event| event.rv > before) {
            self.store.undo(&event);
        }
        self.rv = before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::testing::{cache, names, plain};
    use crate::codec::json::Style;
    use crate::meta::Encoding;

    /// Reads a file: `a@5` is an object, `=10/1` the end of a state of one object at revision 10, `+a@11`, `*a@11` and `-a@11`
    /// are events, and `p12` is progress.
    fn read(restoration: &mut Restoration, file: &str) -> Result<(), RestoreError> {
        let number = |text: &str| text.parse::<u64>().unwrap();
        let object = |text: &str| text.split_once('@').map(|(name, rv)| plain("", name, number(rv))).unwrap();
        for entry in file.split(' ') {
            match (&entry[..1], &entry[1..]) {
                ("=", end) => {
                    let (rv, objects) = end.split_once('/').unwrap();
                    restoration.begin(ResourceVersion(number(rv)), objects.parse().unwrap())?;
                }
                ("+", text) => restoration.push(EventType::Added, object(text))?,
                ("*", text) => restoration.push(EventType::Modified, object(text))?,
                ("-", text) => restoration.push(EventType::Deleted, object(text))?,
                ("p", rv) => restoration.progress(ResourceVersion(number(rv))),
                _ => restoration.insert(object(entry))?,
            }
        }
        restoration.finish();
        Ok(())
    }

    #[tokio::test]
    async fn what_contradicts_itself_is_no_state_and_what_is_not_all_of_it_is_undone() {
        for (file, expected) in [
            ("a@5 b@3 =10/2", Ok((10, "a@5 b@3", 0))),
            ("=10/0", Ok((10, "", 0))),
            ("a@5 =5/1", Ok((5, "a@5", 0))),
            ("p5 a@5 =10/1 p12 p11", Ok((12, "a@5", 0))),
            ("a@5 =10/1 +b@11 *a@12", Ok((12, "a@12 b@11", 2))),
            ("a@5 b@6 =10/2 -a@11 *b@12", Ok((12, "b@12", 2))),
            // Others of the same revision may be missing.
            ("a@5 b@6 c@7 =10/3 *c@11 -a@12 -b@12", Ok((11, "a@5 b@6 c@11", 1))),
            ("a@5 b@6 =10/2 -a@11 -b@11", Ok((10, "a@5 b@6", 0))),
            ("a@5 b@6 =10/2 -a@11 -b@11 p12", Ok((12, "", 2))),
            ("a@5 b@6 =10/2 -a@11 p9", Ok((11, "b@6", 1))),
            ("b@5 a@3", Err("its objects are out of order")),
            ("a@5 a@6", Err("its objects are out of order")),
            ("=10/0 a@5", Err("its objects are out of order")),
            ("a@5 =4/1", Err("its state is not complete")),
            ("a@5 =10/2", Err("its state is not complete")),
            ("=0/0", Err("its state is not complete")),
            ("=10/0 =10/0", Err("its state is not complete")),
            ("+a@5", Err("its events are out of order")),
            ("=10/0 +a@10", Err("its events are out of order")),
            ("=10/0 +a@11 *a@9", Err("its events are out of order")),
            ("a@5 b@6 =10/2 *b@11 -a@11", Err("its events are out of order")),
            ("a@5 b@6 =10/2 -a@11 +a@11", Err("its events are out of order")),
            ("a@5 =10/1 -a@10", Err("its events are out of order")),
            ("a@5 =10/1 +a@11", Err("its events contradict its state")),
            ("=10/0 *a@11", Err("its events contradict its state")),
            ("=10/0 -a@11", Err("its events contradict its state")),
            ("a@5", Err("not complete")),
        ] {
            let budget = Budget::new(1 << 20);
            let (mut writer, cache, _) = cache(|config| config.budget = budget.clone());
            let begin = |writer: &Writer| {
                let mut restoration = writer.restoration();
                restoration.set_form(Form::new(Encoding::Json, Style::Stripped, "v1", "Pod", "PodList"));
                restoration.set_bookmark_template(Bytes::from_static(b"{}"));
                restoration
            };
            let mut restoration = begin(&writer);
            let read = read(&mut restoration, file);
            let counted = (restoration.objects(), restoration.events());
            let restored = read.and_then(|()| writer.restore(restoration));
            let found = restored.map(|()| {
                let stats = cache.stats();
                let held = names(cache.snapshot().unwrap().store().iter()).join(" ");
                assert_eq!((stats.objects, stats.window_events), counted);
                (stats.rv.0, held, stats.window_events)
            });
            let expected = expected.map(|(rv, held, events)| (rv, held.to_owned(), events)).map_err(Contradictory);
            assert_eq!(found, expected, "{file}");
            assert_eq!((cache.form().is_some(), cache.bookmark_template().is_some()), (found.is_ok(), found.is_ok()));
            assert_eq!(
                budget.used() > 0,
                found.is_ok_and(|(_, held, events)| !held.is_empty() || events > 0),
                "{file}"
            );
            let mut again = begin(&writer);
            again.begin(ResourceVersion(20), 0).unwrap();
            assert_eq!(writer.restore(again).is_err(), expected.is_ok(), "it has a state already");
        }
    }

    #[tokio::test]
    async fn what_has_no_room_is_not_read() {
        const OBJECTS: u64 = 100;
        let budget = Budget::new(20_000);
        let (writer, ..) = cache(|config| config.budget = budget.clone());
        for (objects, events) in [(OBJECTS, 0), (1, OBJECTS)] {
            let mut restoration = writer.restoration();
            let mut read = (0..objects).try_for_each(|n| restoration.insert(plain("a", &format!("n{n:03}"), n + 1)));
            if events > 0 {
                restoration.begin(ResourceVersion(objects), 1).unwrap();
                let modified = |rv| restoration.push(EventType::Modified, plain("a", "n000", rv));
                read = read.and((objects + 1..=objects + events).try_for_each(modified));
            }
            assert!(matches!(read, Err(RestoreError::Memory(_))), "{objects} objects and {events} events: {read:?}");
            assert!((10..OBJECTS as usize).contains(&(restoration.objects() + restoration.events())));
            drop(restoration);
            assert_eq!(budget.used(), 0);
        }
    }
}
