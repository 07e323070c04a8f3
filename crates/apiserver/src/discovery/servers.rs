//! Which group versions an aggregated API server serves, as the APIServices say. Such a server knows who asks, and may
//! answer each user differently. So its answers to our own requests are no answers for clients with an identity.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::client::Upstream;
use crate::metadata::Metadata;
use informerd_meta::{Gvr, Origin, Resource};

/// What the APIServices say. Clones share it. Nothing is known before [`Self::listed`].
#[derive(Clone, Debug, Default)]
pub struct Servers {
    inner: Arc<Inner>,
}

/// Proof that the kube-apiserver itself serves a resource, so that its answers depend on nothing but rights. It holds for
/// the data that was read since the server of the group version last changed.
#[derive(Clone, Debug)]
pub struct Shareable {
    servers: Servers,
    resource: Arc<Resource>,
    since: Since,
}

/// Why there is no such proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unshareable {
    /// An aggregated API server answers, or it cannot be told because the APIServices may not be read.
    Aggregated,
    /// It is not known at present who answers.
    Unknown,
}

/// A point in the changes of servers. It differs before and after each change of the server of a group version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Since(u64);

type GroupVersion = (Arc<str>, Arc<str>);

#[derive(Debug, Default)]
struct Inner {
    state: RwLock<State>,
    /// Counts what may change an answer of [`Servers::shareable`]. Zero until the apiserver has answered for the first time,
    /// or a read has waited for that in vain.
    changes: watch::Sender<u64>,
    /// Whether changes are not reported at present.
    lost: watch::Sender<bool>,
    /// Whether the APIServices are read once that is wanted.
    is_awaited: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Whether `services` is what the apiserver has. It is kept when that ends, to be compared with what follows.
    is_known: bool,
    was_listed: bool,
    /// The APIServices may not be read. That stays known until they were.
    is_refused: bool,
    services: HashMap<GroupVersion, ApiService>,
    /// When the servers of group versions changed. There is an entry for each that did.
    moved: HashMap<GroupVersion, Since>,
    /// The value for all others.
    others: Since,
    last: Since,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ApiService {
    uid: String,
    revision: String,
    has_service: bool,
}

/// How long what was known is still used when changes are not reported and the apiserver answers other requests. A watch
/// that is reopened in this time reports what it missed.
const BLIND: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);
/// How long reads wait when the APIServices are first wanted, until they were read. Once one of them has waited this long, no
/// other waits.
const FIRST: Duration = Duration::from_secs(1);
/// At this number of group versions whose servers changed, all others count as changed too.
const MOST_MOVED: usize = 1000;

// === impl Servers ===

impl Servers {
    /// A proof for data of a resource that is read from now on.
    ///
    /// # Errors
    /// An aggregated API server answers for it, or may do so.
    pub async fn shareable(&self, resource: &Arc<Resource>) -> Result<Shareable, Unshareable> {
        // A built-in group may have a version of an aggregated API server.
        if !matches!(resource.origin, Origin::BuiltIn) || self.inner.is_awaited.load(Ordering::Relaxed) {
            self.first_news().await;
        }
        let since = self.inner.state.read().shareable(resource)?;
        Ok(Shareable { servers: self.clone(), resource: Arc::clone(resource), since })
    }

    /// Whether an aggregated API server is known to serve the group version.
    pub fn is_aggregated(&self, gvr: &Gvr) -> bool {
        self.inner.state.read().has_service(gvr)
    }

    /// The versions of a group that aggregated API servers are known to serve.
    pub fn aggregated(&self, group: &str) -> Vec<Arc<str>> {
        let state = self.inner.state.read();
        let of_group = state.services.iter().filter(|((of, _), service)| **of == *group && service.has_service);
        of_group.map(|((_, version), _)| Arc::clone(version)).collect()
    }

    /// Since when data of a resource is from its present server.
    pub fn since(&self, gvr: &Gvr) -> Since {
        self.inner.state.read().since(gvr)
    }

