//! The oldest revision that each resource's readers may be shown, and the revisions that they may not continue from.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use crate::meta::ResourceVersion;

/// The floor of each group and resource: the newest revision that a forwarded write, a forwarded read, or a cache that is
/// gone has shown to a client of this daemon. All versions of a resource share one history, unless an aggregated API server
/// has one of them: then its version is a part of the group here. A local read waits until its
/// cache has reached the floor, so clients read their own writes, and no client sees a resource go back in time.
///
/// Each resource has its own floor, because resources may be kept in different stores: those of an aggregated API server
/// in its own, and those that `--etcd-servers-overrides` names. A revision of one store says nothing about another. The
/// resource in the path of a forwarded request may be any text, so the floors that such requests make are limited in
/// number. Beyond that, all other resources share one floor, and a new floor starts as a copy of it.
#[derive(Clone, Debug, Default)]
pub struct Floors(Arc<RwLock<KnownFloors>>);

#[derive(Debug, Default)]
struct KnownFloors {
    /// By group and plural name.
    by_resource: HashMap<Arc<str>, HashMap<Arc<str>, Arc<Floor>>>,
    /// How many of them were made by forwarded requests, for resources that nobody had read.
    told: usize,
    others: Floor,
}

/// The floor of one resource.
#[derive(Debug, Default)]
pub struct Floor {
    rv: AtomicU64,
    /// When it was last raised, in milliseconds of [`now`].
    raised: AtomicU64,
    /// The newest revision that caches which are gone have shown. Their state was the same at the floor.
    shown: AtomicU64,
    /// The first revision that a forwarded list has shown since this daemon started; zero before that.
    first_shown: AtomicU64,
    written: Mutex<Written>,
    /// Counts forwarded answers whose revision could not be read, and writes with an unknown outcome.
    unknown: AtomicU64,
    /// The value of `unknown` after the last answer that is certain to be a success.
    certain: AtomicU64,
    /// Until when a write with an unknown outcome counts, in milliseconds of [`now`].
    doubt_until: AtomicU64,
    /// How many of the unknown answers are covered by a later consistent read of the store's revision.
    covered: AtomicU64,
    /// Until when no read is sent to the apiserver that asks for the floor, in milliseconds of [`now`].
    unreached_until: AtomicU64,
    /// The revisions before and after each gap of a cache, in order, [`MOST_GAPS`] at most.
    gaps: Mutex<Vec<(ResourceVersion, ResourceVersion)>>,
    /// The revisions at which caches went that lacked changes up to there, and until when they count, in milliseconds of
    /// [`now`]; [`MOST_GAPS`] at most.
    lacking: Mutex<Vec<(ResourceVersion, u64)>>,
}

/// The last write of which only the store knows the revision.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    /// The value of [`Floor::unknown`] after it.
    answers: u64,
    /// Until when it counts, in milliseconds of [`now`].
    until: u64,
}

/// Maximum number of floors that forwarded requests make.
const MOST_TOLD: usize = 4096;
/// No group and no resource has a longer name, in bytes (RFC 1123 subdomains).
const LONGEST_NAME: usize = 253;

/// How many gaps are remembered one by one. Beyond that, the two oldest become one.
pub(super) const MOST_GAPS: usize = 8;

/// How long a write with an unknown outcome counts as one that may have happened. After this time the watch has shown
/// it, or the apiserver is down. The client was never told that it happened.
const DOUBT: Duration = Duration::from_secs(10);

/// How long nobody continues from the last revision of a cache that lacked changes up to there. After this time its clients
/// have come back. If the store has not changed since, those that have listed are at this revision, too, and list again.
const LACKING: Duration = Duration::from_secs(60);

/// No apiserver that answers lags by more.
const RECENT: Duration = Duration::from_secs(300);

/// How long an apiserver that did not reach the floor in time is not asked for it again. Each such question takes 3 s.
const UNREACHED: Duration = Duration::from_secs(60);

/// Milliseconds since long before the first call. A test's clock may be behind the one of that call.
fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let (start, now) = (*START.get_or_init(Instant::now), Instant::now());
    let since = (1 << 40) + millis(now.saturating_duration_since(start));
    since.saturating_sub(millis(start.saturating_duration_since(now)))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

