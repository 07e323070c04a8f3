//! The delay before a failed key is retried: client-go's `DefaultTypedControllerRateLimiter`.

use std::time::Duration;

use tokio::time::Instant;

/// The longer of two delays: that of the key, which doubles with each failure, and that of a token bucket that all
/// retries share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimiterConfig {
    /// The delay after the first failure. Each further failure doubles it.
    pub base: Duration,
    /// The longest delay of a key for its own failures.
    pub cap: Duration,
    /// The retries per second of all keys together.
    pub rate: f64,
    /// The retries that are possible at once before the rate applies.
    pub burst: f64,
}

/// The number of tokens may become negative: then later retries wait longer, as in Go's `rate.Limiter.Reserve`.
#[derive(Debug)]
pub(super) struct Bucket {
    tokens: f64,
    at: Instant,
}

// === impl LimiterConfig ===

impl Default for LimiterConfig {
    fn default() -> Self {
        Self { base: Duration::from_millis(5), cap: Duration::from_secs(1000), rate: 10.0, burst: 100.0 }
    }
}

impl LimiterConfig {
    /// The delay of a key that failed `failures` times before this failure.
    pub(super) fn of_key(&self, failures: u32) -> Duration {
        let doubled = 1u32.checked_shl(failures).and_then(|times| self.base.checked_mul(times));
        doubled.map_or(self.cap, |delay| delay.min(self.cap))
    }
}

// === impl Bucket ===

impl Bucket {
    pub(super) fn new(config: &LimiterConfig, now: Instant) -> Self {
        Self { tokens: config.burst, at: now }
    }

    /// Takes one token and returns how long to wait for it.
    pub(super) fn reserve(&mut self, config: &LimiterConfig, now: Instant) -> Duration {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.tokens = (self.tokens + elapsed * config.rate).min(config.burst) - 1.0;
        if self.tokens >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.tokens / config.rate).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keys_own_delay_doubles_up_to_the_cap() {
        let config = LimiterConfig::default();
        let delays: Vec<u128> = (0..5).map(|failures| config.of_key(failures).as_millis()).collect();
        assert_eq!(delays, [5, 10, 20, 40, 80]);
        assert_eq!(config.of_key(17), Duration::from_millis(5 << 17));
        for failures in [18, 31, 32, 33, u32::MAX] {
            assert_eq!(config.of_key(failures), Duration::from_secs(1000), "{failures}");
        }
    }
}
