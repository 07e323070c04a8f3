//! Drops decisions when rights change, which does not reach all authorizers at once, and when changes are not seen.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::metrics::AuthMetrics;
use super::rbac_generations::RbacGenerations;

/// The apiserver's authorizer reads roles from its own cache. Several apiservers may share one address, and one of them
/// may be far behind. So a decision may use the rights from before a change for some time after it. Decisions after a
/// change are repeated at these times after it. If an authorizer was behind for some time, its stale answer is used
/// for at most three times that time again.
pub(super) const SETTLES: [Duration; 6] = [
    Duration::from_secs(1),
    Duration::from_secs(4),
    Duration::from_secs(12),
    Duration::from_secs(36),
    Duration::from_secs(108),
    Duration::from_secs(324),
];
/// The most namespaces that settle at once. Beyond that, the settling of one namespace applies to all.
const MAX_SETTLING: usize = 4096;
/// How long decisions stay valid after a watch is lost. A watch that is reopened within this time at the revision where
/// it stopped reports everything that it missed.
pub(super) const BLIND: Duration = Duration::from_secs(10);

/// When to look again whether changes are seen, while the apiserver is away. `None`: all decisions are dropped.
type SeesLater = Box<dyn Fn() -> Option<Instant> + Send + Sync>;

/// Drops decisions when rights change, and has them repeated until the change has reached all authorizers. Drops all if one of the
/// watches for changes stays closed: until it is open again, decisions are only used for a short time.
pub(super) struct Settling {
    generations: Arc<RbacGenerations>,
    metrics: Arc<AuthMetrics>,
    /// The number of watches for changes of rights.
    watches: usize,
    sees_later: SeesLater,
    state: Mutex<State>,
    more: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Times of the next settlings, by namespace.
    pending: HashMap<Box<str>, VecDeque<Instant>>,
    /// How many of the watches are open.
    open: usize,
    /// When all decisions are dropped, if not all watches are open by then.
    blind: Option<Instant>,
}

// === impl Settling ===

impl Settling {
    /// Starts with this many watches, none of which is open yet.
    pub(super) fn new(
        watches: usize,
        generations: Arc<RbacGenerations>,
        sees_later: SeesLater,
        metrics: Arc<AuthMetrics>,
    ) -> Self {
        Self { generations, metrics, watches, sees_later, state: Mutex::default(), more: Notify::new() }
    }

    /// Records a change of rights in a namespace, or anywhere if `namespace` is empty.
    pub(super) fn change(&self, namespace: &str) {
        self.metrics.flushes.inc();
        self.generations.change(namespace);
        let now = Instant::now();
        let mut state = self.state.lock();
        let pending = &mut state.pending;
        let namespace = if pending.len() < MAX_SETTLING || pending.contains_key(namespace) { namespace } else { "" };
        pending.insert(namespace.into(), SETTLES.iter().map(|after| now + *after).collect());
        drop(state);
        self.more.notify_one();
    }

    /// Records that one more watch is open, or that one was lost.
    pub(super) fn watch(&self, is_open: bool) {
        let mut state = self.state.lock();
        let were_all = state.open == self.watches;
        state.open = if is_open { state.open + 1 } else { state.open.saturating_sub(1) };
        let are_all = state.open == self.watches;
        if were_all != are_all {
            state.blind = were_all.then(|| Instant::now() + BLIND);
        }
        self.metrics.watches_live.set(i64::try_from(state.open).unwrap_or(i64::MAX));
        self.generations.set_watched(are_all);
        drop(state);
        self.more.notify_one();
    }

    pub(super) async fn run(self: Arc<Self>) {
        loop {
            let next = self.state.lock().next();
            let Some(next) = next else {
                self.more.notified().await;
                continue;
            };
            tokio::select! {
                () = sleep_until(next) => {}
                () = self.more.notified() => continue,
            }
            let (settle, is_blind) = self.state.lock().due(next, &self.sees_later);
            if is_blind {
                tracing::warn!("roles and bindings cannot be watched: dropping all cached decisions");
                self.metrics.flushes.inc();
                // Decisions from now on are short-lived anyway, so nothing has to settle.
                self.generations.change("");
            }
            for namespace in settle {
                self.metrics.settlings.inc();
                self.generations.settle(&namespace);
            }
        }
    }
}

// === impl State ===

impl State {
    /// When there is something to do.
    fn next(&self) -> Option<Instant> {
        self.pending.values().filter_map(|times| times.front().copied()).chain(self.blind).min()
    }

