//! Sends one question to the apiserver for all callers that ask it. A caller that arrives while a question is under way
//! shares the next one, so that every answer is newer than the call.
//!
//! Questions are paced: normally one is under way at a time, and two begin at least one pace apart. The pace is slower
//! while several readers share answers. The apiserver holds a consistent read until its own cache has caught up, for up
//! to 100 ms if the store is busy and the resource is not. Readers must not wait for two such reads in a row, so a
//! question that is held does not delay the next one. How long a question must be under way to count as held depends on
//! the size of its answer: large answers that are read side by side would only delay each other.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::apiserver::UpstreamError;
use crate::cache::Order;

/// A question for a small answer that has been under way for this long counts as held, and the next one may begin.
pub(super) const HELD: Duration = Duration::from_millis(10);
/// After several readers came together, more of them are expected for this long.
const LATELY: Duration = Duration::from_millis(200);
/// Maximum number of questions under way. Beyond that, readers wait for one of them to end.
const MOST: usize = 12;

/// The minimum time between the starts of two questions.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The pace while readers come one at a time.
    pub alone: Duration,
    /// The pace while several readers have recently shared a question.
    pub together: Duration,
}

/// When a question was asked, or wanted: its answer says nothing of later changes. No two are equal, which clocks do not
/// guarantee. So an answer to a question that was asked before a write never counts as one that knows of the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    pub at: Instant,
    order: Order,
}

/// The questions of one kind, and the newest answer.
#[derive(Debug)]
pub(super) struct SingleFlight<T> {
    state: Mutex<FlightState<T>>,
    changed: watch::Sender<()>,
}

/// An answer, and when its question began.
type Answered<T> = Result<(T, Asked), UpstreamError>;

#[derive(Debug)]
struct FlightState<T> {
    /// How many questions have begun.
    begun: u64,
    /// How many callers have come since then and want the next question.
    wanted_by: usize,
    /// When several callers last wanted the same question.
    shared: Option<Instant>,
    /// When the last question began.
    last: Option<Instant>,
    /// The numbers of the questions under way, in order.
    under_way: Vec<u64>,
    /// The answer to the newest question that was answered.
    newest: Option<(u64, Answered<T>)>,
}

enum Look<'a, T> {
    Answered(Answered<T>),
    Ask(Flight<'a, T>),
    /// Wait until this time, or until something changes.
    Wait(Option<Instant>),
}

/// One question under way. Dropping it ends the question, also when the caller is dropped while it asks.
struct Flight<'a, T> {
    flights: &'a SingleFlight<T>,
    number: u64,
    asked: Asked,
    result: Option<Answered<T>>,
}

// === impl Pace ===

impl Pace {
    /// No pause, for callers that ask rarely.
    pub(super) const AT_ONCE: Self = Self { alone: Duration::ZERO, together: Duration::ZERO };
}

// === impl Asked ===

impl Asked {
    pub fn now() -> Self {
        Self { at: Instant::now(), order: Order::now() }
    }

    /// So long before, as far as the clock goes back.
    #[must_use]
    pub fn before(self, age: Duration) -> Self {
        Self { at: self.at.checked_sub(age).unwrap_or(self.at), ..self }
    }

    /// Just after.
    #[must_use]
    pub fn next(self) -> Self {
        Self { at: self.at + Duration::from_nanos(1), ..self }
    }
}

// === impl SingleFlight ===

impl<T> Default for SingleFlight<T> {
    fn default() -> Self {
        let state =
            FlightState { begun: 0, wanted_by: 0, shared: None, last: None, under_way: Vec::new(), newest: None };
        Self { state: Mutex::new(state), changed: watch::Sender::default() }
    }
}

impl<T: Clone> SingleFlight<T> {
    /// Returns an answer that is newer than this call. The question is not sent before the future is polled. It begins
    /// no sooner than `pace` after the previous one. A question that has been under way for `held` does not delay the next
    /// one.
    ///
    /// # Errors
    /// The error of the question, for all callers that share it.
    pub(super) async fn ask(
        &self,
        pace: Pace,
        held: Duration,
        question: impl Future<Output = Result<T, UpstreamError>>,
    ) -> Answered<T> {
        let mut changed = self.changed.subscribe();
        let wanted = {
            let mut state = self.state.lock();
            state.wanted_by += 1;
            state.begun + 1
        };
        loop {
            changed.borrow_and_update();
            let until = match self.look(wanted, pace, held) {
                Look::Answered(result) => return result,
                Look::Ask(mut flight) => {
                    let asked = flight.asked;
                    let result = question.await.map(|value| (value, asked));
                    flight.result = Some(result.clone());
                    return result;
                }
                Look::Wait(until) => until,
            };
            let due = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            // The sender lives as long as `self`.
            tokio::select! { _ = changed.changed() => {} () = due => {} }
        }
    }

