//! One running informer.

use std::borrow::Cow;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::key::{InformerKey, scope_predicate};
use super::ledger::{Book, Debt, Giver, Rent, bytes, is_spent};
use super::stall::Stall;
use super::waits::{Proofs, Waits};
use crate::apiserver::discovery::{Shareable, Since};
use crate::apiserver::meter::Meter;
use crate::cache::WatchCache;
use crate::lifecycle;
use crate::meta::{Encoding, ObjectKey, Origin, Resource, ResourceVersion, Verb};
use crate::selector::Predicate;
use crate::upstream::backfill::Backfiller;
use crate::upstream::reflector::{Handle, ListerWatcher, ReflectorStatus};
use crate::upstream::silence::OVERDUE;
use crate::upstream::{Progress, ProgressProbe, Suspects};

/// A running informer: one upstream watch, one cache, any number of readers.
pub struct Informer {
    pub(super) key: InformerKey,
    pub(super) resource: Arc<Resource>,
    pub(super) cache: WatchCache,
    pub(super) reflector: Handle,
    pub(super) probe: ProgressProbe,
    backfiller: Arc<Backfiller>,
    pub(super) pinned: bool,
    /// Everything that it holds was read since then.
    pub(super) since: Since,
    pub(super) stop: CancellationToken,
    /// The suspects of the comparisons with the store. Locked during a comparison.
    pub(super) suspects: tokio::sync::Mutex<Suspects>,
    /// An object that the apiserver lists although its store does not hold it, and the lineage of the state with it.
    pub(super) detached: Mutex<Option<(u64, ObjectKey)>>,
    /// What it has asked, and its own book.
    pub(super) meter: Arc<Meter>,
    book: Arc<Book>,
    pub(super) debt: Mutex<Debt>,
    /// How long proofs took, for all informers.
    pub(super) proofs: Arc<Proofs>,
    /// Informers of the same objects in another encoding or another version of the type.
    siblings: ArcSwap<Vec<Weak<Self>>>,
    /// Informers of another scope that hold some of the same objects.
    neighbours: ArcSwap<Vec<Weak<Self>>>,
    /// The predicate of all objects that it holds.
    selects: Predicate,
    pub(super) waits: Waits,
    pub(super) stall: Stall,
    /// Its readers get its last state while the apiserver does not answer.
    pub(super) outlasts: AtomicBool,
    /// Whether a background proof is running.
    advancing: AtomicBool,
    /// The newest revision that a forwarded answer has shown since the last background proof; zero if none has.
    shown: AtomicU64,
    /// How many reads had been answered at the last background proof.
    proved_for: AtomicU64,
    /// Milliseconds from `started` to the last request.
    last_used: AtomicU64,
    /// Whether a watch was open when this was last looked at.
    was_watched: AtomicBool,
    started: Instant,
}

