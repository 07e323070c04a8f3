//! Regularly compares the caches of informers with the store. A store that was restored from a backup has a different
//! history, and no event may ever show this.

use std::time::Duration;

use rand::Rng as _;
use tokio::time::{sleep, timeout};

use super::{Factory, Informer};
use crate::meta::{ObjectKey, Origin};
use crate::upstream::{Finding, Suspects};

/// Timeout of one comparison.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum time until the event of a deletion arrives.
const ON_ITS_WAY: Duration = Duration::from_secs(2);

// === impl Factory ===

impl Factory {
    /// Runs until the drain starts. Compares each informer once per `every`, one after another; never if `every` is
    /// zero.
    pub async fn audit(self, every: Duration) {
        if every.is_zero() {
            return;
        }
        let rounds = async {
            loop {
                let informers = self.informers();
                let pause = every / u32::try_from(informers.len()).unwrap_or(u32::MAX).max(1);
                for informer in informers {
                    // Jitter, so that the replicas do not run in step.
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
    /// Compares once, and a second time to be sure. If the store contradicts the cache, the reflector is informed.
    async fn audit(&self) {
        // The revisions of aggregated servers need not follow any rule.
        let counts = matches!(self.resource.origin, Origin::BuiltIn | Origin::Custom { .. });
        if !counts || self.reflector.status().state != "follow" {
            return;
        }
        let mut suspects = self.suspects.lock().await;
        let Ok(finding) = self.probe.audit(&self.cache, &mut suspects).await else { return };
        if let Finding::Detached { .. } = finding {
            // The event of its deletion may be in flight.
            sleep(ON_ITS_WAY).await;
        }
        let again =
            if finding == Finding::Agrees { return } else { self.probe.audit(&self.cache, &mut suspects).await };
        match (finding, again) {
            (Finding::Contradicts(_), Ok(Finding::Contradicts(why))) => {
                *suspects = Suspects::default();
                self.reflector.doubt(&why);
            }
            (Finding::Detached { .. }, Ok(Finding::Detached { key, why })) => self.detach(key, &why),
            _ => {}
        }
    }

    /// Records that the apiserver's cache, which we follow, differs from its store, which gets read. Gets are then
    /// forwarded.
    fn detach(&self, key: ObjectKey, why: &str) {
        let lineage = self.cache.snapshot().map_or(0, |snapshot| snapshot.lineage());
        let last = self.detached.lock().replace((lineage, key));
        if last.is_none_or(|(last, _)| last != lineage) {
            let what_to_do =
                "the apiserver lists what its store does not hold: restart the kube-apiservers after a restore";
            tracing::error!(informer = %self.key, why, "{what_to_do}");
        }
    }

    /// Whether the apiserver lists an object that its store no longer holds, since this state was read. If the object
    /// that showed this is deleted after all, its deletion was only late.
    pub fn is_detached(&self) -> bool {
        let detached = self.detached.lock();
        let Some((lineage, key)) = &*detached else { return false };
        self.cache.snapshot().is_some_and(|snapshot| snapshot.lineage() == *lineage && snapshot.get(key).is_some())
    }
}