// === impl Floors ===

impl Floors {
    /// The floor of a resource that discovery knows. It is created if needed, and kept from then on.
    pub fn of(&self, group: &str, resource: &str) -> Arc<Floor> {
        let (group, resource) = history_of(group, resource);
        if let Some(floor) = self.0.read().get(group, resource) {
            return floor.clone();
        }
        self.0.write().make(group, resource)
    }

    /// The floor of a resource, if anything was shown or written of it.
    pub fn known(&self, group: &str, resource: &str) -> Option<Arc<Floor>> {
        let (group, resource) = history_of(group, resource);
        self.0.read().get(group, resource).cloned()
    }

    /// Runs `what` with the floor of the resource in a forwarded request, which may not exist.
    pub fn tell(&self, group: &str, resource: &str, what: impl FnOnce(&Floor)) {
        let (group, resource) = history_of(group, resource);
        if let Some(floor) = self.0.read().get(group, resource) {
            return what(floor);
        }
        if group.len().max(resource.len()) > LONGEST_NAME {
            return;
        }
        // Under the lock, so that a floor that is created at the same time does not miss it.
        let mut known = self.0.write();
        match known.get(group, resource) {
            Some(floor) => what(floor),
            None if known.told >= MOST_TOLD => what(&known.others),
            None => {
                known.told += 1;
                what(&known.make(group, resource));
            }
        }
    }
}

// === impl KnownFloors ===

impl KnownFloors {
    fn get(&self, group: &str, resource: &str) -> Option<&Arc<Floor>> {
        self.by_resource.get(group)?.get(resource)
    }

    fn make(&mut self, group: &str, resource: &str) -> Arc<Floor> {
        let begin = self.others.copy();
        let of_group = self.by_resource.entry(group.into()).or_default();
        of_group.entry(resource.into()).or_insert_with(|| Arc::new(begin)).clone()
    }
}

/// The resource whose history a request writes or shows. Events are one kind in two groups, and creating a binding in
/// its own collection changes a pod.
pub fn history_of<'n>(group: &'n str, resource: &'n str) -> (&'n str, &'n str) {
    match (group, resource) {
        ("events.k8s.io", "events") => ("", "events"),
        ("", "bindings") => ("", "pods"),
        other => other,
    }
}

// === impl Floor ===

impl Floor {
    /// A new floor with the same values.
    fn copy(&self) -> Self {
        let of = |value: &AtomicU64| AtomicU64::new(value.load(Ordering::Acquire));
        Self {
            rv: of(&self.rv),
            raised: of(&self.raised),
            shown: of(&self.shown),
            first_shown: of(&self.first_shown),
            unknown: of(&self.unknown),
            certain: of(&self.certain),
            doubt_until: of(&self.doubt_until),
            covered: of(&self.covered),
            unreached_until: of(&self.unreached_until),
            written: Mutex::new(*self.written.lock()),
            gaps: Mutex::new(self.gaps.lock().clone()),
            lacking: Mutex::new(self.lacking.lock().clone()),
        }
    }

    pub fn get(&self) -> ResourceVersion {
        ResourceVersion(self.rv.load(Ordering::Acquire))
    }

    pub fn raise(&self, rv: ResourceVersion) {
        if self.rv.fetch_max(rv.get(), Ordering::AcqRel) < rv.get() {
            self.raised.store(now(), Ordering::Release);
        }
    }

    /// A cache goes whose state has not changed from `changed` to `newest`.
    pub(super) fn left(&self, changed: ResourceVersion, newest: ResourceVersion) {
        self.raise(changed);
        self.shown.fetch_max(newest.get(), Ordering::AcqRel);
    }

    /// The newest revision that a client may know from here; never below the floor.
    pub fn newest(&self) -> ResourceVersion {
        self.get().max(ResourceVersion(self.shown.load(Ordering::Acquire)))
    }

