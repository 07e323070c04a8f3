use std::time::Duration;

use futures_util::FutureExt;
use http_body_util::BodyExt;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::*;
use crate::cache::WatchStart;
use crate::codec::json::Style;
use crate::http::testing::{FIRST, World, added_text, bookmark, item, objects, parse};
use crate::lifecycle::drain::{self, DrainWatch};
use crate::memory::Pressure;
use crate::meta::{EventType, ResourceVersion, errors};

/// The watch starts after the first state.
const AFTER: WatchStart = WatchStart::After(ResourceVersion(FIRST as u64));

async fn world() -> World {
    World::new(objects(3, 5)).await
}

fn open(answer: WatchAnswer, lease: Lease, drain: &DrainWatch) -> (WatchBody, Arc<HttpMetrics>) {
    let metrics = Arc::default();
    let ending = Ending::new(drain, Duration::from_secs(3), SHORTEST);
    (WatchBody::new(answer, lease, None, ending, &metrics, &Ledger::default()), metrics)
}

/// With an authorization that is never lost.
fn open_for_ever(world: &World, start: WatchStart, drain: &DrainWatch) -> (WatchBody, Arc<HttpMetrics>) {
    open(world.watch(start), Lease::all([]), drain)
}

async fn next(body: &mut WatchBody) -> Option<String> {
    let frame = body.frame().await?.unwrap().into_data().unwrap();
    Some(String::from_utf8(frame.into_bytes().into()).unwrap())
}

