use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use tokio::time::advance;

use super::*;
use crate::apiserver::testing::{FakeServer, answer};
use crate::lifecycle::spawn;

const SECOND: Duration = Duration::from_secs(1);
const AGE: Duration = Duration::from_secs(600);
/// What is remembered from before a clock jumped.
const REMEMBERED: Duration = Duration::from_secs(900);

async fn outage(max_away_age: Duration) -> (Arc<Outage>, watch::Sender<bool>) {
    let upstream = Upstream::from_config(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).await.unwrap();
    let (others, told) = watch::channel(false);
    let config = AuthConfig { max_away_age, ..AuthConfig::default() };
    (Arc::new(Outage::new(upstream, &config, told, Arc::default())), others)
}

#[tokio::test(start_paused = true)]
async fn what_was_valid_counts_for_so_long_after_it_was_or_after_the_apiserver_was_last_heard() {
    let (outage, others) = outage(AGE).await;
    let since = Instant::now();
    advance(10 * SECOND).await;
    assert_eq!(outage.keeps(since + 5 * SECOND), None, "there is no outage");
    outage.begin(since);
    assert!(outage.is_on() && outage.is_recent());
    for (until, end) in [
        (since, Some(since + AGE)),
        (since + 300 * SECOND, Some(since + AGE)),
        (since - SECOND, Some(since + AGE - SECOND)),
        (since - AGE, None),
    ] {
        assert_eq!(outage.keeps(until), end);
    }
    others.send_replace(true);
    assert_eq!((outage.keeps(since), outage.sees_later()), (None, None), "it is this replica that is cut off");
    others.send_replace(false);
    advance(AGE - 11 * SECOND).await;
    assert_eq!(outage.keeps(since), Some(since + AGE));
    assert_eq!(outage.uses(since), None, "it would be used beyond its end");
    advance(SECOND).await;
    assert_eq!((outage.keeps(since + SECOND), outage.sees_later()), (None, None));
    outage.end();
    assert!(!outage.is_on() && outage.is_recent());
    advance(RECENT).await;
    assert!(!outage.is_recent());

    let (refuses, _others) = self::outage(Duration::ZERO).await;
    refuses.begin(Instant::now());
    assert_eq!((refuses.keeps(Instant::now() + SECOND), refuses.sees_later()), (None, None));
    assert!(refuses.is_on(), "no review is sent either way");
}

#[tokio::test(start_paused = true)]
async fn uses_are_looked_up_again_at_different_times_before_the_bound() {
    let (outage, _others) = outage(AGE).await;
    let since = Instant::now();
    outage.begin(since);
    let uses: std::collections::BTreeSet<_> = (0..100).filter_map(|_| outage.uses(since)).collect();
    assert!(uses.len() > 50);
    for (again, until) in &uses {
        assert!((since + LIFE.0..=since + LIFE.1).contains(again) && *until == *again + DOUBT);
    }
    advance(AGE - 7 * SECOND).await;
    for (again, until) in (0..100).filter_map(|_| outage.uses(since)) {
        assert!(again <= since + AGE && until <= since + AGE);
    }
}

