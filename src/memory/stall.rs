//! Answers whose clients have stopped to take them.

use std::any::Any;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::pressure::{Level, Pressure};

/// All answers that are given up when nobody takes them: an unfinished answer keeps memory, such as a snapshot of its cache.
/// Cloning shares it.
#[derive(Clone, Default)]
pub struct StallGuards {
    all: Arc<Mutex<Vec<Weak<dyn Leashed>>>>,
}

/// What an answer still holds, until it is taken or given up.
#[derive(Debug)]
pub struct StallGuard<T> {
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    /// `None` once given up or at the end.
    held: Option<T>,
    /// When more of it was asked for last.
    taken: Instant,
    given_up: bool,
}

/// More was asked for of an answer that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("given up: its client had stopped to take it")]
pub struct GivenUp;

/// A stall_guard, whatever it holds.
trait Leashed: Send + Sync {
    fn is_over(&self) -> bool;

    /// What it holds, if nothing was asked for during `timeout`.
    fn give_up(&self, now: Instant, timeout: Duration) -> Option<Box<dyn Any + Send>>;
}

/// A client that has taken nothing for this long is not waited for while memory is short.
pub(crate) const HURRY: Duration = Duration::from_secs(2);

// === impl StallGuards ===

impl StallGuards {
    /// Holds what an answer needs to go on.
    pub fn hold<T: Send + 'static>(&self, held: T) -> Arc<StallGuard<T>> {
        let state = State { held: Some(held), taken: Instant::now(), given_up: false };
        let stall_guard = Arc::new(StallGuard { state: Mutex::new(state) });
        let weak = Arc::downgrade(&stall_guard);
        self.all.lock().push(weak);
        stall_guard
    }

    /// Gives up, for ever and four times per `timeout`, the answers of which no more was asked for during that time; while
    /// memory is short, during [`HURRY`]. `count` is told how many.
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
                // It lives as long as this.
                _ = changes.changed() => {}
            }
        }
    }

    /// How many are held.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.all.lock().len()
    }

    fn sweep(&self, timeout: Duration) -> u64 {
        let now = Instant::now();
        // What they hold can be large; it is dropped outside of the lock.
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
    /// More is asked for. The answer is at its end once `None` is left.
    ///
    /// # Errors
    /// It was given up.
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
