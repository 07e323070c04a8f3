//! All resources with one revision counter, and a bounded history of changes for watches and for reads of earlier
//! revisions.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use imbl::OrdMap;
use parking_lot::RwLock;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::list::too_large;
use super::registry::Kind;
use super::stored::Stored;
use crate::types::{EventType, ObjectKey, Status};

/// The most writes whose time is remembered, for readers that lag. Older writes count as visible.
const TIMELINE: usize = 100_000;

/// How long a read waits for a revision that does not exist yet.
const BLOCKS: Duration = Duration::from_secs(3);

pub(super) type Objects = OrdMap<ObjectKey, Arc<Stored>>;

/// The simulated etcd and watch cache in one. A server shares it with its replicas.
#[derive(Debug)]
pub struct Store {
    pub(super) inner: RwLock<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub revision: u64,
    pub kinds: BTreeMap<Arc<str>, KindState>,
    /// The time of each revision, oldest first.
    timeline: VecDeque<(Instant, u64)>,
    /// The last revision before the timeline.
    before: u64,
    /// The most changes to keep per resource.
    pub history_limit: usize,
    /// If true, deleting a scheduled pod only marks it. The code that acts as the kubelet removes it.
    pub graceful_pods: bool,
    /// All that happened since a test asked for it. Unlike the history, nothing is evicted from it.
    pub journal: Option<Vec<Entry>>,
    /// An item of aggregated discovery.
    pub foreign: Option<Value>,
}

/// What happened to the store.
#[derive(Clone, Debug)]
pub enum Entry {
    Changed {
        resource: Arc<str>,
        change: Arc<Change>,
    },
    /// It was set back to this revision.
    Rewound(u64),
}

#[derive(Debug)]
pub(super) struct KindState {
    pub kind: Arc<Kind>,
    pub objects: Objects,
    pub history: VecDeque<Arc<Change>>,
    /// Every change after this revision is in the history.
    pub floor: u64,
    /// Whether changes were evicted from the history since it began.
    pub evicted: bool,
    /// The revision of the last change that was evicted from the history. A watcher behind it has missed a change.
    pub dropped: u64,
    /// The resource of a definition is no longer served after the definition is deleted.
    pub served: bool,
    /// The revision that this resource's watch cache is known to have reached: that of its last change, or of the
    /// last consistent read or progress notification.
    pub progress: u64,
    /// Sends the revision of each change.
    pub tick: watch::Sender<u64>,
}

/// One change of one resource.
#[derive(Debug)]
pub struct Change {
    pub rv: u64,
    pub at: Instant,
    pub kind: EventType,
    /// The new state. For a deletion, the last state with the resourceVersion of the deletion.
    pub object: Arc<Stored>,
    pub prev: Option<Arc<Stored>>,
}

/// A reader's view: the store as it was `delay` ago.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub store: Arc<Store>,
    pub delay: Duration,
}

/// The changes after a watcher's cursor.
pub(super) struct Later {
    pub changes: Vec<Arc<Change>>,
    /// When the next change becomes visible to a lagging reader.
    pub next: Option<Instant>,
    /// Whether changes after the cursor were evicted from the history.
    pub lost: bool,
    /// The revision up to which there are no changes other than `changes`.
    pub progress: u64,
    /// The resource is no longer served. These are its last changes.
    pub last: bool,
}

/// Why a past state is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PastError {
    TooOld,
    TooNew,
    /// The resource no longer exists.
    Gone,
}

// === impl Store ===

impl Store {
    pub(super) fn new(revision: u64, history_limit: usize) -> Self {
        let mut inner = Inner {
            revision,
            kinds: BTreeMap::new(),
            timeline: VecDeque::new(),
            before: revision,
            history_limit,
            graceful_pods: false,
            journal: None,
            foreign: None,
        };
        for kind in Kind::built_in() {
            inner.register(kind);
        }
        Self { inner: RwLock::new(inner) }
    }

    /// The store's current revision.
    pub fn revision(&self) -> u64 {
        self.inner.read().revision
    }