/// However often it comes and goes, only what confirms something gives it more time.
#[tokio::test(start_paused = true)]
async fn flapping_gives_no_more_time() {
    let (outage, _others) = outage(AGE).await;
    let until = Instant::now() + 10 * SECOND;
    let mut last = Instant::now();
    for _ in 0..200 {
        outage.begin(Instant::now());
        advance(8 * SECOND).await;
        if outage.keeps(until).is_some() {
            last = Instant::now();
        }
        outage.end();
        advance(SECOND).await;
    }
    assert!(last < until + AGE && last > until + AGE - 10 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn changes_of_rights_are_waited_for_while_something_is_kept_and_a_moment_longer() {
    let (outage, _others) = outage(AGE).await;
    assert_eq!(outage.sees_later(), None);
    outage.begin(Instant::now());
    advance(AGE - SECOND).await;
    assert_eq!(outage.sees_later(), Some(Instant::now() + LATER));
    outage.end();
    let ended = Instant::now();
    assert_eq!(outage.sees_later(), Some(ended + BLIND));
    advance(BLIND).await;
    assert_eq!(outage.sees_later(), None);
}

/// The clock that nobody sets stands still while a machine sleeps.
#[tokio::test(start_paused = true)]
async fn the_time_that_a_machine_slept_counts() {
    let mut state = State::default();
    let mut time = 1_700_000_000.0;
    let mut pass = async |state: &mut State, passed: Duration, more: f64| {
        advance(passed).await;
        time += passed.as_secs_f64() + more;
        state.look(Some(time), REMEMBERED);
        state.slept
    };
    assert_eq!(pass(&mut state, SECOND, 0.0).await, Duration::ZERO);
    assert_eq!(pass(&mut state, 2 * SECOND, 0.9).await, Duration::ZERO, "clocks drift");
    assert_eq!(pass(&mut state, 2 * SECOND, -3600.0).await, Duration::ZERO, "set back");
    assert!(pass(&mut state, 2 * SECOND, 3600.0).await >= Duration::from_secs(3599));
    assert!(pass(&mut state, 2 * SECOND, 60.0).await >= Duration::from_secs(3658));
    assert!(pass(&mut state, REMEMBERED, 0.0).await >= Duration::from_secs(3658), "something is from before");
    assert_eq!(pass(&mut state, SECOND, 0.0).await, Duration::ZERO, "all that is remembered was confirmed later");
    state.look(None, REMEMBERED);
    assert_eq!(state.slept, Duration::ZERO);

    let (outage, _others) = outage(AGE).await;
    let since = Instant::now();
    outage.begin(since);
    outage.state.lock().slept = AGE - SECOND;
    assert_eq!(outage.keeps(since), Some(since + SECOND));
    outage.state.lock().slept = AGE + SECOND;
    assert_eq!(outage.keeps(since), None);
}

#[tokio::test]
async fn it_begins_when_nothing_is_where_the_apiserver_should_be() {
    let (outage, _others) = outage(AGE).await;
    let task = spawn("outage", Arc::clone(&outage).run(|| true));
    let request = Request::get("/").body(empty()).unwrap();
    assert!(outage.upstream.send(Identity::Own, request).await.is_err());
    timeout(60 * SECOND, outage.begins()).await.expect("the outage begins");
    assert!(outage.is_on());
    task.abort();
}

#[tokio::test]
async fn reviews_are_held_until_the_apiserver_is_ready_and_changes_are_seen() {
    let status = Arc::new(AtomicU16::new(500));
    let answers = Arc::clone(&status);
    let server = FakeServer::plain(move |_, _| std::future::ready(answer(answers.load(Ordering::Relaxed), ""))).await;
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    let outage = Outage::new(upstream, &AuthConfig::default(), watch::channel(false).1, Arc::default());
    let are_seen = AtomicBool::new(false);
    let seen = || are_seen.load(Ordering::Relaxed);
    for (code, is_seen, is_settled) in [
        (200, false, false),
        (500, true, false),
        (429, true, false),
        (503, true, false),
        (200, true, true),
        (401, true, true),
    ] {
        status.store(code, Ordering::Relaxed);
        are_seen.store(is_seen, Ordering::Relaxed);
        let settled = timeout(Duration::from_millis(if is_settled { 60_000 } else { 300 }), outage.settles(&seen));
        assert_eq!(settled.await.is_ok(), is_settled, "{code} {is_seen}");
    }
    are_seen.store(false, Ordering::Relaxed);
    tokio::time::pause();
    let begun = Instant::now();
    outage.settles(&seen).await;
    assert_eq!(begun.elapsed().as_secs(), SETTLING.as_secs(), "it is not waited for any longer");
}
