//! Tracks whether changes of rights are seen as they happen. While they are not, decisions are only used for a short
//! time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::metrics::AuthMetrics;
use super::rbac_generations::RbacGenerations;

/// How long decisions stay valid after a watch is lost. A watch that is reopened within this time at the revision where
/// it stopped reports everything that it missed.
const BLIND: Duration = Duration::from_secs(10);

/// Counts the open watches for changes of rights, and drops all decisions if one of them stays closed.
#[derive(Debug)]
pub(super) struct Sight {
    generations: Arc<RbacGenerations>,
    metrics: Arc<AuthMetrics>,
    all: usize,
    eyes: watch::Sender<Eyes>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Eyes {
    open: usize,
    /// Since when not all watches are open.
    blind: Option<Instant>,
}

// === impl Sight ===

impl Sight {
    /// Starts with this many watches, none of which is open yet.
    pub(super) fn new(all: usize, generations: Arc<RbacGenerations>, metrics: Arc<AuthMetrics>) -> Self {
        Self { generations, metrics, all, eyes: watch::Sender::new(Eyes::default()) }
    }

    /// Records that one more watch is open.
    pub(super) fn opened(&self) {
        self.eyes.send_modify(|eyes| {
            eyes.open += 1;
            if eyes.open == self.all {
                eyes.blind = None;
            }
            self.tell(eyes.open);
        });
    }

    /// Records that a watch was lost.
    pub(super) fn lost(&self) {
        self.eyes.send_modify(|eyes| {
            if eyes.open == self.all {
                eyes.blind = Some(Instant::now());
            }
            eyes.open = eyes.open.saturating_sub(1);
            self.tell(eyes.open);
        });
    }

    fn tell(&self, open: usize) {
        self.metrics.watches_live.set(i64::try_from(open).unwrap_or(i64::MAX));
        self.generations.set_watched(open == self.all);
    }

    pub(super) async fn run(self: Arc<Self>) {
        let mut eyes = self.eyes.subscribe();
        loop {
            let blind = eyes.borrow_and_update().blind;
            let forget = async {
                match blind {
                    Some(since) => sleep_until(since + BLIND).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = eyes.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
                () = forget => {}
            }
            tracing::warn!("roles and bindings cannot be watched: dropping all cached decisions");
            self.metrics.flushes.inc();
            self.generations.change("");
            // Decisions from now on are short-lived anyway.
            if eyes.wait_for(|eyes| eyes.blind != blind).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;
    use crate::lifecycle::spawn;

    #[tokio::test(start_paused = true)]
    async fn what_was_decided_ends_when_a_watch_stays_away() {
        let generations = Arc::new(RbacGenerations::new());
        let metrics = Arc::<AuthMetrics>::default();
        let sight = Arc::new(Sight::new(2, generations.clone(), Arc::clone(&metrics)));
        let task = spawn("sight", sight.clone().run());
        let before = generations.of("a");
        sight.opened();
        sleep(Duration::from_secs(60)).await;
        assert!(!generations.is_watched());
        sight.opened();
        assert!(generations.is_watched());
        // The watch is lost for a moment, again and again: it reports what it missed.
        for _ in 0..3 {
            sight.lost();
            assert!(!generations.is_watched());
            sleep(Duration::from_secs(9)).await;
            sight.opened();
            assert!(generations.is_watched());
            sleep(Duration::from_secs(5)).await;
        }
        assert_eq!(generations.of("a"), before);
        // The second watch is lost later: the time of the first one counts.
        sight.lost();
        sleep(Duration::from_secs(6)).await;
        sight.lost();
        assert_eq!(generations.of("a"), before);
        sleep(Duration::from_millis(4100)).await;
        let forgotten = generations.of("a");
        assert!(forgotten.change > before.change);
        // One open watch is not enough, and everything is dropped only once.
        sight.opened();
        sleep(Duration::from_secs(600)).await;
        assert_eq!(generations.of("a"), forgotten);
        assert!(!generations.is_watched());
        sight.opened();
        assert!(generations.is_watched());
        sight.lost();
        sleep(Duration::from_secs(11)).await;
        assert!(generations.of("a").change > forgotten.change, "and once more the next time");
        assert_eq!((metrics.flushes.get(), metrics.watches_live.get()), (2, 1));
        task.abort();
    }
}
