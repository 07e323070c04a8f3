//! Gauges that count existing things.

use prometheus_client::metrics::gauge::Gauge;

/// Increases a gauge by one as long as it exists.
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

    /// The value of the gauge after it was increased.
    pub fn level(&self) -> i64 {
        self.level
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}
