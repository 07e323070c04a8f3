//! Proof by comparison: reads a collection, or a part of it, as metadata at one revision of the store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::digest::Digest;
use super::single_flight::{Asked, HELD, Pace, SingleFlight};
use crate::apiserver::UpstreamError;
use crate::cache::{Snapshot, Walk, WatchCache};
use crate::meta::{ResourceVersion, Scope};
use crate::selector::Predicate;
use crate::upstream::source::ListerWatcher;

/// From this number of parts on, parts without readers that were not compared for [`KEPT`] are dropped.
const SOME_PARTS: usize = 16;
/// From this number of parts on, all parts without readers are dropped.
const MOST_PARTS: usize = 256;
/// A digest of more objects takes the apiserver noticeably longer than a small question, and longer than most readers
/// should wait.
pub const SMALL_DIGEST: usize = 5000;
/// A digest that is not small takes about this much longer for each further object (an estimate), so it counts as held
/// later, but no later than after [`HELD_AT_MOST`].
const EACH: Duration = Duration::from_micros(20);
const HELD_AT_MOST: Duration = Duration::from_millis(500);
/// A reader that has waited for less does not know that a digest is late.
const LATE: Duration = Duration::from_secs(1);
/// After a digest that was late or unusable, the next one is expected to be so, too, for this long.
const LATE_FOR: Duration = Duration::from_secs(10);
/// How long a digest is kept when no reader waits for it. While the store does not change, it proves further reads.
const KEPT: Duration = Duration::from_secs(2);

/// A part of a collection: how to find it in a cache, and how to request it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The version of the type whose labels and fields the selectors see: a conversion webhook may change them. Empty if
    /// there are no selectors.
    pub version: Arc<str>,
    pub predicate: Predicate,
    /// As in the query of a request; empty for none.
    pub label_selector: Arc<str>,
    pub field_selector: Arc<str>,
}

/// The version of the type, and the predicate.
type PartKey = (Arc<str>, Predicate);

/// The digests of one collection, shared by all caches that hold it in any encoding.
#[derive(Debug, Default)]
pub(super) struct Comparisons {
    whole: Arc<Compared>,
    /// By the version of the type and the predicate.
    parts: Mutex<HashMap<PartKey, Arc<Compared>>>,
}

/// The digests of a collection or of a part of it.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// What is compared; `None` for everything in the cache.
    part: Option<Predicate>,
    turns: SingleFlight<Arc<Digest>>,
    /// The newest digest, and when it was asked for.
    newest: Mutex<Option<(Arc<Digest>, Asked)>>,
    lateness: Mutex<Lateness>,
}

#[derive(Debug, Default)]
struct Lateness {
    /// When a digest was last late or unusable. `None` if one has arrived since.
    late: Option<Instant>,
    /// When the last digest arrived.
    arrived: Option<Instant>,
}

// === impl Part ===

impl Part {
    pub fn namespace(namespace: Arc<str>) -> Self {
        let scope = Scope { namespace: Some(namespace), name: None };
        let none: Arc<str> = "".into();
        let (label_selector, field_selector) = (Arc::clone(&none), Arc::clone(&none));
        Self { version: none, predicate: Predicate::scoped(scope), label_selector, field_selector }
    }

    fn key(&self) -> PartKey {
        (Arc::clone(&self.version), self.predicate.clone())
    }

    /// How many objects of a state belong to this part.
    pub(super) async fn count(&self, snapshot: Snapshot) -> usize {
        let count = Walk::new(snapshot, self.predicate.clone(), None).count().await;
        usize::try_from(count).unwrap_or(usize::MAX)
    }

    /// The source from which this part is read.
    pub(super) fn of(&self, source: &ListerWatcher) -> ListerWatcher {
        let namespace = self.predicate.scope.namespace.clone().filter(|_| source.resource.namespaced);
        let own = |asked: &Arc<str>, of_source: &str| if asked.is_empty() { of_source } else { asked }.to_owned();
        ListerWatcher {
            namespace: namespace.or_else(|| source.namespace.clone()),
            label_selector: own(&self.label_selector, &source.label_selector),
            field_selector: own(&self.field_selector, &source.field_selector),
            ..source.clone()
        }
    }
}

// === impl Comparisons ===

impl Comparisons {
    /// The digests of a part, or of everything.
    pub(super) fn of(&self, part: Option<&Part>) -> Arc<Compared> {
        let Some(part) = part else { return self.whole.clone() };
        let (key, mut parts) = (part.key(), self.parts.lock());
        if let Some(compared) = parts.get(&key) {
            return compared.clone();
        }
        if parts.len() >= SOME_PARTS {
            let (most, now) = (parts.len() >= MOST_PARTS, Instant::now());
            parts.retain(|_, part| Arc::strong_count(part) > 1 || !most && part.is_of_use(now));
        }
        let compared = Arc::new(Compared { part: Some(part.predicate.clone()), ..Compared::default() });
        parts.insert(key, compared.clone());
        compared
    }

