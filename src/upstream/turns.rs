//! One question to the apiserver for several who ask it: whoever comes while it is under way shares the next one, so that
//! every answer is of a time after the question was asked.

use parking_lot::Mutex;
use tokio::sync::watch;

use super::error::UpstreamError;

/// The questions of one kind.
#[derive(Debug)]
pub(super) struct Turns<T> {
    state: Mutex<State<T>>,
    done: watch::Sender<u64>,
}

#[derive(Debug)]
struct State<T> {
    started: u64,
    running: bool,
    last: Option<Result<T, UpstreamError>>,
}

/// Gives the turn back, also when the one who asks is dropped.
struct Turn<'a, T> {
    turns: &'a Turns<T>,
    number: u64,
    result: Option<Result<T, UpstreamError>>,
}

// === impl Turns ===

impl<T: Clone> Turns<T> {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State { started: 0, running: false, last: None }), done: watch::Sender::new(0) }
    }

    /// An answer to the question, which is not asked before it is polled, of a time after this was called. One question is under way at a time; all who come meanwhile
    /// share the next.
    ///
    /// # Errors
    /// As of the question, for all who share it.
    pub(super) async fn ask(
        &self,
        question: impl Future<Output = Result<T, UpstreamError>>,
    ) -> Result<T, UpstreamError> {
        let mut done = self.done.subscribe();
        let wanted = self.state.lock().started + 1;
        loop {
            if let Some(mut turn) = self.take(wanted) {
                let result = question.await;
                turn.result = Some(result.clone());
                return result;
            }
            // Whoever has the turn tells when it is over; the sender lives as long as we do.
            if *done.borrow_and_update() >= wanted
                && let Some(result) = self.state.lock().last.clone()
            {
                return result;
            }
            if self.state.lock().running {
                done.changed().await.ok();
            }
        }
    }

    /// The turn to ask, if none is running and none that began late enough is over.
    fn take(&self, wanted: u64) -> Option<Turn<'_, T>> {
        let mut state = self.state.lock();
        let over = !state.running && state.started >= wanted && state.last.is_some();
        if state.running || over {
            return None;
        }
        state.running = true;
        state.started += 1;
        state.last = None;
        Some(Turn { turns: self, number: state.started, result: None })
    }
}

// === impl Turn ===

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock();
        state.running = false;
        state.last = self.result.take();
        drop(state);
        self.turns.done.send_replace(self.number);
    }
}
