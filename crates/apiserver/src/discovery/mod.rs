//! Finds out which resources exist, and which server serves them.

mod built_in;
mod changed;
mod definitions;
mod follow;
mod index;
mod origin;
mod parse;
mod reading;
mod refresh;
mod resolved;
mod servers;

#[cfg(test)]
mod changes_tests;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

pub use parse::{ApiResource, read_aggregated};
pub use servers::{Servers, Shareable, Since, Unshareable};

use self::changed::{Changed, Subject};
use self::definitions::{Definitions, Followed};
use self::index::Index;
#[cfg(any(test, feature = "testing"))]
use self::parse::VersionRead;
use self::reading::{Part, Refreshing};
use self::resolved::{Resolutions, Resolved};
use super::client::{Upstream, UpstreamError};
use informerd_meta::{Gvr, Resource};

/// The resources of the cluster. They are read when needed, and again when they change. Clones share them.
#[derive(Clone)]
pub struct Discovery {
    inner: Arc<Inner>,
}

struct Inner {
    upstream: Upstream,
    config: DiscoveryConfig,
    index: ArcSwapOption<Index>,
    /// Held while a new index is made of the last one.
    storing: Mutex<()>,
    /// Held while everything is read. Contains the end of the last such read.
    refresh: tokio::sync::Mutex<Option<Instant>>,
    /// When groups were last read for names that only a definition has.
    hidden: Mutex<HashMap<Arc<str>, Instant>>,
    /// The running reads, which readers share.
    shared: Mutex<HashMap<Part, Refreshing>>,
    /// What has changed since the index was read.
    changed: Mutex<Changed>,
    /// What of it is being read. Locked after `changed`.
    reading: Mutex<HashMap<Part, Changed>>,
    resolutions: Resolutions,
    /// CustomResourceDefinitions.
    definitions: Mutex<Definitions>,
    /// APIServices.
    services: Mutex<Definitions>,
    servers: Servers,
    followed: watch::Sender<Followed>,
    changes: watch::Sender<u64>,
}

/// Settings of discovery.
#[derive(Clone, Debug)]
pub struct DiscoveryConfig {
    /// Minimum time between two reads of discovery for unknown names; in between, they stay unknown.
    pub min_refresh: Duration,
    /// Maximum age of an index if changes of definitions cannot be watched.
    pub max_age: Duration,
    /// How long a definition that could not be read counts as unreadable.
    pub retry_definition: Duration,
}

/// The `Accept` header for the aggregated form, for the same of Kubernetes 1.27 to 1.29, and for the older one of servers
/// that do not support it.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// The documents of a cluster with thousands of CRDs are smaller.
const MAX_DOCUMENT: usize = 64 << 20;

const PARALLEL: usize = 8;

/// How long a reader waits for the server if an earlier answer exists.
const PATIENCE: Duration = Duration::from_secs(2);

/// After a failure, no reader waits for the next attempt for this long.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// Minimum time between two reads of everything, or of one group, that are caused by changes.
const PACE: Duration = Duration::from_secs(1);

// === impl Discovery ===

impl Discovery {
    pub fn new(upstream: Upstream) -> Self {
        Self::with_config(upstream, DiscoveryConfig::default())
    }

    pub fn with_config(upstream: Upstream, config: DiscoveryConfig) -> Self {
        Self {
            inner: Arc::new(Inner {
                upstream,
                config,
                index: ArcSwapOption::empty(),
                storing: Mutex::default(),
                refresh: tokio::sync::Mutex::new(None),
                hidden: Mutex::default(),
                shared: Mutex::default(),
                changed: Mutex::default(),
                reading: Mutex::default(),
                resolutions: Resolutions::default(),
                definitions: Mutex::default(),
                services: Mutex::default(),
                servers: Servers::default(),
                followed: watch::Sender::default(),
                changes: watch::Sender::new(0),
            }),
        }
    }

