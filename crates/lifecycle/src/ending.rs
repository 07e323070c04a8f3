//! The end of open streams when the process ends.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rand::Rng;
use tokio::time::{Instant, Sleep, sleep_until};

use super::drain::{DrainSignal, DrainWatch};

/// The end of one stream after a drain has started. Each stream ends at a different time, so that the clients do not
/// all reconnect at once.
#[derive(Debug)]
pub struct Ending {
    state: EndingState,
    not_before: Instant,
    /// In milliseconds: there is one for each of thousands of streams.
    spread: u32,
}

#[derive(Debug)]
enum EndingState {
    Waiting(DrainSignal),
    Until(Pin<Box<Sleep>>),
    Come,
}

// === impl Ending ===

impl Ending {
    /// The stream ends within `spread` after the start of a drain, but not before it is `shortest` old.
    pub fn new(drain: &DrainWatch, spread: Duration, shortest: Duration) -> Self {
        let spread = u32::try_from(spread.as_millis()).unwrap_or(u32::MAX);
        Self { state: EndingState::Waiting(drain.signal()), not_before: Instant::now() + shortest, spread }
    }

    /// Whether the stream must end now. If not, the task is woken at that time.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        if let EndingState::Waiting(draining) = &mut self.state
            && Pin::new(draining).poll(cx).is_ready()
        {
            let spread = Duration::from_millis(self.spread.into());
            let moment = Instant::now() + spread.mul_f64(rand::rng().random::<f64>());
            self.state = EndingState::Until(Box::pin(sleep_until(moment.max(self.not_before))));
        }
        if let EndingState::Until(moment) = &mut self.state
            && let Poll::Ready(()) = moment.as_mut().poll(cx)
        {
            self.state = EndingState::Come;
        }
        matches!(self.state, EndingState::Come)
    }

    /// Waits until the stream must end.
    pub async fn come(mut self) {
        std::future::poll_fn(|cx| if self.poll(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain;

    #[tokio::test(start_paused = true)]
    async fn streams_end_spread_over_the_time_and_none_sooner_than_it_may() {
        let (drain, watch) = drain::channel();
        let (spread, shortest) = (Duration::from_secs(10), Duration::from_secs(2));
        let endings: Vec<_> = (0..100).map(|_| Ending::new(&watch, spread, shortest)).collect();
        drain.start(Duration::from_secs(60));
        let started = Instant::now();
        let come = endings.into_iter().map(|ending| async move {
            ending.come().await;
            started.elapsed()
        });
        let ends = futures_util::future::join_all(come).await;
        let (first, last) = (*ends.iter().min().unwrap(), *ends.iter().max().unwrap());
        assert!(first >= shortest && last > spread / 2, "{ends:?}");
        assert!(last <= spread + Duration::from_millis(10), "{ends:?}");
    }
}
