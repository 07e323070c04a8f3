use futures_util::{FutureExt as _, StreamExt as _, stream};
use http_body_util::StreamBody;
use tokio::sync::mpsc::Receiver;
use tokio_stream::wrappers::ReceiverStream;

use super::*;
use crate::memory::{Ledger, Pressure};

const SECOND: Duration = Duration::from_secs(1);

fn pace(window: Option<usize>) -> Pace {
    Pace::new(Places::new(100, Ledger::default()), window)
}

fn parts(count: u8, size: usize) -> ForwardBody {
    let parts = (0..count).map(move |part| Ok::<_, BoxError>(Frame::data(Bytes::from(vec![part; size]))));
    StreamBody::new(stream::iter(parts)).boxed_unsync()
}

fn received(parts: Receiver<Bytes>) -> ForwardBody {
    StreamBody::new(ReceiverStream::new(parts).map(|part| Ok::<_, BoxError>(Frame::data(part)))).boxed_unsync()
}

fn body(pace: &Pace, rest: ForwardBody) -> ForwardBody {
    pace.answer(Response::new(rest), None).into_body()
}

fn data(frame: Option<Result<Frame<Bytes>, BoxError>>) -> Bytes {
    frame.unwrap().unwrap().into_data().unwrap()
}

#[tokio::test]
async fn what_is_given_away_must_go_before_more_comes() {
    let mut body = body(&pace(Some(64)), parts(5, 40));
    let mut next = async || data(body.frame().await);
    let (first, second) = (next().await, next().await);
    assert!(next().now_or_never().is_none(), "80 of 64 are out");
    let slice = first.slice(1..2);
    drop(first);
    assert!(next().now_or_never().is_none(), "a part of it keeps all of it");
    let waiting = crate::lifecycle::spawn("reader", async move {
        let mut seen = 0;
        while let Some(frame) = body.frame().await {
            seen += frame.unwrap().into_data().unwrap().len();
        }
        seen
    });
    tokio::task::yield_now().await;
    drop((slice, second));
    assert_eq!(waiting.await.unwrap(), 120);
}

#[tokio::test]
async fn an_answer_is_handed_out_in_parts_and_known_to_be_taken() {
    for window in [Some(64), None] {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("a", http::HeaderValue::from_static("b"));
        let frames = [Frame::data(Bytes::from(vec![b'x'; PART + 1])), Frame::trailers(trailers)];
        let frames = StreamBody::new(stream::iter(frames.map(Ok::<_, BoxError>))).boxed_unsync();
        let mut response = pace(window).answer(Response::new(frames), None);
        let cut = response.extensions_mut().remove::<Cut>().unwrap();
        let body = response.body_mut();
        let taken = || std::future::poll_fn(|cx| cut.poll_taken(cx)).now_or_never().is_some();
        let first = data(body.frame().await);
        assert!(first.len() == PART && !taken(), "in parts");
        // The first part fills a window.
        assert_eq!(body.frame().now_or_never().is_none(), window.is_some());
        drop(first);
        if window.is_some() {
            let second = data(body.frame().await);
            assert!(second.len() == 1 && !taken() && !body.is_end_stream());
        }
        assert!(taken() && body.frame().await.unwrap().unwrap().is_trailers());
        assert!(body.is_end_stream() && body.frame().await.is_none());
    }
}

#[tokio::test]
async fn a_length_is_that_of_what_was_not_handed_out() {
    let whole = http_body_util::Full::new(Bytes::from(vec![b'x'; PART + 5])).map_err(|never| match never {});
    let mut body = body(&pace(None), whole.boxed_unsync());
    assert_eq!(body.size_hint().exact(), Some(PART as u64 + 5));
    let _first = data(body.frame().await);
    assert_eq!(body.size_hint().exact(), Some(5));
}

