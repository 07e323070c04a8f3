use futures_util::FutureExt as _;
use http_body_util::BodyExt;

use std::time::Duration;

use super::super::copies;
use super::super::list_writer::ListWriter;
use super::*;
use crate::http::testing::{World, list_text, objects, packed};
use crate::memory::{HURRY, Ledger, Level, Pressure};

fn body_of(mut writer: Writer) -> (ListBody, StallGuards, Arc<HttpMetrics>) {
    let (stall_guards, metrics) = (StallGuards::default(), Arc::default());
    let BodyStep::Frame(first) = writer.step().unwrap() else { panic!("a frame") };
    (
        ListBody::new(first, Rest::Plain(Box::new(writer)), &stall_guards, &metrics, |metrics| &metrics.list_bytes),
        stall_guards,
        metrics,
    )
}

const TIMEOUT: Duration = Duration::from_secs(100);

/// A list that is given up if nobody takes it.
async fn watched() -> (ListBody, Pressure, Arc<HttpMetrics>) {
    let writer = ListWriter::new(World::new(objects(1000, 10)).await.list());
    let (body, stall_guards, metrics) = body_of(Writer::list(writer, false, &Ledger::default()));
    let (pressure, counted) = (Pressure::default(), Arc::clone(&metrics));
    let count = move |stalled| _ = counted.lists_stalled.inc_by(stalled);
    crate::lifecycle::spawn("stall_guards", stall_guards.watch(TIMEOUT, pressure.clone(), count));
    (body, pressure, metrics)
}

#[tokio::test(start_paused = true)]
async fn while_memory_is_short_a_list_nobody_takes_is_given_up_soon() {
    let (mut body, pressure, metrics) = watched().await;
    tokio::time::sleep(2 * HURRY).await;
    pressure.set(Level::Tight);
    tokio::time::sleep(2 * HURRY).await;
    assert!(body.frame().await.unwrap().is_ok());
    pressure.set(Level::Short);
    // A list that is being read, however slowly, may go on.
    tokio::time::sleep(HURRY / 2).await;
    assert!(body.frame().await.unwrap().is_ok());
    tokio::time::sleep(2 * HURRY).await;
    assert!(body.frame().await.unwrap().is_err());
    assert_eq!(metrics.lists_stalled.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn stalled_lists_are_given_up_however_often_the_level_changes() {
    let (mut body, pressure, metrics) = watched().await;
    for level in [Level::Tight, Level::Calm].into_iter().cycle().take(130) {
        pressure.set(level);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(metrics.lists_stalled.get(), 1);
    assert!(body.frame().await.unwrap().is_err());
}

#[tokio::test]
async fn an_answer_has_one_frame_of_unpacked_objects_that_is_not_taken() {
    const SIZE: usize = 20_000;
    for (limit, most) in [(usize::MAX, copies::MOST), (copies::MOST, SIZE)] {
        let ledger = Ledger::new(limit, Pressure::default());
        let writer = ListWriter::new(World::new(packed(100, SIZE)).await.list());
        let (mut body, ..) = body_of(Writer::list(writer, false, &ledger));
        let (mut text, mut frames) = (Vec::new(), 0);
        while let Some(frame) = body.frame().await {
            let frame = frame.unwrap().into_data().unwrap();
            assert!(frame.len() < most + 2 * SIZE, "{}", frame.len());
            assert!(ledger.used() <= copies::MOST);
            frames += 1;
            if frames > 1 && text.len() + frame.len() < list_text(100, SIZE).len() {
                assert!(body.frame().now_or_never().is_none(), "the frame before is not taken");
            }
            frame.into_iter().for_each(|part| text.extend_from_slice(&part));
        }
        assert!(frames > 20 && text == list_text(100, SIZE).as_bytes());
        assert_eq!(ledger.used(), 0);
    }
}

#[tokio::test]
async fn indented_lists_wait_too() {
    let writer = ListWriter::new(World::new(objects(500, 1000)).await.list());
    let (mut body, ..) = body_of(Writer::list(writer, true, &Ledger::default()));
    let first = body.frame().await.unwrap().unwrap();
    assert!(body.frame().now_or_never().is_none());
    drop(first);
    assert!(body.frame().now_or_never().is_some());
}
