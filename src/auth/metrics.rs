//! The counters and gauges of authentication and authorization.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

use crate::telemetry::lines::LineCounts;

/// Counters since the start, and gauges of the current state.
#[derive(Debug, Default)]
pub struct AuthMetrics {
    /// `TokenReviews` sent.
    pub token_reviews: Counter,
    /// `SubjectAccessReviews` sent.
    pub access_reviews: Counter,
    /// Requests that look up the pod or the service account of a token.
    pub pod_checks: Counter,
    /// Reviews without a verdict.
    pub review_failures: Counter,
    /// Reviews that were refused because too many were waiting.
    pub review_overflows: Counter,
    /// Requests that were refused because their user had used up its share of reviews or of rights.
    pub user_overflows: Counter,
    /// Rights that open streams depend on.
    pub rights_held: Gauge,
    /// Reviews that were given up while they were in flight. The apiserver may still work on them.
    pub reviews_abandoned: Counter,
    /// The time that reviews took after their wait.
    pub review_seconds: Counter<f64>,
    /// Reviews in flight.
    pub reviews_running: Gauge,
    /// The most reviews that were ever in flight.
    pub reviews_peak: Gauge,
    /// Requests that wait for a turn for their review.
    pub reviews_waiting: Gauge,
    /// Reads allowed.
    pub allowed: Counter,
    /// Reads refused with 403.
    pub denied: Counter,
    /// Requests refused with 401.
    pub unauthenticated: Counter,
    /// Requests that could not be decided: refused, or forwarded with the client's own credentials.
    pub undecided: Counter,
    /// How often decisions were dropped because rights changed.
    pub flushes: Counter,
    /// How often decisions were repeated because a change may have reached another authorizer since.
    pub settlings: Counter,
    /// Open streams that ended because the right to them was lost.
    pub streams_revoked: Counter,
    /// Audit events.
    pub audit: Arc<LineCounts>,
    /// Watches for changes of rights that are open and up to date.
    pub watches_live: Gauge,
}

/// Adds its lifetime to the time of reviews when it is dropped. This includes reviews that are no longer awaited.
pub(super) struct Taken<'a> {
    pub(super) since: Instant,
    pub(super) metrics: &'a AuthMetrics,
    pub(super) answered: bool,
}

// === impl Taken ===

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.metrics.review_seconds.inc_by(self.since.elapsed().as_secs_f64());
        if !self.answered {
            self.metrics.reviews_abandoned.inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_review_that_is_given_up_counts_and_takes_its_time() {
        let metrics = AuthMetrics::default();
        for answered in [true, false] {
            let taken = Taken { since: Instant::now(), metrics: &metrics, answered };
            tokio::time::advance(Duration::from_secs(2)).await;
            drop(taken);
        }
        assert_eq!((metrics.reviews_abandoned.get(), metrics.review_seconds.get()), (1, 4.0));
    }
}
