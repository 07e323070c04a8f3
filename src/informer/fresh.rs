//! Proves that a cache is as fresh as a read requires.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::cache::Snapshot;
use crate::lifecycle;
use crate::meta::{ResourceVersion, Scope, Verb};
use crate::selector::Predicate;
use crate::upstream::{Asked, Pace, Part, SMALL_DIGEST, Word};

use super::Informer;
use super::ledger::{Extent, Situation, Way};
use super::stall::Why;

/// How fresh a cache must be before it may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Any state of the cache, but never older than what this daemon has already shown.
    Any,
    /// At or past this revision.
    NotOlderThan(ResourceVersion),
    /// At or past the revision of the store when the request arrived.
    Consistent,
}

/// The requirements of a read for a cache.
#[derive(Clone, Copy, Debug)]
pub struct Need<'a> {
    pub freshness: Freshness,
    /// The newest revision that readers of this resource were shown.
    pub shown: ResourceVersion,
    /// Something was written or shown at an unknown revision, so the store must be asked for any freshness.
    pub unknown: bool,
    pub verb: Verb,
    pub predicate: &'a Predicate,
    /// Its label and field selector as in the request, if the apiserver can be asked with them.
    pub selectors: Option<(&'a str, &'a str)>,
    /// Whether objects are answered without more than their metadata and a table's row.
    pub only_metadata: bool,
    /// Whether the client accepts gzip.
    pub gzip: bool,
    /// Maximum number of objects of a page.
    pub limit: Option<usize>,
    /// Whether the read may be forwarded if that is cheaper or faster than a proof.
    pub may_forward: bool,
    /// Whether it is forwarded if the proof does not come in time.
    pub can_forward: bool,
    /// Maximum age of the answer that tells the store's revision. Zero: it must be asked for after the read arrived.
    pub max_age: Duration,
    /// When the read arrived, before it looked for its informer.
    pub arrived: Asked,
    pub deadline: Instant,
}

/// A state that is fresh enough.
#[derive(Debug)]
pub struct Fresh {
    pub snapshot: Snapshot,
    /// The read did not have to wait.
    pub at_once: bool,
    /// The store's revision, if it was asked for after the read arrived.
    pub store: Option<ResourceVersion>,
}

/// Why a cache could not be proved fresh enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFresh {
    /// The proof did not come in time.
    Late,
    /// Forwarding is cheaper than a proof.
    Dearer,
    /// The store itself has not reached the requested revision.
    TooLarge { want: ResourceVersion },
    /// The store is behind a revision that it has shown before: it was restored from a backup.
    Rewound { now: ResourceVersion },
}

/// Events in flight on the stream normally arrive within this time.
const MOMENT: Duration = Duration::from_millis(20);
/// The same for reads that are followed by a second question and whose client should not wait long.
const SHORT_MOMENT: Duration = Duration::from_millis(5);
/// How long to wait for events that a digest shows to be missing. After the first limit, forwarding is faster.
const IN_FLIGHT: Duration = Duration::from_millis(100);
const IN_FLIGHT_AT_MOST: Duration = Duration::from_millis(500);
/// How often the store's revision is asked for. Any number of concurrent readers costs the apiserver about 60 small
/// requests per second and resource. A client that reads in a loop is not slowed down.
const PACE: Pace = Pace { alone: Duration::from_millis(2), together: Duration::from_millis(16) };
/// The same for watches that start. They arrive in large numbers, and a short delay does not matter to them.
const WATCH_PACE: Pace = Pace { alone: Duration::from_millis(75), together: Duration::from_millis(75) };
/// Maximum number of objects that are examined to estimate the size of an answer.
const LOOKS: usize = 500;
/// Who asks for pages of fewer objects than the first is expected to read this number of them: seldom all.
const FEW: usize = 100;
const READ_ON: usize = 10;
/// Up to this number of objects, a digest keeps the state proved for readers that do not ask themselves.
const MOST_AHEAD: usize = 1000;

// === impl Freshness ===

impl Freshness {
    /// The requested revision; zero if there is none.
    fn least(self) -> ResourceVersion {
        match self {
            Self::NotOlderThan(rv) => rv,
            Self::Any | Self::Consistent => ResourceVersion::ZERO,
        }
    }
}

// === impl Informer ===