    /// A list at `to` took the place of a cache's events after `from`. Its watches go on with what the list shows, so a client
    /// that is cut off between the two has some of the changes up to its revision and lacks others. It must not continue
    /// from there anywhere. From now on, nobody is shown a list from between the two.
    pub(super) fn lacks(&self, mut from: ResourceVersion, mut to: ResourceVersion) {
        let mut gaps = self.gaps.lock();
        self.raise(to);
        // Those of caches that were cut off together are one.
        gaps.retain(|&(first, last)| {
            let is_apart = last <= from || to <= first;
            if !is_apart {
                (from, to) = (from.min(first), to.max(last));
            }
            is_apart
        });
        gaps.push((from, to));
        gaps.sort_unstable();
        if gaps.len() > MOST_GAPS {
            // Who is at the list between the two lists again, too.
            let (first, _) = gaps.remove(0);
            gaps[0].0 = first;
        }
    }

    /// A cache goes that lacks changes after `from`. Who is at the end of what it has shown lacks them, too, but no list from
    /// there does.
    pub(super) fn left_lacking(&self, from: ResourceVersion, at: ResourceVersion) {
        if from < at {
            self.lacks(from, at);
            let (now, mut lacking) = (now(), self.lacking.lock());
            // A cache that is taken away says so again when it stops.
            lacking.retain(|(known, until)| now < *until && *known != at);
            if lacking.len() == MOST_GAPS {
                lacking.remove(0);
            }
            lacking.push((at, now.saturating_add(millis(LACKING))));
        }
    }

    /// The end of the last gap; zero if there is none.
    pub fn last_gap_end(&self) -> ResourceVersion {
        self.gaps.lock().last().map_or(ResourceVersion::ZERO, |(_, to)| *to)
    }

    /// The end of the gap that `rv` is in: no watch may continue from there. The store may not have reached the end yet.
    pub fn gap_around(&self, rv: ResourceVersion) -> Option<ResourceVersion> {
        let end = self.gaps.lock().iter().find(|(from, to)| *from < rv && rv < *to).map(|(_, to)| *to);
        let is_lacking = || self.lacking.lock().iter().any(|(at, until)| *at == rv && now() < *until);
        end.or_else(|| is_lacking().then(|| rv.next()))
    }

    /// The store was set back: it comes to the same revisions again, with other changes.
    pub(super) fn forget_gaps(&self) {
        self.gaps.lock().clear();
        self.lacking.lock().clear();
    }

    /// Records that the apiserver did not reach the floor in time.
    pub fn unreached(&self) {
        self.unreached_until.store(now().saturating_add(millis(UNREACHED)), Ordering::Release);
    }

    /// Whether that was so less than a minute ago.
    pub fn is_unreached(&self) -> bool {
        now() < self.unreached_until.load(Ordering::Acquire)
    }

    /// Whether an apiserver that lags may not have reached it yet. Without an informer, nothing would show that the store
    /// was set back.
    pub fn is_recent(&self) -> bool {
        now().saturating_sub(self.raised.load(Ordering::Acquire)) < millis(RECENT)
    }

    /// Records that a forwarded list has shown the resource at `rv`.
    pub fn showed(&self, rv: ResourceVersion) {
        let _ = self.first_shown.compare_exchange(0, rv.get(), Ordering::AcqRel, Ordering::Acquire);
        self.raise(rv);
    }

    /// Whether a client may know `rv` from a list that this daemon forwarded.
    pub fn may_have_shown(&self, rv: ResourceVersion) -> bool {
        let first = self.first_shown.load(Ordering::Acquire);
        first != 0 && rv.get() >= first
    }

    /// Records that something was written at a revision that the answer does not contain.
    pub fn wrote_unknown(&self) {
        self.wrote(RECENT);
        self.certain.fetch_max(self.unknown.load(Ordering::Acquire), Ordering::AcqRel);
    }

    /// Records that something was shown at a revision that could not be read.
    pub fn showed_unknown(&self) {
        let answers = self.unknown.fetch_add(1, Ordering::AcqRel) + 1;
        self.certain.fetch_max(answers, Ordering::AcqRel);
    }

    /// Records that something may have been written, because the outcome is unknown. It counts for [`DOUBT`].
    pub fn doubt(&self) {
        self.doubt_until.fetch_max(now().saturating_add(millis(DOUBT)), Ordering::AcqRel);
        self.wrote(DOUBT);
    }

