//! All groups by name. The first worker creates a group. A group is kept for a while after its last worker has left.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::super::call::Error;
use super::feed;
use super::group::{Group, GroupStats, QueueKey};
use super::request::{Join, Wanted};
use crate::lifecycle::{self, drain::DrainWatch};
use crate::memory::Ledger;
use crate::reads::{OpenWatch, Reads};
use crate::workqueue::Worker;

/// The most workers of one group. Each worker wakes the others at most once per key.
const MAX_WORKERS: usize = 1000;
/// One user may have this part of the groups, one in so many. The service accounts of a namespace count as one user,
/// because whoever may create one may create many.
const SHARE: usize = 2;
/// This part of the groups is for users that have none, so that a few others together cannot take all.
const FREE: usize = 8;
/// A group that has been without workers for less is not idle: its worker may be about to join again.
const IDLE: Duration = Duration::from_secs(60);

/// The limits of the queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// How long a group without workers is kept, with its failure counts, delays and unhandled deletions. Default 5 min,
    /// in which a Deployment of workers is replaced.
    pub linger: Duration,
    /// The most groups at the same time. One more replaces the group that has been without workers for the longest time;
    /// if all have workers, it is refused. Default 100: each costs a watch of its selections and a state for each object.
    pub max_groups: usize,
    /// The most unhandled deletions of one selection. If there are more, or no memory for them, the group ends. Its workers
    /// then join a new queue that contains every object, as after a restart. Default 100,000: workers that far behind are
    /// better off with the present objects.
    pub max_deletions: usize,
}

/// The groups. Cloning shares them.
#[derive(Clone)]
pub struct Groups {
    inner: Arc<GroupsInner>,
}

struct GroupsInner {
    config: QueueConfig,
    reads: Reads,
    drain: DrainWatch,
    /// Groups by owner and name.
    groups: Mutex<ByPlace>,
}

type ByPlace = HashMap<(String, String), Arc<Group>>;

/// A worker in its group. Dropping it returns its keys to the queue.
pub(super) struct Member {
    pub(super) group: Arc<Group>,
    pub(super) worker: Worker<QueueKey>,
    pub(super) drain: DrainWatch,
}

// === impl QueueConfig ===

impl Default for QueueConfig {
    fn default() -> Self {
        Self { linger: Duration::from_secs(300), max_groups: 100, max_deletions: 100_000 }
    }
}

// === impl Groups ===

impl Groups {
    pub fn new(config: QueueConfig, reads: Reads, drain: DrainWatch) -> Self {
        Self { inner: Arc::new(GroupsInner { config, reads, drain, groups: Mutex::default() }) }
    }

    pub(super) fn reads(&self) -> &Reads {
        &self.inner.reads
    }

    /// Joins a group. Creates the group if it does not exist. `ledger` has the account of what a group holds alone.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if the group's workers named other selections, RESOURCE_EXHAUSTED at a limit, or the error
    /// that a watch of the selections would get.
    pub(super) async fn join(&self, join: Join, ledger: &Ledger) -> Result<Member, Error> {
        let existing = self.member(&mut self.inner.groups.lock(), &join)?;
        if let Some(member) = existing {
            return Ok(member);
        }
        let mut watches = Vec::with_capacity(join.wanted.len());
        for Wanted { selection, .. } in &join.wanted {
            let watch = feed::open(&self.inner.reads, selection).await;
            watches.push(watch.map_err(|refusal| Error::refusal(&selection.gvr, refusal))?);
        }
        self.make(join, watches, ledger)
    }

    pub fn stats(&self) -> Vec<GroupStats> {
        let groups: Vec<_> = self.inner.groups.lock().values().cloned().collect();
        let mut stats: Vec<_> = groups.iter().map(|group| group.stats()).collect();
        stats.sort_by(|a, b| (&a.name, &a.owner).cmp(&(&b.name, &b.owner)));
        stats
    }