impl Informer {
    /// Returns the state that a read needs, as soon as it is available. Uses the cheapest exact way.
    ///
    /// # Errors
    /// [`NotFresh`]. The read must then go to the apiserver.
    pub async fn fresh(self: &Arc<Self>, need: &Need<'_>) -> Result<Fresh, NotFresh> {
        let (arrived, before) = (Asked::now(), self.cache.newest());
        let at_least = need.shown.max(need.freshness.least()).max(self.newest_elsewhere());
        let newest = need.freshness == Freshness::Consistent || need.unknown;
        let stood = self.cache.resource_version();
        if newest && !need.may_forward {
            // Whatever it costs, it is needed.
            self.debt.lock().settle(None);
        }
        if !newest {
            if let Some(snapshot) = self.cache.snapshot().filter(|snapshot| snapshot.rv() >= at_least) {
                return Ok(Fresh { snapshot, at_once: true, store: None });
            }
            if let Some(snapshot) = self.arriving(at_least, need.deadline, MOMENT).await {
                return Ok(Fresh { snapshot, at_once: false, store: None });
            }
        }
        // A watch lasts, so it is worth a wait.
        if need.can_forward && need.verb != Verb::Watch && self.is_stalled() {
            return Err(NotFresh::Late);
        }
        if need.verb == Verb::Get && newest && self.is_detached() {
            return Err(NotFresh::Dearer);
        }
        if newest && let Some(fresh) = self.taken_since(need.arrived, at_least) {
            return Ok(fresh);
        }
        // What the apiserver has said before it was away may be recent enough.
        let recent = arrived.before(if need.unknown { Duration::ZERO } else { need.max_age });
        if self.probe.is_away() && self.probe.last_word().is_none_or(|word| word.asked < recent) {
            return Err(NotFresh::Late);
        }
        let _waiting = self.waits.enter(arrived.at);
        let situation = self.situation(need);
        let proof = self.asked(need, &situation, arrived, before, at_least, newest).await;
        match &proof {
            Ok(_) => self.proofs.proved.observe(arrived.at.elapsed()),
            // The read neither asked nor waited.
            Err(NotFresh::Dearer) => {}
            Err(_) => self.proofs.failed.observe(arrived.at.elapsed()),
        }
        let known = self.probe.last_word().map_or(at_least, |word| at_least.max(word.rv));
        match &proof {
            Ok(_) => self.stall.moved(),
            Err(NotFresh::Late) => {
                let waited = arrived.at.elapsed();
                let why = if known > self.cache.newest() { Why::Behind } else { Why::NoAnswer };
                self.stands(stood, why, waited, Instant::now() >= need.deadline);
            }
            Err(_) => {}
        }
        proof
    }

    /// Returns the state, if all of it was asked for after the read arrived, as for the read that starts an informer. Such a
    /// state proves itself.
    fn taken_since(&self, arrived: Asked, at_least: ResourceVersion) -> Option<Fresh> {
        // Looked for before the snapshot, which is then this state or a later one, also after a store was set back.
        let (_, rv) = self.reflector.taken().filter(|(asked, _)| *asked >= arrived)?;
        let snapshot = self.cache.snapshot().filter(|snapshot| snapshot.rv() >= rv.max(at_least))?;
        Some(Fresh { snapshot, at_once: true, store: Some(rv) })
    }

    /// Returns a state at or past the store's revision.
    async fn asked(
        self: &Arc<Self>,
        need: &Need<'_>,
        situation: &Situation,
        arrived: Asked,
        before: ResourceVersion,
        at_least: ResourceVersion,
        newest: bool,
    ) -> Result<Fresh, NotFresh> {
        let asked = need.freshness.least();
        let first = situation.first();
        // An earlier answer says nothing about a write whose revision is unknown.
        let age = if need.unknown { Duration::ZERO } else { need.max_age };
        let since = arrived.before(age);
        let proved = self.proved(need, situation.then());
        let seen = before.max(need.shown);
        let word = self.word(need, first, since, (arrived, seen)).await?;
        let is_ours = word.asked >= arrived;
        if is_ours && word.rv < seen {
            return Err(NotFresh::Rewound { now: word.rv });
        }
        if word.rv < asked {
            return Err(NotFresh::TooLarge { want: asked });
        }
        self.keep_warm(need, &word);
        let want = if newest { at_least.max(word.rv) } else { at_least };
        let snapshot = self.prove(need, situation, first, want, is_ours && want > proved).await?;
        Ok(Fresh { snapshot, at_once: !is_ours, store: is_ours.then_some(word.rv) })
    }

    /// Reads the store's revision. The question is sent after this call.
    ///
    /// # Errors
    /// The apiserver does not answer before the deadline.
    pub async fn revision(&self, verb: Verb, deadline: Instant) -> Result<ResourceVersion, NotFresh> {
        if self.probe.is_away() {
            return Err(NotFresh::Late);
        }
        let word = timeout_at(deadline, self.probe.revision(Asked::now(), self.cache.newest(), pace(verb))).await;
        word.ok().and_then(Result::ok).map(|word| word.rv).ok_or(NotFresh::Late)
    }

    /// Whether a read of the newest state would be forwarded now.
    pub fn would_forward(&self, need: &Need<'_>) -> bool {
        self.situation(need).first() == Way::Forward
    }

