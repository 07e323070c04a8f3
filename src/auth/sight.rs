//! Whether changes of rights are seen as they happen. While they are not, nothing that was decided is believed for long.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::metrics::AuthMetrics;
use super::rbac_generations::RbacGenerations;

/// How long what was decided with open eyes is believed with closed ones. A watch that is open again within this time where it
/// stopped tells of everything that it missed.
const BLIND: Duration = Duration::from_secs(10);

/// Counts the watches for changed rights that are open, and has everything forgotten when one of them stays away.
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
    /// Not all are open any more, since then.
    blind: Option<Instant>,
}

// === impl Sight ===

impl Sight {
    /// With this many watches, none of which is open yet.
    pub(super) fn new(all: usize, generations: Arc<RbacGenerations>, metrics: Arc<AuthMetrics>) -> Self {
        Self { generations, metrics, all, eyes: watch::Sender::new(Eyes::default()) }
    }

    /// One more watch is open.
    pub(super) fn opened(&self) {
        self.eyes.send_modify(|eyes| {
            eyes.open += 1;
            if eyes.open == self.all {
                eyes.blind = None;
            }
            self.tell(eyes.open);
        });
    }

    /// One watch is open no longer.
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
            tracing::warn!("roles and bindings cannot be watched: everything that was decided by them is decided anew");
            self.metrics.flushes.inc();
            self.generations.change("");
            // What is decided from now on lives for a short time anyway.
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
        let sight = Arc::new(Sight::new(2, generations.clone(), Arc::default()));
        let task = spawn("sight", sight.clone().run());
        let before = generations.of("a");
        sight.opened();
        sleep(Duration::from_secs(60)).await;
        assert!(!generations.is_watched());
        sight.opened();
        assert!(generations.is_watched());
        // Away for a moment, again and again: what was missed is told.
        for _ in 0..3 {
            sight.lost();
            assert!(!generations.is_watched());
            sleep(Duration::from_secs(9)).await;
            sight.opened();
            assert!(generations.is_watched());
            sleep(Duration::from_secs(5)).await;
        }
        assert_eq!(generations.of("a"), before);
        // The second one is lost later: the first counts.
        sight.lost();
        sleep(Duration::from_secs(6)).await;
        sight.lost();
        assert_eq!(generations.of("a"), before);
        sleep(Duration::from_millis(4100)).await;
        let forgotten = generations.of("a");
        assert!(forgotten.change > before.change);
        // One of them is not enough, and everything is forgotten once.
        sight.opened();
        sleep(Duration::from_secs(600)).await;
        assert_eq!(generations.of("a"), forgotten);
        assert!(!generations.is_watched());
        sight.opened();
        assert!(generations.is_watched());
        sight.lost();
        sleep(Duration::from_secs(11)).await;
        assert!(generations.of("a").change > forgotten.change, "and once more the next time");
        task.abort();
    }
}
