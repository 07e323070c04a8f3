//! The delay before a failed key is retried: client-go's `DefaultTypedControllerRateLimiter`. It is the longer of two: that of
//! the key, which doubles with each failure, and that of a token bucket that all retries share.

use std::time::Duration;

use tokio::time::Instant;

/// The number of tokens may become negative: then later retries wait longer, as in Go's `rate.Limiter.Reserve`.
#[derive(Debug)]
pub(super) struct Bucket {
    burst: f64,
    tokens: f64,
    at: Instant,
}

/// The delay after the first failure of a key. Each further failure doubles it.
const BASE: Duration = Duration::from_millis(5);
/// The longest delay of a key for its own failures.
const CAP: Duration = Duration::from_secs(1000);
/// The retries per second of all keys together.
const RATE: f64 = 10.0;
/// The retries that are possible at once before the rate applies.
pub(super) const BURST: f64 = 100.0;

/// The delay of a key that failed `failures` times before this failure.
pub(super) fn of_key(failures: u32) -> Duration {
    let doubled = 1u32.checked_shl(failures).and_then(|times| BASE.checked_mul(times));
    doubled.map_or(CAP, |delay| delay.min(CAP))
}

// === impl Bucket ===

impl Bucket {
    pub(super) fn new(burst: f64, now: Instant) -> Self {
        Self { burst, tokens: burst, at: now }
    }

    /// Takes one token and returns how long to wait for it.
    pub(super) fn reserve(&mut self, now: Instant) -> Duration {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.tokens = (self.tokens + elapsed * RATE).min(self.burst) - 1.0;
        if self.tokens >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.tokens / RATE).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keys_own_delay_doubles_up_to_the_cap() {
        let delays: Vec<u128> = (0..5).map(|failures| of_key(failures).as_millis()).collect();
        assert_eq!(delays, [5, 10, 20, 40, 80]);
        assert_eq!(of_key(17), Duration::from_millis(5 << 17));
        for failures in [18, 31, 32, 33, u32::MAX] {
            assert_eq!(of_key(failures), Duration::from_secs(1000), "{failures}");
        }
    }
}
