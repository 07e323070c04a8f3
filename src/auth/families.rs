//! The metrics of authentication and authorization, by name.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::access::Access;
use super::metrics::AuthMetrics;

/// Values that are computed at a scrape.
struct Remembered(Access);

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
            ("auth_pod_checks", "Lookups of the pods and service accounts of tokens", &self.pod_checks),
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

#[cfg(test)]
mod tests {
    use super::*;

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
