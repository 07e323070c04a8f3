//! Settling: a change of rights does not reach all authorizers at once.

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

/// Drops decisions when rights change, and has them repeated until the change has reached all authorizers.
#[derive(Debug)]
pub(super) struct Settling {
    generations: Arc<RbacGenerations>,
    metrics: Arc<AuthMetrics>,
    /// Times of the next settlings, by namespace.
    pending: Mutex<HashMap<Box<str>, VecDeque<Instant>>>,
    more: Notify,
}

// === impl Settling ===

impl Settling {
    pub(super) fn new(generations: Arc<RbacGenerations>, metrics: Arc<AuthMetrics>) -> Self {
        Self { generations, metrics, pending: Mutex::default(), more: Notify::new() }
    }

    /// Records a change of rights in a namespace, or anywhere if `namespace` is empty.
    pub(super) fn change(&self, namespace: &str) {
        self.metrics.flushes.inc();
        self.generations.change(namespace);
        let now = Instant::now();
        let mut pending = self.pending.lock();
        let namespace = if pending.len() < MAX_SETTLING || pending.contains_key(namespace) { namespace } else { "" };
        pending.insert(namespace.into(), SETTLES.iter().map(|after| now + *after).collect());
        drop(pending);
        self.more.notify_one();
    }

    pub(super) async fn run(self: Arc<Self>) {
        loop {
            let next = self.pending.lock().values().filter_map(|times| times.front().copied()).min();
            let Some(next) = next else {
                self.more.notified().await;
                continue;
            };
            tokio::select! {
                () = sleep_until(next) => {}
                () = self.more.notified() => continue,
            }
            let mut due = Vec::new();
            self.pending.lock().retain(|namespace, times| {
                if times.front().is_some_and(|time| *time <= next) {
                    times.pop_front();
                    due.push(namespace.clone());
                }
                !times.is_empty()
            });
            for namespace in due {
                self.metrics.settlings.inc();
                self.generations.settle(&namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_is_told_at_once_and_settles_for_minutes() {
        let generations = Arc::new(RbacGenerations::new());
        let metrics = Arc::<AuthMetrics>::default();
        let settling = Arc::new(Settling::new(generations.clone(), Arc::clone(&metrics)));
        let task = crate::lifecycle::spawn("settling", settling.clone().run());
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
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!((generations.of("a"), generations.of("b")), (last, b), "nothing more");
        assert_eq!(last.change, changed.change, "one change");
        assert_eq!((metrics.flushes.get(), metrics.settlings.get()), (1, SETTLES.len() as u64));
        task.abort();
    }

    #[test]
    fn changes_in_more_namespaces_than_are_remembered_settle_everywhere() {
        let settling = Settling::new(Arc::new(RbacGenerations::new()), Arc::default());
        (0..MAX_SETTLING).for_each(|n| settling.change(&n.to_string()));
        let remembered = |namespace: &str| settling.pending.lock().contains_key(namespace);
        assert!(remembered("0") && !remembered(""));
        ["more", "0", "others"].iter().for_each(|namespace| settling.change(namespace));
        assert!(remembered("") && !remembered("more") && settling.pending.lock().len() == MAX_SETTLING + 1);
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
