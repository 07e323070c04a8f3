//! The counters and gauges of authentication and authorization.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use crate::telemetry::lines::LineCounts;

/// Counters since the start, and gauges of the current state. Their help texts, in `register`, say what they count.
#[derive(Debug, Default)]
pub struct AuthMetrics {
    pub token_reviews: Counter,
    pub access_reviews: Counter,
    pub pod_checks: Counter,
    pub review_failures: Counter,
    /// Reviews that were not sent, or given up, because the apiserver is away. They are no failures.
    pub reviews_held: Counter,
    pub review_overflows: Counter,
    pub user_overflows: Counter,
    pub rights_held: Gauge,
    /// Reviews that were given up while they were in flight. The apiserver may still work on them.
    pub reviews_abandoned: Counter,
    pub review_seconds: Counter<f64>,
    pub reviews_running: Gauge,
    pub reviews_peak: Gauge,
    pub reviews_waiting: Gauge,
    pub allowed: Counter,
    pub denied: Counter,
    pub unauthenticated: Counter,
    /// Requests that could not be decided: refused, or forwarded with the client's own credentials.
    pub undecided: Counter,
    pub flushes: Counter,
    pub settlings: Counter,
    pub streams_revoked: Counter,
    pub streams_unconfirmed: Counter,
    /// Of [`Self::allowed`]: those that rest on a kept decision or on a kept review of the token.
    pub kept: Counter,
    pub audit: Arc<LineCounts>,
    pub watches_live: Gauge,
    /// 1 while kept results count.
    pub keeps: Gauge,
}

/// Adds its lifetime to the time of reviews when it is dropped. This includes reviews that are no longer awaited.
pub(super) struct Taken<'a> {
    pub(super) since: Instant,
    pub(super) metrics: &'a AuthMetrics,
    pub(super) answered: bool,
}

// === impl AuthMetrics ===

impl AuthMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("apiserver_audit_event", "Audit events written", self.audit.written.clone());
        let registry = registry.sub_registry_with_prefix("informerd");
        for (name, help, gauge) in [
            ("auth_reviews_running", "Reviews in flight", &self.reviews_running),
            ("auth_reviews_peak", "Highest number of reviews in flight", &self.reviews_peak),
            ("auth_reviews_waiting", "Requests waiting for a review to be sent", &self.reviews_waiting),
            ("auth_rights_held", "Rights that open streams depend on, each checked again regularly", &self.rights_held),
            ("auth_watches_live", "Watches for changes of rights that are up to date", &self.watches_live),
            (
                "auth_keeps",
                "Whether the apiserver is away and what it has accepted and allowed before counts without a review",
                &self.keeps,
            ),
        ] {
            registry.register(name, help, gauge.clone());
        }
        for (name, help, counter) in [
            ("auth_token_reviews", "TokenReviews sent", &self.token_reviews),
            ("auth_access_reviews", "SubjectAccessReviews sent", &self.access_reviews),
            ("auth_pod_checks", "Lookups of the pods and service accounts of tokens", &self.pod_checks),
            ("auth_review_failures", "Reviews without an answer", &self.review_failures),
            ("auth_reviews_held", "Reviews not sent, or given up, because the apiserver was away", &self.reviews_held),
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
                "auth_streams_unconfirmed",
                "Open streams ended because nobody could say whether the right was still there",
                &self.streams_unconfirmed,
            ),
            ("auth_kept", "Reads allowed by what was known before the apiserver was away", &self.kept),
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
        metrics.kept.inc_by(5);
        metrics.streams_unconfirmed.inc_by(6);
        metrics.review_seconds.inc_by(1.5);
        metrics.audit.written.inc_by(21);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "informerd_auth_allowed_total 1",
            "informerd_auth_denied_total 2",
            "informerd_auth_unauthenticated_total 3",
            "informerd_auth_undecided_total 4",
            "informerd_auth_kept_total 5",
            "informerd_auth_streams_unconfirmed_total 6",
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