    fn wrote(&self, counts: Duration) {
        let mut written = self.written.lock();
        // How long an earlier write counted, which is covered, says nothing of this one.
        let before = if self.counts(*written) { written.until } else { 0 };
        let answers = self.unknown.fetch_add(1, Ordering::AcqRel) + 1;
        *written = Written { answers, until: before.max(now().saturating_add(millis(counts))) };
    }

    fn counts(&self, written: Written) -> bool {
        written.answers > self.covered.load(Ordering::Acquire) && now() < written.until
    }

    /// Whether an apiserver that lags may lack a write of which only the store knows the revision. What was only shown does
    /// not count: reads that the apiserver answers from its cache would have to be answered by the store for as long as a
    /// client watches in an encoding that is not read here.
    pub fn has_unknown_write(&self) -> bool {
        self.counts(*self.written.lock())
    }

    /// The number of unknown answers, if some of them still count and are not yet covered by a read of the store's
    /// revision.
    pub fn uncovered(&self) -> Option<u64> {
        let (answers, covered) = (self.unknown.load(Ordering::Acquire), self.covered.load(Ordering::Acquire));
        let counts = self.certain.load(Ordering::Acquire) > covered || now() < self.doubt_until.load(Ordering::Acquire);
        (answers > covered && counts).then_some(answers)
    }

    /// Records that the store's revision `rv` was read after the first `answers` unknown answers.
    pub fn cover(&self, answers: u64, rv: ResourceVersion) {
        self.raise(rv);
        self.covered.fetch_max(answers, Ordering::AcqRel);
    }

