//! Finds out which resources exist, and which server serves them.

mod built_in;
mod definitions;
mod known;
mod origin;
mod parse;
mod servers;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::stream::{StreamExt as _, iter};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

pub use parse::{ApiResource, read_aggregated};
pub use servers::{Servers, Shareable, Since, Unshareable};

use self::parse::{Document, LegacyVersion};
use super::client::{CallOptions, RequestVerb, Upstream, UpstreamError};
use super::reader::{HEAD_TIMEOUT, get_json};
use crate::lifecycle;
use crate::meta::{Gvr, Resource};

/// The resources of the cluster. They are read when needed, and again when they change. Clones share them.
#[derive(Clone)]
pub struct Discovery {
    inner: Arc<Inner>,
}

struct Inner {
    upstream: Upstream,
    config: DiscoveryConfig,
    index: ArcSwapOption<Index>,
    /// Held while refreshing. Contains the end of the last refresh.
    refresh: tokio::sync::Mutex<Option<Instant>>,
    /// The running refresh, which readers share.
    shared: Mutex<Option<Refreshing>>,
    /// Something has changed since the index was read.
    stale: AtomicBool,
    resolved: Mutex<HashMap<Gvr, Resolved>>,
    servers: Servers,
    /// Incremented whenever the index or any resolved resource becomes stale.
    generation: AtomicU64,
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

struct Index {
    resources: HashMap<Gvr, ApiResource>,
    /// The preferred version of each group and resource.
    preferred: HashMap<(Arc<str>, Arc<str>), Gvr>,
}

struct Resolved {
    resource: Arc<Resource>,
    /// The generation in which it was read. The entry stays usable after that generation until a newer answer arrives.
    generation: u64,
    /// When to ask again which server serves it; `None` while nothing changes.
    until: Option<Instant>,
    /// When such a request last failed.
    failed: Option<Instant>,
}

/// A refresh under way.
#[derive(Clone)]
struct Refreshing {
    started: Instant,
    result: watch::Receiver<Option<Result<(), UpstreamError>>>,
}

/// The `Accept` header for the aggregated form, and for the older one of servers that do not support it.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// The documents of a cluster with thousands of CRDs are smaller.
const MAX_DOCUMENT: usize = 64 << 20;

const PARALLEL: usize = 8;

/// How long a reader waits for the server if an earlier answer exists.
const PATIENCE: Duration = Duration::from_secs(2);

/// After a failure, no reader waits for the next attempt for this long.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// Minimum time between two reads of discovery that are caused by changes.
const PACE: Duration = Duration::from_secs(1);

/// Makes the index stale again when it is dropped: the read that was to replace it has failed, or its caller has gone
/// away.
struct Unread<'a>(Option<&'a AtomicBool>);

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
                refresh: tokio::sync::Mutex::new(None),
                shared: Mutex::new(None),
                stale: AtomicBool::new(false),
                resolved: Mutex::new(HashMap::new()),
                servers: Servers::default(),
                generation: AtomicU64::new(0),
                changes: watch::Sender::new(0),
            }),
        }
    }

    /// Creates a discovery that already knows these resources.
    #[cfg(test)]
    pub(crate) fn knowing(upstream: Upstream, resources: Vec<ApiResource>) -> Self {
        let discovery = Self::new(upstream);
        discovery.inner.index.store(Some(Arc::new(Index::new(resources))));
        discovery
    }

    /// Returns the resource of that name, `None` if there is none. Reads discovery for an unknown name, unless that was
    /// done a moment ago.
    ///
    /// # Errors
    /// The apiserver cannot answer.
    pub async fn resolve(
        &self,
        group: &str,
        version: &str,
        resource: &str,
    ) -> Result<Option<Arc<Resource>>, UpstreamError> {
        let gvr = Gvr::new(group, version, resource);
        self.read_if_stale().await?;
        let mut found = self.lookup(&gvr);
        if found.is_none() {
            if let Some(refreshed) = self.refresh_shared().await {
                refreshed?;
            }
            found = self.lookup(&gvr);
        }
        let Some(found) = found else { return Ok(None) };
        let generation = self.inner.generation.load(Ordering::Acquire);
        let is_current = |known: &&Resolved| {
            known.generation == generation && known.until.is_none_or(|until| Instant::now() < until)
        };
        if let Some(known) = self.inner.resolved.lock().get(&gvr).filter(is_current) {
            return Ok(Some(Arc::clone(&known.resource)));
        }
        let origin = timeout(PATIENCE, self.origin(&gvr)).await;
        let origin = origin.unwrap_or(Err(UpstreamError::Timeout { what: "a definition", after: PATIENCE }));
        let (origin, until) = match origin {
            Ok(known) => known,
            Err(error) => {
                if let Some(known) = self.inner.resolved.lock().get_mut(&gvr) {
                    known.failed = Some(Instant::now());
                }
                return Err(error);
            }
        };
        let resource = Arc::new(Resource {
            gvr: gvr.clone(),
            kind: found.kind.into(),
            namespaced: found.namespaced,
            verbs: found.verbs,
            origin,
        });
        // An answer to a question from before a change may be outdated. Its generation is over then.
        let resolved = Resolved { resource: Arc::clone(&resource), generation, until, failed: None };
        self.inner.resolved.lock().insert(gvr, resolved);
        Ok(Some(resource))
    }

    /// Like [`Self::resolve`], but the last answer stays valid while the apiserver cannot answer, and not every caller
    /// asks again. For callers that must continue during an outage.
    ///
    /// # Errors
    /// The apiserver cannot answer, and there is no earlier answer.
    pub async fn resolve_or_last(&self, gvr: &Gvr) -> Result<Option<Arc<Resource>>, UpstreamError> {
        let failed_lately = |known: &&Resolved| known.failed.is_some_and(|at| at.elapsed() < AFTER_FAILURE);
        if let Some(known) = self.inner.resolved.lock().get(gvr).filter(failed_lately) {
            return Ok(Some(Arc::clone(&known.resource)));
        }
        if self.inner.index.load().is_none() && !self.inner.upstream.has_heard() {
            // Callers do not wait for one attempt after the other.
            let refreshed = self.refresh_shared().await;
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
        self.inner.resolved.lock().get(gvr).map(|known| Arc::clone(&known.resource))
    }

    /// Every resource in discovery, sorted by group, version and name.
    pub async fn resources(&self) -> Result<Vec<ApiResource>, UpstreamError> {
        self.read_if_stale().await?;
        let index = self.inner.index.load();
        let mut all: Vec<_> = index.iter().flat_map(|index| index.resources.values().cloned()).collect();
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
        if let Err(error) = self.read_if_stale().await {
            return self.last_preferred(group, resource).map(Some).ok_or(error);
        }
        if self.last_preferred(group, resource).is_none() {
            self.refresh().await?;
        }
        Ok(self.last_preferred(group, resource))
    }

    /// The version that the apiserver preferred when it was last asked. It is not asked now.
    pub fn last_preferred(&self, group: &str, resource: &str) -> Option<Gvr> {
        let name = (Arc::from(group), Arc::from(resource));
        self.inner.index.load().as_ref().and_then(|index| index.preferred.get(&name)).cloned()
    }

    /// Changes when a definition was created, changed in its spec, or deleted. Callers that hold something derived from
    /// a definition must then resolve it again.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    /// Which group versions are served by the kube-apiserver itself.
    pub fn servers(&self) -> &Servers {
        &self.inner.servers
    }

    /// Makes the next call read everything again.
    pub fn mark_stale(&self) {
        self.inner.stale.store(true, Ordering::Release);
        self.inner.generation.fetch_add(1, Ordering::AcqRel);
    }

    fn definition_changed(&self) {
        self.mark_stale();
        self.inner.changes.send_modify(|changes| *changes += 1);
    }

    fn lookup(&self, gvr: &Gvr) -> Option<ApiResource> {
        self.inner.index.load().as_ref().and_then(|index| index.resources.get(gvr)).cloned()
    }

    /// If the server does not answer, the earlier answers stay valid.
    async fn read_if_stale(&self) -> Result<(), UpstreamError> {
        if self.inner.index.load().is_none() {
            return self.refresh().await;
        }
        // A refresh that is already running may have begun before the change. In that case another one follows.
        for _ in 0..2 {
            if self.inner.stale.load(Ordering::Acquire) {
                self.refresh_shared().await;
            }
        }
        Ok(())
    }

    /// Refreshes together with all callers that want it now, and waits until that is done. Returns `None` if it takes
    /// too long; the refresh then continues in the background.
    async fn refresh_shared(&self) -> Option<Result<(), UpstreamError>> {
        let Refreshing { started, mut result } = {
            let mut shared = self.inner.shared.lock();
            shared.get_or_insert_with(|| self.start_refresh()).clone()
        };
        let waited = timeout_at(started + PATIENCE, result.wait_for(Option::is_some)).await;
        waited.ok()?.ok()?.clone()
    }

    fn start_refresh(&self) -> Refreshing {
        let (done, result) = watch::channel(None);
        let discovery = self.clone();
        lifecycle::spawn("discovery", async move {
            let refreshed = discovery.refresh().await;
            let failed = refreshed.is_err();
            if !failed {
                // Before the result is published: a later caller must not share this refresh.
                *discovery.inner.shared.lock() = None;
            }
            done.send_replace(Some(refreshed));
            if failed {
                sleep(AFTER_FAILURE).await;
                *discovery.inner.shared.lock() = None;
            }
        });
        Refreshing { started: Instant::now(), result }
    }

    /// Reads discovery again, unless another caller did so while this one waited, or nothing has changed since a read a
    /// moment ago.
    ///
    /// # Errors
    /// The apiserver does not answer; earlier answers stay valid.
    pub async fn refresh(&self) -> Result<(), UpstreamError> {
        let inner = &self.inner;
        let asked = Instant::now();
        let mut last = inner.refresh.lock().await;
        let stale = inner.stale.load(Ordering::Acquire);
        if let Some(at) = *last {
            if !stale && (at >= asked || at.elapsed() < inner.config.min_refresh) {
                return Ok(());
            }
            sleep(PACE.min(inner.config.min_refresh).saturating_sub(at.elapsed())).await;
        }
        // Before the read, so that a change during the read makes the index stale again.
        inner.stale.store(false, Ordering::Release);
        let mut unread = Unread(Some(&inner.stale));
        let index = self.read().await?;
        unread.0 = None;
        inner.resolved.lock().retain(|gvr, _| index.resources.contains_key(gvr));
        inner.index.store(Some(Arc::new(index)));
        *last = Some(Instant::now());
        Ok(())
    }

    async fn read(&self) -> Result<Index, UpstreamError> {
        let mut resources = Vec::new();
        let mut legacy = Vec::new();
        for root in ["/api", "/apis"] {
            let document: Document = self.get(root, ACCEPT).await?;
            if document.is_aggregated() {
                resources.extend(document.resources());
            } else {
                legacy.extend(document.legacy_paths());
            }
        }
        let versions = iter(legacy).map(|path| async move {
            let list: Result<LegacyVersion, _> = self.get(&path, "application/json").await;
            // One aggregated server that is down must not hide the resources of all others.
            list.inspect_err(|error| tracing::warn!(%path, %error, "cannot read discovery of a group version")).ok()
        });
        // In the order of discovery: the first version of a group is the preferred one.
        for list in versions.buffered(PARALLEL).collect::<Vec<_>>().await.into_iter().flatten() {
            resources.extend(list.resources());
        }
        Ok(Index::new(resources))
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, path: &str, accept: &'static str) -> Result<T, UpstreamError> {
        let options = CallOptions::new(RequestVerb::Discovery, "").header_timeout(HEAD_TIMEOUT);
        let (head, document) = get_json(&self.inner.upstream, path, accept, &options, MAX_DOCUMENT).await?;
        self.inner.upstream.warnings().learn_ours(head.headers());
        Ok(document)
    }
}

// === impl Unread ===

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        self.0.inspect(|stale| stale.store(true, Ordering::Release));
    }
}

// === impl Index ===

impl Index {
    fn new(all: Vec<ApiResource>) -> Self {
        let mut preferred = HashMap::new();
        for ApiResource { gvr, .. } in &all {
            preferred.entry((Arc::clone(&gvr.group), Arc::clone(&gvr.resource))).or_insert_with(|| gvr.clone());
        }
        Self { resources: all.into_iter().map(|resource| (resource.gvr.clone(), resource)).collect(), preferred }
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
