//! Limits the age of connections that carry long calls, so that clients spread over replicas that come and go. A
//! connection that reaches its age takes no new calls. After as long again the remaining streams are told to end. No
//! stream is cut.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use rand::Rng;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::lifecycle::drain::{self, Drain, DrainWatch};

/// The age of one connection.
#[derive(Debug)]
pub struct Age {
    since: Instant,
    /// By how much it lives longer than others, or less long.
    spread: f64,
    /// Whether the connection has carried a long call.
    long_calls: watch::Sender<bool>,
    retire: Drain,
}

// === impl Age ===

impl Default for Age {
    fn default() -> Self {
        let spread = rand::rng().random_range(0.9..1.1);
        Self { since: Instant::now(), spread, long_calls: watch::Sender::new(false), retire: drain::channel().0 }
    }
}

impl Age {
    /// Records that a long call begins. Returns the watch that tells the call to end.
    pub fn long_call(&self) -> DrainWatch {
        self.long_calls.send_if_modified(|was| !std::mem::replace(was, true));
        self.retire.watch()
    }

    /// Waits until the connection is this old.
    pub(in crate::http) async fn is_at_least(&self, old: Duration) {
        sleep_until(self.since + old).await;
    }

    /// Waits until the connection reaches about this age and must take no new calls. Zero means never.
    pub(in crate::http) async fn reached(&self, age: Duration) {
        if age.is_zero() {
            return pending().await;
        }
        // The sender lives in `self`, so the wait cannot fail.
        self.long_calls.subscribe().wait_for(|long| *long).await.ok();
        sleep_until(self.since + age.mul_f64(self.spread)).await;
    }

    /// Waits for this grace period, then tells the remaining streams to end.
    pub(in crate::http) async fn retire(&self, grace: Duration) -> Infallible {
        sleep(grace).await;
        // The streams end by themselves after their last message: nothing is forced.
        self.retire.start(grace);
        pending().await
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_connections_with_long_calls_age() {
        let [limit, grace] = [100, 50].map(Duration::from_secs);
        let age = Age::default();
        assert!(timeout(Duration::from_secs(1000), age.reached(limit)).await.is_err());
        let age = Age::default();
        let told = age.long_call();
        let began = Instant::now();
        age.reached(limit).await;
        let reached = began.elapsed().as_secs_f64();
        assert!(timeout(Duration::ZERO, age.reached(limit)).await.is_ok(), "once and for all");
        assert!((89.9..110.1).contains(&reached), "{reached}");
        assert!(timeout(Duration::from_secs(49), age.retire(grace)).await.is_err());
        assert!(!told.is_draining());
        assert!(timeout(Duration::from_secs(51), age.retire(grace)).await.is_err());
        assert!(told.is_draining());
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_age_none_ends() {
        let age = Age::default();
        age.long_call();
        assert!(timeout(Duration::from_secs(1_000_000), age.reached(Duration::ZERO)).await.is_err());
    }
}
