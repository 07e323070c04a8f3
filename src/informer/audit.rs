//! Compares what informers hold with what the store does, now and then: a store that was restored from a backup has another
//! past, and nothing else need ever tell.

use std::time::Duration;

use rand::Rng as _;
use tokio::time::{sleep, timeout};

use super::{Factory, Informer};
use crate::meta::Origin;
use crate::upstream::Suspects;

/// For one comparison.
const PATIENCE: Duration = Duration::from_secs(10);

// === impl Factory ===

impl Factory {
    /// Runs until the drain starts: compares each informer every `every`, one after the other; never if that is zero.
    pub async fn audit(self, every: Duration) {
        if every.is_zero() {
            return;
        }
        let rounds = async {
            loop {
                let informers = self.informers();
                let pause = every / u32::try_from(informers.len()).unwrap_or(u32::MAX).max(1);
                for informer in informers {
                    // Not in step with the other replicas.
                    let pause = pause.mul_f64(rand::rng().random_range(0.75..1.25));
                    sleep(pause).await;
                    if self.upstream().is_reachable() && self.runs(&informer) {
                        timeout(PATIENCE, informer.audit()).await.ok();
                    }
                }
                if self.informers().is_empty() {
                    sleep(every).await;
                }
            }
        };
        tokio::select! {
            () = rounds => {}
            () = self.draining() => {}
        }
    }
}

// === impl Informer ===

impl Informer {
    /// Compares once, and a second time to be sure. If the store contradicts what is held, the reflector is told.
    async fn audit(&self) {
        // What aggregated servers call a revision may be anything.
        let counts = matches!(self.resource.origin, Origin::BuiltIn | Origin::Custom { .. });
        if !counts || self.reflector.status().state != "follow" {
            return;
        }
        let mut suspects = self.suspects.lock().await;
        if let Ok(Some(_)) = self.probe.audit(&self.cache, &mut suspects).await
            && let Ok(Some(why)) = self.probe.audit(&self.cache, &mut suspects).await
        {
            *suspects = Suspects::default();
            self.reflector.doubt(&why);
        }
    }
}
