//! Cooperative scheduling: the order in which the futures of one task run that have more to do than fits into a turn of
//! the task.
//!
//! A future that wakes itself is queued before those that the end of the turn sends away, so it would use up the next turn,
//! too. Here it is woken only after all others that are ready have run.

use std::cell::RefCell;
use std::task::{Context, Waker};

/// The wakers of the futures that have more to do, from one turn of their task to the next.
#[derive(Debug, Default)]
pub struct Rounds {
    later: Vec<Waker>,
    /// How many have run since the first of them.
    ran: usize,
    /// The turn has ended before all that were ready had run.
    has_refused: bool,
}

/// Ends the turn, also after a panic.
struct End<'a> {
    rounds: &'a mut Rounds,
    futures: usize,
}

thread_local! {
    /// `Some` inside [`Rounds::turn`].
    static NOW: RefCell<Option<Rounds>> = const { RefCell::new(None) };
}

/// Wakes a future that has more to do: inside [`Rounds::turn`], after the others.
pub fn after_others(waker: &Waker) {
    let is_kept = NOW.with_borrow_mut(|now| {
        let Some(now) = now else { return false };
        if now.later.is_empty() {
            now.ran = 0;
        }
        now.later.push(waker.clone());
        true
    });
    if !is_kept {
        waker.wake_by_ref();
    }
}

/// The turn is over before a future could run. It is woken, for the next turn.
pub fn refuse(cx: &Context<'_>) {
    NOW.with_borrow_mut(|now| now.iter_mut().for_each(|now| now.has_refused = true));
    cx.waker().wake_by_ref();
}

/// A future runs.
pub fn runs() {
    NOW.with_borrow_mut(|now| now.iter_mut().for_each(|now| now.ran += 1));
}

/// All that were ready have run: those that have more to do are woken. Returns whether there are any.
pub fn begin() -> bool {
    let later = NOW.with_borrow_mut(|now| now.as_mut().map(Rounds::take)).unwrap_or_default();
    let is_any = !later.is_empty();
    later.into_iter().for_each(Waker::wake);
    is_any
}

// === impl Rounds ===

impl Rounds {
    /// One turn of a task with this number of futures.
    pub fn turn<T>(&mut self, futures: usize, run: impl FnOnce() -> T) -> T {
        NOW.set(Some(std::mem::take(self)));
        let _end = End { rounds: self, futures };
        run()
    }

    fn take(&mut self) -> Vec<Waker> {
        self.ran = 0;
        std::mem::take(&mut self.later)
    }
}

// === impl End ===

impl Drop for End<'_> {
    fn drop(&mut self) {
        let mut rounds = NOW.take().unwrap_or_default();
        // Nobody waits for longer than two rounds, however often the others become ready again.
        let is_over = !std::mem::take(&mut rounds.has_refused) || rounds.ran >= 2 * self.futures;
        let later = if is_over { rounds.take() } else { Vec::new() };
        *self.rounds = rounds;
        later.into_iter().for_each(Waker::wake);
    }
}
