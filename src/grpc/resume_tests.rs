//! What the frames of a watch claim, when what belongs together comes in several of them.

use super::tests::{caller, objects_of};
use super::*;
use crate::cache::Writer;
use crate::codec::json;
use crate::meta::{FieldTable, Object};

const LISTED: u64 = 20_000;

fn object(number: u64, rv: u64) -> Object {
    let item =
        format!(r#"{{"metadata":{{"name":"c{number}","namespace":"a","uid":"u{number}","resourceVersion":"{rv}"}}}}"#);
    json::parse_item(item.as_bytes(), &FieldTable::default()).unwrap().0
}

/// Five objects.
async fn listed() -> (Objects, Writer) {
    objects_of((0..5).map(|number| Arc::new(object(number, 10))).collect()).await
}

async fn watch(objects: &Objects, from: u64, max_batch: u32, conflate: bool) -> Watch {
    let resource = v1::Resource { version: "v1".into(), resource: "configmaps".into(), ..Default::default() };
    let selection = Some(v1::Selection { resource: Some(resource), ..Default::default() });
    let start = Some(v1::watch_request::Start::FromResourceVersion(from.to_string()));
    let request = v1::WatchRequest { selection, start, max_batch, conflate, ..Default::default() };
    let mut watch = objects.watch_for(&caller(), request).await.unwrap();
    assert_eq!(next(&mut watch).await, from, "it has started");
    watch
}

/// The revision that the next frame claims.
async fn next(watch: &mut Watch) -> u64 {
    let frame = std::future::poll_fn(|cx| watch.poll_frame(cx));
    tokio::time::timeout(Duration::from_secs(60), frame).await.expect("a frame").unwrap().unwrap();
    watch.complete.get()
}

#[tokio::test(start_paused = true)]
async fn a_revision_is_claimed_with_its_last_deletion() {
    for conflate in [false, true] {
        let (objects, mut writer) = listed().await;
        let mut open = watch(&objects, LISTED, 3, conflate).await;
        writer.delete_together((0..4).map(|number| object(number, LISTED + 1)).collect()).await.unwrap();
        writer.apply(EventType::Modified, object(4, LISTED + 2)).await.unwrap();
        // Everything is on its way before the first frame is taken.
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(next(&mut open).await, LISTED, "{conflate}: one of the deletions follows");
        assert_eq!(objects.metrics.events.get(), 3);
        assert_eq!(next(&mut open).await, LISTED + 2);
        assert_eq!(objects.metrics.events.get(), 5);
        // Who continues after the first frame is told of all of them.
        let mut again = watch(&objects, LISTED, 10, conflate).await;
        assert_eq!((next(&mut again).await, objects.metrics.events.get()), (LISTED + 2, 10));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_client_asks_of_its_frames_has_bounds() {
    let (objects, _writer) = listed().await;
    for (asked, batch) in [(0, 100), (1000, 1000), (1001, 1000), (u32::MAX, 1000)] {
        assert_eq!(watch(&objects, LISTED, asked, false).await.delivery.max_batch, batch);
    }
    let span = |seconds, nanos| Some(prost_types::Duration { seconds, nanos });
    let began = tokio::time::Instant::now();
    for (delay, age) in [(span(0, 999_999_999), span(1799, 0)), (span(1, 1), span(3600, 1)), (span(1 << 30, 0), None)] {
        let resource = v1::Resource { version: "v1".into(), resource: "configmaps".into(), ..Default::default() };
        let selection = Some(v1::Selection { resource: Some(resource), ..Default::default() });
        let request = v1::WatchRequest { selection, max_batch_delay: delay, max_age: age, ..Default::default() };
        let watch = objects.watch_for(&caller(), request).await.unwrap();
        let (delay, lasts) = (watch.delivery.max_batch_delay, watch.terms.deadline - began);
        if age == span(1799, 0) {
            assert_eq!((delay, lasts), (Duration::new(0, 999_999_999), Duration::from_secs(1799)));
        } else {
            assert!(delay == Duration::from_secs(1) && (1800..3600).contains(&lasts.as_secs()), "{lasts:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_within_the_gap_of_a_relist_is_claimed() {
    for conflate in [false, true] {
        let (objects, mut writer) = listed().await;
        let mut open = watch(&objects, LISTED, 1, conflate).await;
        let list = [10, LISTED + 10, 10, LISTED + 20, LISTED + 25].into_iter().zip(0..);
        let list = list.map(|(rv, number)| Arc::new(object(number, rv))).collect();
        writer.replace(list, ResourceVersion(LISTED + 30)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
        let claims = [next(&mut open).await, next(&mut open).await, next(&mut open).await];
        assert_eq!(claims, [LISTED, LISTED, LISTED + 30], "{conflate}");
    }
}

/// The state of the revision that the client has from elsewhere is one that this cache will never know.
#[tokio::test(start_paused = true)]
async fn a_watch_that_began_in_the_gap_of_a_relist_is_reset() {
    for conflate in [false, true] {
        let (objects, mut writer) = listed().await;
        let cache = writer.cache();
        assert!(cache.confirm(&cache.snapshot().unwrap(), ResourceVersion(LISTED + 20), crate::cache::Order::now()));
        let mut within = watch(&objects, LISTED + 10, 10, conflate).await;
        let mut known = watch(&objects, LISTED + 20, 10, conflate).await;
        let list = (0..5).map(|number| Arc::new(object(number, if number == 3 { LISTED + 25 } else { 10 }))).collect();
        writer.replace(list, ResourceVersion(LISTED + 30)).await.unwrap();
        assert_eq!((next(&mut within).await, objects.metrics.resets.get()), (0, 1));
        assert_eq!((next(&mut within).await, within.in_snapshot), (0, true));
        while within.in_snapshot {
            next(&mut within).await;
        }
        assert_eq!((within.count, within.complete.get()), (5, LISTED + 30));
        assert_eq!((next(&mut known).await, objects.metrics.resets.get()), (LISTED + 30, 1));
    }
}
