//! One running informer.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::coverage::scope_predicate;
use super::waits::{Proofs, Waits};
use crate::cache::WatchCache;
use crate::meta::{Encoding, Gvr, ObjectKey, Resource, ResourceVersion};
use crate::selector::Predicate;
use crate::upstream::Suspects;
use crate::upstream::backfill::Backfiller;
use crate::upstream::progress::{Progress, ProgressProbe};
use crate::upstream::reflector::{Handle, ListerWatcher, ReflectorStatus};

/// What part of a resource an informer holds: everything, or one namespace, or what one selector matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InformerScope {
    pub namespace: Option<Arc<str>>,
    pub field_selector: Arc<str>,
    pub label_selector: Arc<str>,
}

/// Informers with equal keys are one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InformerKey {
    pub gvr: Gvr,
    pub scope: InformerScope,
    pub encoding: Encoding,
}

/// A running informer: one upstream watch, one cache, any number of readers.
pub struct Informer {
    pub(super) key: InformerKey,
    pub(super) resource: Arc<Resource>,
    pub(super) cache: WatchCache,
    pub(super) reflector: Handle,
    pub(super) probe: ProgressProbe,
    backfiller: Backfiller,
    pub(super) pinned: bool,
    pub(super) stop: CancellationToken,
    /// What the comparisons with the store suspect. Locked during a comparison.
    pub(super) suspects: tokio::sync::Mutex<Suspects>,
    /// An object that the apiserver lists and its store does not hold, and the lineage of the state with it.
    pub(super) detached: Mutex<Option<(u64, ObjectKey)>>,
    /// Reads answered from caches of this resource.
    served: Arc<AtomicU64>,
    /// How long proofs took, for all informers.
    pub(super) proofs: Arc<Proofs>,
    /// Informers of the same objects, in another encoding or of another version of the type.
    siblings: ArcSwap<Vec<Weak<Self>>>,
    /// Informers of another scope that hold some of the same objects.
    neighbours: ArcSwap<Vec<Weak<Self>>>,
    /// What it holds.
    selects: Predicate,
    pub(super) waits: Waits,
    /// A proof for nobody in particular is under way.
    advancing: AtomicBool,
    /// The newest revision that a forwarded answer has shown.
    shown: AtomicU64,
    /// Milliseconds from `started` to the last request.
    last_used: AtomicU64,
    /// Events that had come by then.
    events_used: AtomicU64,
    started: Instant,
}

/// How long a proof for nobody in particular may take.
const ADVANCE_TIMEOUT: Duration = Duration::from_secs(6);
/// Answers that are forwarded within this time are taken together.
const ADVANCE_AFTER: Duration = Duration::from_millis(500);

// === impl Informer ===

impl fmt::Debug for Informer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Informer {
    pub(super) fn new(
        key: InformerKey,
        source: ListerWatcher,
        cache: WatchCache,
        reflector: Handle,
        probe: ProgressProbe,
        backfiller: Backfiller,
        pinned: bool,
    ) -> Self {
        let selects = scope_predicate(&source.resource, &key.scope).unwrap_or_else(Predicate::everything);
        Self {
            key,
            resource: source.resource,
            cache,
            reflector,
            probe,
            backfiller,
            pinned,
            stop: CancellationToken::new(),
            suspects: tokio::sync::Mutex::default(),
            detached: Mutex::default(),
            served: Arc::default(),
            proofs: Arc::default(),
            siblings: ArcSwap::default(),
            neighbours: ArcSwap::default(),
            selects,
            waits: Waits::default(),
            advancing: AtomicBool::new(false),
            shown: AtomicU64::new(0),
            last_used: AtomicU64::new(0),
            events_used: AtomicU64::new(0),
            started: Instant::now(),
        }
    }

    /// With a counter of the reads that are answered, and histograms of proofs, which others have too.
    pub(super) fn counting(self, served: Arc<AtomicU64>, proofs: Arc<Proofs>) -> Self {
        Self { served, proofs, ..self }
    }

    pub fn key(&self) -> &InformerKey {
        &self.key
    }

    pub fn cache(&self) -> &WatchCache {
        &self.cache
    }

    /// True as soon as it is synced. False at the deadline, or once the apiserver or our memory refuses it, or it has ended:
    /// another one may cover the read then.
    pub async fn synced(&self, deadline: Instant) -> bool {
        if !self.cache.is_ready() {
            tokio::select! {
                _ = self.cache.wait_ready(deadline) => {}
                () = self.reflector.refused() => {}
            }
        }
        self.cache.is_ready()
    }

    /// What it is doing towards the apiserver.
    pub fn status(&self) -> ReflectorStatus {
        self.reflector.status()
    }

    pub fn is_forbidden(&self) -> bool {
        self.reflector.is_forbidden()
    }

    /// Memory has no room for its state.
    pub fn is_too_large(&self) -> bool {
        self.reflector.is_too_large()
    }

    /// A request is about to read: the idle clock starts anew.
    pub fn touch(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_used.fetch_max(now, Ordering::Relaxed);
        self.events_used.fetch_max(self.reflector.events(), Ordering::Relaxed);
    }

    /// A read is answered from the cache.
    pub fn serves(&self) {
        self.touch();
        self.served.fetch_add(1, Ordering::Relaxed);
    }