    /// Records that the store was rewound (an etcd restore): it was read at `rv` after the floor was read at `seen`.
    /// What was shown before no longer applies.
    pub fn rewound(&self, seen: ResourceVersion, rv: ResourceVersion) {
        if rv < seen && self.rv.compare_exchange(seen.get(), rv.get(), Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.first_shown.store(0, Ordering::Release);
            self.shown.store(0, Ordering::Release);
            // Lists have revisions after this one again.
            let mut gaps = self.gaps.lock();
            gaps.retain(|(from, _)| *from < rv);
            gaps.iter_mut().for_each(|(_, to)| *to = rv.min(*to));
            self.lacking.lock().retain(|(at, _)| *at <= rv);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_history_has_one_floor_under_each_name_that_never_goes_down() {
        let floors = Floors::default();
        for rv in [7, 5] {
            floors.of("events.k8s.io", "events").raise(ResourceVersion(rv));
        }
        floors.of("", "bindings").raise(ResourceVersion(8));
        assert_eq!(floors.of("", "events").get(), ResourceVersion(7));
        assert_eq!(floors.of("", "pods").get(), ResourceVersion(8));
        assert_eq!(floors.of("apps", "pods").get(), ResourceVersion::ZERO);
    }

    #[test]
    fn what_clients_call_resources_is_bounded() {
        let floors = Floors::default();
        floors.of("", "pods").raise(ResourceVersion(3));
        let longest = [0, 1].map(|more| "x".repeat(LONGEST_NAME + more));
        longest.iter().for_each(|name| floors.tell("", name, |floor| floor.raise(ResourceVersion(7))));
        assert_eq!(longest.map(|name| floors.0.read().get("", &name).is_some()), [true, false]);
        for n in 0..2 * MOST_TOLD {
            floors.tell("", &format!("x{n}"), |floor| floor.raise(ResourceVersion(7)));
        }
        floors.tell("", "bindings", |floor| floor.raise(ResourceVersion(5)));
        floors.tell("apps", "deployments", Floor::wrote_unknown);
        assert_eq!(floors.0.read().by_resource.values().map(HashMap::len).sum::<usize>(), MOST_TOLD + 1);
        assert_eq!(floors.of("", "pods").get(), ResourceVersion(5), "it has been told of its own");
        // A resource that is read for the first time starts with everything recorded in the shared floor.
        let deployments = floors.of("apps", "deployments");
        assert_eq!((deployments.get(), deployments.uncovered()), (ResourceVersion(7), Some(1)));
    }

    #[test]
    fn a_write_to_another_store_concerns_no_other_resource() {
        let floors = Floors::default();
        floors.tell("metrics.example.com", "readings", |floor| floor.raise(ResourceVersion(900_000)));
        floors.tell("metrics.example.com", "others", Floor::wrote_unknown);
        let maps = floors.of("", "configmaps");
        assert_eq!((maps.get(), maps.uncovered()), (ResourceVersion::ZERO, None));
        // Its own readers find it, though nobody had read it before.
        assert_eq!(floors.of("metrics.example.com", "readings").get(), ResourceVersion(900_000));
    }

    #[test]
    fn goes_down_with_a_store_that_was_restored() {
        let floor = Floor::default();
        floor.showed(ResourceVersion(7));
        floor.left_lacking(ResourceVersion(1), ResourceVersion(7));
        floor.rewound(ResourceVersion(7), ResourceVersion(7));
        assert!(floor.may_have_shown(ResourceVersion(8)));
        floor.rewound(ResourceVersion(7), ResourceVersion(3));
        assert_eq!((floor.get(), floor.may_have_shown(ResourceVersion(8))), (ResourceVersion(3), false));
        // Who lists now and watches from there would list for ever.
        let ends = [2, 3, 4, 7].map(|rv| floor.gap_around(ResourceVersion(rv)));
        assert_eq!(ends, [Some(ResourceVersion(3)), None, None, None]);
        // A revision that was shown after the store was read belongs to the restored store.
        floor.raise(ResourceVersion(4));
        floor.rewound(ResourceVersion(7), ResourceVersion(3));
        assert_eq!(floor.get(), ResourceVersion(4));
    }

    #[test]
    fn gaps_of_several_caches_are_one_where_they_overlap() {
        let floor = Floor::default();
        for (from, to) in [(50, 100), (10, 20), (40, 90), (100, 120), (20, 30)] {
            floor.lacks(ResourceVersion(from), ResourceVersion(to));
        }
        let ends = [10, 19, 20, 21, 40, 41, 50, 95, 100, 101, 120]
            .map(|rv| floor.gap_around(ResourceVersion(rv)).map_or(0, ResourceVersion::get));
        assert_eq!(ends, [0, 20, 0, 30, 0, 100, 100, 100, 0, 120, 0]);
        assert_eq!(floor.get(), ResourceVersion(120), "no list is shown from inside one");
    }

    #[test]
    fn a_cache_that_lacks_changes_takes_one_place() {
        let floor = Floor::default();
        for at in (2..2 + MOST_GAPS as u64).chain([9, 9]) {
            floor.left_lacking(ResourceVersion(at - 1), ResourceVersion(at));
        }
        assert!((2..=9).all(|at| floor.gap_around(ResourceVersion(at)).is_some()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_without_an_outcome_counts_for_a_while() {
        let floor = Floor::default();
        floor.doubt();
        assert_eq!(floor.uncovered(), Some(1));
        tokio::time::sleep(2 * DOUBT).await;
        assert_eq!(floor.uncovered(), None);
        floor.wrote_unknown();
        tokio::time::sleep(10 * DOUBT).await;
        assert_eq!(floor.uncovered(), Some(2), "what has happened counts until it is covered");
        floor.cover(1, ResourceVersion(8));
        assert_eq!(floor.uncovered(), Some(2), "by something that was asked for before the second");
        floor.cover(2, ResourceVersion(9));
        floor.doubt();
        floor.doubt();
        assert_eq!(floor.uncovered(), Some(4));
        floor.cover(4, ResourceVersion(10));
        assert_eq!(floor.uncovered(), None, "covered before its time");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_is_covered_makes_no_later_one_count_longer() {
        let floor = Floor::default();
        floor.wrote_unknown();
        floor.cover(1, ResourceVersion(9));
        floor.doubt();
        assert!(floor.has_unknown_write());
        tokio::time::sleep(2 * DOUBT).await;
        assert!(!floor.has_unknown_write());
        floor.wrote_unknown();
        floor.doubt();
        tokio::time::sleep(2 * DOUBT).await;
        assert!(floor.has_unknown_write(), "the first of the two is not covered");
    }
}
