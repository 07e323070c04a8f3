//! Delays between attempts. They double with jitter, and start again after a healthy period.

use std::time::Duration;

use rand::Rng;

/// Exponential delays of one retried activity. It has no side effects: the caller reports what happened and waits
/// itself.
#[derive(Clone, Debug)]
pub struct Backoff {
    config: BackoffConfig,
    failures: u32,
}

/// The parameters of the delays. The defaults are those of the Go client's reflector.
#[derive(Clone, Copy, Debug)]
pub struct BackoffConfig {
    pub initial: Duration,
    pub max: Duration,
    /// A healthy period of this length resets the failures before it.
    pub reset_after: Duration,
    /// The longest Retry-After of a server that is obeyed.
    pub max_retry_after: Duration,
}

impl Default for BackoffConfig {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(800),
            max: Duration::from_secs(30),
            reset_after: Duration::from_secs(120),
            max_retry_after: Duration::from_secs(300),
        }
    }
}

// === impl Backoff ===

impl Backoff {
    pub fn new(config: BackoffConfig) -> Self {
        Self { config, failures: 0 }
    }

    /// Delays from `initial`, doubled up to `max`.
    pub fn between(initial: Duration, max: Duration) -> Self {
        Self::new(BackoffConfig { initial, max, ..BackoffConfig::default() })
    }

    /// The delay before the next attempt: one to one and a half times the doubled step, and never less than the
    /// server asks for.
    pub fn next(&mut self, retry_after: Option<Duration>) -> Duration {
        let step = self.config.initial.saturating_mul(1 << self.failures.min(16)).min(self.config.max);
        self.failures = self.failures.saturating_add(1);
        jittered(step.max(self.asked(retry_after)))
    }

    /// The part of a server's Retry-After that is obeyed.
    pub fn asked(&self, retry_after: Option<Duration>) -> Duration {
        retry_after.unwrap_or_default().min(self.config.max_retry_after)
    }

    /// Reports how long the activity was healthy before it ended.
    pub fn healthy_for(&mut self, time: Duration) {
        if time >= self.config.reset_after {
            self.reset();
        }
    }

    /// Forgets all failures: the activity has succeeded.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Returns one to one and a half times the duration, so that many clients of one server do not retry at the same
/// time.
pub fn jittered(duration: Duration) -> Duration {
    duration.mul_f64(rand::rng().random_range(1.0..1.5))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(delay: Duration, base_ms: u64) {
        let base = Duration::from_millis(base_ms);
        assert!(delay >= base && delay < base.mul_f64(1.5), "{delay:?} is not about {base:?}");
    }

    #[test]
    fn doubles_to_the_maximum_and_starts_over_after_health() {
        let mut backoff = Backoff::new(BackoffConfig::default());
        for base in [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
            within(backoff.next(None), base);
        }
        backoff.healthy_for(Duration::from_secs(119));
        within(backoff.next(None), 30_000);
        backoff.healthy_for(Duration::from_secs(120));
        within(backoff.next(None), 800);
    }

    #[test]
    fn follows_the_server_within_reason() {
        let mut backoff = Backoff::new(BackoffConfig::default());
        within(backoff.next(Some(Duration::from_secs(10))), 10_000);
        within(backoff.next(Some(Duration::from_secs(86_400))), 300_000);
        within(backoff.next(Some(Duration::from_millis(1))), 3200);
    }
}
