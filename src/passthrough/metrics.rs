//! Metrics of forwarding.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// Counters since the start. Their help texts, in `register`, say what they count.
#[derive(Debug, Default)]
pub struct ForwardMetrics {
    pub shared_reads: Counter,
    pub shared_followers: Counter,
    pub shared_too_large: Counter,
    pub documents_confirmed: Counter,
    pub documents_read: Counter,
    pub documents_old: Counter,
    pub upgrades: Counter,
    pub given_up: Counter,
    pub overflows: Counter,
}

// === impl ForwardMetrics ===

impl ForwardMetrics {
    /// Registers the metrics of this module.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("informerd");
        for (name, help, counter) in [
            ("forward_shared_reads", "Forwarded reads that answered more than one client", &self.shared_reads),
            ("forward_shared_followers", "Clients answered by the read of another client", &self.shared_followers),
            ("forward_given_up", "Answers aborted because their clients had stopped reading", &self.given_up),
            (
                "forward_overflows",
                "Requests refused because their client, or all together, had too many under way",
                &self.overflows,
            ),
            ("forward_shared_too_large", "Reads with a body too large to be shared", &self.shared_too_large),
            ("forward_documents_confirmed", "Discovery documents that were unchanged", &self.documents_confirmed),
            ("forward_documents_read", "Discovery documents read again", &self.documents_read),
            ("forward_documents_old", "Discovery documents served as they were last seen", &self.documents_old),
            ("forward_upgrades", "Connections upgraded", &self.upgrades),
        ] {
            registry.register(name, help, counter.clone());
        }
    }
}