    /// A resource's objects by key with their resourceVersions, for final comparisons. `resource` is a name like
    /// `pods`, `deployments` or `deployments.apps`. The result is empty if there is no such resource.
    pub fn state(&self, resource: &str) -> BTreeMap<String, u64> {
        self.objects(resource).iter().map(|(key, stored)| (key.as_str().to_owned(), stored.rv)).collect()
    }

    /// A resource's current objects. The cost does not depend on their number.
    pub fn objects(&self, resource: &str) -> OrdMap<ObjectKey, Arc<Stored>> {
        self.inner.read().kind(resource).map(|state| state.objects.clone()).unwrap_or_default()
    }

    /// The changes of a resource after a revision; `None` if some of them were evicted from the history.
    pub fn changes(&self, resource: &str, after: u64) -> Option<Vec<Arc<Change>>> {
        let inner = self.inner.read();
        let state = inner.kind(resource)?;
        (after >= state.floor).then(|| state.after(after).cloned().collect())
    }

    /// The revision of a resource's last change.
    pub fn last_change(&self, resource: &str) -> u64 {
        self.inner.read().kind(resource).map_or(0, |state| *state.tick.borrow())
    }

    /// The oldest revision to which every resource can go back.
    pub fn oldest(&self) -> u64 {
        self.inner.read().kinds.values().map(|state| state.floor).max().unwrap_or_default()
    }

    /// Keeps a journal from now on.
    pub fn keep_journal(&self) {
        self.inner.write().journal = Some(Vec::new());
    }

    /// What happened since the journal is kept.
    pub fn journal(&self) -> Vec<Entry> {
        self.inner.read().journal.clone().unwrap_or_default()
    }

    /// Stores an object of these bytes, whether they can be decoded or not: they come as they are with every list and
    /// watch, until the object is deleted. What `render` makes of the resourceVersion follows `kind` and `apiVersion`.
    pub fn put_raw(&self, resource: &str, key: &ObjectKey, render: impl FnOnce(u64) -> Vec<u8>) -> Option<u64> {
        let mut inner = self.inner.write();
        let kind = inner.kind(resource)?.kind.clone();
        let rv = inner.advance();
        let json = [kind.head().into_bytes(), render(rv)].concat();
        inner.store(&kind, Arc::new(Stored::raw(key.clone(), rv, json.into())));
        Some(rv)
    }

    /// Sets whether deleting a scheduled pod only marks it. Then code that acts as the kubelet must remove it.
    pub fn graceful_pods(&self, on: bool) {
        self.inner.write().graceful_pods = on;
    }

    pub(super) fn find(&self, group: &str, version: &str, resource: &str) -> Option<Arc<Kind>> {
        let inner = self.inner.read();
        let mut kinds = inner.kinds.values().filter(|state| state.served).map(|state| &state.kind);
        kinds
            .find(|kind| &*kind.gvr.group == group && &*kind.gvr.version == version && &*kind.gvr.resource == resource)
            .cloned()
    }

    pub(super) fn kinds(&self) -> Vec<Arc<Kind>> {
        self.inner.read().kinds.values().filter(|state| state.served).map(|state| state.kind.clone()).collect()
    }

    /// Drops all changes up to now: older watches get 410, and older pages expire.
    pub(super) fn compact(&self) {
        let mut inner = self.inner.write();
        let revision = inner.revision;
        for state in inner.kinds.values_mut() {
            state.forget(revision);
        }
    }

    /// Goes back to an earlier revision, like a restored etcd. The counter goes back, too, so later writes reuse
    /// revisions with other contents. A resource whose history is too short goes back as far as its history allows.
    pub(super) fn rewind(&self, revision: u64) {
        let mut inner = self.inner.write();
        let revision = revision.min(inner.revision);
        for state in inner.kinds.values_mut() {
            if let Ok(objects) = state.at(revision.max(state.floor)) {
                state.objects = objects;
            }
            state.forget(revision);
            // The reverted changes do not count as evicted: other changes will have their revisions.
            state.dropped = state.dropped.min(revision);
            state.tick.send_modify(|last| *last = revision.min(*last));
        }
        if let Some(journal) = &mut inner.journal {
            journal.push(Entry::Rewound(revision));
        }
        inner.revision = revision;
        inner.timeline.clear();
        inner.before = revision;
    }

