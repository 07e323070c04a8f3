//! Counts what the webhook has done.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::Mode;

/// The reviews by mode and result, since the start.
#[derive(Debug, Default)]
pub struct InjectionMetrics {
    reviews: Family<Labels, Counter>,
}

/// What became of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Result {
    /// The pod was changed.
    Injected,
    /// Nothing was asked for, or it was done before.
    Unchanged,
    /// The pod has a warning instead of a change.
    Refused,
    /// The request was no review, was too large, or came too slowly.
    Invalid,
    /// There was no room for the request in time.
    Busy,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    mode: &'static str,
    result: &'static str,
}

// === impl InjectionMetrics ===

impl InjectionMetrics {
    /// Counts a review. `mode`: `None` if it is not known.
    pub fn count(&self, mode: Option<Mode>, result: Result) {
        let result = match result {
            Result::Injected => "injected",
            Result::Unchanged => "unchanged",
            Result::Refused => "refused",
            Result::Invalid => "invalid",
            Result::Busy => "busy",
        };
        self.reviews.get_or_create(&Labels { mode: mode.map_or("none", Mode::as_str), result }).inc();
    }

    /// Registers what is counted.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Pods that the apiserver sent to the injector";
        registry.register("informerd_injector_reviews", help, self.reviews.clone());
    }
}
