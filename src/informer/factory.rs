//! The factory: finds or starts the informer that covers a request, and stops the ones that are no longer used.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::apiserver::UpstreamError;
use crate::apiserver::client::Upstream;
use crate::apiserver::discovery::Discovery;
use crate::apiserver::meter::Meter;
use crate::cache::{self, CacheConfig, Floors};
use crate::lifecycle::drain::DrainWatch;
use crate::lifecycle::{self, Fatal};
use crate::meta::{Encoding, Gvr, Origin, Resource};
use crate::selector;
use crate::snapshots::Snapshots;
use crate::upstream::backfill::Backfiller;
use crate::upstream::reflector::{Reflector, ReflectorConfig, ReflectorEnd};
use crate::upstream::{ListerWatcher, ProgressProbe, Questions, ShardSupport, Sharding, SharedStore};

use super::kept::Keeper;
use super::ledger::{Balance, Books, CHANGED, Giver, Rent, UNPRINTABLE, UNVERSIONED};
use super::waits::Proofs;
use super::{Informer, InformerKey, InformerScope, NoCoverage, Rules, limit};

/// Settings of the factory.
#[derive(Clone, Debug)]
pub struct FactoryConfig {
    pub rules: Rules,
    /// An informer without readers for this long is stopped.
    pub idle_timeout: Duration,
    /// Above this number, no informers are started on demand; requests are then forwarded.
    pub max_informers: usize,
    pub cache: CacheConfig,
    pub reflector: ReflectorConfig,
    /// Where informers are kept over a restart.
    pub snapshots: Option<Snapshots>,
}

/// The shared informers of this daemon. Clones share them.
#[derive(Clone)]
pub struct Factory {
    inner: Arc<FactoryInner>,
}

struct FactoryInner {
    config: FactoryConfig,
    upstream: Upstream,
    discovery: Discovery,
    fatal: Fatal,
    drain: DrainWatch,
    informers: Mutex<HashMap<InformerKey, Arc<Informer>>>,
    books: Books,
    proofs: Arc<Proofs>,
    /// What clients were shown of each resource, by informers that are gone and by the apiserver.
    floors: Floors,
    store: Arc<SharedStore>,
    sharding: Sharding,
    keeper: Option<Arc<Keeper>>,
}

// === impl Factory ===