    /// Acts like etcd's progress notification: every watch cache learns the revision of the store.
    pub(super) fn notify_progress(&self) {
        let mut inner = self.inner.write();
        let revision = inner.revision;
        for state in inner.kinds.values_mut() {
            state.progress = revision;
        }
    }
}

// === impl Inner ===

impl Inner {
    pub(super) fn register(&mut self, kind: Kind) {
        let (tick, _) = watch::channel(0);
        let state = KindState {
            objects: Objects::new(),
            history: VecDeque::new(),
            floor: self.revision,
            evicted: false,
            dropped: 0,
            served: true,
            progress: self.revision,
            tick,
            kind: Arc::new(kind),
        };
        self.kinds.insert(state.kind.id.clone(), state);
    }

    pub(super) fn kind(&self, resource: &str) -> Option<&KindState> {
        let exact = self.kinds.get(resource).filter(|state| state.served);
        exact.or_else(|| self.kinds.values().find(|state| state.served && state.kind.is(resource)))
    }

    /// Stores an object in its new state.
    pub(super) fn store(&mut self, kind: &Kind, stored: Arc<Stored>) {
        let Some(state) = self.kinds.get_mut(&kind.id) else { return };
        let prev = state.objects.insert(stored.key.clone(), stored.clone());
        let event = if prev.is_some() { EventType::Modified } else { EventType::Added };
        self.record(&kind.id, Change { rv: stored.rv, at: Instant::now(), kind: event, object: stored, prev });
    }

    pub(super) fn record(&mut self, id: &Arc<str>, change: Change) {
        let change = Arc::new(change);
        if let Some(journal) = &mut self.journal {
            journal.push(Entry::Changed { resource: id.clone(), change: change.clone() });
        }
        if let Some(state) = self.kinds.get_mut(id) {
            state.record(change, self.history_limit);
        }
    }

    pub(super) fn served(&self, id: &str) -> Result<&KindState, PastError> {
        self.kinds.get(id).filter(|state| state.served).ok_or(PastError::Gone)
    }

    /// Returns the next revision.
    pub(super) fn advance(&mut self) -> u64 {
        self.revision += 1;
        self.timeline.push_back((Instant::now(), self.revision));
        if self.timeline.len() > TIMELINE
            && let Some((_, revision)) = self.timeline.pop_front()
        {
            self.before = revision;
        }
        self.revision
    }

    /// Sets the start revision, if nothing was written yet.
    pub(super) fn started_at(&mut self, revision: u64) {
        self.revision = revision;
        if self.timeline.is_empty() {
            self.before = revision;
        }
    }

    /// The revision that is visible to a reader that lags by `delay`.
    pub(super) fn visible(&self, delay: Duration) -> u64 {
        if delay.is_zero() {
            return self.revision;
        }
        let Some(then) = Instant::now().checked_sub(delay) else { return self.before };
        let seen = self.timeline.partition_point(|(at, _)| *at <= then);
        if seen == 0 { self.before } else { self.timeline[seen - 1].1 }
    }
}

// === impl KindState ===

impl KindState {
    pub(super) fn after(&self, rv: u64) -> impl Iterator<Item = &Arc<Change>> {
        self.history.range(self.history.partition_point(|change| change.rv <= rv)..)
    }

    /// The objects at a revision, computed by reverting later changes.
    pub(super) fn at(&self, rv: u64) -> Result<Objects, PastError> {
        if rv < self.floor {
            return Err(PastError::TooOld);
        }
        let mut objects = self.objects.clone();
        for change in self.history.iter().rev().take_while(|change| change.rv > rv) {
            match &change.prev {
                Some(prev) => objects.insert(prev.key.clone(), prev.clone()),
                None => objects.remove(&change.object.key),
            };
        }
        Ok(objects)
    }

