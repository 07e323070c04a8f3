use proptest::prelude::*;
use tokio::time::advance;

use super::*;
use crate::client::health::Keeper;
use crate::client::tests::{get, upstream};
use crate::client::{CallOptions, Identity, UpstreamConfig};
use crate::error::{Cause, UpstreamError};
use crate::metrics::RequestVerb;
use crate::testing::{FakeServer, answer, silence, until};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn is_away(misses: &Misses, heard: Option<Instant>) -> bool {
    misses.away.borrow().is_some_and(|away| heard.is_none_or(|heard| heard <= away.since))
}

/// Each probe: when it begins, how long it takes, and when something was last heard before its end, in milliseconds after the last
/// answer.
#[tokio::test(start_paused = true)]
async fn two_probes_with_some_time_between_and_nothing_heard_make_it_away() {
    for (probes, expected) in [
        (&[(10_000, 0, 0)][..], false),
        (&[(10_000, 0, 0), (11_000, 0, 0)], true),
        (&[(10_000, 0, 0), (10_899, 0, 0)], false),
        (&[(10_000, 0, 0), (10_500, 0, 0), (10_900, 0, 0)], true),
        (&[(10_000, 3500, 0), (14_000, 3500, 0)], true),
        (&[(10_000, 3501, 0), (14_000, 3500, 0)], false),
        (&[(10_000, 0, 0), (11_000, 3501, 0)], false),
        (&[(10_000, 0, 0), (11_000, 0, 10_500)], false),
        (&[(10_000, 0, 9_999), (11_000, 0, 9_999)], false),
        (&[(10_000, 0, 9_998), (11_000, 0, 9_998)], true),
        (&[(10_000, 0, 0), (11_000, 0, 10_500), (12_000, 0, 10_500)], true),
        (&[(10_000, 0, 0), (11_000, 0, 0), (12_000, 0, 11_500)], false),
    ] {
        let (misses, start) = (Misses::default(), Instant::now());
        for (begun, took, heard) in probes {
            let end = start + ms(begun + took);
            advance(end.saturating_duration_since(Instant::now())).await;
            misses.missed(start + ms(*begun), Some(start + ms(*heard)));
        }
        let heard = probes.last().map(|(_, _, heard)| start + ms(*heard));
        assert_eq!(is_away(&misses, heard), expected, "{probes:?}");
        misses.answered();
        assert!(misses.away.borrow().is_none());
        misses.missed(Instant::now(), heard);
        assert!(misses.away.borrow().is_none(), "the probes before an answer do not count");
    }
    let misses = Misses::default();
    misses.missed(Instant::now(), None);
    let first = Instant::now();
    advance(ms(1000)).await;
    misses.missed(Instant::now(), None);
    assert_eq!(*misses.away.borrow(), Some(Away { since: first }), "nothing was heard at all");
}

/// Only silence of the address itself counts.
#[tokio::test]
async fn an_error_of_somebody_is_no_miss() {
    let stays = |result: &Result<(), UpstreamError>| {
        let keeper = Keeper::new();
        keeper.misses.away.send_replace(Some(Away { since: Instant::now() }));
        keeper.learn(result, "a");
        keeper.misses.away.borrow().is_some()
    };
    let cause = |error| Cause::new(std::io::Error::other(error));
    let tls = UpstreamError::Tls { authority: "a".into(), cause: cause(rustls::Error::UnsupportedNameType) };
    assert!(!stays(&Ok(())) && !stays(&Err(tls)));
    let silence = UpstreamError::Connect { authority: "a".into(), cause: Cause::new("refused") };
    assert!(stays(&Err(silence)) && stays(&Err(UpstreamError::Busy)));
}

/// A model of five lines.
#[derive(Default)]
struct Model {
    heard: u64,
    misses: Vec<u64>,
}

impl Model {
    fn is_away(&self) -> bool {
        let silent: Vec<_> = self.misses.iter().filter(|at| **at > self.heard + 1).collect();
        silent.iter().any(|a| silent.iter().any(|b| b.saturating_sub(**a) >= 900))
    }
}

proptest! {
    #[test]
    fn it_is_away_as_long_as_two_probes_say_so_and_nothing_was_heard(steps in prop::collection::vec((1u64..2000, 0u8..4), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (misses, mut model, start) = (Misses::default(), Model::default(), Instant::now());
            let mut now = 0;
            for (wait, kind) in steps {
                advance(ms(wait)).await;
                now += wait;
                match kind {
                    0 => model.heard = now,
                    1 => {
                        (model.heard, model.misses) = (now, Vec::new());
                        misses.answered();
                    }
                    _ => {
                        model.misses.push(now);
                        misses.missed(Instant::now(), Some(start + ms(model.heard)));
                    }
                }
                let is_away = is_away(&misses, Some(start + ms(model.heard)));
                assert_eq!(is_away, model.is_away(), "after {now} ms");
                let since = *misses.away.borrow();
                assert!(!is_away || since.is_some_and(|away| start + ms(model.heard) <= away.since));
            }
        });
    }
}