#[tokio::test]
async fn what_has_gathered_goes_out_together() {
    let mut world = world().await;
    let (mut body, metrics) = open_for_ever(&world, WatchStart::State, &DrainWatch::never());
    let frame = next(&mut body).await.unwrap();
    let events: String = (0..3).map(|number| added_text(number, 5)).collect();
    let initial_end = frame.strip_prefix(&events).unwrap();
    assert!(initial_end.starts_with(r#"{"type":"BOOKMARK","object":{"kind":"ConfigMap""#), "{initial_end}");
    assert!(initial_end.contains(r#""k8s.io/initial-events-end":"true""#) && initial_end.ends_with("}\n"));
    assert!(body.frame().now_or_never().is_none());

    world.add(FIRST, 5).await;
    assert_eq!(next(&mut body).await.unwrap(), added_text(FIRST, 5));
    let more = FIRST + 1..FIRST + 4;
    for number in more.clone() {
        world.add(number, 5).await;
    }
    world.settle().await;
    assert_eq!(next(&mut body).await.unwrap(), more.map(|number| added_text(number, 5)).collect::<String>());
    world.cache.end_watchers(false);
    assert_eq!(next(&mut body).await, None);
    assert_eq!(next(&mut body).await, None, "and stays at its end");
    assert_eq!((metrics.watch_events.get(), metrics.watches_open.get()), (8, 1));
    drop(body);
    assert_eq!(metrics.watches_open.get(), 0);
}

#[tokio::test]
async fn frames_are_bounded() {
    let mut world = world().await;
    let (mut body, _) = open_for_ever(&world, AFTER, &DrainWatch::never());
    let (many, large) = (FIRST..FIRST + 300, FIRST + 300..FIRST + 310);
    for number in many.clone() {
        world.add(number, 1).await;
    }
    world.settle().await;
    let mut all = String::new();
    while all.lines().count() < 300 {
        let frame = next(&mut body).await.unwrap();
        assert!(frame.lines().count() <= FRAME_EVENTS);
        all.push_str(&frame);
    }
    assert!(all == many.map(|number| added_text(number, 1)).collect::<String>(), "all, in order");
    for number in large {
        world.add(number, FRAME_BYTES / 2).await;
    }
    world.settle().await;
    assert_eq!(next(&mut body).await.unwrap().lines().count(), 2, "the second takes it over the limit");
}

#[tokio::test]
async fn nothing_follows_an_error() {
    let mut world = world().await;
    let (tell, gone) = oneshot::channel();
    let (mut body, metrics) = open(world.watch(AFTER), Lease::until(gone), &DrainWatch::never());
    world.add(FIRST, 1).await;
    assert_eq!(next(&mut body).await.unwrap(), added_text(FIRST, 1));
    world.add(FIRST + 1, 1).await;
    world.settle().await;
    tell.send(Box::new(errors::expired_watch(1, 20))).unwrap();
    assert_eq!(
        next(&mut body).await.unwrap(),
        "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"too old resource version: 1 (20)\",\"reason\":\"Expired\",\"code\":410}}\n"
    );
    assert_eq!(world.cache.stats().watchers, 0, "the watcher is gone");
    assert_eq!(next(&mut body).await, None);
    assert_eq!(metrics.watches_failed.get(), 1);
}

/// It has no error, which would say that the right is gone, and its client goes on after the last event.
#[tokio::test]
async fn a_watch_whose_right_nobody_can_confirm_just_ends_and_its_connection_takes_no_more_requests() {
    let mut world = world().await;
    let (unsaid, gone) = oneshot::channel();
    let connection = Arc::new(Connection::new("http://127.0.0.1:0".parse().unwrap(), None));
    let (body, metrics) = open(world.watch(AFTER), Lease::until(gone), &DrainWatch::never());
    let mut body = body.over(&connection);
    world.add(FIRST, 1).await;
    assert_eq!(next(&mut body).await.unwrap(), added_text(FIRST, 1));
    world.add(FIRST + 1, 1).await;
    world.settle().await;
    assert!(connection.closing.notified().now_or_never().is_none());
    drop(unsaid);
    assert_eq!(next(&mut body).await, None, "what came since then is not sent");
    assert_eq!(next(&mut body).await, None, "and stays at its end");
    assert_eq!((world.cache.stats().watchers, metrics.watches_failed.get()), (0, 0));
    assert!(connection.closing.notified().now_or_never().is_some());
}

/// Others of its revision may follow, which its client would not be told where it goes on.
#[tokio::test]
async fn a_watch_whose_right_nobody_can_confirm_has_an_error_after_a_deletion_that_may_not_be_alone() {
    for is_alone in [true, false] {
        let mut world = world().await;
        let (unsaid, gone) = oneshot::channel();
        let (mut body, _) = open(world.watch(AFTER), Lease::until(gone), &DrainWatch::never());
        let deleted = item(0, 1).replace("\"1\"", &format!("\"{}\"", FIRST + 1));
        let deleted = Arc::into_inner(parse(&deleted)).unwrap();
        world.writer.delete_together(vec![deleted], is_alone).await.unwrap();
        assert!(next(&mut body).await.unwrap().starts_with(r#"{"type":"DELETED""#));
        drop(unsaid);
        let last = next(&mut body).await;
        assert_eq!(last.is_some_and(|last| last.contains(r#""reason":"Expired""#)), !is_alone);
        assert_eq!(next(&mut body).await, None);
    }
}

/// Its client continues after the last event that it got, and would not be told of the other deletions.
#[tokio::test(start_paused = true)]
async fn a_watch_without_memory_ends_with_an_error_between_deletions_of_one_revision() {
    for together in [true, false] {
        let (mut world, ledger) = (world().await, Ledger::new(0, Pressure::default()));
        let mut answer = world.watch(AFTER);
        // Metadata of such objects is copied.
        answer.form = Arc::new(Form::new(Encoding::Json, Style::Inline, "v1", "ConfigMap", "ConfigMapList"));
        answer.shape = Shape::PartialObjectMetadata;
        let rvs = [FIRST + 1, FIRST + 1 + usize::from(!together)];
        let gone = [0, 1].map(|number| {
            let item = item(number, 1).replace(&format!("\"{}\"", number + 1), &format!("\"{}\"", rvs[number]));
            Arc::into_inner(parse(&item)).unwrap()
        });
        if together {
            world.writer.delete_together(gone.into(), true).await.unwrap();
        } else {
            for object in gone {
                world.writer.apply(EventType::Deleted, object).await.unwrap();
            }
        }
        world.settle().await;
        let ending = Ending::new(&DrainWatch::never(), Duration::ZERO, SHORTEST);
        let mut body = WatchBody::new(answer, Lease::all([]), None, ending, &Arc::default(), &ledger);
        assert_eq!(next(&mut body).await.unwrap().lines().count(), 1);
        let _all = ledger.last_copy(1).unwrap();
        let last = next(&mut body).await;
        assert_eq!(last.is_some_and(|last| last.contains(r#""reason":"Expired""#)), together);
        assert_eq!(next(&mut body).await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_watches_cleanly_at_their_own_moments() {
    let (drain, watch) = drain::channel();
    let mut world = world().await;
    let mut bodies: Vec<_> = (0..50).map(|_| open_for_ever(&world, AFTER, &watch).0).collect();
    tokio::time::sleep(Duration::from_secs(10)).await;
    for body in &mut bodies {
        assert!(body.frame().now_or_never().is_none());
    }
    world.add(FIRST, 1).await;
    let started = Instant::now();
    drain.start(Duration::from_secs(30));
    let ends = bodies.into_iter().map(|mut body| {
        crate::lifecycle::spawn("client", async move {
            let mut text = next(&mut body).await.unwrap();
            while let Some(more) = next(&mut body).await {
                text.push_str(&more);
            }
            let last = text.strip_prefix(&added_text(FIRST, 1)).unwrap();
            assert!(last.starts_with(&bookmark(FIRST)), "{last}");
            started.elapsed()
        })
    });
    let mut ends: Vec<Duration> = futures_util::future::join_all(ends).await.into_iter().map(Result::unwrap).collect();
    ends.sort();
    assert!(ends[49] <= Duration::from_secs(3), "{ends:?}");
    assert!(ends[49] - ends[0] > Duration::from_secs(1), "spread: {ends:?}");
}

/// The next larger size class of the allocator would add 64 bytes.
#[test]
fn an_idle_watch_is_small() {
    assert!(size_of::<WatchBody>() <= 408, "{}", size_of::<WatchBody>());
}