    /// Changes whenever an answer of [`Self::shareable`] or [`Self::since`] may have.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    /// All APIServices were read. Returns whether a group version has another server now.
    pub(super) fn listed<'a>(&self, objects: impl IntoIterator<Item = &'a Metadata>) -> bool {
        let services: HashMap<_, _> =
            objects.into_iter().map(|object| (named(object), ApiService::of(object))).collect();
        let mut state = self.inner.state.write();
        let is_first = !std::mem::replace(&mut state.was_listed, true);
        let before = std::mem::take(&mut state.services);
        let mut moved: Vec<_> = services
            .iter()
            .filter(|(name, now)| match before.get(*name) {
                Some(before) => before != *now && (before.has_service != now.has_service || !now.has_service),
                // An informer may already run, and have taken the resource for one of the kube-apiserver.
                None => !is_first || now.has_service,
            })
            .map(|(name, _)| name.clone())
            .collect();
        moved.extend(before.into_keys().filter(|name| !services.contains_key(name)));
        state.services = services;
        let was_known = std::mem::replace(&mut state.is_known, true);
        state.is_refused = false;
        let has_moved = !moved.is_empty();
        state.moved(moved);
        drop(state);
        self.set_lost(false);
        if has_moved || !was_known {
            self.changed();
        }
        has_moved
    }

    /// One APIService was created, changed or deleted. Returns whether the group version has another server now.
    pub(super) fn take(&self, deleted: bool, object: &Metadata) -> bool {
        let name = named(object);
        let mut state = self.inner.state.write();
        let now = (!deleted).then(|| ApiService::of(object));
        let has_service = now.as_ref().is_some_and(|now| now.has_service);
        let before = match now {
            Some(now) => state.services.insert(name.clone(), now),
            None => state.services.remove(&name),
        };
        let has_moved = has_service != before.is_some_and(|before| before.has_service);
        if has_moved {
            state.moved([name]);
        }
        drop(state);
        if has_moved {
            self.changed();
        }
        has_moved
    }

    /// The APIServices may not be read, so any group that is not built in may be aggregated.
    pub(super) fn refused(&self) {
        self.forget(true);
    }

    /// What is known of the services is not known any more.
    fn forget(&self, is_refused: bool) {
        let mut state = self.inner.state.write();
        let was_known = std::mem::replace(&mut state.is_known, false);
        let is_new = is_refused && !std::mem::replace(&mut state.is_refused, true);
        drop(state);
        if was_known || is_new {
            self.changed();
        }
    }

    /// Waits where the APIServices are read, until they were read for the first time.
    pub(super) async fn known(&self) {
        if self.inner.is_awaited.load(Ordering::Relaxed) {
            self.first_news().await;
        }
    }

    async fn first_news(&self) {
        if *self.inner.changes.borrow() > 0 {
            return;
        }
        let mut changes = self.inner.changes.subscribe();
        // Until then nothing is known, which is an answer as well.
        if timeout(FIRST, changes.wait_for(|changes| *changes > 0)).await.is_err() {
            self.inner.changes.send_if_modified(|changes| {
                let is_first = *changes == 0;
                *changes += u64::from(is_first);
                is_first
            });
        }
    }

    /// The APIServices are read once that is wanted.
    pub(super) fn are_awaited(&self) {
        self.inner.is_awaited.store(true, Ordering::Relaxed);
    }

    /// Whether changes are not reported at present.
    pub(super) fn set_lost(&self, lost: bool) {
        self.inner.lost.send_if_modified(|is_lost| std::mem::replace(is_lost, lost) != lost);
    }

    /// Forgets what is known once changes were not reported for too long while the apiserver answered. While it does not
    /// answer, nothing new comes from any server. Never returns.
    pub(super) async fn forget_when_blind(self, upstream: Upstream) {
        let mut lost = self.inner.lost.subscribe();
        loop {
            let is_lost = *lost.borrow_and_update();
            let blind = async {
                let mut answered = Duration::ZERO;
                while answered < BLIND {
                    sleep(SECOND).await;
                    answered = if upstream.is_reachable() { answered + SECOND } else { Duration::ZERO };
                }
            };
            tokio::select! {
                _ = lost.changed() => {}
                () = blind, if is_lost => {
                    // Where they may not be read, nothing is known that could be forgotten.
                    if !self.inner.state.read().is_refused {
                        let which = "that are not built in are forwarded on listeners that authenticate clients";
                        tracing::warn!("APIServices cannot be watched: reads of groups {which}");
                        self.forget(false);
                    }
                    self.seen_again(&mut lost).await;
                }
            }
        }
    }

    /// Waits until the watch has resumed and has reported what it missed, or until everything was listed.
    async fn seen_again(&self, lost: &mut watch::Receiver<bool>) {
        loop {
            let is_lost = *lost.borrow_and_update();
            tokio::select! {
                // Once everything was listed, it is to be forgotten again if that ends.
                _ = lost.changed() => if self.inner.state.read().is_known { return },
                () = sleep(SECOND), if !is_lost => break,
            }
        }
        let mut state = self.inner.state.write();
        let was_known = state.is_known;
        state.is_known = !state.is_refused;
        let is_new = state.is_known && !was_known;
        drop(state);
        if is_new {
            self.changed();
        }
    }

    fn changed(&self) {
        self.inner.changes.send_modify(|changes| *changes += 1);
    }
}

