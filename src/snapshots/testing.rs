//! A cache with a history, and a storage in memory that fails when a test wants it to.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;

use super::journal::Journal;
use super::storage::{Entry, Output, Storage};
use super::{Cluster, Identity, Key, SnapshotConfig, Snapshots};
use crate::cache::{self, CacheConfig, Recorded, Recorder, Restoration, WatchCache, Writer};
use crate::codec::Form;
use crate::codec::json::Style;
use crate::meta::{AttributesBuilder, Encoding, EventType, Gvr, Object, ObjectKey, Raw, ResourceVersion, Scope};
use crate::packing::{Packing, PackingConfig, PackingForm};

/// The keys and bytes of one state.
pub(super) type State = Vec<(String, Bytes)>;

/// Files in memory. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    pub(super) inner: Arc<Mutex<Files>>,
}

#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) files: BTreeMap<String, Vec<u8>>,
    /// What the files were after each operation.
    pub(super) history: Vec<BTreeMap<String, Vec<u8>>>,
    /// This many operations succeed; `None` for all.
    pub(super) operations: Option<usize>,
    /// The next write stores only this many bytes when it fails.
    pub(super) torn: usize,
}

#[derive(Debug)]
struct Open {
    storage: Memory,
    name: String,
}

pub(super) struct World {
    pub(super) writer: Writer,
    pub(super) cache: WatchCache,
    /// The state at each revision.
    pub(super) states: BTreeMap<u64, State>,
}

// === impl Memory ===

impl Memory {
    fn operation<T>(&self, change: impl FnOnce(&mut Files) -> io::Result<T>) -> io::Result<T> {
        let mut inner = self.inner.lock();
        if inner.operations == Some(0) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        inner.operations = inner.operations.map(|left| left - 1);
        let result = change(&mut inner);
        let now = inner.files.clone();
        inner.history.push(now);
        result
    }
}

