//! Responses whose clients have stopped reading.

use std::any::Any;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::pressure::{Level, Pressure};

/// All responses that are dropped when their clients stop reading. An unfinished response holds memory, such as a
/// snapshot of its cache. Cloning shares the guards.
#[derive(Clone, Default)]
pub struct StallGuards {
    all: Arc<Mutex<Vec<Weak<dyn Leashed>>>>,
}

/// The data that a response still holds, until it is finished or dropped.
#[derive(Debug)]
pub struct StallGuard<T> {
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    /// `None` once it is given up or finished.
    held: Option<T>,
    /// When the client last requested more.
    taken: Instant,
    given_up: bool,
}

/// More data was requested from a response that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("given up: its client had stopped to take it")]
pub struct GivenUp;

/// A stall guard, independent of the type that it holds.
trait Leashed: Send + Sync {
    fn is_over(&self) -> bool;

    /// Takes the held data if nothing was requested for `timeout`.
    fn give_up(&self, now: Instant, timeout: Duration) -> Option<Box<dyn Any + Send>>;
}

/// While memory is short, a response is given up when its client has read nothing for this time.
pub(crate) const HURRY: Duration = Duration::from_secs(2);

// === impl StallGuards ===

impl StallGuards {
    /// Holds the data that a response needs to continue.
    pub fn hold<T: Send + 'static>(&self, held: T) -> Arc<StallGuard<T>> {
        let state = State { held: Some(held), taken: Instant::now(), given_up: false };
        let stall_guard = Arc::new(StallGuard { state: Mutex::new(state) });
        let weak = Arc::downgrade(&stall_guard);
        self.all.lock().push(weak);
        stall_guard
    }

    /// Gives up the responses from which nothing was requested for `timeout`, or for [`HURRY`] while memory is short.
    /// It runs forever and checks four times per `timeout`. `count` receives the number of responses.
    pub async fn watch(self, timeout: Duration, pressure: Pressure, count: impl Fn(u64)) {
        let mut changes = pressure.changes();
        let mut swept = Instant::now();
        loop {
            let patience = if *changes.borrow_and_update() == Level::Short { HURRY.min(timeout) } else { timeout };
            tokio::select! {
                () = tokio::time::sleep_until(swept + patience / 4) => {
                    count(self.sweep(patience));
                    swept = Instant::now();
                }
                // The sender lives as long as this function.
                _ = changes.changed() => {}
            }
        }
    }

    /// The number of held responses.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.all.lock().len()
    }

    fn sweep(&self, timeout: Duration) -> u64 {
        let now = Instant::now();
        // The held data can be large, so it is dropped outside the lock.
        let mut given_up = Vec::new();
        self.all.lock().retain(|stall_guard| {
            let Some(stall_guard) = stall_guard.upgrade() else { return false };
            given_up.extend(stall_guard.give_up(now, timeout));
            !stall_guard.is_over()
        });
        given_up.len() as u64
    }
}

// === impl StallGuard ===

impl<T> StallGuard<T> {
    /// Requests more data. The response is finished once `None` is left.
    ///
    /// # Errors
    /// The response was given up.
    pub fn take<R>(&self, next: impl FnOnce(&mut Option<T>) -> R) -> Result<R, GivenUp> {
        let mut state = self.state.lock();
        state.taken = Instant::now();
        if state.given_up { Err(GivenUp) } else { Ok(next(&mut state.held)) }
    }
}

impl<T: Send + 'static> Leashed for StallGuard<T> {
    fn is_over(&self) -> bool {
        self.state.lock().held.is_none()
    }

    fn give_up(&self, now: Instant, timeout: Duration) -> Option<Box<dyn Any + Send>> {
        let mut state = self.state.lock();
        if now.saturating_duration_since(state.taken) < timeout {
            return None;
        }
        let held = state.held.take()?;
        state.given_up = true;
        Some(Box::new(held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_nobody_takes_is_given_up() {
        const TIMEOUT: Duration = Duration::from_secs(8);
        let stall_guards = StallGuards::default();
        let kept = Arc::new(());
        let (slow, stalled, over) =
            (stall_guards.hold(()), stall_guards.hold(Arc::clone(&kept)), stall_guards.hold(()));
        over.take(|held| *held = None).unwrap();
        for _ in 0..3 {
            tokio::time::sleep(TIMEOUT / 2).await;
            slow.take(|_| ()).unwrap();
            stall_guards.sweep(TIMEOUT);
        }
        assert_eq!((slow.take(|_| ()), stalled.take(|_| ())), (Ok(()), Err(GivenUp)));
        assert_eq!((Arc::strong_count(&kept), stall_guards.held()), (1, 1));
        drop(slow);
        assert_eq!(stall_guards.sweep(TIMEOUT), 0);
        assert_eq!(stall_guards.held(), 0);
    }
}
