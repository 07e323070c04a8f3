//! Log lines that anybody can cause, over and over.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Lets one line through in each interval, and counts the others.
#[derive(Debug)]
pub struct Seldom {
    every: Duration,
    state: Mutex<SeldomState>,
}

#[derive(Debug, Default)]
struct SeldomState {
    last: Option<Instant>,
    left_out: u64,
}

// === impl Seldom ===

impl Seldom {
    pub fn new(every: Duration) -> Self {
        Self { every, state: Mutex::default() }
    }

    /// Whether a line may be written now: then this is how many were left out since the last one.
    pub fn turn(&self) -> Option<u64> {
        let now = Instant::now();
        let mut state = self.state.lock();
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < self.every) {
            state.left_out += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_line_in_each_interval_tells_of_the_others() {
        let seldom = Seldom::new(Duration::from_secs(1));
        let turns = || (0..100).filter_map(|_| seldom.turn()).collect::<Vec<_>>();
        assert_eq!(turns(), [0]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(turns(), [99]);
        tokio::time::advance(Duration::from_millis(999)).await;
        assert_eq!(turns(), [0; 0]);
    }
}