impl Factory {
    pub fn new(
        config: FactoryConfig,
        upstream: Upstream,
        discovery: Discovery,
        fatal: Fatal,
        drain: DrainWatch,
    ) -> Self {
        let (informers, books) = (Mutex::default(), Books::default());
        let proofs = Arc::default();
        let store = Arc::new(SharedStore::new(upstream.clone()));
        let sharding = Sharding::new(upstream.clone());
        let keeper = config.snapshots.clone().map(|snapshots| Arc::new(Keeper::new(snapshots, upstream.clone())));
        let inner = FactoryInner {
            config,
            upstream,
            discovery,
            fatal,
            drain,
            informers,
            books,
            proofs,
            floors: Floors::default(),
            store,
            sharding,
            keeper,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns what discovery knows of a resource. If the apiserver cannot answer now, returns the last known state, so
    /// that readers can continue.
    pub async fn resource(&self, gvr: &Gvr) -> Result<Option<Arc<Resource>>, UpstreamError> {
        self.inner.discovery.resolve_or_last(gvr).await
    }

    /// The version of a resource that the apiserver prefers, or last preferred if it cannot answer now.
    pub async fn preferred(&self, group: &str, resource: &str) -> Result<Option<Gvr>, UpstreamError> {
        self.inner.discovery.preferred(group, resource).await
    }

    /// The same as it was known last. The apiserver is not asked.
    pub fn last_preferred(&self, group: &str, resource: &str) -> Option<Gvr> {
        self.inner.discovery.last_preferred(group, resource)
    }

    /// Whether the apiserver answers at present.
    pub fn is_answered(&self) -> bool {
        self.inner.upstream.is_reachable()
    }

    /// The `Warning` headers of the apiserver's answers to reads of a resource.
    pub fn warnings(&self, gvr: &Gvr) -> Arc<[HeaderValue]> {
        self.inner.upstream.warnings().of(gvr)
    }

    /// How the apiserver treats shard selectors for this resource. Takes two seconds at most; with `at_once`, only
    /// returns what is already known.
    pub async fn shard_support(&self, resource: &Resource, at_once: bool) -> ShardSupport {
        let sharding = &self.inner.sharding;
        if at_once { sharding.known(resource).await } else { sharding.of(resource).await }
    }

    /// Whether the configuration excludes this resource from caching.
    pub fn excludes(&self, gvr: &Gvr) -> bool {
        self.inner.config.rules.excludes(gvr)
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.inner.config.rules
    }

    pub(super) fn most_informers(&self) -> usize {
        self.inner.config.max_informers
    }

    /// Whether the limit on informers is reached.
    pub(super) fn is_full(&self) -> bool {
        self.inner.informers.lock().len() >= self.inner.config.max_informers
    }

    /// The running informers with such a key, in any order.
    pub fn those(&self, are: impl Fn(&InformerKey) -> bool) -> Vec<Arc<Informer>> {
        self.inner.informers.lock().values().filter(|informer| are(&informer.key)).cloned().collect()
    }

    /// Every running informer, ordered by key.
    pub fn informers(&self) -> Vec<Arc<Informer>> {
        let mut all = self.those(|_| true);
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }

    /// What the apiserver was spared, by resource. Our own requests for no informer stand under the empty name.
    pub fn balances(&self) -> BTreeMap<String, Balance> {
        self.inner.books.balances(&self.inner.upstream.metrics().others)
    }

    /// Books an answer of the apiserver about a resource that there is. `as_sent`: it is compressed, or a watch.
    pub fn rent(&self, gvr: &Gvr, giver: Giver, as_sent: bool) -> Rent {
        self.inner.books.of(gvr).rent(giver, as_sent)
    }

    pub fn floors(&self) -> &Floors {
        &self.inner.floors
    }

    /// Histograms of the duration of proofs.
    pub fn proofs(&self) -> &Proofs {
        &self.inner.proofs
    }

    /// Whether requests still find this informer.
    pub fn runs(&self, informer: &Arc<Informer>) -> bool {
        self.inner.informers.lock().get(&informer.key).is_some_and(|current| Arc::ptr_eq(current, informer))
    }

    /// Starts the pinned informers of the configuration. [`Self::tend`] tries names that discovery does not know again
    /// later.
    pub async fn start_pinned(&self) -> Vec<Arc<Informer>> {
        let mut started = Vec::new();
        let pinned: Vec<_> = self.inner.config.rules.pinned().cloned().collect();
        for rule in pinned {
            let Ok(Some(resource)) = self.inner.discovery.find(&rule.group, &rule.resource).await else {
                tracing::warn!(
                    group = rule.group,
                    resource = rule.resource,
                    "pinned resource is not known to the apiserver"
                );
                continue;
            };
            let mut scopes: Vec<_> = rule.scopes.iter().map(InformerScope::from).collect();
            if scopes.is_empty() {
                scopes.push(InformerScope::default());
            }
            for scope in scopes {
                let key = InformerKey { gvr: resource.gvr.clone(), scope, encoding: Encoding::Json };
                started.extend(self.get_or_start(&resource, key, usize::MAX, false));
            }
        }
        started
    }

    /// The pinned resources that the apiserver does not know, in the form `deployments.apps`.
    pub async fn unknown_pins(&self) -> Vec<String> {
        let mut unknown = Vec::new();
        for rule in self.inner.config.rules.pinned() {
            if !matches!(self.inner.discovery.find(&rule.group, &rule.resource).await, Ok(Some(_))) {
                unknown.push(Gvr::new(&rule.group, "", &rule.resource).group_resource());
            }
        }
        unknown
    }

    /// Runs until the drain starts. Stops idle informers, informers whose definition has changed or is gone, and those
    /// whose group version has another server now.
    pub async fn tend(self) {
        tokio::select! {
            () = self.stop_moved() => {}
            () = self.stop_unused() => {}
            () = self.check_silent() => {}
        }
    }

    async fn stop_unused(&self) {
        let mut definitions = self.inner.discovery.changes();
        let mut tick = tokio::time::interval(Duration::from_secs(15).min(self.inner.config.idle_timeout));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut unsure = false;
        loop {
            tokio::select! {
                _ = tick.tick() => {
                    self.stop_idle();
                    if unsure {
                        unsure = !self.recheck_definitions().await;
                    }
                    self.start_pinned().await;
                }
                changed = definitions.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    definitions.borrow_and_update();
                    unsure = !self.recheck_definitions().await;
                }
                () = self.inner.drain.draining() => return,
            }
        }
    }

    /// Stops every informer. Their watchers end cleanly, and no reads are served from caches any more.
    pub fn stop(&self) {
        for informer in self.informers() {
            self.remove(&informer);
        }
    }

    /// The settings of a cache of this resource.
    fn cache_config(&self, gvr: &Gvr, resource: &Resource) -> CacheConfig {
        let FactoryConfig { rules, cache, .. } = &self.inner.config;
        let (pinned, form) = (rules.pins(gvr), rules.form(gvr));
        let trigger = selector::field_table(resource).trigger;
        let floor = self.floor(gvr);
        CacheConfig { resource: gvr.clone(), trigger, pinned, form, floor, ..cache.clone() }
    }

    pub(super) fn discovery(&self) -> &Discovery {
        &self.inner.discovery
    }

    pub(super) fn upstream(&self) -> &Upstream {
        &self.inner.upstream
    }

    pub(super) async fn draining(&self) {
        self.inner.drain.draining().await;
    }

    pub(super) fn books(&self) -> &Books {
        &self.inner.books
    }

    pub(super) fn running(&self, key: &InformerKey) -> Option<Arc<Informer>> {
        self.inner.informers.lock().get(key).cloned()
    }

    /// A new informer ends if there are more than `most` objects, and reads them `by_list` or by a watch-list. One that runs
    /// on another definition than `resource` gives way, unless `resource` is the outdated one.
    pub(super) fn get_or_start(
        &self,
        resource: &Arc<Resource>,
        key: InformerKey,
        most: usize,
        by_list: bool,
    ) -> Result<Arc<Informer>, NoCoverage> {
        if self.inner.discovery.is_outdated(resource) {
            return Err(NoCoverage::Outdated);
        }
        if let Some(outdated) = self.running(&key).filter(|informer| !informer.is_of(resource)) {
            tracing::info!(informer = %outdated.key, "resource definition changed, informer stopped");
            self.remove(&outdated);
        }
        let mut informers = self.inner.informers.lock();
        if let Some(informer) = informers.get(&key) {
            if !informer.is_of(resource) {
                return Err(NoCoverage::Outdated);
            }
            informer.touch();
            if most == usize::MAX {
                informer.reflector.read_at_most(most);
            }
            return Ok(informer.clone());
        }
        if self.refuses(&key.gvr, NoCoverage::Unversioned) {
            return Err(NoCoverage::Unversioned);
        }
        // What is pinned runs, whatever else does: readiness waits for it.
        let is_pin = key.encoding == Encoding::Json && self.inner.config.rules.pins_scope(&key.gvr, &key.scope);
        if !is_pin && limit::refuses(informers.len(), self.inner.config.max_informers) {
            return Err(NoCoverage::TooMany);
        }
        let sibling = informers.values().find(|informer| informer.is_sibling_of(&key, &resource.origin));
        let questions = match sibling {
            Some(sibling) => sibling.probe.questions().clone(),
            None if resource.origin == Origin::BuiltIn => Arc::new(Questions::in_store(self.inner.store.clone())),
            None => Arc::default(),
        };
        let informer = self.start(key.clone(), resource.clone(), questions, (most, by_list));
        informers.insert(key, informer.clone());
        link(&informers, &informer);
        drop(informers);
        if matches!(resource.origin, Origin::Custom { .. }) {
            self.confirm_definition(informer.clone());
        }
        Ok(informer)
    }

    fn start(
        &self,
        key: InformerKey,
        resource: Arc<Resource>,
        questions: Arc<Questions>,
        (most, by_list): (usize, bool),
    ) -> Arc<Informer> {
        let inner = &self.inner;
        inner.discovery.follow_services();
        let since = inner.discovery.servers().since(&key.gvr);
        let (table, book) = (selector::field_table(&resource), inner.books.of(&key.gvr));
        let (writer, cache) = cache::new(self.cache_config(&key.gvr, &resource));
        let pinned = cache.config().pinned;
        let source = ListerWatcher {
            resource,
            namespace: key.scope.namespace.clone(),
            field_selector: key.scope.field_selector.to_string(),
            label_selector: key.scope.label_selector.to_string(),
            table,
            encoding: key.encoding,
            columns: Arc::default(),
            meter: Arc::new(Meter::of(Arc::clone(&book.meter))),
        };
        let mut reflector =
            Reflector::new(inner.upstream.clone(), source.clone(), writer, inner.config.reflector.clone());
        reflector = reflector.by_list(by_list);
        let kept = inner.keeper.as_ref().and_then(|keeper| keeper.of(&key, &source.resource, &inner.config.rules));
        if let Some(kept) = &kept {
            reflector = reflector.with_saved(Arc::clone(kept).load());
        }
        let probe = ProgressProbe::new(inner.upstream.clone(), source.clone(), reflector.progress_sender(), questions);
        let backfiller = Backfiller::new(inner.upstream.clone(), source.clone(), inner.config.reflector.clone());
        let handle = reflector.handle();
        // Before it runs: it then asks for their number.
        handle.read_at_most(most);
        let informer = Informer::new(key, source, cache.clone(), handle, probe, backfiller, pinned);
        let informer = Arc::new(informer.counting(book.of_informer(), Arc::clone(&inner.proofs)).of_server(since));
        tracing::info!(informer = %informer.key, "starting informer");

        let stop = informer.stop.clone();
        let dispatch = cache.run_dispatcher();
        let dispatcher = async move {
            tokio::select! { () = dispatch => {}, () = stop.cancelled() => {} }
        };
        lifecycle::spawn_supervised("dispatcher", dispatcher, &inner.fatal);
        let (stop, pack) = (informer.stop.clone(), cache.run_packer());
        let packer = async move {
            tokio::select! { () = pack => {}, () = stop.cancelled() => {} }
        };
        lifecycle::spawn_supervised("packer", packer, &inner.fatal);
        if let Some(kept) = kept {
            let stop = informer.stop.clone();
            let record = kept.record(cache.clone());
            lifecycle::spawn("snapshot", async move {
                tokio::select! { () = record => {}, () = stop.cancelled() => {} }
            });
        }
        let stop = informer.stop.clone();
        let factory = self.clone();
        let ended = Arc::downgrade(&informer);
        let run = async move {
            let end = tokio::select! { end = reflector.run() => end, () = stop.cancelled() => return };
            if let Some(informer) = ended.upgrade() {
                tracing::info!(informer = %informer.key, ?end, "reflector ended, informer stopped");
                let (key, now) = (&informer.key, Instant::now());
                let refuse = |why, during| factory.books().accounts.lock().refuse(&key.gvr, why, during, now);
                match end {
                    // Discovery may still list the resource after the apiserver has stopped serving it.
                    ReflectorEnd::Gone => factory.inner.discovery.suspect(&key.gvr),
                    ReflectorEnd::Changed => refuse(NoCoverage::Cells, CHANGED),
                    ReflectorEnd::Unprintable => refuse(NoCoverage::Cells, UNPRINTABLE),
                    ReflectorEnd::Unversioned => refuse(NoCoverage::Unversioned, UNVERSIONED),
                    ReflectorEnd::Larger(objects) => factory.books().accounts.lock().is_large(key, objects, now),
                }
                factory.remove(&informer);
            }
        };
        lifecycle::spawn_supervised("reflector", run, &inner.fatal);
        informer
    }

    /// Removes the informer, so that the next request starts a new one, and ends its watchers cleanly.
    pub(super) fn remove(&self, informer: &Arc<Informer>) {
        let mut informers = self.inner.informers.lock();
        if informers.get(&informer.key).is_some_and(|current| Arc::ptr_eq(current, informer)) {
            informers.remove(&informer.key);
            link(&informers, informer);
        }
        let gvr = &informer.key.gvr;
        if !informers.keys().any(|key| key.gvr == *gvr) {
            self.inner.upstream.warnings().forget(gvr);
        }
        drop(informers);
        // First, so that its state moves no further.
        informer.stop.cancel();
        informer.cache.end_watchers(false);
    }

    pub(super) fn stop_idle(&self) {
        for informer in self.informers() {
            if informer.is_over(self.inner.config.idle_timeout) || self.is_redundant(&informer) {
                tracing::info!(informer = %informer.key, "stopping informer that is read too seldom");
                let (objects, in_debt) = (informer.cache.snapshot().map(|state| state.len()), informer.is_in_debt());
                self.remove(&informer);
                self.books().accounts.lock().ended(&informer.key, objects, in_debt, Instant::now());
            }
        }
    }
}

/// Links the informers that hold the same objects as this one.
fn link(informers: &HashMap<InformerKey, Arc<Informer>>, this: &Informer) {
    let is_sibling = |a: &Informer, b: &Informer| a.is_sibling_of(&b.key, &b.resource.origin);
    let is_neighbour = |a: &Informer, b: &Informer| a.is_neighbour_of(&b.key, &b.resource.origin);
    let is_concerned = |other: &Informer| other.key == this.key || is_sibling(other, this) || is_neighbour(other, this);
    for informer in informers.values().filter(|informer| is_concerned(informer)) {
        let siblings = informers.values().filter(|other| is_sibling(other, informer));
        let neighbours = informers.values().filter(|other| is_neighbour(other, informer));
        informer.set_others(siblings.map(Arc::downgrade).collect(), neighbours.map(Arc::downgrade).collect());
    }
}

#[cfg(test)]
#[path = "testing.rs"]
pub(super) mod testing;