/// Timeout of a background proof.
const ADVANCE_TIMEOUT: Duration = Duration::from_secs(6);
/// Answers forwarded within this time share one background proof.
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
            backfiller: Arc::new(backfiller),
            pinned,
            since: Since::default(),
            stop: CancellationToken::new(),
            suspects: tokio::sync::Mutex::default(),
            detached: Mutex::default(),
            meter: source.meter,
            book: Arc::default(),
            debt: Mutex::default(),
            proofs: Arc::default(),
            siblings: ArcSwap::default(),
            neighbours: ArcSwap::default(),
            selects,
            waits: Waits::default(),
            stall: Stall::default(),
            outlasts: AtomicBool::new(false),
            advancing: AtomicBool::new(false),
            shown: AtomicU64::new(0),
            proved_for: AtomicU64::new(0),
            last_used: AtomicU64::new(0),
            was_watched: AtomicBool::new(false),
            started: Instant::now(),
        }
    }

    /// Adds its book and the shared histograms of proofs.
    pub(super) fn counting(self, book: Arc<Book>, proofs: Arc<Proofs>) -> Self {
        Self { book, proofs, ..self }
    }

    /// Its server is the one since then.
    pub(super) fn of_server(self, since: Since) -> Self {
        Self { since, ..self }
    }

    /// Whether everything that it holds is from the server that the proof is about.
    pub fn is_covered_by(&self, proof: &Shareable) -> bool {
        proof.includes(self.since)
    }

    /// Whether it runs on this definition. Another one may have other fields to select by, and another scope.
    pub(super) fn is_of(&self, resource: &Resource) -> bool {
        std::ptr::eq(&*self.resource, resource) || *self.resource == *resource
    }

    pub fn key(&self) -> &InformerKey {
        &self.key
    }

    pub fn cache(&self) -> &WatchCache {
        &self.cache
    }

    /// Waits until the informer is synced, and returns true. Returns false at the deadline, or if the informer was
    /// refused by the apiserver, has given up its state, or has ended: then another one may cover the read. With
    /// `or_stuck`, also returns false once it is stuck.
    pub async fn synced(&self, deadline: Instant, or_stuck: bool) -> bool {
        if !self.cache.is_ready() {
            tokio::select! {
                _ = self.cache.wait_ready(deadline) => {}
                () = self.reflector.refused(or_stuck) => {}
            }
        }
        self.cache.is_ready()
    }

    /// Whether its reflector is gone, so that it will never be synced.
    pub fn has_ended(&self) -> bool {
        self.cache.is_stopped()
    }

    /// The status of its reflector.
    pub fn status(&self) -> ReflectorStatus {
        self.reflector.status()
    }

    /// Whether it has no state, and two attempts to read one have failed although the apiserver answers.
    pub fn is_stuck(&self) -> bool {
        self.reflector.is_stuck()
    }

    pub fn is_forbidden(&self) -> bool {
        self.reflector.is_forbidden()
    }

    /// Whether it has given up its state, because it does not fit into memory or cannot be decoded.
    pub fn has_given_up(&self) -> bool {
        self.reflector.has_given_up()
    }

    /// Records that a request is about to read: restarts the idle timer.
    pub fn touch(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_used.fetch_max(now, Ordering::Relaxed);
    }

    /// Records that a read is answered from the cache.
    pub fn serves(&self) {
        self.touch();
        self.book.serves();
    }

    /// Books the bytes of one answer from the cache. `as_sent`: it is compressed, or a watch.
    pub fn rent(&self, as_sent: bool) -> Rent {
        Arc::clone(&self.book).rent(Giver::Cache, as_sent)
    }

    /// Books bytes from the cache that no [`Rent`] books.
    pub fn sent(&self, bytes: usize) {
        self.book.sent(bytes);
    }

    /// Records that its last state is served while the apiserver does not answer.
    pub fn outlasts(&self) {
        self.outlasts.store(true, Ordering::Relaxed);
    }

    /// Extends the window back to `rv`, if it began later and the apiserver can still return exactly the events in
    /// between. Returns at once if the window already reaches back to `rv`; otherwise takes some seconds, and `most` at most.
    pub async fn reach_back(&self, rv: ResourceVersion, most: Duration) {
        if self.cache.window_floor().is_some_and(|floor| floor > rv) {
            // Nobody follows yet, and the wait is not to end by a debt.
            self.debt.lock().settle(None);
            timeout(most, self.backfiller.reach(&self.cache, rv)).await.ok();
        }
    }

    /// Makes sure that bookmarks can be written like the apiserver's. Only an aggregated API server may ignore the question.
    pub async fn learn_bookmark(&self) {
        if self.cache.bookmark_template().is_none() && self.resource.origin != Origin::Unknown {
            self.backfiller.learn_bookmark(&self.cache).await;
        }
    }

    /// A forwarded answer has shown the resource at `rv`: brings the cache to this revision in the background.
    pub fn was_shown(self: &Arc<Self>, rv: ResourceVersion, verb: Verb) {
        // A get shows the revision of its object, which does not tell the store's revision.
        if verb == Verb::List && self.probe.heard(rv) {
            self.probe.learn(self.cache.resource_version() >= rv);
        }
        let informer = Arc::clone(self);
        lifecycle::spawn("advance", async move { informer.advance(rv).await });
    }

    /// A forwarded answer has shown these objects at `rv`. A second watch brings the cache of a quiet resource to this
    /// revision if it is read, so that reads of any version neither wait for a proof nor depend on an apiserver that may be
    /// gone by then. Answers in quick succession share a proof, and proofs are seconds apart. A cache that nobody reads waits
    /// for the next bookmark of its stream.
    pub(super) async fn advance(self: &Arc<Self>, rv: ResourceVersion) {
        self.shown.fetch_max(rv.get(), Ordering::AcqRel);
        if self.advancing.swap(true, Ordering::AcqRel) {
            return;
        }
        tokio::time::sleep(ADVANCE_AFTER).await;
        // Taken, because the store may be set back: what was shown before that would be proved in vain for ever.
        let shown = ResourceVersion(self.shown.swap(0, Ordering::AcqRel));
        if self.cache.is_ready() && self.cache.newest() < shown && self.is_awaited() {
            let (at, stood, begun) = (self.reflector.position(), self.cache.resource_version(), Instant::now());
            let mut proof = pin!(self.probe.prove_by_watch(&self.cache, shown, begun + ADVANCE_TIMEOUT));
            let is_over = timeout_at(begun + OVERDUE, &mut proof).await.is_ok();
            // By then, a second watch has ended, if it is heard.
            if self.cache.wait_for(shown, begun + OVERDUE).await.is_err() {
                self.is_unproved(at, stood);
            }
            if !is_over {
                proof.await.ok();
            }
        }
        self.advancing.store(false, Ordering::Release);
    }

    /// Whether somebody has read the resource since the last background proof, or may read it while the apiserver is away.
    fn is_awaited(&self) -> bool {
        let served = self.book.served();
        self.proved_for.swap(served, Ordering::Relaxed) != served || self.outlasts.load(Ordering::Relaxed)
    }

    /// When data about this resource last arrived from the apiserver: an event, a bookmark, or an answer to a question.
    pub fn heard(&self) -> Option<Instant> {
        self.reflector.last_heard().max(self.probe.last_heard())
    }

    /// Whether both hold objects of one resource in one store. An aggregated API server may serve one version of a group
    /// only, and has a store of its own: revisions of its objects say nothing about other versions.
    fn shares_store(&self, other: &InformerKey, origin: &Origin) -> bool {
        let (gvr, other) = (&self.key.gvr, &other.gvr);
        let is_known = self.resource.origin != Origin::Unknown && *origin != Origin::Unknown;
        gvr.group == other.group && gvr.resource == other.resource && (is_known || gvr.version == other.version)
    }

    /// Whether both hold the same objects, in any encoding and version. `origin` is that of the other one's resource.
    pub(super) fn is_sibling_of(&self, other: &InformerKey, origin: &Origin) -> bool {
        let (key, scope) = (&self.key, &self.key.scope);
        // Selectors see the labels and fields of the version, which a conversion webhook may change.
        let is_alike = key.gvr.version == other.gvr.version || *origin == Origin::BuiltIn;
        let selects_same = is_alike || scope.field_selector.is_empty() && scope.label_selector.is_empty();
        self.shares_store(other, origin) && *scope == other.scope && selects_same && key != other
    }

    /// Whether both hold objects of one resource that may overlap, and need not be the same.
    pub(super) fn is_neighbour_of(&self, other: &InformerKey, origin: &Origin) -> bool {
        let (ours, theirs) = (&self.key.scope.namespace, &other.scope.namespace);
        let is_apart = ours.is_some() && theirs.is_some() && ours != theirs;
        let is_other = self.key != *other && !self.is_sibling_of(other, origin);
        self.shares_store(other, origin) && is_other && !is_apart
    }

    pub(super) fn set_others(&self, siblings: Vec<Weak<Self>>, neighbours: Vec<Weak<Self>>) {
        self.siblings.store(Arc::new(siblings));
        self.neighbours.store(Arc::new(neighbours));
    }

    /// The newest revision of these objects that their readers may have seen from another informer: one of another
    /// encoding, or of another scope in which they have changed. Zero if there is none.
    pub(super) fn newest_elsewhere(&self) -> ResourceVersion {
        let (siblings, neighbours) = (self.siblings.load(), self.neighbours.load());
        let newest = siblings.iter().filter_map(Weak::upgrade);
        let newest = newest.filter_map(|sibling| sibling.cache.newest_before(&self.cache));
        let ours = self.cache.newest();
        let shown = neighbours.iter().filter_map(Weak::upgrade);
        let shown = shown.filter_map(|neighbour| {
            // Our selectors are for the objects as our version has them.
            let selects = match neighbour.key.gvr.version == self.key.gvr.version {
                true => Cow::Borrowed(&self.selects),
                false => Cow::Owned(Predicate::scoped(self.selects.scope.clone())),
            };
            neighbour.cache.shown_since(ours, &selects)
        });
        newest.chain(shown).max().unwrap_or_default()
    }

    /// If another informer of these objects knows that nothing has changed for a while, this one need not find it out
    /// itself. Earlier changes are waited for.
    pub(super) async fn learn_from_siblings(&self, deadline: Instant) {
        let siblings: Vec<_> = self.siblings.load().iter().filter_map(Weak::upgrade).collect();
        for sibling in siblings {
            if let Some((from, to, asked)) = sibling.cache.quiet_since()
                && self.cache.resource_version() < to
                && self.cache.wait_for(from, deadline).await.is_ok()
            {
                self.probe.claim(Progress { from, to, asked });
            }
        }
    }

    /// Whether the configuration pins it: it was started by the configuration, and never stops when idle.
    pub fn is_pinned(&self) -> bool {
        self.pinned
    }

    /// Whether it is to be stopped: it was idle for `timeout`, or costs more than it saves, and is not there for anything else.
    pub(super) fn is_over(&self, timeout: Duration) -> bool {
        let idle = self.idle_for();
        let is_kept = self.pinned && self.key.encoding != Encoding::Table || self.outlasts.load(Ordering::Relaxed);
        let (asked, is_ready) = (self.meter.asked(), self.cache.is_ready());
        let now = (bytes(asked.requests, asked.wire), self.book.earned(), self.last_used.load(Ordering::Relaxed));
        // The first state may take long, and rent has paid for it.
        self.debt.lock().settle(Some(now).filter(|_| is_ready));
        let is_dear = is_ready && is_spent(idle, self.is_in_debt(), self.book.served());
        !self.pinned && idle >= timeout || !is_kept && is_dear
    }

    /// Whether it has cost as much more than it has saved as its next start would cost, when that was last settled.
    pub(super) fn is_in_debt(&self) -> bool {
        self.debt.lock().is_due(self.cache.stats().objects, &self.meter.prices())
    }

    /// The time since its last use. Zero while a watch is open, and when it is first looked at after its end: that may just have
    /// come, and its client may be on its way back.
    pub(super) fn idle_for(&self) -> Duration {
        let is_watched = self.cache.stats().watchers > 0;
        if self.was_watched.swap(is_watched, Ordering::Relaxed) || is_watched {
            self.touch();
            return Duration::ZERO;
        }
        let last = Duration::from_millis(self.last_used.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(last)
    }
}

#[cfg(test)]
#[path = "handle_tests.rs"]
mod tests;