    fn situation(&self, need: &Need<'_>) -> Situation {
        // An informer of one namespace has no smaller part.
        let namespace = need.predicate.scope.namespace.clone().filter(|_| self.key.scope.namespace.is_none());
        let (all, namespace, answer) = self.cache.snapshot().map_or((0, None, 0), |snapshot| {
            let in_part = namespace.map(|namespace| in_namespace(&snapshot, Some(namespace)));
            (snapshot.len(), in_part, answer(&snapshot, need.predicate, in_part.unwrap_or(snapshot.len())))
        });
        // The next pages need the same state, and a proof of only a part is not kept.
        let in_parts = need.limit.is_none_or(|limit| answer <= limit);
        let namespace = namespace.filter(|_| in_parts);
        let mut situation = Situation {
            verb: need.verb,
            may_forward: need.may_forward,
            odds: 0.0,
            all,
            namespace,
            answer: need.limit.filter(|limit| *limit < FEW).map_or(answer, |limit| answer.min(limit * READ_ON)),
            only_metadata: need.only_metadata,
            prices: self.meter.prices(),
            gzip: need.gzip,
            is_late: self.probe.is_late(),
            selective: need.selectors.is_some() && self.key.scope.is_everything() && in_parts,
            waiting: self.waits.now().max(1) + self.waits.within(need.max_age),
        };
        situation.odds = self.probe.odds(self.proved(need, situation.then())).into();
        situation
    }

    /// The newest revision at which the state for this read was proved.
    fn proved(&self, need: &Need<'_>, then: Way) -> ResourceVersion {
        let part = if let Way::Digest(extent) = then { extent.of(self, need) } else { None };
        self.probe.proved(&self.cache, part.as_ref())
    }

    /// Returns the apiserver's answer about the store's revision, asked for at or after `since`. At the time `arrived`,
    /// the store had already reached the revision `seen`.
    async fn word(
        &self,
        need: &Need<'_>,
        first: Way,
        since: Asked,
        (arrived, seen): (Asked, ResourceVersion),
    ) -> Result<Word, NotFresh> {
        // An earlier answer cannot tell that the store has not reached a revision by now.
        let least = need.freshness.least();
        let is_of_use =
            |word: &Word| word.asked >= since && if word.asked < arrived { word.rv >= least } else { word.rv >= seen };
        if let Some(word) = self.probe.last_word().filter(is_of_use) {
            return Ok(word);
        }
        let since = if least.is_zero() { since } else { arrived };
        let begun = Instant::now();
        let word = match first {
            Way::Forward => return Err(NotFresh::Dearer),
            Way::Revision | Way::Watch => {
                let revision = self.probe.revision(since, seen, pace(need.verb));
                timeout_at(need.deadline, revision).await.ok().and_then(Result::ok)
            }
            Way::Digest(extent) => self.digest(need, extent, since).await,
        };
        let word = word.ok_or(NotFresh::Late)?;
        self.waits.took(begun.elapsed());
        Ok(word)
    }

    /// Returns a state at or past `want`, which the store has reached.
    async fn prove(
        &self,
        need: &Need<'_>,
        situation: &Situation,
        first: Way,
        want: ResourceVersion,
        has_moved: bool,
    ) -> Result<Snapshot, NotFresh> {
        let learn = |came| {
            if has_moved {
                self.probe.learn(came);
            }
        };
        let then = if let Way::Digest(_) = first { first } else { situation.then() };
        let came = self.cache.resource_version() >= want;
        let part = if let Way::Digest(extent) = then { extent.of(self, need) } else { None };
        for part in [None, part.as_ref()] {
            if let Some(snapshot) = self.probe.settled(&self.cache, part, want).await {
                learn(came);
                return Ok(snapshot);
            }
        }
        if !matches!(first, Way::Digest(_)) {
            let moment = if need.may_forward { SHORT_MOMENT } else { MOMENT };
            if let Some(snapshot) = self.arriving(want, need.deadline, moment).await {
                learn(true);
                return Ok(snapshot);
            }
        }
        learn(false);
        // The proof may fail while the events themselves arrive: whichever comes first.
        let proof = async {
            if let Way::Digest(extent) = then
                && let Some(snapshot) = self.compare(need, extent, want).await
            {
                return Ok(snapshot);
            }
            if need.may_forward {
                return Err(if then == Way::Forward { NotFresh::Dearer } else { NotFresh::Late });
            }
            if let Err(error) = self.probe.prove_by_watch(&self.cache, want, need.deadline).await {
                tracing::debug!(informer = %self.key, %error, "freshness not proved");
            }
            self.cache.wait_for(want, need.deadline).await.map_err(|_| NotFresh::Late)
        };
        tokio::select! {
            Ok(snapshot) = self.cache.wait_for(want, need.deadline) => Ok(snapshot),
            proved = proof => proved,
        }
    }

