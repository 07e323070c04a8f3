//! Detects gets in a loop, and crowds of gets. The proof for one get costs the apiserver as much CPU time as the get
//! itself, and has fewer bytes. So a loop of gets is proved where an informer runs, but is not worth the start of one. Gets
//! that come as fast as proofs can share them.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

use crate::meta::Gvr;

/// The count of gets decreases by half in this time.
const HALF: Duration = Duration::from_secs(3);
/// A count from this on is a loop: the third of three gets in a row, or one per second for some seconds.
pub(super) const LOOP: f64 = 2.5;
/// A count from this on is a crowd: about 60 gets per second.
pub(super) const CROWD: f64 = 256.0;

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

    pub(super) fn lately(&self, gvr: &Gvr, now: Instant) -> f64 {
        self.0.lock().get(gvr).map_or(0.0, |(count, at)| faded(*count, *at, now))
    }
}

fn faded(count: f64, at: Instant, now: Instant) -> f64 {
    count * 0.5_f64.powf(now.saturating_duration_since(at).as_secs_f64() / HALF.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_told_from_lone_gets_and_a_crowd_from_a_loop() {
        let (gets, pods) = (Gets::default(), Gvr::new("", "v1", "pods"));
        let start = Instant::now();
        let at = |seconds: f64| {
            let now = start + Duration::from_secs_f64(seconds);
            gets.count(&pods, now);
            gets.lately(&pods, now) >= LOOP
        };
        assert_eq!([at(0.0), at(0.1), at(0.2), at(0.3)], [false, false, true, true]);
        assert!(!at(30.0), "it is over");
        let one_a_second: Vec<bool> = (0..6).map(|second| at(100.0 + f64::from(second))).collect();
        assert_eq!(one_a_second, [false, false, false, true, true, true]);
        let one_in_ten: Vec<bool> = (0..6).map(|n| at(200.0 + 10.0 * f64::from(n))).collect();
        assert_eq!(one_in_ten, [false; 6]);
        assert!(gets.lately(&Gvr::new("", "v1", "nodes"), start) < LOOP, "each resource counts for itself");
        let after = |begin: f64, every: f64| {
            for n in 0..1000 {
                at(begin + f64::from(n) * every);
            }
            gets.lately(&pods, start + Duration::from_secs_f64(begin + 999.0 * every))
        };
        assert!(after(1000.0, 0.02) < CROWD && after(2000.0, 0.014) > CROWD);
    }
}
