//! Decides when a watcher's bookmarks are due and when its deadline ends it, with one timer for both.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rand::Rng;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

use super::spec::WatchSpec;

/// The deadline of one watcher, and its bookmarks.
#[derive(Debug)]
pub(super) struct Schedule {
    deadline: Instant,
    /// Between bookmarks, in milliseconds: a watcher is small.
    period: u32,
    /// When the next bookmark is due; `None` if there are no more, or none were requested.
    due: Option<Instant>,
    bookmarks: bool,
    /// Created when first needed.
    timer: Option<Pin<Box<Sleep>>>,
    /// When the timer will wake which task.
    armed: Option<(Instant, Waker)>,
}

/// How long before the deadline the apiserver sends a bookmark, for a client to resume from.
const BEFORE_DEADLINE: Duration = Duration::from_secs(2);
/// The apiserver also sends one after the bookmark of the initial events, if the revision moved: at the first tick, of
/// 1 s to 1.25 s.
const AFTER_MARK: Duration = Duration::from_secs(1);
const AFTER_MARK_JITTER: f64 = 0.25;
/// How much earlier than the period a bookmark may come, so that watchers that started together do not stay in step.
const PERIOD_JITTER: f64 = 0.05;
/// When a bookmark or an end that was due in the middle of a batch is tried again.
const POSTPONED: Duration = Duration::from_millis(100);

// === impl Schedule ===

impl Schedule {
    pub(super) fn new(spec: &WatchSpec, period: Duration) -> Self {
        Self {
            deadline: spec.deadline,
            period: millis(period),
            due: None,
            bookmarks: spec.bookmarks,
            timer: None,
            armed: None,
        }
    }

    pub(super) fn takes_bookmarks(&self) -> bool {
        self.bookmarks
    }

    /// Starts the schedule after the initial part; `marked` means that the initial part ended with its own bookmark.
    pub(super) fn start(&mut self, now: Instant, marked: bool) {
        if !self.bookmarks {
            return;
        }
        self.advance(now);
        if marked {
            let soon = now + AFTER_MARK.mul_f64(1.0 + rand::rng().random_range(0.0..AFTER_MARK_JITTER));
            self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
        }
    }

    pub(super) fn set_period(&mut self, now: Instant, period: Duration) {
        self.period = millis(period);
        if self.due.is_some() {
            self.advance(now);
        }
    }

    /// A bookmark was due: sets the time of the next one. The one before the deadline is the last.
    pub(super) fn advance(&mut self, now: Instant) {
        let period = Duration::from_millis(self.period.into());
        let regular = now + period.mul_f64(1.0 - rand::rng().random_range(0.0..PERIOD_JITTER));
        let last = self.deadline.checked_sub(BEFORE_DEADLINE).filter(|last| *last > now);
        self.due = last.map(|last| last.min(regular));
    }

    /// Looks again in a moment, whether there are bookmarks or not.
    pub(super) fn postpone(&mut self, now: Instant) {
        self.due = Some(now + POSTPONED);
    }

    /// The deadline has passed, but the watch cannot end at `now`: sets when it tries again.
    pub(super) fn put_off(&mut self, now: Instant) {
        self.deadline = now + POSTPONED;
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.deadline <= now
    }

    /// Whether the timer will wake this task.
    pub(super) fn wakes(&self, waker: &Waker) -> bool {
        self.armed.as_ref().is_some_and(|(_, armed)| armed.will_wake(waker))
    }

    /// Ready when a bookmark is due at `now`, or the deadline has come.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<()> {
        let next = self.due.map_or(self.deadline, |due| due.min(self.deadline));
        if next <= now {
            return Poll::Ready(());
        }
        // The schedule is polled for every event, and mostly by the same task that the timer already wakes. The timer
        // itself is not looked at then: the memory of thousands of timers is seldom in the processor's cache.
        if self.armed.as_ref().is_some_and(|(at, waker)| *at == next && waker.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(next)));
        if timer.deadline() != next {
            timer.as_mut().reset(next);
        }
        // A task that has used up its tokio budget would not set the timer, and return the same.
        let polled = Pin::new(&mut unconstrained(timer.as_mut())).poll(cx);
        self.armed = polled.is_pending().then(|| (next, cx.waker().clone()));
        polled
    }
}

fn millis(period: Duration) -> u32 {
    u32::try_from(period.as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::spec::WatchStart;
    use crate::selector::Predicate;

    /// Milliseconds from the start at which bookmarks are due.
    fn dues(lifetime: Duration, bookmarks: bool, marked: bool) -> Vec<u128> {
        let start = Instant::now();
        let deadline = start + lifetime;
        let predicate = Predicate::everything();
        let spec = WatchSpec { predicate, start: WatchStart::Now, bookmarks, initial_end: marked, deadline };
        let mut schedule = Schedule::new(&spec, Duration::from_secs(60));
        schedule.start(start, marked);
        let mut dues = Vec::new();
        while let Some(due) = schedule.due {
            dues.push((due - start).as_millis());
            schedule.advance(due);
        }
        dues
    }

    #[test]
    fn a_short_watch_has_only_the_one_before_its_deadline() {
        assert_eq!(dues(Duration::from_secs(3), true, false), [1000]);
        assert!(dues(Duration::from_secs(2), true, false).is_empty());
        assert!(dues(Duration::from_secs(300), false, true).is_empty(), "not asked for");
    }

    /// A task that has written a large list has no budget left when its watch becomes live.
    #[tokio::test(start_paused = true)]
    async fn the_timer_is_set_by_a_task_without_budget() {
        let deadline = Instant::now() + Duration::from_secs(10);
        let predicate = Predicate::everything();
        let spec = WatchSpec { predicate, start: WatchStart::Now, bookmarks: false, initial_end: false, deadline };
        let mut schedule = Schedule::new(&spec, Duration::from_secs(60));
        let mut is_first = true;
        let over = std::future::poll_fn(|cx| {
            while std::mem::take(&mut is_first)
                && let Poll::Ready(budget) = tokio::task::coop::poll_proceed(cx)
            {
                budget.made_progress();
                is_first = true;
            }
            schedule.poll(cx, Instant::now())
        });
        tokio::time::timeout(Duration::from_secs(20), over).await.unwrap();
        assert_eq!(Instant::now(), deadline);
    }

    #[test]
    fn the_mark_is_followed_by_a_bookmark_at_the_next_tick() {
        for (lifetime, more) in [(300, true), (2, false)] {
            let dues = dues(Duration::from_secs(lifetime), true, true);
            assert!((1000..=1250).contains(&dues[0]), "{dues:?}");
            assert_eq!(dues.len() > 1, more, "{dues:?}");
        }
    }
}
