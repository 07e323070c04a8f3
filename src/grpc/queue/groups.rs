//! All groups by name. The first worker creates a group. A group is kept for a while after its last worker has left.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::super::status::Error;
use super::feed;
use super::group::{Group, GroupStats, QueueKey};
use super::request::{Join, Wanted};
use crate::lifecycle::{self, drain::DrainWatch};
use crate::reads::{OpenWatch, Reads};
use crate::workqueue::Worker;

/// The most workers of one group. Each worker wakes the others at most once per key.
const MAX_WORKERS: usize = 1000;

/// The limits of the queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// How long a group without workers is kept, with its failure counts, delays and unhandled deletions.
    pub linger: Duration,
    /// The most groups at the same time. A worker that would create another group is refused.
    pub max_groups: usize,
    /// The most unhandled deletions of one selection. If there are more, the group ends. Its workers then join a new
    /// queue that contains every object, as after a restart.
    pub max_deletions: usize,
}

/// The groups. Cloning shares them.
#[derive(Clone)]
pub struct Groups {
    inner: Arc<Inner>,
}

struct Inner {
    config: QueueConfig,
    reads: Reads,
    drain: DrainWatch,
    /// Groups by owner and name.
    groups: Mutex<HashMap<(String, String), Arc<Group>>>,
}

/// A worker in its group. Dropping it returns its keys to the queue.
pub(super) struct Member {
    pub(super) group: Arc<Group>,
    pub(super) worker: Worker<QueueKey>,
    pub(super) drain: DrainWatch,
}

// === impl Groups ===

impl Groups {
    pub fn new(config: QueueConfig, reads: Reads, drain: DrainWatch) -> Self {
        Self { inner: Arc::new(Inner { config, reads, drain, groups: Mutex::default() }) }
    }

    pub(super) fn reads(&self) -> &Reads {
        &self.inner.reads
    }

    /// Joins a group. Creates the group if it does not exist.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if the group's workers named other selections, RESOURCE_EXHAUSTED at a limit, or the error
    /// that a watch of the selections would get.
    pub(super) async fn join(&self, join: Join) -> Result<Member, Error> {
        if let Some(member) = self.existing(&join)? {
            return Ok(member);
        }
        let mut watches = Vec::with_capacity(join.wanted.len());
        for Wanted { selection, .. } in &join.wanted {
            let watch = feed::open(&self.inner.reads, selection).await;
            watches.push(watch.map_err(|refusal| Error::refusal(&selection.gvr, refusal))?);
        }
        self.make(join, watches)
    }

    pub fn stats(&self) -> Vec<GroupStats> {
        let groups: Vec<_> = self.inner.groups.lock().values().cloned().collect();
        let mut stats: Vec<_> = groups.iter().map(|group| group.stats()).collect();
        stats.sort_by(|a, b| (&a.name, &a.owner).cmp(&(&b.name, &b.owner)));
        stats
    }

    fn existing(&self, join: &Join) -> Result<Option<Member>, Error> {
        self.member(&mut self.inner.groups.lock(), join)
    }

    /// Joins the group of this name. Returns `None` if it does not exist, or if it was just removed.
    fn member(&self, groups: &mut HashMap<(String, String), Arc<Group>>, join: &Join) -> Result<Option<Member>, Error> {
        let key = (join.owner.clone(), join.group.clone());
        let Some(group) = groups.get(&key).cloned() else { return Ok(None) };
        let workers = *group.workers.borrow();
        if group.is_over() {
            groups.remove(&key);
            return Ok(None);
        }
        if !group.is_of(&join.wanted) {
            if workers > 0 {
                return Err(Error::selections_differ(&join.group, workers));
            }
            // The group has no workers, so it can be replaced.
            groups.remove(&key);
            group.finish(Error::selections_differ(&join.group, 0));
            return Ok(None);
        }
        if workers >= MAX_WORKERS {
            return Err(Error::too_many(format!("group {:?} has {MAX_WORKERS} workers", join.group)));
        }
        Ok(Some(self.enter(group, join.capacity)))
    }

    fn make(&self, join: Join, watches: Vec<OpenWatch>) -> Result<Member, Error> {
        let mut groups = self.inner.groups.lock();
        // Another call may have created the group in the meantime.
        if let Some(member) = self.member(&mut groups, &join)? {
            return Ok(member);
        }
        let QueueConfig { max_groups, max_deletions, .. } = self.inner.config;
        if groups.len() >= max_groups {
            return Err(Error::too_many(format!("there are {max_groups} groups already")));
        }
        let sources = watches.iter().map(|watch| watch.source.clone()).collect();
        let capacity = join.capacity;
        let group = Arc::new(Group::new(join, sources, max_deletions));
        groups.insert(group.place(), Arc::clone(&group));
        let member = self.enter(Arc::clone(&group), capacity);
        for (place, watch) in watches.into_iter().enumerate() {
            lifecycle::spawn("queue feed", feed::run(Arc::clone(&group), place, self.inner.reads.clone(), watch));
        }
        lifecycle::spawn("queue group", self.clone().tend(group));
        Ok(member)
    }

    fn enter(&self, group: Arc<Group>, capacity: usize) -> Member {
        group.workers.send_modify(|workers| *workers += 1);
        let worker = group.queue.join(capacity);
        Member { group, worker, drain: self.inner.drain.clone() }
    }

    /// Runs as long as the group exists. Removes the group when it has ended or has had no workers for too long.
    async fn tend(self, group: Arc<Group>) {
        tokio::select! {
            () = self.abandoned(&group) => {}
            () = self.inner.drain.draining() => {
                // Each worker leaves after it has answered all keys that it holds.
                group.queue.drain();
                let mut workers = group.workers.subscribe();
                tokio::select! {
                    _ = workers.wait_for(|workers| *workers == 0) => {}
                    () = self.inner.drain.forced() => {}
                }
            }
        }
        let mut groups = self.inner.groups.lock();
        if groups.get(&group.place()).is_some_and(|there| Arc::ptr_eq(there, &group)) {
            groups.remove(&group.place());
        }
        // This also ends the feeds.
        group.finish(Error::draining());
    }

    /// Waits until a group has ended. Ends it when it has had no workers for too long.
    async fn abandoned(&self, group: &Group) {
        let mut workers = group.workers.subscribe();
        let mut end = group.end.subscribe();
        loop {
            tokio::select! {
                _ = workers.wait_for(|workers| *workers == 0) => {}
                _ = end.wait_for(Option::is_some) => return,
            }
            tokio::select! {
                () = tokio::time::sleep(self.inner.config.linger) => {}
                _ = workers.wait_for(|workers| *workers > 0) => continue,
                _ = end.wait_for(Option::is_some) => return,
            }
            // Hold the lock so that no worker joins in the meantime. The next worker creates a new group.
            let _groups = self.inner.groups.lock();
            if *group.workers.borrow() == 0 {
                return group.finish(Error::draining());
            }
        }
    }
}

// === impl Member ===

impl Drop for Member {
    fn drop(&mut self) {
        self.group.workers.send_modify(|workers| *workers -= 1);
    }
}