    /// Creates a discovery that already knows these resources.
    #[cfg(any(test, feature = "testing"))]
    pub fn knowing(upstream: Upstream, resources: Vec<ApiResource>) -> Self {
        let discovery = Self::new(upstream);
        let read = |found: ApiResource| VersionRead {
            group: Arc::clone(&found.gvr.group),
            version: Arc::clone(&found.gvr.version),
            resources: Some(vec![found]),
            is_current: true,
        };
        let index = Index::read(resources.into_iter().map(read).collect(), Instant::now(), None, |_| false);
        discovery.inner.index.store(Some(Arc::new(index)));
        discovery
    }

    /// Returns the resource of that name, `None` if there is none. Nobody waits for a resource that is known and has not
    /// changed. Reads discovery for an unknown name, unless that was done a moment ago.
    ///
    /// # Errors
    /// The apiserver cannot answer.
    pub async fn resolve(
        &self,
        group: &str,
        version: &str,
        resource: &str,
    ) -> Result<Option<Arc<Resource>>, UpstreamError> {
        self.follow_definitions_of(group);
        let gvr = Gvr::new(group, version, resource);
        if let Some(current) = self.inner.resolutions.current(&gvr) {
            return Ok(Some(current));
        }
        self.read_changes_of(&gvr.group).await?;
        if self.lookup(&gvr).is_none() {
            self.read_unknown().await?;
        }
        if self.lookup(&gvr).is_none() {
            let read = self.read_hidden(group, resource).await;
            if self.lookup(&gvr).is_none() {
                return match read {
                    Err(error) if self.may_have(group, version) || self.may_lack(group, Some(version)) => Err(error),
                    // It may be another version whose server does not answer.
                    _ => Ok(None),
                };
            }
        }
        let asked = timeout(PATIENCE, self.ask(&gvr)).await;
        let asked = asked.unwrap_or(Err(UpstreamError::Timeout { what: "a definition", after: PATIENCE }));
        asked.inspect_err(|_| self.inner.resolutions.has_failed(&gvr))
    }

    /// Reads everything, because something is not known.
    async fn read_unknown(&self) -> Result<(), UpstreamError> {
        let late = UpstreamError::Timeout { what: "discovery", after: PATIENCE };
        self.refresh_shared(Part::All).await.unwrap_or(Err(late))
    }

    /// The document of all groups may lack a group for minutes after one of its APIServices was that of another server. The
    /// group's own document has what a definition names.
    async fn read_hidden(&self, group: &str, resource: &str) -> Result<(), UpstreamError> {
        let group = Arc::from(group);
        if !self.inner.definitions.lock().names(&group, resource) || self.has_read_hidden(&group) {
            return Ok(());
        }
        let late = UpstreamError::Timeout { what: "discovery of a group", after: PATIENCE };
        self.refresh_shared(Part::Group(Arc::clone(&group))).await.unwrap_or(Err(late))?;
        self.inner.hidden.lock().insert(group, Instant::now());
        Ok(())
    }

    /// Whether a group was read a moment ago, and has not changed since. A definition may name what is never served.
    fn has_read_hidden(&self, group: &str) -> bool {
        let mut hidden = self.inner.hidden.lock();
        hidden.retain(|_, at| at.elapsed() < self.inner.config.min_refresh);
        hidden.contains_key(group) && !self.inner.changed.lock().includes_group(group)
    }

    /// Asks which server serves a resource. Callers that want this at the same time share the answer.
    async fn ask(&self, gvr: &Gvr) -> Result<Option<Arc<Resource>>, UpstreamError> {
        let resolutions = &self.inner.resolutions;
        let asking = resolutions.asking(gvr);
        let _one = asking.lock().await;
        if let Some(current) = resolutions.current(gvr) {
            return Ok(Some(current));
        }
        // An answer to a question from before a change may be outdated.
        let changes = resolutions.changes(gvr);
        let Some(mut found) = self.lookup(gvr) else { return Ok(None) };
        let (origin, until) = self.origin(&mut found).await?;
        let resource = Arc::new(Resource {
            gvr: gvr.clone(),
            kind: found.kind.as_str().into(),
            namespaced: found.namespaced,
            verbs: found.verbs,
            origin,
        });
        resolutions.answered(gvr.clone(), Resolved { resource: Arc::clone(&resource), changes, until });
        Ok(Some(resource))
    }

