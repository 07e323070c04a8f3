use futures_util::FutureExt;
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;
use crate::http::testing::{LAST_BOOKMARK, added, added_text, watch};
use crate::lifecycle::drain;
use crate::meta::{ResourceVersion, errors};

struct Open {
    body: WatchBody,
    sender: mpsc::Sender<WatcherEvent>,
    metrics: Arc<HttpMetrics>,
}

fn open(drain: &DrainWatch) -> Open {
    let metrics: Arc<HttpMetrics> = Arc::default();
    let (sender, answer) = watch();
    Open { body: WatchBody::new(answer, drain, Duration::from_secs(3), &metrics), sender, metrics }
}

async fn next(body: &mut WatchBody) -> Option<String> {
    let frame = body.frame().await?.unwrap().into_data().unwrap();
    let mut text = Vec::new();
    frame.into_iter().for_each(|part| text.extend_from_slice(&part));
    Some(String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn what_has_gathered_goes_out_together() {
    let mut open = open(&DrainWatch::never());
    assert!(open.body.frame().now_or_never().is_none());
    open.sender.send(added(1, 5)).await.unwrap();
    assert_eq!(next(&mut open.body).await.unwrap(), added_text(1, 5));
    for number in 2..5 {
        open.sender.send(added(number, 5)).await.unwrap();
    }
    let bookmark = WatcherEvent::Bookmark { rv: ResourceVersion(9), initial_end: true };
    open.sender.send(bookmark).await.unwrap();
    let frame = next(&mut open.body).await.unwrap();
    let events: String = (2..5).map(|number| added_text(number, 5)).collect();
    let bookmark = frame.strip_prefix(&events).unwrap();
    assert!(bookmark.starts_with(r#"{"type":"BOOKMARK","object":{"kind":"ConfigMap""#), "{bookmark}");
    assert!(bookmark.contains(r#""k8s.io/initial-events-end":"true""#) && bookmark.ends_with("}\n"), "{bookmark}");
    drop(open.sender);
    assert_eq!(next(&mut open.body).await, None);
    assert_eq!(next(&mut open.body).await, None, "and stays at its end");
    assert_eq!((open.metrics.watch_events.get(), open.metrics.watches_open.get()), (5, 1));
    drop(open.body);
    assert_eq!(open.metrics.watches_open.get(), 0);
}

#[tokio::test]
async fn frames_are_bounded() {
    let mut open = open(&DrainWatch::never());
    for number in 0..300 {
        open.sender.send(added(number, 1)).await.unwrap();
    }
    let mut all = String::new();
    while all.lines().count() < 300 {
        let frame = next(&mut open.body).await.unwrap();
        assert!(frame.lines().count() <= FRAME_EVENTS);
        all.push_str(&frame);
    }
    assert!(all == (0..300).map(|number| added_text(number, 1)).collect::<String>(), "all, in order");
    for number in 0..10 {
        open.sender.send(added(number, FRAME_BYTES / 2)).await.unwrap();
    }
    assert_eq!(next(&mut open.body).await.unwrap().lines().count(), 2, "the second takes it over the limit");
}

#[tokio::test]
async fn nothing_follows_an_error() {
    let mut open = open(&DrainWatch::never());
    open.sender.send(added(1, 1)).await.unwrap();
    open.sender.send(WatcherEvent::Error(Box::new(errors::expired_watch(1, 20)))).await.unwrap();
    open.sender.send(added(2, 1)).await.unwrap();
    let frame = next(&mut open.body).await.unwrap();
    let error = frame.strip_prefix(&added_text(1, 1)).unwrap();
    assert_eq!(
        error,
        "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"too old resource version: 1 (20)\",\"reason\":\"Expired\",\"code\":410}}\n"
    );
    assert_eq!(next(&mut open.body).await, None);
    assert!(open.sender.is_closed(), "the watcher is gone");
    assert_eq!(open.metrics.watches_failed.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_watches_cleanly_at_their_own_moments() {
    let (drain, watch) = drain::channel();
    let mut opened: Vec<Open> = (0..50).map(|_| open(&watch)).collect();
    tokio::time::sleep(Duration::from_secs(10)).await;
    for open in &mut opened {
        assert!(open.body.frame().now_or_never().is_none());
    }
    let started = Instant::now();
    drain.start(Duration::from_secs(30));
    let ends = opened.into_iter().map(|mut open| {
        crate::lifecycle::spawn("client", async move {
            open.sender.send(added(1, 1)).await.unwrap();
            let mut text = next(&mut open.body).await.unwrap();
            while let Some(more) = next(&mut open.body).await {
                text.push_str(&more);
            }
            let bookmark = text.strip_prefix(&added_text(1, 1)).unwrap();
            assert!(bookmark.starts_with(LAST_BOOKMARK), "{bookmark}");
            started.elapsed()
        })
    });
    let mut ends: Vec<Duration> = futures_util::future::join_all(ends).await.into_iter().map(Result::unwrap).collect();
    ends.sort();
    assert!(ends[49] <= Duration::from_secs(3), "{ends:?}");
    assert!(ends[49] - ends[0] > Duration::from_secs(1), "spread: {ends:?}");
}

#[tokio::test(start_paused = true)]
async fn a_young_watch_is_not_ended_within_its_first_second() {
    let (drain, watch) = drain::channel();
    drain.start(Duration::from_secs(30));
    for _ in 0..20 {
        let opened = Instant::now();
        let mut open = open(&watch);
        while next(&mut open.body).await.is_some() {}
        assert!(opened.elapsed() >= Duration::from_millis(1200));
    }
}