#[tokio::test]
async fn a_client_is_away_until_it_hears_something() {
    let server = FakeServer::tls(&["h2"], 100, |_, _| async { answer(200, "") }).await;
    let client = upstream(server.config(), UpstreamConfig::default()).await;
    client.send(Identity::Own, get("/a")).await.unwrap();
    assert_eq!(client.away(), None);
    let heard = client.metrics().heard.get().unwrap();
    let waiting = client.clone();
    let gone = informerd_lifecycle::spawn("gone", async move { waiting.gone().await });
    client.inner.health.misses.away.send_replace(Some(Away { since: heard }));
    gone.await.unwrap();
    assert_eq!(client.away(), Some(Away { since: heard }));
    // A byte of a body tells nobody, and is looked for.
    client.metrics().heard.set(heard + ms(5));
    assert_eq!(client.away(), None);
    tokio::time::timeout(Duration::from_secs(60), client.back()).await.expect("it is there again");
    client.inner.health.misses.away.send_replace(Some(Away { since: Instant::now() + ms(60_000) }));
    client.send(Identity::Own, get("/b")).await.unwrap();
    assert_eq!(client.away(), None, "somebody was answered");
}

/// Dials alone may fail.
#[tokio::test]
async fn an_answer_over_the_open_connection_is_no_miss() {
    let server = FakeServer::tls(&["h2"], 100, |_, _| async { answer(200, "") }).await;
    let client = upstream(server.config(), UpstreamConfig::default()).await;
    client.send(Identity::Own, get("/a")).await.unwrap();
    server.manners.lock().silent = usize::MAX;
    client.inner.health.doubt();
    until(|| server.uris().iter().filter(|uri| *uri == "/livez?exclude=etcd").count() >= 2).await;
    assert_eq!(client.away(), None);
}

/// It is slow, and there.
#[tokio::test]
async fn an_answer_that_comes_late_is_heard() {
    let server = FakeServer::tls(&["h2"], 100, |request, _| async move {
        if request.uri().path() == "/livez" {
            tokio::time::sleep(ms(3500)).await;
        }
        answer(200, "")
    })
    .await;
    let client = upstream(server.config(), UpstreamConfig::default()).await;
    client.send(Identity::Own, get("/a")).await.unwrap();
    server.manners.lock().silent = usize::MAX;
    let before = client.metrics().heard.get();
    client.inner.health.doubt();
    until(|| client.metrics().heard.get() > before).await;
    assert_eq!(client.away(), None);
}

/// It may have too much to do for an answer.
/// As TokenReviews are, where a webhook answers them.
#[tokio::test]
async fn who_is_slow_with_one_question_is_not_looked_for() {
    let server = FakeServer::plain(|request, _| async move {
        if request.uri().path() == "/slow" {
            tokio::time::sleep(ms(3200)).await;
        }
        answer(200, "")
    })
    .await;
    let client = upstream(server.config(), UpstreamConfig::default()).await;
    // Two connections: one stays idle, and is asked.
    let both = [get("/a"), get("/b")].map(|request| client.send(Identity::Own, request));
    futures_util::future::join_all(both).await;
    let options = CallOptions::new(RequestVerb::Review, "tokenreviews");
    client.send_with(Identity::Own, get("/slow"), &options).await.unwrap();
    assert_eq!(client.metrics().seeks.get(), 0, "{:?}", server.uris());
    assert_eq!(client.away(), None);
}

#[tokio::test]
async fn whoever_shakes_hands_is_there() {
    let server = FakeServer::tls(&["h2"], 100, |_, _| silence()).await;
    let client = upstream(server.config(), UpstreamConfig::default()).await;
    client.inner.health.doubt();
    // By then, more than two probes are over.
    until(|| client.metrics().seeks.get() >= 7).await;
    assert_eq!(client.away(), None);
}

#[tokio::test]
async fn nobody_there_is_away() {
    let client = upstream(kube::Config::new("http://127.0.0.1:1".parse().unwrap()), UpstreamConfig::default()).await;
    let options = CallOptions::new(RequestVerb::Probe, "");
    assert!(client.send_with(Identity::Own, get("/a"), &options).await.is_err());
    tokio::time::timeout(Duration::from_secs(60), client.gone()).await.expect("it is looked for");
}
