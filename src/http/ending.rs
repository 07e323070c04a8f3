//! When open watches end because the process does.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rand::Rng;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::lifecycle::drain::DrainWatch;

/// Clients take a watch that ends within a second without an event for a failure and start from nothing.
const SHORTEST: Duration = Duration::from_millis(1200);

/// The end of one watch, once a drain has started: at a moment of its own, so that the clients do not all come back at
/// once.
pub(super) struct Ending {
    state: State,
    opened: Instant,
    spread: Duration,
}

enum State {
    Waiting(Pin<Box<dyn Future<Output = ()> + Send>>),
    Until(Pin<Box<Sleep>>),
    Come,
}

// === impl Ending ===

impl Ending {
    /// `spread`: within how long after the start of a drain the watch ends.
    pub(super) fn new(drain: &DrainWatch, spread: Duration) -> Self {
        let drain = drain.clone();
        let state = State::Waiting(Box::pin(async move { drain.draining().await }));
        Self { state, opened: Instant::now(), spread }
    }

    /// Whether the moment has come. If not, the task is woken when it does.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        if let State::Waiting(draining) = &mut self.state
            && draining.as_mut().poll(cx).is_ready()
        {
            let moment = Instant::now() + self.spread.mul_f64(rand::rng().random::<f64>());
            self.state = State::Until(Box::pin(sleep_until(moment.max(self.opened + SHORTEST))));
        }
        if let State::Until(moment) = &mut self.state
            && let Poll::Ready(()) = moment.as_mut().poll(cx)
        {
            self.state = State::Come;
        }
        matches!(self.state, State::Come)
    }
}
