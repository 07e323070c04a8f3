//! Counters of the read path: what was served, and why the rest was not.

use std::sync::atomic::{AtomicU64, Ordering};

use super::ForwardReason;

/// `informerd_reads_total{plan,reason}` by plain counters.
#[derive(Debug, Default)]
pub struct ReadMetrics {
    served: AtomicU64,
    waited: AtomicU64,
    refused: AtomicU64,
    forwarded: [AtomicU64; ForwardReason::ALL.len()],
}

// === impl ReadMetrics ===

impl ReadMetrics {
    pub(super) fn served(&self, waited: bool) {
        let counter = if waited { &self.waited } else { &self.served };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub fn forwarded(&self, reason: ForwardReason) {
        if let Some(position) = ForwardReason::ALL.iter().position(|&known| known == reason) {
            self.forwarded[position].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// `(plan, reason, count)` for every series.
    pub fn series(&self) -> Vec<(&'static str, &'static str, u64)> {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut series = vec![
            ("serve", "", load(&self.served)),
            ("wait", "", load(&self.waited)),
            ("refuse", "", load(&self.refused)),
        ];
        for (reason, counter) in ForwardReason::ALL.iter().zip(&self.forwarded) {
            series.push(("forward", reason.as_str(), load(counter)));
        }
        series
    }

    /// Reads that were answered from a cache.
    pub fn local(&self) -> u64 {
        self.served.load(Ordering::Relaxed) + self.waited.load(Ordering::Relaxed)
    }
}
