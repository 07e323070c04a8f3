//! How a change of rights comes to all who decide: not at once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::metrics::AuthMetrics;
use super::rbac_generations::RbacGenerations;

/// The apiserver's authorizer reads roles from a cache of its own, and behind one address may be several apiservers, of which
/// one may be far behind. So a decision may be made by the rights before a change for some time after it. What is decided
/// after a change is asked for again at these times after it: an authorizer that was behind for some time is
/// believed for twice that time again at most.
pub(super) const SETTLES: [Duration; 6] = [
    Duration::from_secs(1),
    Duration::from_secs(4),
    Duration::from_secs(12),
    Duration::from_secs(36),
    Duration::from_secs(108),
    Duration::from_secs(324),
];
/// Namespaces that settle at once; beyond, what settles in one is asked for again in all.
const MAX_SETTLING: usize = 4096;

/// Has decisions forgotten when rights change, and asked for again until the change has reached everybody.
#[derive(Debug)]
pub(super) struct Settling {
    generations: Arc<RbacGenerations>,
    metrics: Arc<AuthMetrics>,
    /// By namespace.
    pending: Mutex<HashMap<Box<str>, VecDeque<Instant>>>,
    more: Notify,
}

// === impl Settling ===

impl Settling {
    pub(super) fn new(generations: Arc<RbacGenerations>, metrics: Arc<AuthMetrics>) -> Self {
        Self { generations, metrics, pending: Mutex::default(), more: Notify::new() }
    }

    /// Rights in a namespace have changed; with an empty one, rights anywhere.
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
        let settling = Arc::new(Settling::new(generations.clone(), Arc::default()));
        let task = crate::lifecycle::spawn("settling", settling.clone().run());
        let (a, b) = (generations.of("a"), generations.of("b"));
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
        task.abort();
    }

    /// Whatever time an authorizer is behind, its last wrong answer is not believed for minutes.
    #[test]
    fn a_stale_answer_lives_for_twice_its_age_at_most() {
        let mut before = Duration::ZERO;
        for settle in SETTLES {
            // Given right after the settling before this one.
            assert!(before.is_zero() || settle - before <= 3 * before, "{settle:?}");
            before = settle;
        }
        assert!(before >= Duration::from_secs(300), "as long as anything is remembered");
    }
}
