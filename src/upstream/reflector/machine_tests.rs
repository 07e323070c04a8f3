use std::time::Duration;

use super::machine::{Failure, Haste, Machine, Outcome, State, Then};
use super::*;
use crate::lifecycle::backoff::BackoffConfig;

struct Bench {
    machine: Machine,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        let now = Instant::now();
        Self { machine: Machine::new(false, BackoffConfig::default(), BackoffConfig::default(), now), now }
    }

    /// A machine that follows a stream, with a store at revision 100.
    fn following() -> Self {
        let mut bench = Self::new();
        bench.after(0, Outcome::Learned);
        bench.after(0, Outcome::Synced);
        bench.machine.rv = ResourceVersion(100);
        assert_eq!(bench.machine.state(), State::Follow);
        bench
    }

    fn after(&mut self, seconds: u64, outcome: Outcome) -> State {
        self.now += Duration::from_secs(seconds);
        self.machine.step(outcome, self.now);
        self.machine.state()
    }

    /// The present wait: how long, and what comes after it.
    #[track_caller]
    fn waits(&self) -> (Duration, Then) {
        let State::Wait { until, then, .. } = self.machine.state() else { panic!("{:?}", self.machine.state()) };
        (until - self.now, then)
    }

    /// What may end the present wait early, and after which time at the earliest.
    #[track_caller]
    fn hastens(&self) -> (Haste, Duration) {
        let State::Wait { not_before, haste, .. } = self.machine.state() else { panic!("{:?}", self.machine.state()) };
        (haste, not_before - self.now)
    }

    fn elapse(&mut self) -> State {
        let (wait, _) = self.waits();
        self.now += wait;
        self.machine.step(Outcome::Elapsed, self.now);
        self.machine.state()
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_list_whose_end_is_late_becomes_one_list() {
    let mut bench = Bench::new();
    bench.after(0, Outcome::Learned);
    assert_eq!(bench.after(2, Outcome::Unmarked), State::List);
    assert!(!bench.machine.paged, "other reflectors are not told");
    assert_eq!(bench.after(0, Outcome::Synced), State::Watch);
    bench.after(0, Outcome::Opened);
    assert_eq!(bench.after(600, Outcome::Failed(Failure::Expired)), State::Learn);
    assert_eq!(bench.after(0, Outcome::Learned), State::WatchList);
}

#[tokio::test(start_paused = true)]
async fn watch_lists_without_an_end_become_pages() {
    let mut bench = Bench::new();
    bench.after(0, Outcome::Learned);
    for _ in 0..2 {
        bench.after(1, Outcome::Unfinished);
        assert_eq!(bench.elapse(), State::WatchList);
    }
    bench.after(1, Outcome::Ended { heard: true });
    assert_eq!(bench.elapse(), State::List);
}

/// Whatever has failed, what was assumed is asked for before the next attempt.
#[tokio::test(start_paused = true)]
async fn a_state_that_cannot_be_read_without_its_form_is_read_with_it() {
    for paged in [false, true] {
        for failed in [Outcome::Unfinished, Outcome::Broken, Outcome::Failed(Failure::Other)] {
            if paged && failed != Outcome::Failed(Failure::Other) {
                continue;
            }
            let mut bench = Bench::new();
            bench.machine.paged = paged;
            let reads = if paged { State::List } else { State::WatchList };
            assert_eq!((bench.after(0, Outcome::Known), bench.machine.assumed), (reads, true));
            bench.after(1, failed);
            assert_eq!(bench.elapse(), State::Learn, "{failed:?}");
            assert_eq!((bench.after(0, Outcome::Learned), bench.machine.assumed), (reads, false));
            bench.after(1, failed);
            assert_eq!(bench.elapse(), reads, "it is not asked again");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn streams_that_end_at_once_are_not_spun_on() {
    let mut bench = Bench::following();
    let mut waited = Duration::ZERO;
    for _ in 0..10 {
        bench.after(0, Outcome::Ended { heard: false });
        waited += bench.waits().0;
        assert_eq!(bench.elapse(), State::Check);
        bench.after(0, Outcome::Current(ResourceVersion(100)));
        bench.after(0, Outcome::Opened);
    }
    assert!(waited > Duration::from_secs(100), "{waited:?}");
    // A stream that was silent but lived long enough is followed by the next one at once.
    assert_eq!(bench.after(30, Outcome::Ended { heard: false }), State::Check);
}

#[tokio::test(start_paused = true)]
async fn an_expired_revision_relists_at_once_but_not_in_a_circle() {
    let mut bench = Bench::following();
    assert_eq!(bench.after(9, Outcome::Failed(Failure::Expired)), State::Learn);
    assert_eq!(bench.after(0, Outcome::Learned), State::WatchList);
    bench.after(0, Outcome::Synced);
    bench.after(0, Outcome::Failed(Failure::Expired));
    assert_eq!(bench.waits().1, Then::Learn);
    assert_eq!(bench.machine.syncs, 2);
}

#[tokio::test(start_paused = true)]
async fn only_two_answers_below_ours_are_a_rewind() {
    let mut bench = Bench::following();
    bench.after(9, Outcome::Ended { heard: true });
    assert_eq!(bench.after(0, Outcome::Current(ResourceVersion(99))), State::Confirm);
    assert_eq!(bench.after(0, Outcome::Current(ResourceVersion(99))), State::Reset);
    assert_eq!(bench.after(0, Outcome::WasReset), State::Learn);
    assert_eq!(bench.after(0, Outcome::Learned), State::WatchList);
    assert_eq!(bench.machine.rewinds, 1);

    // An apiserver that was behind: the store is kept, and the whole state is read.
    let mut bench = Bench::following();
    assert_eq!(bench.after(9, Outcome::WentBack), State::Confirm);
    bench.after(0, Outcome::Current(ResourceVersion(100)));
    assert_eq!(bench.elapse(), State::Learn);
    assert_eq!(bench.after(0, Outcome::Learned), State::WatchList);
    assert_eq!(bench.machine.rewinds, 0);
}

#[tokio::test(start_paused = true)]
async fn a_resource_must_be_missed_twice_to_be_gone() {
    let mut bench = Bench::following();
    bench.after(9, Outcome::Ended { heard: true });
    bench.after(0, Outcome::Failed(Failure::NotFound));
    assert_eq!(bench.elapse(), State::Check);
    assert_eq!(bench.after(0, Outcome::Failed(Failure::NotFound)), State::Ended(ReflectorEnd::Gone));

    let mut bench = Bench::new();
    bench.after(0, Outcome::Failed(Failure::NotFound));
    bench.elapse();
    bench.after(0, Outcome::Failed(Failure::Other));
    bench.elapse();
    bench.after(0, Outcome::Failed(Failure::NotFound));
    assert_eq!(bench.elapse(), State::Learn, "something else came between");
}

#[tokio::test(start_paused = true)]
async fn waits_as_long_as_the_server_asks() {
    let mut bench = Bench::following();
    bench.after(9, Outcome::Failed(Failure::Unavailable { retry_after: Some(Duration::from_secs(20)) }));
    let (wait, then) = bench.waits();
    assert!(wait >= Duration::from_secs(20) && wait < Duration::from_secs(30), "{wait:?}");
    assert_eq!(then, Then::Check);
    assert!(bench.hastens().1 >= Duration::from_secs(20), "and nothing ends the wait before");
}

#[tokio::test(start_paused = true)]
async fn what_was_readable_and_is_forbidden_is_asked_for_again_soon_at_first() {
    let mut bench = Bench::following();
    bench.after(9, Outcome::Failed(Failure::Forbidden));
    for _ in 0..2 {
        assert!(bench.waits().0 < Duration::from_secs(5), "{:?}", bench.waits());
        bench.elapse();
        bench.after(0, Outcome::Failed(Failure::Forbidden));
    }
    assert!(bench.waits().0 >= Duration::from_secs(30));
    let mut bench = Bench::new();
    bench.after(0, Outcome::Failed(Failure::Forbidden));
    assert!(bench.waits().0 >= Duration::from_secs(30), "what was never readable");
}

#[tokio::test(start_paused = true)]
async fn only_small_requests_are_made_before_their_time() {
    let unavailable = Outcome::Failed(Failure::Unavailable { retry_after: None });
    for (outcome, haste) in [
        (Outcome::Broken, Haste::Turn),
        (unavailable, Haste::Answer),
        (Outcome::Failed(Failure::NotFound), Haste::None),
    ] {
        let mut bench = Bench::following();
        bench.after(9, outcome);
        assert_eq!(bench.hastens().0, haste, "{outcome:?}");
    }
    for (outcome, haste) in
        [(Outcome::Unfinished, Haste::None), (unavailable, Haste::None), (Outcome::Failed(Failure::Other), Haste::None)]
    {
        let mut bench = Bench::new();
        bench.after(0, Outcome::Learned);
        bench.after(9, outcome);
        assert_eq!(bench.hastens().0, haste, "a whole state, {outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn watch_lists_that_said_nothing_teach_nothing() {
    let mut bench = Bench::new();
    bench.after(0, Outcome::Learned);
    for _ in 0..5 {
        bench.after(1, Outcome::Ended { heard: false });
        assert_eq!(bench.elapse(), State::WatchList);
        bench.after(1, Outcome::Broken);
        assert_eq!(bench.elapse(), State::WatchList);
    }
}

#[tokio::test(start_paused = true)]
async fn health_forgets_failures() {
    let mut bench = Bench::following();
    for _ in 0..6 {
        bench.after(1, Outcome::Broken);
        bench.elapse();
        bench.after(0, Outcome::Current(ResourceVersion(100)));
        bench.after(0, Outcome::Opened);
    }
    bench.after(119, Outcome::Broken);
    assert!(bench.waits().0 >= Duration::from_secs(30));
    bench.elapse();
    bench.after(0, Outcome::Current(ResourceVersion(100)));
    bench.after(0, Outcome::Opened);
    bench.after(120, Outcome::Broken);
    assert!(bench.waits().0 < Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_is_given_up_and_learnt_anew_ever_later() {
    let mut bench = Bench::following();
    let mut waits = Vec::new();
    for _ in 0..3 {
        let State::Refused { until } = bench.after(1, Outcome::GivenUp) else { panic!("{:?}", bench.machine.state()) };
        waits.push(until - bench.now);
        assert_eq!(bench.after(60, Outcome::Elapsed), State::Learn);
    }
    assert!(waits.is_sorted(), "{waits:?}");
    assert_eq!(bench.after(0, Outcome::Learned), State::WatchList);
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_opened_anew_and_then_listed() {
    const MISSED: Outcome = Outcome::Silent { missed: true, heard: false };
    let mut bench = Bench::following();
    let follow = |bench: &mut Bench| {
        bench.after(0, Outcome::Current(ResourceVersion(100)));
        assert_eq!(bench.after(0, Outcome::Opened), State::Follow);
    };
    assert_eq!(bench.after(70, Outcome::Silent { missed: true, heard: true }), State::Check);
    follow(&mut bench);
    // The next one says nothing either: a list does not need it. However often that is so, lists get rare.
    let mut waited = Duration::ZERO;
    for _ in 0..10 {
        bench.after(4, MISSED);
        assert_eq!(bench.waits().1, Then::List);
        waited += bench.waits().0;
        assert_eq!(bench.elapse(), State::List);
        assert_eq!(bench.after(0, Outcome::Synced), State::Watch);
        bench.after(0, Outcome::Opened);
    }
    assert!(waited > Duration::from_secs(100), "{waited:?}");
    // One that has said something is gone on from.
    bench.after(4, Outcome::Silent { missed: true, heard: true });
    assert_eq!(bench.waits().1, Then::Check);
    bench.elapse();
    follow(&mut bench);
    // Bookmarks that do not come are no reason for a list.
    bench.after(4, Outcome::Silent { missed: false, heard: false });
    assert_eq!(bench.waits().1, Then::Check);
    assert_eq!(bench.machine.silences, 13);
}
