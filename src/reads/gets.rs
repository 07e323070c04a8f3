//! Detects gets in a loop. The proof for one get costs the apiserver as much as the get itself. Many gets share proofs,
//! and a client that sends gets in a loop will read on.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

use crate::meta::Gvr;

/// The count of gets decreases by half in this time.
const HALF: Duration = Duration::from_secs(3);
/// A count from this on is a loop: the third of three gets in a row, or one per second for some seconds.
const LOOP: f64 = 2.5;

/// The gets of each resource. There are at most as many as resources: callers only use names that discovery knows.
#[derive(Debug, Default)]
pub(super) struct Gets(Mutex<HashMap<Gvr, (f64, Instant)>>);

// === impl Gets ===

impl Gets {
    pub(super) fn count(&self, gvr: &Gvr, now: Instant) {
        let mut gets = self.0.lock();
        let (count, at) = gets.entry(gvr.clone()).or_insert((0.0, now));
        *count = faded(*count, *at, now) + 1.0;
        *at = now;
    }

    /// Whether the last counted gets are a loop.
    pub(super) fn is_loop(&self, gvr: &Gvr, now: Instant) -> bool {
        self.0.lock().get(gvr).is_some_and(|(count, at)| faded(*count, *at, now) >= LOOP)
    }
}

fn faded(count: f64, at: Instant, now: Instant) -> f64 {
    count * 0.5_f64.powf(now.saturating_duration_since(at).as_secs_f64() / HALF.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_told_from_lone_gets() {
        let (gets, pods) = (Gets::default(), Gvr::new("", "v1", "pods"));
        let start = Instant::now();
        let at = |seconds: f64| {
            let now = start + Duration::from_secs_f64(seconds);
            gets.count(&pods, now);
            gets.is_loop(&pods, now)
        };
        assert_eq!([at(0.0), at(0.1), at(0.2), at(0.3)], [false, false, true, true]);
        assert!(!at(30.0), "it is over");
        let one_a_second: Vec<bool> = (0..6).map(|second| at(100.0 + f64::from(second))).collect();
        assert_eq!(one_a_second, [false, false, false, true, true, true]);
        let one_in_ten: Vec<bool> = (0..6).map(|n| at(200.0 + 10.0 * f64::from(n))).collect();
        assert_eq!(one_in_ten, [false; 6]);
        assert!(!gets.is_loop(&Gvr::new("", "v1", "nodes"), start), "each resource counts for itself");
    }
}