    /// Lets the window reach back to `rv`, if it began later and the apiserver still tells exactly what happened in
    /// between. Takes no time where it does already, and some seconds at most.
    pub async fn reach_back(&self, rv: ResourceVersion) {
        if self.cache.window_floor().is_some_and(|floor| floor > rv) {
            self.backfiller.reach(&self.cache, rv).await;
        }
    }

    /// The store is at `rv`, as a forwarded list has shown.
    pub(super) fn learn(&self, rv: ResourceVersion) {
        if self.probe.heard(rv) {
            self.probe.learn(self.cache.resource_version() >= rv);
        }
    }

    /// A forwarded answer has shown these objects at `rv`: the cache of a quiet resource is brought there, so that reads of
    /// any version that come later need not wait for a proof, nor for an apiserver that has gone away meanwhile. Answers
    /// that follow each other share a proof, and proofs are seconds apart.
    pub(super) async fn advance(&self, rv: ResourceVersion) {
        self.shown.fetch_max(rv.get(), Ordering::AcqRel);
        if self.advancing.swap(true, Ordering::AcqRel) {
            return;
        }
        tokio::time::sleep(ADVANCE_AFTER).await;
        let shown = ResourceVersion(self.shown.load(Ordering::Acquire));
        if self.cache.is_ready() && self.cache.newest() < shown {
            self.catch_up(shown, Instant::now() + ADVANCE_TIMEOUT).await;
        }
        self.advancing.store(false, Ordering::Release);
    }

    /// When the apiserver last said anything about this resource: an event, a bookmark, or an answer to a question.
    pub fn heard(&self) -> Option<Instant> {
        self.reflector.last_heard().max(self.probe.last_heard())
    }

    /// Whether both hold the same objects, in whichever encoding and version.
    pub(super) fn is_sibling_of(&self, other: &InformerKey) -> bool {
        let (key, gvr) = (&self.key, &self.key.gvr);
        gvr.group == other.gvr.group && gvr.resource == other.gvr.resource && key.scope == other.scope && key != other
    }

    /// Whether both hold objects of one resource, of scopes that are not equal and may have some in common.
    pub(super) fn is_neighbour_of(&self, other: &InformerKey) -> bool {
        let (key, gvr) = (&self.key, &self.key.gvr);
        let is_apart = key.scope.namespace.is_some()
            && other.scope.namespace.is_some()
            && key.scope.namespace != other.scope.namespace;
        gvr.group == other.gvr.group && gvr.resource == other.gvr.resource && key.scope != other.scope && !is_apart
    }

    pub(super) fn set_others(&self, siblings: Vec<Weak<Self>>, neighbours: Vec<Weak<Self>>) {
        self.siblings.store(Arc::new(siblings));
        self.neighbours.store(Arc::new(neighbours));
    }

    /// The newest revision that the readers of these objects may have been shown by another informer: one of another
    /// encoding, or of another scope that has seen a change of them. Zero without one.
    pub(super) fn newest_elsewhere(&self) -> ResourceVersion {
        let (siblings, neighbours) = (self.siblings.load(), self.neighbours.load());
        let newest = siblings.iter().filter_map(Weak::upgrade).map(|sibling| sibling.cache.newest());
        let ours = self.cache.newest();
        let shown = neighbours.iter().filter_map(Weak::upgrade);
        let shown = shown.filter_map(|neighbour| neighbour.cache.shown_since(ours, &self.selects));
        newest.chain(shown).max().unwrap_or_default()
    }

    /// Where another informer of these objects knows that nothing has happened for a while, this one need not find it
    /// out for itself. What has happened before is waited for.
    pub(super) async fn learn_from_siblings(&self, deadline: Instant) {
        let siblings: Vec<_> = self.siblings.load().iter().filter_map(Weak::upgrade).collect();
        for sibling in siblings {
            if let Some((from, to)) = sibling.cache.quiet_since()
                && self.cache.resource_version() < to
                && self.cache.wait_for(from, deadline).await.is_ok()
            {
                self.probe.claim(Progress { from, to });
            }
        }
    }

    /// Started by configuration, and never stopped for idleness.
    pub fn is_pinned(&self) -> bool {
        self.pinned
    }

    /// Events that have come since somebody asked for anything.
    pub(super) fn events_unused(&self) -> u64 {
        self.reflector.events().saturating_sub(self.events_used.load(Ordering::Relaxed))
    }

    /// How long nobody has asked for anything. Zero while a watch is open.
    pub(super) fn idle_for(&self) -> Duration {
        if self.cache.stats().watchers > 0 {
            self.touch();
        }
        let last = Duration::from_millis(self.last_used.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(last)
    }
}

impl InformerScope {
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for InformerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.gvr)?;
        if let Some(namespace) = &self.scope.namespace {
            write!(f, " in {namespace}")?;
        }
        for (what, selector) in [("fields", &self.scope.field_selector), ("labels", &self.scope.label_selector)] {
            if !selector.is_empty() {
                write!(f, " with {what} {selector}")?;
            }
        }
        // JSON goes without saying.
        match self.encoding {
            Encoding::Json => Ok(()),
            other => write!(f, " ({})", other.as_str()),
        }
    }
}