impl Storage for Memory {
    fn lock(&self) -> io::Result<()> {
        self.operation(|_| Ok(()))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Output>> {
        self.operation(|files| {
            files.files.insert(name.to_owned(), Vec::new());
            Ok(())
        })?;
        Ok(Box::new(Open { storage: self.clone(), name: name.to_owned() }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let file = self.inner.lock().files.get(name).cloned();
        Ok(Box::new(io::Cursor::new(file.ok_or(io::ErrorKind::NotFound)?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.operation(|files| {
            let file = files.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
            files.files.insert(to.to_owned(), file);
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.lock().files.remove(name).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        let inner = self.inner.lock();
        let entry = |(name, file): (&String, &Vec<u8>)| Entry {
            name: name.clone(),
            len: file.len() as u64,
            modified: SystemTime::UNIX_EPOCH,
        };
        Ok(inner.files.iter().map(entry).collect())
    }
}

impl Write for Open {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let torn = &bytes[..self.storage.inner.lock().torn.min(bytes.len())];
        let name = self.name.clone();
        // A file that was renamed is still the one that is written to.
        let append = |files: &mut Files, bytes: &[u8]| {
            let renamed = name.strip_suffix(".new").unwrap_or(&name);
            let name = if files.files.contains_key(&name) { &name } else { renamed };
            files.files.get_mut(name).unwrap().extend_from_slice(bytes);
        };
        let stored = self.storage.operation(|files| {
            append(files, bytes);
            Ok(())
        });
        match stored {
            Ok(()) => Ok(bytes.len()),
            Err(error) => {
                append(&mut self.storage.inner.lock(), torn);
                Err(error)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for Open {
    fn sync(&mut self) -> io::Result<()> {
        self.storage.operation(|_| Ok(()))
    }
}

// === impl World ===

pub(super) fn object(name: u64, rv: u64) -> Object {
    let mut attributes = AttributesBuilder::new(&format!("uid-{name}"));
    attributes.label("app", &format!("app-{}", name % 5));
    attributes.field("node-1");
    let spec: String = (0..12).map(|n| format!("\"field-{n}\":\"value-{}\",", (name * 7 + n) % 97)).collect();
    let text = format!(
        "{{\"metadata\":{{\"name\":\"o{name:04}\",\"resourceVersion\":\"{rv}\"}},\"spec\":{{{spec}\"last\":\"{}\"}}}},",
        name * rv
    );
    let raw = Raw::new(Bytes::from(text), 12..40, 0..0);
    Object::new(ObjectKey::new("a", &format!("o{name:04}")), ResourceVersion(rv), attributes.build(), raw)
}

pub(super) fn empty(form: PackingForm) -> (Writer, WatchCache) {
    let packing = Packing::new(PackingConfig { form, threshold: 0, hot_bytes: 0 });
    cache::new(CacheConfig { packing, ..CacheConfig::new(Gvr::new("", "v1", "pods")) })
}

impl World {
    /// A cache with this many objects at revision 1000.
    pub(super) async fn new(objects: u64, form: PackingForm) -> Self {
        let (mut writer, cache) = empty(form);
        writer.set_form(Form::new(Encoding::Json, Style::Stripped, "v1", "Pod", "PodList"));
        writer.set_bookmark_template(Bytes::from_static(b"{\"kind\":\"Pod\"}"));
        let arrived = |name| writer.known(object(name, name + 1)).unwrap_or_else(Arc::new);
        let objects = (0..objects).map(arrived).collect();
        writer.replace(objects, ResourceVersion(1000)).await.unwrap();
        let mut world = Self { writer, cache, states: BTreeMap::new() };
        world.note();
        world
    }

    fn note(&mut self) {
        let rv = self.cache.resource_version().get();
        self.states.insert(rv, state(&self.cache));
    }

    /// Changes of every kind, from the next revision on.
    pub(super) async fn change(&mut self, count: u64) {
        for n in 0..count {
            let rv = self.cache.resource_version().get() + 1 + n % 3;
            let name = n * 5 % 16;
            let there = self.cache.snapshot().unwrap().get(&object(name, 1).key).is_some();
            match n % 4 {
                3 if there => self.writer.apply(EventType::Deleted, object(name, rv)).await.unwrap(),
                _ => self.writer.apply(EventType::Modified, object(name, rv)).await.unwrap(),
            }
            self.note();
        }
    }

    /// Two deletions of one revision, and then progress without an event.
    pub(super) async fn expire(&mut self) {
        let rv = self.cache.resource_version().get() + 1;
        self.writer.delete_together(vec![object(20, rv), object(21, rv)], true).await.unwrap();
        self.note();
        self.writer.progress(ResourceVersion(rv + 5));
        self.note();
    }
}

pub(super) fn state(cache: &WatchCache) -> State {
    let snapshot = cache.snapshot().unwrap();
    let scope = Scope::default();
    let all = snapshot.range(&scope, None);
    all.map(|object| (object.key.to_string(), object.raw().unwrap().framed())).collect()
}

pub(super) fn identity() -> Identity {
    Identity {
        cluster: Cluster { uid: "u".into(), authorities: "ca".into(), version: "v1.36.3".into() },
        resource: "v1/pods".into(),
        definition: String::new(),
        namespace: String::new(),
        field_selector: String::new(),
        label_selector: String::new(),
        encoding: "json".into(),
        fields: "f".into(),
    }
}

pub(super) fn snapshots(storage: &Memory, key: Option<Key>) -> Snapshots {
    let (max_bytes, max_age) = (1 << 30, Duration::from_secs(900));
    Snapshots::new(SnapshotConfig { dir: "/".into(), max_bytes, max_age, key }, storage.clone())
}

/// Begins the file of a cache with its state.
pub(super) fn begin(snapshots: &Snapshots, identity: &Identity, cache: &WatchCache) -> io::Result<(Journal, Recorder)> {
    Ok(Journal::begin(&snapshots.of(identity.clone()), cache)?.unwrap())
}

/// Everything that the window has, in one piece.
pub(super) fn all(recorder: &mut Recorder) -> Recorded {
    recorder.read(usize::MAX).unwrap()
}

/// Reads the snapshot of a new cache, as a reflector does.
pub(super) async fn load(snapshots: &Snapshots, identity: Identity, form: PackingForm) -> Option<(Writer, WatchCache)> {
    let (mut writer, cache) = empty(form);
    let restoration: Restoration = snapshots.of(identity).load(writer.restoration()).await?;
    writer.restore(restoration).unwrap();
    Some((writer, cache))
}