    fn look(&self, wanted: u64, pace: Pace, held: Duration) -> Look<'_, T> {
        let mut state = self.state.lock();
        if let Some((number, result)) = &state.newest
            && *number >= wanted
        {
            return Look::Answered(result.clone());
        }
        let shared = state.under_way.last().is_some_and(|number| *number >= wanted);
        if shared || state.under_way.len() >= MOST {
            return Look::Wait(None);
        }
        let now = Instant::now();
        if state.wanted_by > 1 {
            state.shared = Some(now);
        }
        let together = state.shared.is_some_and(|shared| now.duration_since(shared) < LATELY);
        let pace = if together { pace.together } else { pace.alone };
        let pace = if state.under_way.is_empty() { pace } else { pace.max(held) };
        if let Some(due) = state.last.map(|last| last + pace).filter(|due| *due > now) {
            return Look::Wait(Some(due));
        }
        state.begun += 1;
        state.wanted_by = 0;
        state.last = Some(now);
        let number = state.begun;
        state.under_way.push(number);
        Look::Ask(Flight { flights: self, number, asked: Asked { at: now, order: Order::now() }, result: None })
    }
}

// === impl Flight ===

impl<T> Drop for Flight<'_, T> {
    fn drop(&mut self) {
        let mut state = self.flights.state.lock();
        state.under_way.retain(|number| *number != self.number);
        let newer = state.newest.as_ref().is_none_or(|(number, _)| *number < self.number);
        if let Some(result) = self.result.take().filter(|_| newer) {
            state.newest = Some((self.number, result));
        }
        drop(state);
        self.flights.changed.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::time::sleep;

    use super::*;
    use crate::lifecycle::spawn;

    const PACE: Pace = pace(5);

    const fn pace(millis: u64) -> Pace {
        Pace { alone: Duration::from_millis(millis), together: Duration::from_millis(millis) }
    }

    /// Counts questions, and how many are under way at once. Each takes the given time.
    #[derive(Default)]
    struct Apiserver {
        asked: AtomicU32,
        now: AtomicU32,
        most: AtomicU32,
    }

    impl Apiserver {
        async fn answer(&self, takes: Duration) -> Result<u32, UpstreamError> {
            let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
            let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            sleep(takes).await;
            self.now.fetch_sub(1, Ordering::SeqCst);
            Ok(number)
        }
    }

    /// Starts so many readers one after another. Returns the number of questions, the most at once, and the longest wait.
    /// A question counts as held after the time `held`.
    async fn crowd(readers: u32, apart: Duration, pace: Pace, held: Duration, takes: Duration) -> (u32, u32, Duration) {
        let (flights, apiserver) = (Arc::new(SingleFlight::default()), Arc::new(Apiserver::default()));
        let mut waiting = Vec::new();
        for _ in 0..readers {
            let (flights, apiserver) = (flights.clone(), apiserver.clone());
            let (begun, wanted) = (Instant::now(), Asked::now());
            waiting.push(spawn("reader", async move {
                let (_, asked) = flights.ask(pace, held, apiserver.answer(takes)).await.unwrap();
                assert!(asked > wanted, "an answer is of a time after it was wanted");
                begun.elapsed()
            }));
            sleep(apart).await;
        }
        let mut longest = Duration::ZERO;
        for reader in waiting {
            longest = longest.max(reader.await.unwrap());
        }
        (apiserver.asked.load(Ordering::SeqCst), apiserver.most.load(Ordering::SeqCst), longest)
    }

    #[tokio::test(start_paused = true)]
    async fn questions_are_few_and_at_their_pace_and_nobody_waits_long() {
        let millis = Duration::from_millis;
        let patient = Pace { alone: millis(2), together: millis(16) };
        let most = u32::try_from(MOST).unwrap();
        for (what, (readers, apart), pace, (held, takes), questions, at_once, longest) in [
            ("many share few questions", (1000, 1), PACE, (HELD, 2), 150..=201, 1..=1, millis(9)),
            ("a slow pace, however they come", (50, 20), pace(75), (HELD, 3), 1..=15, 1..=1, Duration::MAX),
            ("who asks alone, as in a loop, is not slowed", (100, 3), patient, (HELD, 1), 100..=100, 1..=1, millis(1)),
            ("who shares is patient", (100, 1), patient, (HELD, 1), 1..=9, 1..=1, millis(18)),
            ("a lone reader does not wait", (5, 1000), pace(75), (HELD, 3), 5..=5, 1..=1, millis(3)),
            ("who is held holds up nobody else", (300, 1), PACE, (HELD, 100), 1..=300, 2..=12, millis(100) + 3 * HELD),
            ("large answers one at a time", (20, 40), PACE, (millis(1000), 600), 1..=3, 1..=1, millis(1200)),
            ("answers that are late", (30, 1000), PACE, (millis(1), 100_000), 1..=30, most..=most, millis(299_999)),
        ] {
            let (asked, now, waited) = crowd(readers, millis(apart), pace, held, millis(takes)).await;
            assert!(questions.contains(&asked) && at_once.contains(&now), "{what}: {asked} questions, {now} at once");
            assert!(waited <= longest, "{what}: {waited:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_gives_the_turn_back() {
        let (flights, apiserver) = (SingleFlight::default(), Apiserver::default());
        let long = Duration::from_secs(60);
        tokio::time::timeout(HELD / 2, flights.ask(PACE, HELD, apiserver.answer(long))).await.unwrap_err();
        let second =
            tokio::time::timeout(HELD, flights.ask(PACE, HELD, apiserver.answer(PACE.alone))).await.unwrap().unwrap();
        assert_eq!(second.0, 2);
    }
}
