//! Reports when the wall clock of this machine is set. Waits and timeouts use the monotonic clock, which is never set.
//! But ages in tables, certificates and tokens depend on the wall clock.

use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep};

use crate::lifecycle::drain::DrainWatch;

const EVERY: Duration = Duration::from_secs(2);
/// Smaller corrections are not reported.
const NOTABLE: f64 = 5.0;

/// Runs until the drain is forced.
pub(super) async fn watch(drain: DrainWatch) {
    let mut last = (SystemTime::now(), Instant::now());
    loop {
        tokio::select! {
            () = sleep(EVERY) => {}
            () = drain.forced() => return,
        }
        let now = (SystemTime::now(), Instant::now());
        let seconds = jump(last, now);
        if seconds.abs() >= NOTABLE {
            let set = if seconds > 0.0 { "forward, or the machine slept" } else { "back" };
            let seconds = seconds.abs().round();
            tracing::warn!(seconds, "the clock was set {set}: this affects ages, certificates and tokens");
        }
        last = now;
    }
}

/// How many seconds the wall clock moved more than the monotonic clock.
fn jump(last: (SystemTime, Instant), now: (SystemTime, Instant)) -> f64 {
    let went = match now.0.duration_since(last.0) {
        Ok(went) => went.as_secs_f64(),
        Err(back) => -back.duration().as_secs_f64(),
    };
    went - now.1.duration_since(last.1).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_shows_and_time_that_passes_does_not() {
        let (wall, time) = (SystemTime::now(), Instant::now());
        let ten = Duration::from_secs(10);
        for (at, jumped) in [(wall + ten, 0.0), (wall + ten * 361, 3600.0), (wall, -10.0), (wall - ten * 2, -30.0)] {
            assert!((jump((wall, time), (at, time + ten)) - jumped).abs() < 0.001, "{at:?}");
        }
    }
}
