use std::time::Duration;

use parking_lot::Mutex;

use super::scripted_tests::{Open, added, config_maps, list, names, scripted, scripted_with, world};
use super::tests::{SOON, config};
use super::*;
use crate::apiserver::testing::{answer, streamed};
use crate::cache::EndReason;
use crate::lifecycle::backoff::BackoffConfig;

/// In JSON, the last character may stand for any byte.
const ODD: &str = "odd\u{fffd}";

/// Given up for a tenth of a second.
pub(super) fn soon() -> ReflectorConfig {
    let (initial, max) = (Duration::from_millis(100), Duration::from_millis(100));
    ReflectorConfig { room: BackoffConfig { initial, max, ..BackoffConfig::default() }, ..config() }
}

#[tokio::test]
async fn an_event_that_cannot_be_decoded_ends_the_watches_until_the_state_can_be_read() {
    // While there is an odd object, lists have it, and each watch begins with its event.
    let (is_odd, open) = (Arc::new(Mutex::new(false)), Open::default());
    let (odd, for_watches, streams) = (Arc::clone(&is_odd), Arc::clone(&is_odd), open.clone());
    let server = scripted_with(
        move |query| match (query.starts_with("limit=1"), *odd.lock()) {
            (true, _) => answer(200, list(10, "", &[])),
            (false, true) => answer(200, list(11, "", &["a", ODD])),
            (false, false) => answer(200, list(10, "", &["a"])),
        },
        move |query| match *for_watches.lock() {
            true => streams.watch_with(query, added(ODD, 11)),
            false => streams.watch(query),
        },
    )
    .await;
    let world = world(&server, "configmaps", "ConfigMap", soon()).await;
    world.follows().await;
    let mut watcher = world.watcher();
    *is_odd.lock() = true;
    open.all().iter().for_each(|stream| stream.try_send(added(ODD, 11).into()).unwrap());
    let status = world.until(|status| status.undecodable).await;
    assert!(status.last_error.as_ref().unwrap().contains("\"default/odd\u{fffd}\""), "{status:?}");
    assert!(watcher.next().await.is_none() && watcher.end_reason() == Some(EndReason::NotReady));
    assert!(world.cache.snapshot().is_none() && world.handle.has_given_up() && !world.handle.is_too_large());
    assert_eq!(open.all().len(), 3, "a few times");

    // It is read again, and given up again at once.
    let reads = || server.uris().iter().filter(|uri| uri.contains("limit=500")).count();
    let before = reads();
    world.until(|status| status.state != "refused").await;
    world.until(|status| status.state == "refused").await;
    assert_eq!(reads(), before + 1);
    assert!(world.handle.is_undecodable(), "all the while");

    *is_odd.lock() = false;
    world.follows().await;
    assert_eq!((names(&world.cache), world.handle.has_given_up()), (vec!["a".to_owned()], false));
}

#[tokio::test]
async fn a_first_state_that_cannot_be_decoded_is_given_up() {
    for garbage in [list(10, "", &["a", ODD]), "<html>".to_owned(), r#"{"message":"ok"}"#.to_owned()] {
        let all = garbage.clone();
        let (server, _open) = scripted(move |query| {
            answer(200, if query.starts_with("limit=1") { list(10, "", &[]) } else { all.clone() })
        })
        .await;
        let world = world(&server, "configmaps", "ConfigMap", soon()).await;
        let status = world.until(|status| status.undecodable).await;
        assert!(!status.synced && status.state == "refused", "{garbage}: {status:?}");
    }
}

/// A damaged answer now and then is no reason to give a state up that has not changed for long.
#[tokio::test]
async fn a_bookmark_between_answers_that_cannot_be_decoded_shows_that_others_can() {
    let (senders, mut open) = mpsc::channel(8);
    let lists = |query: String| {
        answer(200, if query.starts_with("limit=1") { list(10, "", &[]) } else { list(10, "", &["a"]) })
    };
    let server = scripted_with(lists, move |_| {
        let (sender, response) = streamed();
        senders.try_send(sender).unwrap();
        response
    })
    .await;
    let world = world(&server, "configmaps", "ConfigMap", soon()).await;
    let bookmark = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"10"}}"#;
    for _ in 0..5 {
        let stream = tokio::time::timeout(SOON, open.recv()).await.expect("another watch").unwrap();
        let text = format!("{{\"type\":\"BOOKMARK\",\"object\":{bookmark}}}\n{}", added(ODD, 11));
        stream.send(text.into()).await.unwrap();
    }
    let last = tokio::time::timeout(SOON, open.recv()).await.expect("another watch");
    let status = world.follows().await;
    assert!(last.is_some());
    assert_eq!((status.restarts, status.relists), (5, 0), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_far_apart_are_not_counted_together() {
    let (mut counted, at) = (Undecodable::default(), ResourceVersion(10));
    for _ in 0..5 {
        counted.add(at);
        tokio::time::advance(Duration::from_secs(601)).await;
    }
    assert_eq!(counted.count, 1);
    for _ in 0..2 {
        counted.add(at);
        tokio::time::advance(Duration::from_secs(60)).await;
    }
    assert_eq!(counted.count, 2);
    counted.add(ResourceVersion(11));
    assert_eq!(counted.count, 1);
}

/// The next page is of another revision, or its token has expired.
#[tokio::test]
async fn pages_of_different_revisions_become_one_whole_list() {
    for is_expired in [false, true] {
        let (server, _open) = scripted(move |query| match &*query {
            "limit=500" => answer(200, list(10, "next", &["a"])),
            "limit=500&continue=next" if is_expired => {
                answer(410, r#"{"kind":"Status","status":"Failure","code":410,"reason":"Expired"}"#)
            }
            "limit=500&continue=next" => answer(200, list(12, "", &["c"])),
            "" => answer(200, list(20, "", &["b", "c"])),
            _ => answer(200, list(20, "", &[])),
        })
        .await;
        let world = config_maps(&server).await;
        world.follows().await;
        assert_eq!(names(&world.cache), ["b", "c"], "never parts of two states");
        assert!(server.uris().last().unwrap().contains("resourceVersion=20"));
    }
}
