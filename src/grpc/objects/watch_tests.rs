//! A watch whose client has most objects already.

use std::collections::HashMap;

use http_body::Body as _;
use tokio_stream::StreamExt as _;

use super::super::service::Parts;
use super::super::sync::SyncStream;
use super::*;
use crate::cache::{self, CacheConfig, Writer};
use crate::grpc::messages::Elsewhere;
use crate::grpc::testing::{caller, objects_of, selection};
use crate::http::testing;
use crate::lifecycle::drain::{self, DrainWatch};
use crate::meta::Gvr;

/// A watch pauses after each 2,048.
const OBJECTS: usize = 5000;

async fn objects() -> (Objects, Writer) {
    objects_of(testing::objects(OBJECTS, 0)).await
}

/// A watch of a client that has all objects but these.
fn request(without: &[usize]) -> v1::WatchRequest {
    let known: HashMap<_, _> = (0..OBJECTS)
        .filter(|number| !without.contains(number))
        .map(|number| (format!("u{number}"), (number + 1).to_string()))
        .collect();
    v1::WatchRequest { selection: Some(selection("configmaps", vec![])), known, ..Default::default() }
}

/// A stream of these watches.
fn sync(objects: &Objects, watches: Vec<v1::WatchRequest>) -> SyncStream {
    let add = |(watch_id, watch)| {
        let add = v1::AddWatch { watch: Some(watch), credit: None };
        Ok::<_, Status>(v1::SyncRequest { watch_id, action: Some(v1::sync_request::Action::Add(add)) })
    };
    let inbound = tokio_stream::iter((0..).zip(watches).map(add)).chain(tokio_stream::pending());
    SyncStream::new(objects.clone(), caller(), Box::pin(inbound), &Retiring(DrainWatch::never()))
}

/// Polls until `is_over`. Returns how often it paused before.
fn pauses(messages: &mut impl Messages, is_over: impl Fn() -> bool) -> usize {
    let mut pauses = 0;
    while !is_over() {
        match messages.poll_message(&mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(message) => drop(message.unwrap().unwrap()),
            Poll::Pending => {
                assert!(messages.is_paused(), "it waits for something else");
                pauses += 1;
            }
        }
    }
    pauses
}

#[tokio::test]
async fn what_the_client_has_is_skipped_in_several_turns() {
    // A frame with what comes before it takes the place of a pause.
    for (without, sent, frames, pauses_before) in [(&[][..], 0, 2, 2), (&[5, 2100, OBJECTS - 1], 3, 5, 0)] {
        let (objects, _writer) = objects().await;
        let mut watch = objects.watch_for(&caller(), request(without)).await.unwrap();
        let paused = pauses(&mut watch, || objects.metrics.frames.get() == frames);
        let count = watch.count as usize;
        assert_eq!((paused, objects.metrics.events.get(), watch.in_snapshot), (pauses_before, sent, false));
        assert_eq!(count, OBJECTS);
    }
}

/// The watches of a stream together do not take longer than one.
#[tokio::test]
async fn a_stream_pauses_with_the_first_of_its_watches_that_does() {
    const WATCHES: u64 = 3;
    let (objects, _writer) = objects().await;
    let mut stream = sync(&objects, (0..WATCHES).map(|_| request(&[])).collect());
    // Started, and the end of the snapshot.
    let frames = &objects.metrics.frames;
    assert_eq!(pauses(&mut stream, || frames.get() == 2 * WATCHES), 2 * WATCHES as usize);
}

