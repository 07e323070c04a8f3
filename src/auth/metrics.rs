//! Metrics of authentication and authorization.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::Access;
use crate::telemetry::lines::LineCounts;

/// Counters since the start, and gauges of the current state.
#[derive(Debug, Default)]
pub struct AuthMetrics {
    /// `TokenReviews` sent.
    pub token_reviews: Counter,
    /// `SubjectAccessReviews` sent.
    pub access_reviews: Counter,
    /// Requests that check whether the pod of a token still exists.
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

/// Values that are computed at a scrape.
struct Remembered(Access);

/// Adds its lifetime to the time of reviews when it is dropped. This includes reviews that are no longer awaited.
pub(super) struct Taken<'a> {
    pub(super) since: Instant,
    pub(super) metrics: &'a AuthMetrics,
    pub(super) answered: bool,
}

// === impl AuthMetrics ===

impl AuthMetrics {
    fn register(&self, registry: &mut Registry) {
        registry.register("apiserver_audit_event", "Audit events written", self.audit.written.clone());
        let registry = registry.sub_registry_with_prefix("informerd");
        for (name, help, gauge) in [
            ("auth_reviews_running", "Reviews in flight", &self.reviews_running),
            ("auth_reviews_peak", "Highest number of reviews in flight", &self.reviews_peak),
            ("auth_reviews_waiting", "Requests waiting for a review to be sent", &self.reviews_waiting),
            ("auth_rights_held", "Rights that open streams depend on, each checked again regularly", &self.rights_held),
            ("auth_watches_live", "Watches for changes of rights that are up to date", &self.watches_live),
        ] {
            registry.register(name, help, gauge.clone());
        }
        for (name, help, counter) in [
            ("auth_token_reviews", "TokenReviews sent", &self.token_reviews),
            ("auth_access_reviews", "SubjectAccessReviews sent", &self.access_reviews),
            ("auth_pod_checks", "Checks whether the pod of a token still exists", &self.pod_checks),
            ("auth_review_failures", "Reviews without an answer", &self.review_failures),
            ("auth_review_overflows", "Reviews not sent because too many were waiting", &self.review_overflows),
            ("auth_reviews_abandoned", "Reviews abandoned while in flight", &self.reviews_abandoned),
            (
                "auth_user_overflows",
                "Requests refused because their user had reached its limit of reviews or rights",
                &self.user_overflows,
            ),
            ("auth_allowed", "Reads allowed", &self.allowed),
            ("auth_denied", "Reads refused with 403", &self.denied),
            ("auth_unauthenticated", "Reads refused with 401", &self.unauthenticated),
            (
                "auth_undecided",
                "Reads forwarded to the apiserver because they could not be authorized here",
                &self.undecided,
            ),
            ("auth_flushes", "Changes of rights that invalidated cached decisions", &self.flushes),
            (
                "auth_settlings",
                "Times that decisions were repeated some time after a change of rights",
                &self.settlings,
            ),
            ("auth_streams_revoked", "Open streams ended because the right was revoked", &self.streams_revoked),
            (
                "audit_dropped",
                "Audit events dropped because the buffer was full or they could not be written",
                &self.audit.dropped,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
        let help = "Duration of reviews, without the time in the queue";
        registry.register("auth_review_seconds", help, self.review_seconds.clone());
    }
}

// === impl Access ===

impl Access {
    /// Registers the metrics of this module, including the cache sizes.
    pub fn register(&self, registry: &mut Registry) {
        self.metrics().register(registry);
        registry.sub_registry_with_prefix("informerd").register_collector(Box::new(Remembered(self.clone())));
    }
}

// === impl Remembered ===

impl Collector for Remembered {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (credentials, decisions) = self.0.remembered();
        for (name, help, count) in [
            ("auth_credentials", "Cached credentials, as hashes", credentials),
            ("auth_decisions", "Cached decisions", decisions),
        ] {
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(count as f64).encode(gauge)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Remembered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remembered")
    }
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

    #[test]
    fn each_value_has_its_name() {
        let (metrics, mut registry) = (AuthMetrics::default(), Registry::default());
        metrics.register(&mut registry);
        let counters = [&metrics.allowed, &metrics.denied, &metrics.unauthenticated, &metrics.undecided];
        let gauges = [&metrics.reviews_running, &metrics.rights_held, &metrics.watches_live];
        for (counter, value) in counters.iter().zip(1..) {
            counter.inc_by(value);
        }
        for (gauge, value) in gauges.iter().zip(11..) {
            gauge.set(value);
        }
        metrics.review_seconds.inc_by(1.5);
        metrics.audit.written.inc_by(21);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "informerd_auth_allowed_total 1",
            "informerd_auth_denied_total 2",
            "informerd_auth_unauthenticated_total 3",
            "informerd_auth_undecided_total 4",
            "informerd_auth_reviews_running 11",
            "informerd_auth_rights_held 12",
            "informerd_auth_watches_live 13",
            "informerd_auth_review_seconds_total 1.5",
            "apiserver_audit_event_total 21",
        ] {
            assert!(text.lines().any(|of| of == line), "{line}\n{text}");
        }
    }
}
