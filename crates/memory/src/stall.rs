//! Responses whose clients have stopped reading.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::cut::Cut;
use super::pressure::{Level, Pressure};

/// All responses that are dropped when their clients stop reading. An unfinished response holds memory, such as a
/// snapshot of its cache. Cloning shares the guards.
#[derive(Clone, Debug, Default)]
pub struct StallGuards {
    open: Arc<Mutex<Open>>,
}

/// The responses that are not dropped yet, in the order of their begin. Every answer takes the lock, so nothing is done
/// under it that takes longer with each response.
#[derive(Debug, Default)]
struct Open {
    all: BTreeMap<u64, Weak<dyn Leashed>>,
    begun: u64,
    /// Tells that one was given up in a hurry, and is not cut yet.
    hurried: Arc<Notify>,
}

/// The data that a response still holds, until it is finished or dropped.
#[derive(Debug)]
pub struct StallGuard<T> {
    state: Mutex<State<T>>,
    cut: Cut,
    /// The number of its entry, which goes with it.
    number: u64,
    open: Arc<Mutex<Open>>,
}

/// Bytes that were handed out. To be dropped once the client has taken them.
#[derive(Debug)]
pub struct Given<T> {
    stall_guard: Arc<StallGuard<T>>,
    bytes: usize,
}

#[derive(Debug)]
struct State<T> {
    /// `None` once it is given up or finished.
    held: Option<T>,
    /// When the client last requested more.
    taken: Instant,
    /// There was nothing to hand out then, so that the client waits for the response, and not the response for the client.
    waits: bool,
    /// With the patience of that moment. What was given up in a hurry is cut soon, even if memory is plentiful again by then.
    given_up: Option<Duration>,
}

/// More data was requested from a response that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("given up: its client had stopped to take it")]
pub struct GivenUp;

/// A stall guard, independent of the type that it holds.
trait Leashed: Send + Sync {
    fn is_over(&self) -> bool;

    /// Whether it was given up in a hurry, and may have to be cut.
    fn is_hurried(&self) -> bool;

    /// Takes the held data if nothing was requested or taken for `timeout`. The response is cut if all was handed out already
    /// and is still in memory, or if it was given up as long ago.
    fn give_up(&self, now: Instant, timeout: Duration) -> Option<Box<dyn Any + Send>>;
}

/// While memory is short, a response is given up when its client has read nothing for this time.
pub const HURRY: Duration = Duration::from_secs(2);
/// So many responses are looked up at once.
const STEP: usize = 256;

// === impl StallGuards ===

impl StallGuards {
    /// Holds the data that a response needs to continue.
    pub fn hold<T: Send + 'static>(&self, held: T) -> Arc<StallGuard<T>> {
        self.hold_with(held, Cut::default())
    }

    /// The same for an answer that has its cut already.
    pub fn hold_with<T: Send + 'static>(&self, held: T, cut: Cut) -> Arc<StallGuard<T>> {
        let state = Mutex::new(State { held: Some(held), taken: Instant::now(), waits: false, given_up: None });
        let mut open = self.open.lock();
        let number = open.begun;
        open.begun += 1;
        let stall_guard = Arc::new(StallGuard { state, cut, number, open: Arc::clone(&self.open) });
        let weak = Arc::downgrade(&stall_guard);
        open.all.insert(number, weak);
        stall_guard
    }

    /// Gives up the responses from which nothing was requested for `timeout`, or for [`HURRY`] while memory is short.
    /// It runs forever and checks four times per `timeout`. `count` receives the number of responses.
    pub async fn watch(self, timeout: Duration, pressure: Pressure, count: impl Fn(u64)) {
        let mut changes = pressure.changes();
        let hurried = Arc::clone(&self.open.lock().hurried);
        let (mut swept, mut follows) = (Instant::now(), false);
        loop {
            let patience = if *changes.borrow_and_update() == Level::Short { HURRY.min(timeout) } else { timeout };
            let pause = if follows { HURRY.min(patience) } else { patience } / 4;
            tokio::select! {
                () = hurried.notified(), if !follows => follows = true,
                () = tokio::time::sleep_until(swept + pause) => {
                    follows = false;
                    count(self.sweep(patience));
                    swept = Instant::now();
                }
                // The sender lives as long as this function.
                _ = changes.changed() => {}
            }
        }
    }

    /// Gives up the responses from which nothing was requested for [`HURRY`]. Returns their number.
    pub fn hurry(&self) -> u64 {
        self.sweep(HURRY)
    }

    /// The number of held responses.
    #[cfg(any(test, feature = "testing"))]
    pub fn held(&self) -> usize {
        self.open.lock().all.len()
    }

    fn sweep(&self, timeout: Duration) -> u64 {
        let now = Instant::now();
        let (mut next, mut given_up, mut hurried) = (0, 0, false);
        // What begins in the meantime has just been taken from.
        let until = self.open.lock().begun;
        while next < until {
            let some: Vec<_> = {
                let open = self.open.lock();
                open.all.range(next..until).take(STEP).map(|(number, weak)| (*number, weak.upgrade())).collect()
            };
            next = some.last().map_or(until, |(number, _)| number + 1);
            // A response can be busy with its next part, and what it holds can be large: without the lock.
            for (number, stall_guard) in some {
                let Some(stall_guard) = stall_guard else { continue };
                given_up += u64::from(stall_guard.give_up(now, timeout).is_some());
                hurried |= stall_guard.is_hurried();
                if stall_guard.is_over() {
                    self.open.lock().all.remove(&number);
                }
            }
        }
        if hurried {
            self.open.lock().hurried.notify_one();
        }
        given_up
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
        state.waits = false;
        if state.given_up.is_some() { Err(GivenUp) } else { Ok(next(&mut state.held)) }
    }

    /// The same for a response that may have nothing to hand out for any time, while its client takes all that there is. While
    /// it is pending, it is given up only if something that was handed out is not taken.
    ///
    /// # Errors
    /// The response was given up.
    pub fn poll_take<R>(&self, next: impl FnOnce(&mut Option<T>) -> Poll<R>) -> Result<Poll<R>, GivenUp> {
        let mut state = self.state.lock();
        if state.given_up.is_some() {
            state.taken = Instant::now();
            return Err(GivenUp);
        }
        let next = next(&mut state.held);
        state.waits = next.is_pending();
        // A response that wakes by itself says nothing about its client.
        if !state.waits || self.cut.out() == 0 {
            state.taken = Instant::now();
        }
        Ok(next)
    }

    /// Is cut once the response is given up with bytes that its client does not take.
    pub fn cut(&self) -> Cut {
        self.cut.clone()
    }

    /// Hands out bytes. To be called within [`Self::take`], so that the response is not taken for finished meanwhile.
    pub fn give(self: &Arc<Self>, bytes: usize) -> Given<T> {
        self.cut.give(bytes);
        Given { stall_guard: Arc::clone(self), bytes }
    }
}