/// Few objects are selected, and each is a frame, or a part of one.
#[tokio::test]
async fn a_watch_pauses_between_objects_that_are_far_apart() {
    const LISTED: usize = 20_000;
    let labelled = |n: usize| {
        let labels = if n.is_multiple_of(1500) { r#""labels":{"a":"b"},"uid""# } else { r#""uid""# };
        testing::parse(&testing::item(n, 1).replace(r#""uid""#, labels))
    };
    let (objects, _writer) = objects_of((0..LISTED).map(labelled).collect()).await;
    let filter = v1::Filter { label_selector: "a=b".into(), ..Default::default() };
    let request = v1::WatchRequest { selection: Some(selection("configmaps", vec![filter])), ..Default::default() };
    let watch = objects.watch_for(&caller(), request.clone()).await.unwrap();
    let sync = sync(&objects, vec![request]);
    for mut body in [Elsewhere::new(watch), Elsewhere::new(sync)].map(|messages| messages.into_body(false).unwrap()) {
        let (before, mut pauses) = (objects.metrics.events.get(), 0);
        let mut together = before;
        while objects.metrics.events.get() - before < LISTED.div_ceil(1500) as u64 {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            let Poll::Ready(frame) = Pin::new(&mut body).poll_frame(&mut cx) else { panic!("it waits for something") };
            if frame.unwrap().unwrap().into_data().unwrap().is_empty() {
                let sent = objects.metrics.events.get();
                assert!(sent - together <= 3, "{} events without a pause", sent - together);
                (pauses, together) = (pauses + 1, sent);
            }
        }
        assert!(pauses >= 5, "{pauses} pauses");
    }
}

#[tokio::test]
async fn what_comes_before_a_damaged_object_is_sent() {
    let list = testing::packed(200, 1000);
    list[10].spoil();
    let (objects, _writer) = objects_of(list).await;
    let request = v1::WatchRequest { known: HashMap::new(), ..request(&[]) };
    let mut watch = objects.watch_for(&caller(), request).await.unwrap();
    let error = loop {
        if let Err(error) = std::future::poll_fn(|cx| watch.poll_frame(cx)).await.expect("an error") {
            break error;
        }
    };
    assert_eq!((Status::from(error).code(), objects.metrics.events.get()), (tonic::Code::Internal, 10));
    assert!(watch.is_over());
}

#[tokio::test]
async fn a_watch_that_has_ended_otherwise_says_goodbye_in_a_drain() {
    let (drain, signal) = drain::channel();
    let (objects, mut writer) = objects_of(Vec::new()).await;
    let objects = Objects::new(Parts { drain: signal, ..Parts::clone(&objects) });
    let request = v1::WatchRequest { selection: Some(selection("configmaps", vec![])), ..Default::default() };
    let mut watch = objects.watch_for(&caller(), request).await.unwrap();
    let mut next = || watch.poll_frame(&mut Context::from_waker(std::task::Waker::noop()));
    assert!(next().is_ready() && next().is_ready() && next().is_pending(), "started, and the end of the snapshot");
    drain.start(Duration::from_secs(60));
    assert!(next().is_pending(), "its moment is still to come");
    writer.rewound("the store was set back");
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert!(matches!(next(), Poll::Ready(Some(Ok(_)))));
    assert!(watch.is_over() && objects.metrics.resets.get() == 0, "it does not begin anew");
}

/// The cache that answers has all events, and cannot know what another one has not sent.
#[tokio::test]
async fn a_client_that_was_cut_off_inside_a_gap_of_another_cache_begins_anew() {
    let (objects, mut writer) = objects_of(Vec::new()).await;
    writer.progress(ResourceVersion(20_100));
    let floor = objects.reads.floors().of("", "configmaps");
    let (mut other, _cache) = cache::new(CacheConfig { floor, ..CacheConfig::new(Gvr::new("", "v1", "configmaps")) });
    for rv in [20_010, 20_050] {
        other.replace(Vec::new(), ResourceVersion(rv)).await.unwrap();
    }
    for (rv, resets) in [(20_010, 0), (20_011, 1), (20_049, 2), (20_050, 2)] {
        let start = Some(v1::watch_request::Start::FromResourceVersion(rv.to_string()));
        let selection = Some(selection("configmaps", vec![]));
        let request = v1::WatchRequest { selection, start, ..Default::default() };
        let _watch = objects.watch_for(&caller(), request).await.unwrap();
        assert_eq!(objects.metrics.resets.get(), resets, "{rv}");
    }
}
