//! One group: a queue, the state behind its keys, and its workers.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use super::super::call::Error;
use super::super::messages::render;
use super::super::pb::v1;
use super::memory::GroupMemory;
use super::request::{Join, Wanted};
use crate::memory::Ledger;
use crate::meta::{Damaged, Gvr, ObjectKey};
use crate::reads::{ReadSource, WantedEncoding};
use crate::workqueue::{Deleted, Full, Handed, Level, QueueStats, State, Why, WorkQueue};

/// A key in the queue: an object of one of the group's selections.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct QueueKey {
    /// The index of the selection.
    selection: usize,
    object: ObjectKey,
}

/// A group of workers with their queue.
#[derive(Debug)]
pub(super) struct Group {
    owner: String,
    pub(super) name: String,
    pub(super) feeds: Vec<Feed>,
    /// The account of what it holds alone.
    pub(super) memory: GroupMemory,
    /// A worker has asked for every object to be queued. Further requests are merged with it until the walk through the
    /// objects begins.
    pub(super) resync: Notify,
    pub(super) queue: WorkQueue<QueueKey>,
    /// The number of connected workers.
    pub(super) workers: watch::Sender<usize>,
    /// When a worker left last.
    pub(super) left: Mutex<Instant>,
    /// Whether all objects of the first state were queued.
    pub(super) synced: watch::Sender<bool>,
    /// The reason why the group has ended.
    pub(super) end: watch::Sender<Option<Error>>,
}

/// One selection of a group.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) wanted: Wanted,
    level: Mutex<Level>,
    /// The informer that provides the objects. After a relist it may be another one.
    pub(super) source: Mutex<ReadSource>,
}

/// The statistics of a group at one moment.
#[derive(Clone, Debug)]
pub struct GroupStats {
    /// The user that owns the group. Empty on a trusted listener.
    pub owner: String,
    pub name: String,
    pub queue: QueueStats,
    pub objects: usize,
    /// Deletions that were not yet handled.
    pub deletions: usize,
}

/// So many objects are queued before other tasks may run.
const RESYNC_STEP: usize = 1000;
/// The pause between two walks through all objects.
const RESYNC_PAUSE: Duration = Duration::from_secs(1);

// === impl Group ===

impl Group {
    /// `beside`: another group of the same owner.
    pub(super) fn new(
        join: Join,
        sources: Vec<ReadSource>,
        max_deleted: usize,
        ledger: &Ledger,
        beside: Option<&Self>,
    ) -> Self {
        let Join { group, owner, wanted, .. } = join;
        let feeds = wanted.into_iter().zip(sources).map(|(mut wanted, source)| {
            // Later events must have the same encoding as the stored objects, so it is fixed to that of the source.
            wanted.selection.encoding = WantedEncoding::Only(source.encoding());
            Feed { wanted, level: Mutex::new(Level::new(max_deleted)), source: Mutex::new(source) }
        });
        Self {
            owner,
            name: group,
            feeds: feeds.collect(),
            memory: GroupMemory::new(ledger, beside.map(|beside| &beside.memory)),
            resync: Notify::new(),
            queue: WorkQueue::default(),
            workers: watch::Sender::new(0),
            left: Mutex::new(Instant::now()),
            synced: watch::Sender::new(false),
            end: watch::Sender::new(None),
        }
    }

    /// The owner and name that identify the group.
    pub(super) fn place(&self) -> (String, String) {
        (self.owner.clone(), self.name.clone())
    }

    pub(super) fn is_of(&self, wanted: &[Wanted]) -> bool {
        let is_same = |(Feed { wanted: feed, .. }, wanted): (&Feed, &Wanted)| {
            feed.identity == wanted.identity && feed.selection.identified == wanted.selection.identified
        };
        self.feeds.len() == wanted.len() && self.feeds.iter().zip(wanted).all(is_same)
    }