    /// Like [`Self::resolve`], but the last answer stays valid while the apiserver cannot answer, and not every caller
    /// asks again. For callers that must continue during an outage.
    ///
    /// # Errors
    /// The apiserver cannot answer, and there is no earlier answer.
    pub async fn resolve_or_last(&self, gvr: &Gvr) -> Result<Option<Arc<Resource>>, UpstreamError> {
        let failed = self.inner.resolutions.failed(gvr).is_some_and(|at| at.elapsed() < AFTER_FAILURE);
        if failed && let Some(last) = self.last_known(gvr) {
            return Ok(Some(last));
        }
        if self.inner.index.load().is_none() && !self.inner.upstream.has_heard() {
            // Callers do not wait for one attempt after the other.
            let refreshed = self.refresh_shared(Part::All).await;
            if !self.inner.upstream.has_heard() {
                let timeout = UpstreamError::Timeout { what: "discovery", after: PATIENCE };
                return Err(refreshed.and_then(Result::err).unwrap_or(timeout));
            }
        }
        match self.resolve(&gvr.group, &gvr.version, &gvr.resource).await {
            Err(error) => self.last_known(gvr).map(Some).ok_or(error),
            found => found,
        }
    }

    /// The last answer of [`Self::resolve`], which may be outdated.
    fn last_known(&self, gvr: &Gvr) -> Option<Arc<Resource>> {
        self.inner.resolutions.last(gvr)
    }

    /// Whether a later answer of [`Self::resolve`] has another definition of this resource, or none.
    pub fn is_outdated(&self, resource: &Resource) -> bool {
        self.last_known(&resource.gvr).is_none_or(|known| *known != *resource)
    }

    /// Every resource in discovery, sorted by group, version and name.
    ///
    /// # Errors
    /// The apiserver cannot answer, and never has.
    pub async fn resources(&self) -> Result<Vec<ApiResource>, UpstreamError> {
        if self.inner.index.load().is_none() {
            self.refresh().await?;
        }
        self.read_if(&Part::All, Changed::is_all).await;
        let index = self.inner.index.load();
        let mut all: Vec<_> = index.iter().flat_map(|index| index.resources().cloned()).collect();
        all.sort_by(|a, b| a.gvr.cmp(&b.gvr));
        Ok(all)
    }

    /// Returns a resource by its group and plural name alone, in the version that the apiserver prefers.
    ///
    /// # Errors
    /// The apiserver cannot answer.
    pub async fn find(&self, group: &str, resource: &str) -> Result<Option<Arc<Resource>>, UpstreamError> {
        match self.preferred(group, resource).await? {
            Some(gvr) => self.resolve(&gvr.group, &gvr.version, &gvr.resource).await,
            None => Ok(None),
        }
    }

    /// Returns a resource in the version that the apiserver prefers; while it cannot answer, in the one that it last
    /// preferred.
    ///
    /// # Errors
    /// The apiserver cannot answer, and there is no earlier answer.
    pub async fn preferred(&self, group: &str, resource: &str) -> Result<Option<Gvr>, UpstreamError> {
        self.follow_definitions_of(group);
        let has_changed = self.inner.changed.lock().includes(group, resource);
        if (has_changed || self.inner.index.load().is_none())
            && let Err(error) = self.read_changes_of(&Arc::from(group)).await
        {
            return self.last_preferred(group, resource).map(Some).ok_or(error);
        }
        if self.last_preferred(group, resource).is_none() {
            self.read_unknown().await?;
        }
        if let Some(known) = self.last_preferred(group, resource) {
            return Ok(Some(known));
        }
        let read = self.read_hidden(group, resource).await;
        self.last_preferred(group, resource).map_or(read.map(|()| None), |known| Ok(Some(known)))
    }