    /// Joins the group of this name. Returns `None` if it does not exist, or if it was just removed.
    fn member(&self, groups: &mut ByPlace, join: &Join) -> Result<Option<Member>, Error> {
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

    fn make(&self, join: Join, watches: Vec<OpenWatch>, ledger: &Ledger) -> Result<Member, Error> {
        let mut groups = self.inner.groups.lock();
        // Another call may have created the group in the meantime.
        if let Some(member) = self.member(&mut groups, &join)? {
            return Ok(member);
        }
        let QueueConfig { max_groups, max_deletions, .. } = self.inner.config;
        make_room(&mut groups, &join.owner, max_groups)?;
        let sources = watches.iter().map(|watch| watch.source.clone()).collect();
        let capacity = join.capacity;
        // On a trusted listener, all groups have the same owner.
        let of_user = user(&join.owner);
        let beside = groups.iter().find(|((owner, _), _)| user(owner) == of_user && !owner.is_empty());
        let beside = beside.map(|(_, group)| Arc::clone(group));
        let group = Arc::new(Group::new(join, sources, max_deletions, ledger, beside.as_deref()));
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
            () = group.resyncs() => {}
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

/// Makes room for one more group of this owner.
///
/// # Errors
/// RESOURCE_EXHAUSTED: the groups that could go have workers, or had some less than [`IDLE`] ago.
fn make_room(groups: &mut ByPlace, owner: &str, most: usize) -> Result<(), Error> {
    groups.retain(|_, group| !group.is_over());
    let of_user = user(owner);
    let owned = groups.keys().filter(|(of, _)| user(of) == of_user).count();
    // Without authentication, all groups have the same owner.
    if !owner.is_empty() && owned >= (most / SHARE).max(1) && !evict(groups, Some(of_user)) {
        return Err(Error::too_many(format!("user {of_user:?} has {owned} groups already, none of them idle")));
    }
    let free = if owner.is_empty() || owned == 0 { 0 } else { most / FREE };
    if groups.len() >= most - free && !evict(groups, None) {
        return Err(Error::too_many(format!("there are {} groups already, none of them idle", groups.len())));
    }
    Ok(())
}

/// Whom the groups of an owner count for: the namespace of a service account, or the user itself.
fn user(owner: &str) -> &str {
    let name = owner.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
    name.map_or(owner, |(_, name)| &owner[..owner.len() - name.len() - 1])
}

/// Ends the group that has been without workers for the longest time, of one [`user`] or of all. Returns false if there
/// is none.
fn evict(groups: &mut ByPlace, of_user: Option<&str>) -> bool {
    let idle = groups.iter().filter(|((of, _), group)| {
        of_user.is_none_or(|one| one == user(of)) && *group.workers.borrow() == 0 && group.left.lock().elapsed() >= IDLE
    });
    let Some(place) = idle.min_by_key(|(_, group)| *group.left.lock()).map(|(place, _)| place.clone()) else {
        return false;
    };
    if let Some(group) = groups.remove(&place) {
        group.finish(Error::draining());
    }
    true
}

// === impl Member ===

impl Drop for Member {
    fn drop(&mut self) {
        *self.group.left.lock() = Instant::now();
        self.group.workers.send_modify(|workers| *workers -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::testing::objects_of;

    fn join(owner: &str, name: &str) -> Join {
        Join { group: name.into(), owner: owner.into(), wanted: vec![], capacity: 1 }
    }

    fn add(groups: &mut ByPlace, owner: &str, name: &str, workers: usize) -> Arc<Group> {
        let group = Arc::new(Group::new(join(owner, name), vec![], 1, &Ledger::default(), None));
        group.workers.send_replace(workers);
        groups.insert(group.place(), Arc::clone(&group));
        group
    }

    fn refusal(groups: &mut ByPlace, owner: &str, most: usize) -> String {
        tonic::Status::from(make_room(groups, owner, most).unwrap_err()).message().to_owned()
    }

    fn names(groups: &ByPlace) -> Vec<&str> {
        let mut names: Vec<_> = groups.keys().map(|(_, name)| name.as_str()).collect();
        names.sort_unstable();
        names
    }

    #[tokio::test(start_paused = true)]
    async fn one_more_group_replaces_the_one_that_is_idle_for_longest() {
        let mut groups = ByPlace::new();
        let old = add(&mut groups, "", "old", 0);
        add(&mut groups, "", "busy", 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        add(&mut groups, "", "new", 0);
        make_room(&mut groups, "", 4).unwrap();
        tokio::time::advance(IDLE - Duration::from_secs(2)).await;
        let refused = refusal(&mut groups, "", 3);
        assert!(refused.contains("none of them idle"), "their workers may come back: {refused}");
        assert_eq!(names(&groups), ["busy", "new", "old"], "there is room");
        tokio::time::advance(Duration::from_secs(1)).await;
        make_room(&mut groups, "", 3).unwrap();
        assert!(old.is_over());
        assert_eq!(names(&groups), ["busy", "new"]);
        for group in groups.values() {
            group.workers.send_replace(1);
        }
        let refused = refusal(&mut groups, "", 2);
        assert!(refused.contains("2 groups already, none of them idle"), "{refused}");
    }

    #[tokio::test]
    async fn a_group_has_so_many_workers() {
        let (objects, _writer) = objects_of(Vec::new()).await;
        let config = QueueConfig { linger: IDLE, max_groups: 1, max_deletions: 1 };
        let groups = Groups::new(config, objects.reads.clone(), DrainWatch::never());
        let member = groups.make(join("", "a"), vec![], &Ledger::default()).unwrap();
        member.group.workers.send_replace(MAX_WORKERS - 1);
        let existing = || groups.member(&mut groups.inner.groups.lock(), &join("", "a"));
        let last = existing().unwrap();
        assert!(last.is_some() && existing().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_has_at_most_half_of_the_groups() {
        let mut groups = ByPlace::new();
        add(&mut groups, "bob", "idle", 0);
        add(&mut groups, "ann", "first", 1);
        let second = add(&mut groups, "ann", "second", 1);
        let refused = refusal(&mut groups, "ann", 4);
        assert!(refused.contains(r#"user "ann" has 2 groups already, none of them idle"#), "{refused}");
        make_room(&mut groups, "bob", 4).unwrap();
        second.workers.send_replace(0);
        tokio::time::advance(IDLE).await;
        make_room(&mut groups, "ann", 4).unwrap();
        assert_eq!(names(&groups), ["first", "idle"], "a user's own group goes");
    }

    #[tokio::test]
    async fn the_service_accounts_of_a_namespace_are_one_user_and_some_groups_are_for_those_that_have_none() {
        let mut groups = ByPlace::new();
        for number in 0..8 {
            add(&mut groups, &format!("system:serviceaccount:a:s{}", number % 2), &number.to_string(), 1);
        }
        let refused = refusal(&mut groups, "system:serviceaccount:a:s3", 16);
        assert!(refused.contains(r#"user "system:serviceaccount:a" has 8 groups already"#), "{refused}");
        for number in 8..14 {
            make_room(&mut groups, "system:serviceaccount:aa:s1", 16).unwrap();
            add(&mut groups, "system:serviceaccount:aa:s0", &number.to_string(), 1);
        }
        // The last two are free.
        let refused = refusal(&mut groups, "system:serviceaccount:aa:s1", 16);
        assert!(refused.contains("there are 14 groups already"), "{refused}");
        for one in ["ann", "system:serviceaccount:b:s0"] {
            make_room(&mut groups, one, 16).unwrap();
            add(&mut groups, one, "first", 1);
        }
        let refused = refusal(&mut groups, "bob", 16);
        assert!(refused.contains("there are 16 groups already"), "{refused}");
    }
}
