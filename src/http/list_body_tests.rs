use http_body_util::BodyExt;

use super::*;
use crate::http::testing::{list, list_text};

fn whole(objects: usize, size: usize) -> (String, u64) {
    let mut writer = ListWriter::new(list(objects, size));
    let mut text = Vec::new();
    loop {
        match writer.step() {
            Step::Frame(frame) => frame.into_iter().for_each(|part| text.extend_from_slice(&part)),
            Step::Again => {}
            Step::End => return (String::from_utf8(text).unwrap(), writer.objects()),
        }
    }
}

#[test]
fn every_length_is_one_list() {
    for objects in [0, 1, 2, BATCH - 1, BATCH, BATCH + 1, 2 * BATCH, 2 * BATCH + 1, 1000] {
        let (text, written) = whole(objects, 3);
        assert!(text == list_text(objects, 3), "{objects}");
        assert_eq!(written, objects as u64);
    }
}

fn body(objects: usize) -> (ListBody, Leashes, Arc<HttpMetrics>) {
    let (leashes, metrics) = (Leashes::default(), Arc::default());
    let mut writer = ListWriter::new(list(objects, 10));
    let Step::Frame(first) = writer.step() else { panic!("a frame") };
    (ListBody::new(first, Rest::Plain(writer), &leashes, &metrics), leashes, metrics)
}

#[tokio::test]
async fn a_body_is_the_same_list() {
    let (body, leashes, metrics) = body(500);
    let text = body.collect().await.unwrap().to_bytes();
    assert!(text == list_text(500, 10));
    assert_eq!(metrics.list_bytes.get(), text.len() as u64);
    leashes.sweep(Duration::from_secs(1));
    assert!(leashes.all.lock().is_empty(), "nothing is left of it");
}

#[tokio::test(start_paused = true)]
async fn a_list_nobody_takes_is_given_up() {
    const TIMEOUT: Duration = Duration::from_secs(100);
    let (mut body, leashes, metrics) = body(1000);
    crate::lifecycle::spawn("leashes", leashes.watch(TIMEOUT, Arc::clone(&metrics)));
    // Slowly but surely is fine.
    for _ in 0..5 {
        tokio::time::sleep(TIMEOUT * 3 / 4).await;
        assert!(body.frame().await.unwrap().is_ok());
    }
    tokio::time::sleep(TIMEOUT * 5 / 4 + Duration::from_secs(1)).await;
    assert!(body.leash.inner.lock().rest.is_none(), "the snapshot is free");
    assert!(body.frame().await.unwrap().is_err());
    assert_eq!(metrics.lists_stalled.get(), 1);
}
