//! Gauges that count what there is at the moment.

use prometheus_client::metrics::gauge::Gauge;

/// Raises a gauge by one while it lives.
#[derive(Debug)]
pub struct Raised {
    gauge: Gauge,
    level: i64,
}

// === impl Raised ===

impl Raised {
    pub fn new(gauge: &Gauge) -> Self {
        Self { level: gauge.inc() + 1, gauge: gauge.clone() }
    }

    /// What the gauge showed once it was raised.
    pub fn level(&self) -> i64 {
        self.level
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}