    /// The number in the 410 of a watch: one less than the revision of the oldest change that can still be delivered.
    pub(super) fn oldest(&self) -> u64 {
        match self.history.front() {
            Some(change) if self.evicted => change.rv - 1,
            _ => self.floor,
        }
    }

    fn forget(&mut self, revision: u64) {
        if let Some(last) = self.history.back() {
            self.dropped = last.rv;
        }
        self.history.clear();
        self.floor = revision;
        self.evicted = false;
        self.progress = revision;
    }

    fn record(&mut self, change: Arc<Change>, limit: usize) {
        let rv = change.rv;
        self.progress = rv;
        self.history.push_back(change);
        while self.history.len() > limit {
            if let Some(evicted) = self.history.pop_front() {
                self.floor = evicted.rv;
                self.dropped = evicted.rv;
                self.evicted = true;
            }
        }
        self.tick.send_replace(rv);
    }
}

// === impl View ===

impl View {
    pub(super) fn revision(&self) -> u64 {
        self.store.inner.read().visible(self.delay)
    }

    /// The objects and their revision. A consistent read has the revision of the store, and updates the resource's
    /// watch cache to it. Any other read has the revision of the watch cache.
    pub(super) fn snapshot(&self, id: &str, consistent: bool) -> Result<(Objects, u64), PastError> {
        let mut inner = self.store.inner.write();
        let visible = inner.visible(self.delay);
        let undelayed = self.delay.is_zero();
        let state = inner.kinds.get_mut(id).filter(|state| state.served).ok_or(PastError::Gone)?;
        if consistent && state.progress < visible {
            state.progress = visible;
        }
        let rv = state.progress.min(visible);
        if undelayed {
            return Ok((state.objects.clone(), rv));
        }
        // What is older than the history cannot be shown, however far behind this view is.
        let floor = state.floor;
        Ok((state.at(visible.max(floor))?, rv.max(floor)))
    }

    pub(super) fn snapshot_at(&self, id: &str, rv: u64) -> Result<Objects, PastError> {
        let inner = self.store.inner.read();
        if rv > inner.visible(self.delay) {
            return Err(PastError::TooNew);
        }
        inner.served(id)?.at(rv)
    }

    /// Returns `None` when the resource does not exist.
    pub(super) fn later(&self, id: &str, cursor: u64, lag: Duration) -> Option<Later> {
        let delay = self.delay + lag;
        let inner = self.store.inner.read();
        let state = inner.kinds.get(id)?;
        let visible = inner.visible(delay);
        let (mut changes, mut next) = (Vec::new(), None);
        for change in state.after(cursor) {
            if change.rv > visible {
                next = Some(change.at + delay);
                break;
            }
            changes.push(change.clone());
        }
        Some(Later {
            changes,
            next,
            lost: cursor < state.dropped,
            progress: state.progress.min(visible),
            last: !state.served,
        })
    }

    /// The error is the number for the 410.
    pub(super) fn can_watch_from(&self, id: &str, rv: u64) -> Result<(), u64> {
        let inner = self.store.inner.read();
        match inner.served(id) {
            Ok(state) if rv < state.oldest() => Err(state.oldest()),
            _ => Ok(()),
        }
    }

    pub(super) fn subscribe(&self, id: &str) -> Option<watch::Receiver<u64>> {
        Some(self.store.inner.read().kinds.get(id)?.tick.subscribe())
    }

    /// Waits until this view has reached a revision, or what the store holds now, as for a consistent read.
    pub(super) async fn wait_for(&self, rv: Option<u64>) -> Result<(), Box<Status>> {
        let (wanted, deadline) = (rv.unwrap_or_else(|| self.store.revision()), Instant::now() + BLOCKS);
        loop {
            let current = self.revision();
            if current >= wanted {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(too_large(wanted, current));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