    /// The digests of a part that was compared before.
    pub(super) fn known(&self, part: &Part) -> Option<Arc<Compared>> {
        self.parts.lock().get(&part.key()).cloned()
    }
}

// === impl Compared ===

impl Compared {
    fn is_of_use(&self, now: Instant) -> bool {
        self.newest.lock().as_ref().is_some_and(|(_, asked)| now.saturating_duration_since(asked.at) < KEPT)
    }

    /// Returns a digest that was asked for at or after `since`, and when it was asked for. Reads one of about so many
    /// `objects` if there is none; zero stands for few.
    ///
    /// # Errors
    /// The errors of the read.
    pub(super) async fn read(
        &self,
        since: Asked,
        pace: Pace,
        objects: usize,
        read: impl Future<Output = Result<Digest, UpstreamError>>,
    ) -> Result<(Arc<Digest>, Asked), UpstreamError> {
        if let Some(kept) = self.newest.lock().clone().filter(|(_, asked)| *asked >= since) {
            return Ok(kept);
        }
        let answer = self.turns.ask(pace, held(objects), async { read.await.map(Arc::new) }).await;
        match &answer {
            Ok(_) => *self.lateness.lock() = Lateness { late: None, arrived: Some(Instant::now()) },
            Err(UpstreamError::Decode(_)) => self.lateness.lock().late = Some(Instant::now()),
            Err(_) => {}
        }
        let (digest, asked) = answer?;
        let mut newest = self.newest.lock();
        if newest.as_ref().is_none_or(|(kept, _)| kept.asked < digest.asked) {
            *newest = Some((digest.clone(), asked));
        }
        Ok((digest, asked))
    }

    /// Records that a reader has waited for a digest in vain since `begun`.
    pub(super) fn was_late(&self, begun: Instant) {
        let mut lateness = self.lateness.lock();
        // If one has arrived since, the reader only had no luck with its turn.
        if begun.elapsed() >= LATE && lateness.arrived.is_none_or(|arrived| arrived < begun) {
            lateness.late = Some(Instant::now());
        }
    }

    /// Whether the next digest is expected to be late or unusable.
    pub(super) fn is_late(&self) -> bool {
        self.lateness.lock().late.is_some_and(|late| late.elapsed() < LATE_FOR)
    }

    /// The revision of the newest digest; zero if there is none.
    pub(super) fn revision(&self) -> ResourceVersion {
        self.newest.lock().as_ref().map_or(ResourceVersion::ZERO, |(digest, _)| digest.rv)
    }

    /// Returns the newest state, if it is at or past `rv`, or if the newest digest is of such a revision and the state
    /// holds exactly its objects. Sends no request.
    ///
    /// If the state is that of a whole collection, it is then confirmed for all readers. The state of a part is only
    /// returned, at the revision of the digest: it proves nothing about the rest.
    pub(super) async fn settled(&self, cache: &WatchCache, rv: ResourceVersion) -> Option<Snapshot> {
        let newest = self.newest.lock().as_ref().map(|(digest, _)| digest.clone());
        let digest = newest.filter(|digest| digest.rv >= rv);
        loop {
            let snapshot = cache.snapshot()?;
            if snapshot.rv() >= rv {
                return Some(snapshot);
            }
            let digest = digest.as_ref()?;
            // Check last that the cache's history is still the same: it may have ended during the comparison.
            if !digest.is_of(&snapshot, self.part.as_ref()).await || digest.asked < cache.began() {
                return None;
            }
            if self.part.is_some() {
                return Some(snapshot.seen_at(digest.rv));
            }
            // If the state is no longer the newest, the loop looks at the newest one.
            cache.confirm(&snapshot, digest.rv, digest.asked);
        }
    }
}

/// How long a digest of so many objects is under way before it counts as held.
fn held(objects: usize) -> Duration {
    let longer = EACH * u32::try_from(objects.saturating_sub(SMALL_DIGEST)).unwrap_or(u32::MAX);
    (HELD + longer).min(HELD_AT_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Budget, Order};

    #[tokio::test(start_paused = true)]
    async fn parts_without_readers_are_dropped() {
        let comparisons = Comparisons::default();
        let of = |number: usize| {
            let compared = comparisons.of(Some(&Part::namespace(format!("n{number}").into())));
            let digest =
                Digest::new(ResourceVersion(1), Order::now(), None, Digest::room(&Budget::default(), 0).unwrap());
            *compared.newest.lock() = Some((Arc::new(digest), Asked::now()));
            compared
        };
        let there = || comparisons.parts.lock().len();
        let _read = of(0);
        (1..MOST_PARTS).for_each(|number| drop(of(number)));
        assert_eq!(there(), MOST_PARTS, "all are of use");
        of(MOST_PARTS);
        assert_eq!(there(), 2, "there are too many");
        (1..SOME_PARTS - 1).for_each(|number| drop(of(number)));
        tokio::time::advance(KEPT).await;
        assert_eq!(there(), SOME_PARTS);
        of(MOST_PARTS + 1);
        assert_eq!(there(), 2, "they are of no use any more");
    }
}