#[test]
fn a_place_is_for_what_may_be_read_ahead() {
    let ledger = Ledger::new(5 << 19, Pressure::default());
    let pace = Pace::new(Places::new(100, ledger.clone()), Some(64 << 10));
    let hold = |is_watch, length| pace.hold(&Client::Connection(1), is_watch, is_watch, length);
    let list = hold(false, Some(0)).unwrap();
    assert_eq!(ledger.used(), 128 << 10);
    let watch = hold(true, Some(0)).unwrap();
    let write = hold(false, Some(1000)).unwrap();
    assert_eq!(ledger.used(), (128 << 10) + (16 << 10) + (128 << 10) + 1000);
    let upload = hold(false, None).unwrap();
    assert!(hold(false, None).is_err(), "its length is not known");
    drop((list, watch, write, upload));
    assert_eq!(ledger.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_takes_nothing_gives_way() {
    for window in [Some(64), None] {
        let pace = pace(window);
        let [mut stands, mut moves] = [(); 2].map(|()| body(&pace, parts(5, 64)));
        let first = [data(stands.frame().await), data(moves.frame().await)];
        let [kept, first] = first;
        tokio::time::advance(SECOND).await;
        assert_eq!(pace.give_up(2 * SECOND), 0);
        drop(first);
        let _second = data(moves.frame().await);
        tokio::time::advance(SECOND).await;
        assert_eq!(pace.give_up(2 * SECOND), 1);
        assert_eq!(pace.give_up(2 * SECOND), 0, "once");
        assert!(stands.frame().await.unwrap().is_err());
        drop(kept);
        assert!(!stands.is_end_stream() && stands.frame().await.unwrap().is_err(), "an error, and no end");
    }
}

/// The library asks for more only after the client has taken something.
#[tokio::test(start_paused = true)]
async fn an_answer_is_given_up_from_outside_of_its_body() {
    let ledger = Ledger::new(1 << 20, Pressure::default());
    let places = Places::new(100, ledger.clone());
    let pace = Pace::new(Arc::clone(&places), Some(1000));
    let client = Client::Connection(1);
    // Of the first nothing was asked for, of the second not all was taken, and the last has been read to its end. Over HTTP/1.1,
    // the library may copy what it is given into its own buffer, and asks for more when the socket has taken that.
    for (asked, size, is_copied) in [(0, 100, false), (1, 100, false), (1, 100, true), (3, 10, false)] {
        let place = places.take(&client, false).unwrap();
        let placed = Placed::new(parts(2, size), place).boxed_unsync();
        let held = pace.hold(&client, false, false, Some(0)).unwrap();
        let mut response = Response::new(placed);
        response.extensions_mut().insert(Arc::new(held.unwrap()));
        let mut response = pace.answer(response, None);
        let cut = response.extensions_mut().remove::<Cut>().unwrap();
        let mut taken = Vec::new();
        for _ in 0..asked {
            let part = response.body_mut().frame().now_or_never().flatten().map(|part| part.unwrap());
            taken.push(part.filter(|_| !is_copied));
        }
        assert_eq!(ledger.used(), 2000);
        tokio::time::advance(SECOND).await;
        assert_eq!(pace.give_up(SECOND), 1, "{asked} {is_copied}");
        std::future::poll_fn(|cx| cut.poll_cut(cx)).await;
        assert!(places.is_empty(), "its place is free: {asked}");
        drop((response, taken));
        assert_eq!(ledger.used(), 0, "and so is its memory, once the library has dropped it");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_waits_for_the_apiserver_is_not_given_up() {
    let pace = pace(Some(64));
    let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(1);
    let mut watch = body(&pace, received(receiver));
    for _ in 0..3 {
        assert!(watch.frame().now_or_never().is_none());
        tokio::time::advance(3600 * SECOND).await;
        assert_eq!(pace.give_up(SECOND), 0);
        sender.send(Bytes::from_static(b"event")).await.unwrap();
        let event = data(watch.frame().await);
        assert_eq!(pace.give_up(SECOND), 0, "it has just come");
        drop(event);
    }
    sender.send(Bytes::from_static(b"event")).await.unwrap();
    let _event = data(watch.frame().await);
    assert!(watch.frame().now_or_never().is_none());
    tokio::time::advance(SECOND).await;
    assert_eq!(pace.give_up(SECOND), 1, "its client has not taken the last event");
}

/// While others wait, it is not enough to take a little from time to time. Who takes all there is may be as slow as the
/// apiserver.
#[tokio::test(start_paused = true)]
async fn who_takes_little_gives_way_to_others() {
    for (every, given_up) in [(1900, 1), (500, 0)] {
        let pace = pace(Some(64 << 10));
        let mut drips = body(&pace, parts(200, PART));
        let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(1);
        let mut logs = body(&pace, received(receiver));
        let mut out = std::collections::VecDeque::new();
        for _ in 0..22 {
            while let Some(part) = drips.frame().now_or_never() {
                out.push_back(data(part));
            }
            assert!(logs.frame().now_or_never().is_none());
            tokio::time::advance(Duration::from_millis(every)).await;
            sender.send(Bytes::from_static(b"line")).await.unwrap();
            let _line = data(logs.frame().await);
            drop(out.pop_front());
        }
        sender.send(Bytes::from_static(b"line")).await.unwrap();
        let _line = data(logs.frame().await);
        assert_eq!(pace.give_up(2 * SECOND), 0, "nobody waits");
        assert_eq!(pace.hurry(2 * SECOND, &|_| true), given_up, "{every}");
    }
}