impl<T> Drop for StallGuard<T> {
    fn drop(&mut self) {
        self.open.lock().all.remove(&self.number);
    }
}

// === impl Given ===

impl<T> Drop for Given<T> {
    fn drop(&mut self) {
        self.stall_guard.state.lock().taken = Instant::now();
        self.stall_guard.cut.taken(self.bytes);
    }
}

// === impl Leashed ===

impl<T: Send + 'static> Leashed for StallGuard<T> {
    fn is_over(&self) -> bool {
        let state = self.state.lock();
        self.cut.is_cut() || (state.held.is_none() && state.given_up.is_none() && self.cut.out() == 0)
    }

    fn is_hurried(&self) -> bool {
        self.state.lock().given_up.is_some_and(|patience| patience <= HURRY) && !self.cut.is_cut()
    }

    fn give_up(&self, now: Instant, timeout: Duration) -> Option<Box<dyn Any + Send>> {
        let mut state = self.state.lock();
        let idle = now.saturating_duration_since(state.taken);
        let timeout = state.given_up.map_or(timeout, |patience| patience.min(timeout));
        let has_all = state.waits && state.given_up.is_none() && self.cut.out() == 0;
        if idle < timeout || self.cut.is_cut() || has_all {
            return None;
        }
        if let Some(held) = state.held.take() {
            state.given_up = Some(timeout);
            return Some(Box::new(held));
        }
        // Who reads on in the meantime is told why the rest is missing. The last part of a response is never looked at sooner
        // than that, however short memory is: its client may be slow, and read.
        let is_kept = match state.given_up.is_some() {
            true => idle < 2 * timeout,
            false => self.cut.out() == 0 || idle < 2 * HURRY,
        };
        if is_kept {
            return None;
        }
        let is_first = state.given_up.replace(timeout).is_none();
        drop(state);
        self.cut.cut();
        is_first.then(|| Box::new(()) as _)
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
        for _ in 0..4 {
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

    #[tokio::test(start_paused = true)]
    async fn a_response_with_nothing_to_say_is_given_up_only_with_what_is_not_taken() {
        const TIMEOUT: Duration = Duration::from_secs(8);
        let stall_guards = StallGuards::default();
        let quiet = stall_guards.hold(());
        assert_eq!(quiet.poll_take(|_| Poll::<()>::Pending), Ok(Poll::Pending));
        tokio::time::sleep(TIMEOUT * 100).await;
        assert_eq!((stall_guards.sweep(TIMEOUT), stall_guards.hurry()), (0, 0));
        // It says something, and its client does not take it.
        let given = quiet.poll_take(|_| Poll::Ready(quiet.give(1))).unwrap();
        tokio::time::sleep(TIMEOUT).await;
        assert_eq!(quiet.poll_take(|_| Poll::<()>::Pending), Ok(Poll::Pending));
        assert_eq!((stall_guards.sweep(TIMEOUT), quiet.cut().is_cut()), (1, false));
        tokio::time::sleep(TIMEOUT).await;
        stall_guards.sweep(TIMEOUT);
        assert!(quiet.cut().is_cut());
        drop(given);
        // It has something to say for which nobody asks.
        let unread = stall_guards.hold(());
        tokio::time::sleep(TIMEOUT).await;
        assert_eq!((stall_guards.sweep(TIMEOUT), unread.poll_take(|_| Poll::Ready(()))), (1, Err(GivenUp)));
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_is_open_takes_memory() {
        let stall_guards = StallGuards::default();
        let open: Vec<_> = (0..3 * STEP).map(|_| stall_guards.hold(())).collect();
        for _ in 0..10_000 {
            let answer = stall_guards.hold(());
            answer.take(|held| *held = None).unwrap();
            drop(answer);
            drop(stall_guards.hold(()));
        }
        assert_eq!(stall_guards.held(), open.len(), "without a sweep");
        assert_eq!(stall_guards.sweep(Duration::ZERO), open.len() as u64);
        assert_eq!((stall_guards.sweep(Duration::ZERO), stall_guards.held()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_handed_out_and_is_not_taken_is_cut() {
        const TIMEOUT: Duration = Duration::from_secs(8);
        let stall_guards = StallGuards::default();
        let [whole, within, taken] = [(); 3].map(|()| stall_guards.hold(()));
        let given = [&whole, &within, &taken].map(|guard| guard.give(100));
        whole.take(|held| *held = None).unwrap();
        taken.take(|held| *held = None).unwrap();
        let [of_whole, of_within, of_taken] = given;
        drop(of_taken);
        tokio::time::sleep(TIMEOUT).await;
        assert_eq!(stall_guards.sweep(TIMEOUT), 2);
        let is_cut = || [&whole, &within, &taken].map(|guard| guard.cut().is_cut());
        assert_eq!(is_cut(), [true, false, false], "there was more to come of the second");
        tokio::time::sleep(TIMEOUT).await;
        assert_eq!((stall_guards.sweep(TIMEOUT), is_cut()), (0, [true, true, false]));
        assert_eq!(stall_guards.held(), 0);
        drop((of_whole, of_within));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_has_time_for_the_last_part_while_memory_is_short() {
        let stall_guards = StallGuards::default();
        let last = stall_guards.hold(());
        let _given = last.give(100);
        last.take(|held| *held = None).unwrap();
        tokio::time::sleep(HURRY).await;
        assert_eq!((stall_guards.hurry(), last.cut().is_cut()), (0, false));
        tokio::time::sleep(HURRY).await;
        assert_eq!((stall_guards.hurry(), last.cut().is_cut()), (1, true));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_given_up_in_a_hurry_is_cut_soon_though_memory_is_plentiful_again() {
        const TIMEOUT: Duration = Duration::from_secs(300);
        let (stall_guards, pressure) = (StallGuards::default(), Pressure::default());
        let [hurried, other] = [(); 2].map(|()| stall_guards.hold(()));
        let _given = [&hurried, &other].map(|guard| guard.give(100));
        let looks = async {
            tokio::time::sleep(HURRY).await;
            other.take(|_| ()).unwrap();
            assert_eq!((stall_guards.hurry(), hurried.cut().is_cut()), (1, false));
            tokio::time::sleep(2 * HURRY).await;
            assert_eq!((hurried.cut().is_cut(), other.take(|_| ())), (true, Ok(())));
        };
        tokio::select! {
            () = stall_guards.clone().watch(TIMEOUT, pressure, |_| ()) => {}
            () = looks => {}
        }
    }

    /// A sweep must not hold up other answers, whatever an answer is busy with.
    #[test]
    fn a_sweep_that_waits_for_one_answer_holds_up_no_other() {
        let stall_guards = StallGuards::default();
        let busy = stall_guards.hold(());
        let sweep = {
            let stall_guards = stall_guards.clone();
            move || stall_guards.sweep(Duration::from_secs(3600))
        };
        std::thread::scope(|threads| {
            let sweep = busy.take(|_| {
                let sweep = threads.spawn(sweep);
                // The sweep has its reference once it waits for this answer.
                let begun = Instant::now();
                while Arc::strong_count(&busy) == 1 {
                    assert!(begun.elapsed() < Duration::from_secs(60), "the sweep does not begin");
                    std::thread::yield_now();
                }
                let (done, is_done) = std::sync::mpsc::channel();
                let other = stall_guards.clone();
                threads.spawn(move || {
                    drop(other.hold(()));
                    done.send(()).ok();
                });
                assert!(is_done.recv_timeout(Duration::from_secs(60)).is_ok(), "another answer waits for the sweep");
                sweep
            });
            assert_eq!(sweep.unwrap().join().unwrap(), 0);
        });
    }
}