    /// Returns the state once a digest shows that nothing is missing. Waits a moment for events in flight.
    async fn compare(&self, need: &Need<'_>, extent: Extent, want: ResourceVersion) -> Option<Snapshot> {
        let part = extent.of(self, need);
        let part = part.as_ref();
        if !self.probe.is_compared(part, want) {
            self.digest(need, extent, Asked::now()).await?;
        }
        let bound = if need.may_forward { IN_FLIGHT } else { IN_FLIGHT_AT_MOST };
        let until = need.deadline.min(Instant::now() + bound);
        loop {
            let next = self.cache.newest().next();
            if let Some(snapshot) = self.probe.settled(&self.cache, part, want).await {
                return Some(snapshot);
            }
            // The next event may complete the state.
            self.cache.wait_for(next, until).await.ok()?;
        }
    }

    /// Reads a digest, asked for at or after `since`; `None` if it fails or does not arrive before the read's deadline.
    async fn digest(&self, need: &Need<'_>, extent: Extent, since: Asked) -> Option<Word> {
        let (part, begun) = (extent.of(self, need), Instant::now());
        let digest = self.probe.digest(&self.cache, part.as_ref(), since, pace(need.verb));
        let digest = timeout_at(need.deadline, digest).await;
        if digest.is_err() && extent == Extent::Everything {
            self.probe.was_late(begun);
        }
        digest.ok()?.ok()
    }

    /// Waits for events in flight, or for what an informer of another encoding knows.
    async fn arriving(&self, want: ResourceVersion, deadline: Instant, moment: Duration) -> Option<Snapshot> {
        let soon = deadline.min(Instant::now() + moment);
        self.learn_from_siblings(soon).await;
        self.cache.wait_for(want, soon).await.ok()
    }

    /// While reads arrive that accept an answer of some age, asks for the store's revision again just before the last
    /// answer becomes too old.
    fn keep_warm(self: &Arc<Self>, need: &Need<'_>, word: &Word) {
        let lead = self.waits.lead().min(need.max_age / 4);
        let due = word.asked.at + need.max_age - lead;
        if need.max_age.is_zero() || Instant::now() < due || !self.waits.begin_ahead() {
            return;
        }
        let (informer, situation, after) = (self.clone(), self.situation(need), word.asked.next());
        let seen = self.cache.newest();
        lifecycle::spawn("keep-warm", async move {
            let asked = match situation.first() {
                Way::Digest(Extent::Everything) if situation.all <= MOST_AHEAD => {
                    informer.probe.digest(&informer.cache, None, after, PACE).await.is_ok()
                }
                Way::Revision => informer.probe.revision(after, seen, PACE).await.is_ok(),
                // Large digests, and digests of parts, are only read on behalf of their readers.
                Way::Digest(_) | Way::Watch | Way::Forward => false,
            };
            tracing::trace!(informer = %informer.key, asked, "asked ahead");
            informer.waits.end_ahead();
        });
    }
}

fn pace(verb: Verb) -> Pace {
    if verb == Verb::Watch { WATCH_PACE } else { PACE }
}

/// The number of objects of a namespace, counted up to [`SMALL_DIGEST`] and one, or of all.
pub(super) fn in_namespace(snapshot: &Snapshot, namespace: Option<Arc<str>>) -> usize {
    let count = |namespace| snapshot.count_up_to(&Scope { namespace: Some(namespace), name: None }, SMALL_DIGEST + 1);
    namespace.map_or(snapshot.len(), count)
}

/// Estimates the number of objects in an answer, if its namespace has `of` objects.
pub(super) fn answer(snapshot: &Snapshot, predicate: &Predicate, of: usize) -> usize {
    let (mut looked, mut found) = (0, 0);
    for object in snapshot.range(&predicate.scope, None).take(LOOKS) {
        looked += 1;
        found += usize::from(predicate.matches(object));
    }
    if looked < LOOKS { found } else { found * of / LOOKS }
}

// === impl Extent ===

impl Extent {
    /// `None` for everything.
    fn of(self, informer: &Informer, need: &Need<'_>) -> Option<Part> {
        match self {
            Self::Everything => None,
            Self::Namespace => need.predicate.scope.namespace.clone().map(Part::namespace),
            Self::Selection => need.selectors.map(|(labels, fields)| Part {
                version: Arc::clone(&informer.key.gvr.version),
                // The apiserver only evaluates the selectors, not the shard.
                predicate: need.predicate.clone().in_all_shards(),
                label_selector: labels.into(),
                field_selector: fields.into(),
            }),
        }
    }
}

#[cfg(test)]
#[path = "fresh_tests.rs"]
mod tests;