    pub(super) fn is_over(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// Ends the group with the error that its workers receive. Only the first call has an effect.
    pub(super) fn finish(&self, error: Error) {
        self.end.send_if_modified(|end| {
            let first = end.is_none();
            end.get_or_insert(error);
            first
        });
    }

    /// Applies changes of a selection and queues the changed keys.
    ///
    /// # Errors
    /// There are more unhandled deletions than allowed, or there is no memory for them.
    pub(super) fn change(
        &self,
        selection: usize,
        change: impl FnOnce(&mut Level, &mut dyn FnMut(&ObjectKey, Why)) -> Result<(), Full>,
    ) -> Result<(), Full> {
        let mut level = self.feeds[selection].level.lock();
        let before = level.own();
        // This runs under the lock of the level, so a worker that takes the key sees the change.
        let changed = change(&mut level, &mut |object, why| {
            self.queue.add(&QueueKey { selection, object: object.clone() }, why);
        });
        let counted = self.memory.change(before, level.own());
        changed.and(counted)
    }

    pub(super) fn note_synced(&self) {
        if self.feeds.iter().all(|feed| feed.level.lock().is_synced()) {
            self.synced.send_replace(true);
        }
    }

    /// Queues every object when a worker has asked for it. Runs as long as the group exists.
    pub(super) async fn resyncs(&self) {
        loop {
            self.resync.notified().await;
            for selection in 0..self.feeds.len() {
                let mut after = None;
                while let Some(last) = self.queue_after(selection, after.as_ref()) {
                    after = Some(last);
                    yield_now().await;
                }
            }
            sleep(RESYNC_PAUSE).await;
        }
    }

    /// Queues the next objects after this one. Returns the last of them.
    fn queue_after(&self, selection: usize, after: Option<&ObjectKey>) -> Option<ObjectKey> {
        let level = self.feeds[selection].level.lock();
        let mut last = None;
        for object in level.keys_after(after).take(RESYNC_STEP) {
            self.queue.add(&QueueKey { selection, object: object.clone() }, Why::RESYNC);
            last = Some(object);
        }
        last.cloned()
    }

    /// Resolves the key that a worker names.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it does not name a selection of the group.
    pub(super) fn key(&self, item: Option<&v1::ItemRef>) -> Result<QueueKey, Error> {
        let Some(item) = item else { return Err(Error::invalid("the request names no item")) };
        let selection = match &item.resource {
            None if self.feeds.len() == 1 => Some(0),
            None => None,
            Some(resource) => {
                let v1::Resource { group, version, resource } = resource;
                let is_it = |gvr: &Gvr| *gvr.group == **group && *gvr.resource == **resource;
                let of_version = |gvr: &Gvr| version.is_empty() || *gvr.version == **version;
                self.feeds.iter().map(|feed| &feed.wanted.selection.gvr).position(|gvr| is_it(gvr) && of_version(gvr))
            }
        };
        let Some(selection) = selection else {
            return Err(Error::invalid("the item's resource is none of the group's selections"));
        };
        Ok(QueueKey { selection, object: ObjectKey::new(&item.namespace, &item.name) })
    }

    /// Queues an object after a delay. The queue has only objects and deletions, so it is never longer than their number.
    pub(super) fn add_after(&self, key: &QueueKey, delay: Duration) {
        let level = self.feeds[key.selection].level.lock();
        if level.contains(&key.object) {
            self.queue.add_after(key, delay, Why::AFTER);
        }
    }

    /// A worker has handled the deletion with this number. If the object does not exist anew, nothing is left to queue later.
    pub(super) fn handled(&self, key: &QueueKey, deletion: u64) {
        let mut level = self.feeds[key.selection].level.lock();
        let before = level.own();
        level.handled(&key.object, deletion);
        if !level.contains(&key.object) {
            self.queue.cancel(key);
        }
        // This releases memory. Whether the rest is too much was checked before.
        self.memory.change(before, level.own()).ok();
    }

    /// Returns the item that a worker gets for a key, and the number of the deletion in it; `None` if neither the object nor
    /// its deletion exists any more.
    ///
    /// # Errors
    /// The bytes of the object are damaged.
    pub(super) fn item(&self, handed: &Handed<QueueKey>) -> Result<Option<(v1::Item, Option<u64>)>, Damaged> {
        let key = &handed.key;
        let feed = &self.feeds[key.selection];
        let State { object, deleted } = feed.level.lock().state(&key.object);
        if object.is_none() && deleted.is_none() {
            return Ok(None);
        }
        let source = feed.source.lock().clone();
        let Wanted { selection, rendering, .. } = &feed.wanted;
        let gvr = &selection.gvr;
        let resource = v1::Resource {
            group: gvr.group.to_string(),
            version: gvr.version.to_string(),
            resource: gvr.resource.to_string(),
        };
        let (namespace, name) = (key.object.namespace().to_owned(), key.object.name().to_owned());
        let last = |deleted: &Deleted| {
            Ok(v1::Object {
                key: Some(render::key(&deleted.object, deleted.rv)),
                object: rendering.bytes(&source.form, &deleted.object, Some(deleted.rv))?,
                partial: rendering.is_partial(),
            })
        };
        let booked = |object: &v1::Object| source.sent(object.object.len());
        let item = v1::Item {
            r#ref: Some(v1::ItemRef { resource: Some(resource), namespace, name }),
            object: object.map(|object| rendering.object(&source.form, &object)).transpose()?.inspect(booked),
            deleted: deleted.as_ref().map(last).transpose()?,
            encoding: render::encoding(source.encoding()).into(),
            attempt: handed.attempt,
            why: why(handed.why),
        };
        Ok(Some((item, deleted.map(|deleted| deleted.number))))
    }

    pub(super) fn stats(&self) -> GroupStats {
        let (mut objects, mut deletions) = (0, 0);
        for feed in &self.feeds {
            let level = feed.level.lock();
            objects += level.objects();
            deletions += level.deletions();
        }
        GroupStats { owner: self.owner.clone(), name: self.name.clone(), queue: self.queue.stats(), objects, deletions }
    }
}

fn why(why: Why) -> Vec<i32> {
    let all = [
        (Why::INITIAL, v1::Why::Initial),
        (Why::ADDED, v1::Why::Added),
        (Why::MODIFIED, v1::Why::Modified),
        (Why::DELETED, v1::Why::Deleted),
        (Why::RETRY, v1::Why::Retry),
        (Why::AFTER, v1::Why::After),
        (Why::RESYNC, v1::Why::Resync),
        (Why::RETURNED, v1::Why::Returned),
    ];
    all.into_iter().filter(|(one, _)| why.contains(*one)).map(|(_, one)| one.into()).collect()
}
