use std::convert::Infallible;
use std::time::Duration;

use futures_util::FutureExt;
use http::HeaderValue;
use http_body_util::{BodyExt, StreamBody};
use proptest::prelude::*;
use tokio::sync::mpsc;

use super::*;
use crate::lifecycle::drain;

fn framing(media_type: &'static str) -> Option<Framing> {
    let headers = [(CONTENT_TYPE, HeaderValue::from_static(media_type))];
    Framing::of(&headers.into_iter().collect())
}

const JSON: &str = "application/json;stream=watch";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// An event of this many bytes, as encoded in the stream.
fn event(media_type: &str, size: usize) -> Vec<u8> {
    if media_type == JSON {
        return [vec![b'x'; size], vec![b'\n']].concat();
    }
    // Newlines have no meaning in protobuf.
    [u32::try_from(size).unwrap().to_be_bytes().to_vec(), vec![b'\n'; size]].concat()
}

fn watch(framing: Framing, ending: Ending) -> (mpsc::Sender<Bytes>, impl Body<Data = Bytes, Error = BoxError>) {
    let (sender, receiver) = mpsc::channel::<Bytes>(1000);
    let frames = futures_util::stream::unfold(receiver, |mut receiver| async move {
        Some((Ok::<_, Infallible>(Frame::data(receiver.recv().await?)), receiver))
    });
    (sender, RelayedWatch::new(Box::pin(StreamBody::new(frames)), Some(framing), ending, None, &Arc::default()))
}

proptest! {
    /// The bytes may be split anywhere and the drain may start at any time. Everything that was sent before the drain
    /// arrives, and the stream ends after the event that was in flight.
    #[test]
    fn ends_between_two_events(
        protobuf in any::<bool>(),
        sizes in prop::collection::vec(0_usize..40, 1..30),
        cuts in prop::collection::vec(1_usize..60, 1..60),
        before in any::<prop::sample::Index>(),
    ) {
        let media_type = if protobuf { PROTOBUF } else { JSON };
        let events: Vec<_> = sizes.iter().map(|size| event(media_type, *size)).collect();
        let stream = events.concat();
        let mut ends = vec![0];
        events.iter().for_each(|event| ends.push(ends.last().unwrap() + event.len()));
        let (mut pieces, mut at) = (Vec::new(), 0);
        for cut in cuts.iter().cycle() {
            if at == stream.len() {
                break;
            }
            let end = stream.len().min(at + cut);
            pieces.push(Bytes::copy_from_slice(&stream[at..end]));
            at = end;
        }
        let before = before.index(pieces.len() + 1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (drain, watched) = drain::channel();
            let ending = Ending::new(&watched, Duration::from_millis(1), super::super::answer::SHORTEST);
            let (sender, mut body) = watch(framing(media_type).unwrap(), ending);
            let mut received = Vec::new();
            for piece in &pieces[..before] {
                sender.send(piece.clone()).await.unwrap();
                received.extend_from_slice(&body.frame().await.unwrap().unwrap().into_data().unwrap());
            }
            drain.start(Duration::from_secs(100));
            // The drain wakes the connection's task, so it polls here too.
            assert!(body.frame().now_or_never().is_none());
            tokio::time::sleep(Duration::from_secs(10)).await;
            let sent = received.len();
            assert_eq!(sent, pieces[..before].iter().map(Bytes::len).sum::<usize>(), "nothing is held back");
            for piece in &pieces[before..] {
                sender.send(piece.clone()).await.unwrap();
            }
            // The apiserver does not end the watch.
            while let Some(frame) = body.frame().await {
                received.extend_from_slice(&frame.unwrap().into_data().unwrap());
            }
            assert!(stream.starts_with(&received));
            assert!(ends.contains(&received.len()), "{} is within an event", received.len());
            let next = ends.iter().find(|end| **end >= sent).unwrap();
            assert_eq!(received.len(), *next, "no more than the event that was on its way");
            drop(sender);
        });
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_drain_it_passes_through() {
    let ending = Ending::new(&drain::DrainWatch::never(), Duration::ZERO, super::super::answer::SHORTEST);
    let (sender, body) = watch(framing(JSON).unwrap(), ending);
    sender.send(Bytes::from_static(b"{}\n{")).await.unwrap();
    drop(sender);
    assert_eq!(body.collect().await.unwrap().to_bytes(), "{}\n{");
}

/// A client takes an error for the end of its connection at best, and lists everything again at worst.
#[tokio::test]
async fn when_the_connection_to_the_apiserver_breaks_it_is_cut_only_within_an_event() {
    for (media_type, told, is_cut) in [
        (JSON, "{}\n", false),
        (JSON, "{}\n{", true),
        (PROTOBUF, "\0\0\0\u{1}x", false),
        (PROTOBUF, "\0\0\0\u{1}", true),
        (PROTOBUF, "\0\0\0\u{1}x\0", true),
        ("application/cbor-seq", "x", true),
    ] {
        let frames = [Ok(Frame::data(Bytes::from(told))), Err(std::io::Error::other("reset"))];
        let ending = Ending::new(&drain::DrainWatch::never(), Duration::ZERO, super::super::answer::SHORTEST);
        let inner = StreamBody::new(futures_util::stream::iter(frames));
        let mut body = RelayedWatch::new(inner, framing(media_type), ending, None, &Arc::default());
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), told);
        let end = body.frame().await;
        assert_eq!(end.map(|end| end.is_err()), is_cut.then_some(true), "{media_type} {told:?}");
    }
}

#[test]
fn streams_whose_events_are_not_told_apart() {
    assert!(framing("application/json").is_some() && framing(PROTOBUF).is_some());
    assert_eq!(framing("application/cbor-seq"), None);
    let gzip = (CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    let headers = [(CONTENT_TYPE, HeaderValue::from_static(JSON)), gzip];
    assert_eq!(Framing::of(&headers.into_iter().collect()), None);
}