    /// The version that the apiserver preferred when it was last asked. It is not asked now.
    pub fn last_preferred(&self, group: &str, resource: &str) -> Option<Gvr> {
        self.inner.index.load().as_ref()?.preferred(group, resource).cloned()
    }

    /// Whether the resource was in any version of its group when discovery was last read; true before that. The apiserver is
    /// not asked now.
    pub fn may_exist(&self, group: &str, resource: &str) -> bool {
        self.inner.index.load().as_ref().is_none_or(|index| index.preferred(group, resource).is_some())
    }

    /// Whether the resource was in this version when discovery was last read; true if that is not known. The apiserver is not
    /// asked now.
    pub fn serves(&self, gvr: &Gvr) -> bool {
        let is_there = self.inner.index.load().as_ref().is_some_and(|index| index.resource(gvr).is_some());
        is_there || self.may_lack(&gvr.group, Some(&gvr.version))
    }

    /// Whether discovery names the version, or lacks its group.
    fn may_have(&self, group: &str, version: &str) -> bool {
        let index = self.inner.index.load();
        let names = |index: &Arc<Index>| index.group(group).is_none() || index.is_current(group, version).is_some();
        index.as_ref().is_none_or(names)
    }

    /// Whether discovery may lack resources of a group version, or of a group: a server of it did not answer, what has changed
    /// was not read yet, or discovery does not name yet what an APIService has. The apiserver is not asked now.
    pub fn may_lack(&self, group: &str, version: Option<&str>) -> bool {
        let changed = self.inner.changed.lock();
        let may_add = |changed: &Changed| changed.may_add(group, version);
        let has_changed = may_add(&changed) || self.inner.reading.lock().values().any(may_add);
        drop(changed);
        // What is read no more is in the index.
        let index = self.inner.index.load();
        let Some(index) = index.as_deref().filter(|_| !has_changed) else { return true };
        let is_asked = |name: &Arc<str>| version.is_none_or(|version| **name == *version);
        let mut named = index.versions(group).cloned().chain(self.inner.servers.aggregated(group));
        named.any(|version| is_asked(&version) && index.is_current(group, &version) != Some(true))
    }

    /// Changes when a definition was created, deleted, or changed in what matters: its spec, its names, its stored versions or
    /// its conditions. Callers that hold something derived from
    /// a definition must then resolve it again.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    /// Which group versions are served by the kube-apiserver itself.
    pub fn servers(&self) -> &Servers {
        &self.inner.servers
    }

    /// The apiserver does not serve a resource any more that discovery names: both are asked again when it is read.
    pub fn suspect(&self, gvr: &Gvr) {
        self.mark(&Subject::Resource { group: Arc::clone(&gvr.group), resource: Arc::clone(&gvr.resource) });
    }

    /// Makes whoever reads what has changed read it again.
    fn mark(&self, subject: &Subject) {
        // Whoever finds an answer outdated must find that discovery is, too.
        self.inner.changed.lock().add(subject.clone());
        self.inner.resolutions.changed(subject);
    }

    /// Tells everybody who holds something derived from definitions.
    fn tell(&self) {
        self.inner.changes.send_modify(|changes| *changes += 1);
    }

    fn lookup(&self, gvr: &Gvr) -> Option<ApiResource> {
        self.inner.index.load().as_ref()?.resource(gvr).cloned()
    }

    /// Reads what has changed of a group. If the server does not answer, the earlier answers stay valid.
    async fn read_changes_of(&self, group: &Arc<str>) -> Result<(), UpstreamError> {
        if self.inner.index.load().is_none() {
            return self.refresh().await;
        }
        self.read_if(&Part::All, Changed::is_all).await;
        self.read_if(&Part::Group(Arc::clone(group)), |changed| changed.includes_group(group)).await;
        Ok(())
    }
}

// === impl DiscoveryConfig ===

impl Default for DiscoveryConfig {
    fn default() -> Self {
        Self {
            min_refresh: Duration::from_secs(3),
            max_age: Duration::from_secs(60),
            retry_definition: Duration::from_secs(60),
        }
    }
}
