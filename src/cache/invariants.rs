//! Invariants that must always hold. A violation panics in debug builds; in release builds it is counted and logged.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;

use crate::meta::Gvr;
use crate::packing;

/// The guarantees of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Invariant {
    /// For each watcher, the resourceVersions of events strictly increase after the initial events, except that objects
    /// that expire together are deleted at the same one. No bookmark overtakes an undelivered event.
    WatcherOrder,
    /// Replaying a watcher's events on its initial list gives, at every bookmark, the list at that revision.
    ReplayIsList,
    /// ADDED is sent only for a key that the watcher does not hold, MODIFIED and DELETED only for one that it holds.
    EventMatchesHeld,
    /// A list at one revision is always the same, however it is produced.
    SameRevisionSameList,
    /// The cache never shows an object that the apiserver did not send.
    OnlySentObjects,
    /// Revisions in the window strictly increase, except for objects that expire together, and the oldest one follows
    /// the revision that the 410 message names.
    HistoryContiguous,
    /// Readers of a cache never see its revision go back while it is ready.
    NeverGoesBack,
    /// Packed bytes are the bytes that were packed. The code that packs counts this.
    PackedIsSame,
}

static VIOLATIONS: [AtomicU64; Invariant::ALL.len()] = [const { AtomicU64::new(0) }; Invariant::ALL.len()];

/// Reports a broken invariant.
///
/// # Panics
/// In debug builds.
#[cold]
#[expect(clippy::panic, reason = "a broken invariant must not go unnoticed in a debug build")]
pub(super) fn violated(invariant: Invariant, resource: &Gvr, detail: fmt::Arguments<'_>) {
    VIOLATIONS[invariant as usize].fetch_add(1, Ordering::Relaxed);
    if cfg!(debug_assertions) {
        panic!("{invariant:?} violated in the cache of {resource}: {detail}");
    }
    tracing::error!(?invariant, %resource, %detail, "invariant violated");
}

// === impl Invariant ===

impl Invariant {
    pub const ALL: [Self; 8] = [
        Self::WatcherOrder,
        Self::ReplayIsList,
        Self::EventMatchesHeld,
        Self::SameRevisionSameList,
        Self::OnlySentObjects,
        Self::HistoryContiguous,
        Self::NeverGoesBack,
        Self::PackedIsSame,
    ];

    /// The name in the metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WatcherOrder => "watcher_order",
            Self::ReplayIsList => "replay_is_list",
            Self::EventMatchesHeld => "event_matches_held",
            Self::SameRevisionSameList => "same_revision_same_list",
            Self::OnlySentObjects => "only_sent_objects",
            Self::HistoryContiguous => "history_contiguous",
            Self::NeverGoesBack => "never_goes_back",
            Self::PackedIsSame => "packed_is_same",
        }
    }

    /// Number of violations since the start of the process, for all caches.
    pub fn violations(self) -> u64 {
        let packed = if self == Self::PackedIsSame { packing::damaged_total() } else { 0 };
        VIOLATIONS[self as usize].load(Ordering::Relaxed) + packed
    }
}

/// Registers the counter of all violations.
pub fn register(registry: &mut Registry) {
    registry.register_collector(Box::new(Violations));
}

#[derive(Debug)]
struct Violations;

impl Collector for Violations {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (name, help) =
            ("informerd_invariant_violations", "Broken promises of the code; any is a defect of informerd");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for invariant in Invariant::ALL {
            let labels = [("invariant", invariant.as_str())];
            ConstCounter::new(invariant.violations()).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_invariant_has_its_own_counter() {
        for (i, invariant) in Invariant::ALL.into_iter().enumerate() {
            assert_eq!(invariant as usize, i);
        }
    }

    #[test]
    fn a_violation_is_counted() {
        let before = Invariant::OnlySentObjects.violations();
        let gvr = Gvr::new("", "v1", "pods");
        let result = std::panic::catch_unwind(|| violated(Invariant::OnlySentObjects, &gvr, format_args!("test")));
        assert_eq!(result.is_err(), cfg!(debug_assertions));
        assert_eq!(Invariant::OnlySentObjects.violations(), before + 1);
    }
}
