//! Counters of the read path: which reads were served, and why the others were not.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;

use super::{ForwardReason, Waited};

/// `informerd_reads_total{plan,reason}` as plain counters.
#[derive(Debug, Default)]
pub struct ReadMetrics {
    served: [AtomicU64; Waited::ALL.len()],
    refused: [AtomicU64; REFUSALS.len()],
    forwarded: [AtomicU64; ForwardReason::ALL.len()],
    /// Reads that could not be forwarded because the apiserver did not answer, and were then answered with an old
    /// state.
    old: AtomicU64,
}

/// Reads the counters when scraped.
#[derive(Debug)]
struct Series(Arc<ReadMetrics>);

/// The possible values of [`super::refusal`].
const REFUSALS: [&str; 3] = ["not_found", "not_synced", "other"];

// === impl ReadMetrics ===

impl ReadMetrics {
    pub(super) fn served(&self, waited: Waited) {
        count(&self.served, &Waited::ALL, &waited);
    }

    pub(super) fn refused(&self, reason: &'static str) {
        count(&self.refused, &REFUSALS, &reason);
    }

    pub fn forwarded(&self, reason: ForwardReason) {
        count(&self.forwarded, &ForwardReason::ALL, &reason);
    }

    pub(super) fn old(&self) {
        self.old.fetch_add(1, Ordering::Relaxed);
    }

    /// `(plan, reason, count)` for every series.
    pub fn series(&self) -> Vec<(&'static str, &'static str, u64)> {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let served = Waited::ALL.iter().zip(&self.served).map(|(waited, n)| (waited.plan(), waited.reason(), load(n)));
        let refused = REFUSALS.into_iter().zip(&self.refused).map(|(reason, n)| ("refuse", reason, load(n)));
        let forwarded =
            ForwardReason::ALL.iter().zip(&self.forwarded).map(|(reason, n)| ("forward", reason.as_str(), load(n)));
        let old = std::iter::once(("old", "away", load(&self.old)));
        served.chain(old).chain(refused).chain(forwarded).collect()
    }

    /// Registers the series.
    pub fn register(self: &Arc<Self>, registry: &mut Registry) {
        registry.sub_registry_with_prefix("informerd").register_collector(Box::new(Series(Arc::clone(self))));
    }

    /// Reads that were served from a cache.
    pub fn local(&self) -> u64 {
        self.served.iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
    }
}

// === impl Series ===

impl Collector for Series {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Reads of resources, and how they were answered";
        let mut reads = encoder.encode_descriptor("reads", help, None, MetricType::Counter)?;
        for (plan, reason, count) in self.0.series() {
            ConstCounter::new(count).encode(reads.encode_family(&[("plan", plan), ("reason", reason)])?)?;
        }
        Ok(())
    }
}

fn count<T: PartialEq>(counters: &[AtomicU64], kinds: &[T], kind: &T) {
    if let Some(position) = kinds.iter().position(|known| known == kind) {
        counters[position].fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dashboards and alerts use these names. To change one deliberately, change it here first.
    const SERIES: &str = "serve: wait:not_synced wait:not_fresh old:away refuse:not_found refuse:not_synced refuse:other \
        forward:consistent forward:outside_window forward:invalid forward:encoding forward:not_readable \
        forward:aggregated forward:excluded forward:out_of_scope forward:too_many_informers forward:forbidden \
        forward:memory forward:undecodable forward:seldom forward:table_cells forward:unversioned forward:not_synced forward:not_fresh \
        forward:unsupported \
        forward:unauthorized";

    #[test]
    fn every_series_is_pinned_and_there_from_the_start() {
        let series = ReadMetrics::default().series();
        let names: Vec<_> = series.iter().map(|(plan, reason, _)| format!("{plan}:{reason}")).collect();
        assert_eq!(names.join(" "), SERIES);
        assert!(series.iter().all(|(_, _, count)| *count == 0));
    }

    #[test]
    fn each_read_counts_once() {
        let metrics = ReadMetrics::default();
        metrics.served(Waited::Freshness);
        metrics.served(Waited::Nothing);
        metrics.refused("not_found");
        metrics.forwarded(ForwardReason::NotFresh);
        let counted: Vec<_> = metrics.series().into_iter().filter(|(_, _, count)| *count > 0).collect();
        let expected =
            [("serve", "", 1), ("wait", "not_fresh", 1), ("refuse", "not_found", 1), ("forward", "not_fresh", 1)];
        assert_eq!((counted.as_slice(), metrics.local()), (&expected[..], 2));
    }
}