/// The group version that an APIService stands for: its name must be `VERSION.GROUP`.
fn named(object: &Metadata) -> GroupVersion {
    let (version, group) = object.name.split_once('.').unwrap_or((&object.name, ""));
    (group.into(), version.into())
}

// === impl State ===

impl State {
    fn shareable(&self, resource: &Resource) -> Result<Since, Unshareable> {
        match (self.services.get(&of(&resource.gvr)), &resource.origin) {
            (Some(ApiService { has_service: true, .. }), _) => Err(Unshareable::Aggregated),
            (_, Origin::BuiltIn) => Ok(self.since(&resource.gvr)),
            (Some(_), _) if self.is_known => Ok(self.since(&resource.gvr)),
            // A group version without an APIService is served by the kube-apiserver. But one that nothing else is known
            // of may have got its APIService just now.
            (None, Origin::Custom { .. }) if self.is_known => Ok(self.since(&resource.gvr)),
            _ if self.is_refused => Err(Unshareable::Aggregated),
            _ => Err(Unshareable::Unknown),
        }
    }

    fn has_service(&self, gvr: &Gvr) -> bool {
        self.services.get(&of(gvr)).is_some_and(|service| service.has_service)
    }

    fn since(&self, gvr: &Gvr) -> Since {
        self.moved.get(&of(gvr)).copied().unwrap_or(self.others)
    }

    fn moved(&mut self, names: impl IntoIterator<Item = GroupVersion>) {
        for name in names {
            self.last.0 += 1;
            if self.moved.len() >= MOST_MOVED {
                self.moved.clear();
                self.others = self.last;
            }
            self.moved.insert(name, self.last);
        }
    }
}

fn of(gvr: &Gvr) -> GroupVersion {
    (Arc::clone(&gvr.group), Arc::clone(&gvr.version))
}

// === impl ApiService ===

impl ApiService {
    fn of(object: &Metadata) -> Self {
        // An APIService without a spec says nothing.
        let has_service = object.has_service.unwrap_or(true);
        Self { uid: object.uid.clone(), revision: object.resource_version.clone(), has_service }
    }
}

// === impl Shareable ===

impl Shareable {
    /// Whether nothing has changed since.
    pub fn holds(&self) -> bool {
        self.servers.inner.state.read().shareable(&self.resource) == Ok(self.since)
    }

    /// Whether data that was read since then is from the same server.
    pub fn includes(&self, since: Since) -> bool {
        self.since == since
    }

    /// Waits until it does not hold any more, and says why.
    pub async fn over(self) -> Unshareable {
        let mut changes = self.servers.changes();
        while self.holds() {
            if changes.changed().await.is_err() {
                return Unshareable::Unknown;
            }
        }
        // With another server before, or in between, the next read gets another proof.
        self.servers.inner.state.read().shareable(&self.resource).err().unwrap_or(Unshareable::Unknown)
    }
}

#[cfg(test)]
#[path = "servers_tests.rs"]
mod tests;
