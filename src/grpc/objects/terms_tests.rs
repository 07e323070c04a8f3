use std::collections::BTreeSet;

use super::*;
use crate::grpc::testing::{caller, objects_of, selection};

const NANO: Duration = Duration::from_nanos(1);
const FAR: Duration = Duration::from_secs(1 << 40);

fn span(of: Duration) -> Option<prost_types::Duration> {
    let (seconds, nanos) = (of.as_secs().try_into().unwrap(), of.subsec_nanos().try_into().unwrap());
    Some(prost_types::Duration { seconds, nanos })
}

/// What a client gets that asks this of a watch of config maps.
async fn watch(asked: v1::WatchRequest) -> RequestedWatch {
    let (objects, _writer) = objects_of(Vec::new()).await;
    let request = v1::WatchRequest { selection: Some(selection("configmaps", vec![])), ..asked };
    RequestedWatch::new(&objects, &caller(), request).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_watch_lasts_as_long_as_it_may_and_no_longer() {
    let lasts = async |max_age| {
        let watch = watch(v1::WatchRequest { max_age, ..Default::default() }).await;
        watch.terms.in_cache.deadline - Instant::now()
    };
    for age in [Duration::ZERO, MAX_AGE - NANO, MAX_AGE] {
        assert_eq!(lasts(span(age)).await, age);
    }
    let mut ages = BTreeSet::new();
    for age in [None, span(2 * MAX_AGE), span(FAR)] {
        let lasts = lasts(age).await;
        assert!((MAX_AGE..2 * MAX_AGE).contains(&lasts), "{age:?}: {lasts:?}");
        ages.insert(lasts);
    }
    assert!(ages.len() > 1, "those that begin together do not end together");
}

#[tokio::test]
async fn a_frame_has_as_many_events_as_it_may() {
    for (max_batch, given) in [(0, 100), (MAX_BATCH, 1000), (MAX_BATCH + 1, 1000), (u32::MAX, 1000)] {
        let watch = watch(v1::WatchRequest { max_batch, ..Default::default() }).await;
        assert_eq!(watch.delivery.max_batch, given, "{max_batch}");
    }
}

#[tokio::test(start_paused = true)]
async fn events_wait_for_others_as_long_as_they_may_and_no_longer() {
    for (asked, given) in [
        (None, Duration::ZERO),
        (span(MAX_BATCH_DELAY - NANO), MAX_BATCH_DELAY - NANO),
        (span(MAX_BATCH_DELAY), MAX_BATCH_DELAY),
        (span(MAX_BATCH_DELAY + NANO), MAX_BATCH_DELAY),
        (span(FAR), MAX_BATCH_DELAY),
    ] {
        let watch = watch(v1::WatchRequest { max_batch_delay: asked, ..Default::default() }).await;
        assert_eq!(watch.delivery.max_batch_delay, given, "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_neither_too_often_nor_too_seldom() {
    let (shortest, longest) = BOOKMARKS;
    for (asked, given) in [
        (None, longest),
        (span(Duration::ZERO), shortest),
        (span(shortest + NANO), shortest + NANO),
        (span(longest - NANO), longest - NANO),
        (span(longest + NANO), longest),
    ] {
        let watch = watch(v1::WatchRequest { bookmark_interval: asked, ..Default::default() }).await;
        assert_eq!(watch.terms.in_cache.bookmark_interval, given, "{asked:?}");
    }
}