    /// What is due by then: the namespaces that settle, and whether all decisions are dropped.
    fn due(&mut self, by: Instant, sees_later: &SeesLater) -> (Vec<Box<str>>, bool) {
        let mut settle = Vec::new();
        self.pending.retain(|namespace, times| {
            if times.front().is_some_and(|time| *time <= by) {
                times.pop_front();
                settle.push(namespace.clone());
            }
            !times.is_empty()
        });
        let is_blind = self.blind.take_if(|blind| *blind <= by).is_some();
        if is_blind {
            // Whatever has changed while the apiserver is away is told when its watches go on.
            self.blind = sees_later();
        }
        (settle, is_blind && self.blind.is_none())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;
    use crate::lifecycle::spawn;

    #[tokio::test(start_paused = true)]
    async fn a_change_is_told_at_once_and_settles_for_minutes() {
        let generations = Arc::<RbacGenerations>::default();
        let metrics = Arc::<AuthMetrics>::default();
        let settling = Arc::new(Settling::new(4, generations.clone(), Box::new(|| None), Arc::clone(&metrics)));
        let task = spawn("settling", settling.clone().run());
        let (a, b) = (generations.of("a"), generations.of("b"));
        tokio::task::yield_now().await;
        let started = Instant::now();
        settling.change("a");
        let changed = generations.of("a");
        assert!(changed.change > a.change);
        for (index, after) in SETTLES.into_iter().enumerate() {
            tokio::time::sleep_until(started + after - Duration::from_millis(10)).await;
            assert_eq!(generations.of("a").settle, changed.settle + index as u64, "before {after:?}");
            tokio::time::sleep_until(started + after + Duration::from_millis(10)).await;
            assert_eq!(generations.of("a").settle, changed.settle + index as u64 + 1, "after {after:?}");
        }
        let last = generations.of("a");
        sleep(Duration::from_secs(3600)).await;
        assert_eq!((generations.of("a"), generations.of("b")), (last, b), "nothing more");
        assert_eq!(last.change, changed.change, "one change");
        assert_eq!((metrics.flushes.get(), metrics.settlings.get()), (1, SETTLES.len() as u64));
        task.abort();
    }

    #[test]
    fn changes_in_more_namespaces_than_are_remembered_settle_everywhere() {
        let settling = Settling::new(4, Arc::default(), Box::new(|| None), Arc::default());
        (0..MAX_SETTLING).for_each(|n| settling.change(&n.to_string()));
        let remembered = |namespace: &str| settling.state.lock().pending.contains_key(namespace);
        assert!(remembered("0") && !remembered(""));
        ["more", "0", "others"].iter().for_each(|namespace| settling.change(namespace));
        assert!(remembered("") && !remembered("more") && settling.state.lock().pending.len() == MAX_SETTLING + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_decided_ends_when_a_watch_stays_away() {
        let generations = Arc::<RbacGenerations>::default();
        let metrics = Arc::<AuthMetrics>::default();
        let settling = Arc::new(Settling::new(2, generations.clone(), Box::new(|| None), Arc::clone(&metrics)));
        let task = spawn("settling", settling.clone().run());
        let before = generations.of("a");
        settling.watch(true);
        sleep(Duration::from_secs(60)).await;
        assert!(!generations.is_watched());
        settling.watch(true);
        assert!(generations.is_watched());
        // The watch is lost for a moment, again and again: it reports what it missed.
        for _ in 0..3 {
            settling.watch(false);
            assert!(!generations.is_watched());
            sleep(Duration::from_secs(9)).await;
            settling.watch(true);
            assert!(generations.is_watched());
            sleep(Duration::from_secs(5)).await;
        }
        assert_eq!(generations.of("a"), before);
        // The second watch is lost later: the time of the first one counts.
        settling.watch(false);
        sleep(Duration::from_secs(6)).await;
        settling.watch(false);
        assert_eq!(generations.of("a"), before);
        sleep(Duration::from_millis(4100)).await;
        let forgotten = generations.of("a");
        assert!(forgotten.change > before.change);
        // One open watch is not enough, and everything is dropped only once.
        settling.watch(true);
        sleep(Duration::from_secs(600)).await;
        assert_eq!(generations.of("a"), forgotten);
        assert!(!generations.is_watched());
        settling.watch(true);
        assert!(generations.is_watched());
        settling.watch(false);
        sleep(Duration::from_secs(11)).await;
        assert!(generations.of("a").change > forgotten.change, "and once more the next time");
        assert_eq!((metrics.flushes.get(), metrics.watches_live.get()), (2, 1));
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn decisions_outlive_a_lost_watch_for_as_long_as_they_are_kept() {
        let generations = Arc::<RbacGenerations>::default();
        let second = Duration::from_secs(1);
        let until = Arc::new(Mutex::new(Instant::now() + 600 * second));
        let keeps = Arc::clone(&until);
        let later = move || (Instant::now() < *keeps.lock()).then(|| Instant::now() + second);
        let settling = Arc::new(Settling::new(1, generations.clone(), Box::new(later), Arc::default()));
        let task = spawn("settling", settling.clone().run());
        settling.watch(true);
        let before = generations.of("a");
        settling.watch(false);
        sleep(599 * second).await;
        assert_eq!(generations.of("a"), before, "whatever the watch has missed, it tells when it goes on");
        settling.change("b");
        assert_eq!(generations.of("a").change, before.change);
        assert!(generations.of("b").change > before.change);
        sleep(3 * second).await;
        let dropped = generations.of("a");
        assert!(dropped.change > before.change, "they are not kept any longer");
        sleep(600 * second).await;
        assert_eq!(generations.of("a"), dropped, "once");
        // A watch that is open again in time drops nothing.
        settling.watch(true);
        *until.lock() = Instant::now() + 600 * second;
        settling.watch(false);
        sleep(100 * second).await;
        settling.watch(true);
        *until.lock() = Instant::now();
        sleep(100 * second).await;
        assert_eq!(generations.of("a"), dropped);
        task.abort();
    }

    /// However long an authorizer is behind, its last stale answer is not used for minutes.
    #[test]
    fn a_stale_answer_lives_for_three_times_its_age_at_most() {
        let mut before = Duration::ZERO;
        for settle in SETTLES {
            // The answer was given right after the previous settling.
            assert!(before.is_zero() || settle - before <= 3 * before, "{settle:?}");
            before = settle;
        }
        assert!(before >= Duration::from_secs(300), "as long as anything is remembered");
    }
}
