//! Watches and lists over one connection, to a client that refuses whatever it has not granted.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{StreamExt as _, poll_fn};
use h2::client;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;

use super::super::frames::{DATA, END_HEADERS, END_STREAM, FrameHead, HEADERS, MAX_WINDOW, Scanner};
use super::super::http2::Answered;
use super::super::io::Bounded;
use super::super::protocol::{Protocols, default_limits};
use super::*;
use crate::http::answer::{BoxError, RequestBody, body};
use crate::http::door::{HTTP2_PREFACE, OpenHead};
use crate::http::testing::Takes;
use crate::lifecycle::multiplexer::IsWatch;
use crate::lifecycle::spawn;

/// A server that answers `/list` with a body of this size, and everything else with the next watch.
struct Scene {
    client: client::SendRequest<Bytes>,
    /// What the client sets as the window of new streams.
    initial: mpsc::Sender<u32>,
    watches: mpsc::Receiver<mpsc::Sender<Bytes>>,
}

/// A server that begins its answers like this. Returns the socket of its client.
fn serve<F>(buffer: usize, begin: F) -> DuplexStream
where
    F: FnMut(Request<RequestBody>, bool) -> Option<Answered> + Send + Unpin + 'static,
{
    let (ours, theirs) = duplex(buffer);
    spawn("server", async move {
        let io = Bounded::new(ours, Duration::from_secs(60), Arc::default(), None);
        Protocols::http2(io, OpenHead::unlimited(), &Arc::default(), default_limits(usize::MAX), begin).await.ok()
    });
    theirs
}

async fn connect(socket: DuplexStream) -> client::SendRequest<Bytes> {
    let (client, connection) = client::handshake(socket).await.unwrap();
    spawn("client", async move { connection.await.ok() });
    client
}

impl Scene {
    async fn new(builder: &client::Builder, list: usize, buffer: usize) -> Self {
        let (open, watches) = mpsc::channel(100);
        let begin = move |request: Request<RequestBody>, _| {
            let open = open.clone();
            let answered = async move {
                if request.uri().path() == "/list" {
                    return Ok(Response::new(body::chunked(text(list))));
                }
                let (sender, frames) = mpsc::channel(100);
                open.send(sender).await.ok();
                let frames = ReceiverStream::new(frames).map(|data: Bytes| Ok::<_, BoxError>(Frame::data(data.into())));
                let mut response = Response::new(Body::new(StreamBody::new(frames)));
                response.extensions_mut().insert(IsWatch);
                Ok(response)
            };
            Some(Box::pin(answered) as Answered)
        };
        let (client, mut connection) = builder.handshake::<_, Bytes>(serve(buffer, begin)).await.unwrap();
        let (initial, mut settings) = mpsc::channel(1);
        spawn("client", async move {
            let mut next = None;
            std::future::poll_fn(|cx| {
                let polled = Pin::new(&mut connection).poll(cx);
                if next.is_none()
                    && let Poll::Ready(Some(setting)) = settings.poll_recv(cx)
                {
                    next = Some(setting);
                }
                // The library sends one at a time. It was just polled, so it knows whether the last one is acknowledged.
                if let Some(initial) = next
                    && connection.set_initial_window_size(initial).is_ok()
                {
                    next = None;
                    cx.waker().wake_by_ref();
                }
                polled
            })
            .await
            .unwrap();
        });
        Self { client, initial, watches }
    }

    async fn get(&mut self, path: &str) -> h2::RecvStream {
        let mut client = self.client.clone().ready().await.unwrap();
        let request = Request::get(format!("http://a{path}")).body(()).unwrap();
        client.send_request(request, true).unwrap().0.await.unwrap().into_body()
    }

    async fn watch(&mut self) -> (h2::RecvStream, mpsc::Sender<Bytes>) {
        let body = self.get("/watch").await;
        (body, self.watches.recv().await.unwrap())
    }
}

fn text(len: usize) -> Bytes {
    (0..len).map(|at| b'a' + (at % 23) as u8).collect::<Vec<_>>().into()
}

/// Reads to the end, and grants more after each `every` bytes.
async fn read(mut body: h2::RecvStream, every: usize) -> Vec<u8> {
    let (mut all, mut due) = (Vec::new(), 0);
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        all.extend_from_slice(&data);
        due += data.len();
        if due >= every {
            body.flow_control().release_capacity(std::mem::take(&mut due)).unwrap();
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// The library of the client fails the connection if a window is exceeded. It applies a setting when that is
    /// acknowledged, and fails a stream that exceeds it.
    #[test]
    fn every_byte_comes_whatever_the_client_grants(
        window in prop_oneof![500..5_000_u32, 5_000..200_000_u32],
        settings in prop_oneof![
            2 => Just(Vec::new()),
            3 => proptest::collection::vec(prop_oneof![Just(0), 0..5_000_u32, 0..200_000_u32], 1..60),
        ],
        connection in prop_oneof![65_535..70_000_u32, 65_535..400_000_u32],
        buffer in prop_oneof![100..5_000_usize, 100..100_000_usize],
        sizes in proptest::collection::vec(proptest::collection::vec(0..30_000_usize, 0..10), 1..6),
        list in 0..200_000_usize,
        every in 1..30_000_usize,
        pause in 0..300_u64,
    ) {
        // Less than half of the smallest window, at which the library of the client grants more.
        let (window, every) = match settings.is_empty() {
            true => (window, every.min(window as usize / 2 + 1)),
            false => (65_535, 1),
        };
        // And all streams together of the connection's.
        let every = every.min(connection as usize / 4 / sizes.len());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let done = runtime.block_on(async { timeout(Duration::from_secs(60), async {
            let mut builder = client::Builder::new();
            builder.initial_window_size(window).initial_connection_window_size(connection);
            let mut scene = Scene::new(&builder, list, buffer).await;
            let mut readers = Vec::new();
            for sizes in sizes {
                let (body, events) = scene.watch().await;
                let expected: Vec<u8> = sizes.iter().flat_map(|&size| text(size)).collect();
                readers.push(("watch", spawn("watch", read(body, every)), expected));
                spawn("events", async move {
                    for size in sizes {
                        events.send(text(size)).await.ok();
                        sleep(Duration::from_micros(pause)).await;
                    }
                });
                readers.push(("list", spawn("list", read(scene.get("/list").await, every)), text(list).to_vec()));
            }
            let last = (!settings.is_empty()).then_some(100_000);
            for setting in settings.into_iter().chain(last) {
                scene.initial.send(setting).await.unwrap();
                sleep(Duration::from_micros(pause)).await;
            }
            for (kind, reader, expected) in readers {
                let read = timeout(Duration::from_secs(60), reader).await;
                assert!(read.unwrap_or_else(|_| panic!("a {kind} stands still")).unwrap() == expected);
            }
        }).await });
        prop_assert!(done.is_ok(), "a stream stands still");
    }
}

/// What a client that takes everything at once got of each stream, and in one turn, until it had this much. The bodies of
/// the watches always have more. If they pause, they end the turn after each frame.
async fn endless(watches: u32, pauses: bool, until: usize) -> (Vec<usize>, usize) {
    const FRAME: usize = 256 << 10;

    const SETTINGS: u8 = 4;
    const WINDOW_UPDATE: u8 = 8;

    let mut says = HTTP2_PREFACE.to_vec();
    let mut say = |kind, flags, stream, payload: &[u8]| {
        says.extend(FrameHead { len: payload.len(), kind, flags, stream }.to_bytes());
        says.extend(payload);
    };
    say(SETTINGS, 0, 0, &[&[0, 4][..], &MAX_WINDOW.to_be_bytes()].concat());
    say(WINDOW_UPDATE, 0, 0, &(MAX_WINDOW - 65_535).to_be_bytes());
    for watch in 0..watches {
        say(HEADERS, END_HEADERS | END_STREAM, 2 * watch + 1, &[0x82, 0x86, 0x84, 0x41, 1, b'a']);
    }
    let got = Arc::new(Mutex::new(vec![0; watches as usize]));
    let (mut scanner, taken) = (Scanner::default(), Arc::clone(&got));
    let took = move |bytes: &[u8]| {
        scanner.scan(bytes, |head| {
            if head.kind == DATA {
                taken.lock()[head.stream as usize / 2] += head.len;
            }
        });
    };
    let io = Bounded::new(Takes::new(says, false, took), Duration::from_secs(60), Arc::default(), None);
    let begin = move |_: Request<RequestBody>, _| {
        let mut is_next = false;
        let endless = poll_fn(move |_| {
            is_next = !is_next;
            if pauses && !is_next {
                return Poll::Ready(Some(Ok(Frame::data(Slices::new()))));
            }
            Poll::Ready(Some(Ok::<_, BoxError>(Frame::data(Bytes::from_static(&[b'x'; FRAME]).into()))))
        });
        let mut response = Response::new(Body::new(StreamBody::new(endless)));
        response.extensions_mut().insert(IsWatch);
        Some(Box::pin(std::future::ready(Ok(response))) as Answered)
    };
    let metrics = Arc::default();
    let mut connection =
        std::pin::pin!(Protocols::http2(io, OpenHead::unlimited(), &metrics, default_limits(usize::MAX), begin));
    let all = || got.lock().iter().sum::<usize>();
    let mut largest = 0;
    while all() < until {
        let before = all();
        let polled = std::future::poll_fn(|cx| Poll::Ready(connection.as_mut().poll(cx).is_pending())).await;
        assert!(polled);
        largest = largest.max(all() - before);
        tokio::task::yield_now().await;
    }
    let each = got.lock().clone();
    (each, largest)
}

#[tokio::test]
async fn a_turn_writes_a_bounded_number_of_bytes() {
    let (_, largest) = endless(20, false, 100 << 20).await;
    assert!((1 << 19..4 << 20).contains(&largest), "{largest}");
}

#[tokio::test]
async fn watches_that_use_up_their_turns_take_turns() {
    for (watches, pauses) in [2, 3, 4, 20].into_iter().flat_map(|watches| [(watches, false), (watches, true)]) {
        let (each, _) = endless(watches, pauses, 80 << 20).await;
        let mean = each.iter().sum::<usize>() / each.len();
        assert!(each.iter().all(|got| *got >= mean / 2), "of {watches} watches, pauses: {pauses}: {each:?}");
    }
}

#[tokio::test]
async fn a_watch_ends_in_order() {
    let mut builder = client::Builder::new();
    builder.initial_window_size(1 << 20).initial_connection_window_size(1 << 24);
    let mut scene = Scene::new(&builder, 10, 1 << 20).await;
    let (mut body, events) = scene.watch().await;
    events.send(text(10)).await.unwrap();
    assert_eq!(body.data().await.unwrap().unwrap(), text(10));
    for len in [1, 16_384, 100_000] {
        events.send(text(len)).await.unwrap();
        let mut all = Vec::new();
        while all.len() < len {
            let data = body.data().await.unwrap().unwrap();
            body.flow_control().release_capacity(data.len()).unwrap();
            all.extend_from_slice(&data);
        }
        assert!(all == text(len));
    }
    events.send(text(5)).await.unwrap();
    drop(events);
    assert_eq!(read(body, 1).await, text(5));
}

#[tokio::test]
async fn a_client_that_reads_nothing_of_one_watch_gets_the_others() {
    let mut builder = client::Builder::new();
    builder.initial_window_size(50_000).initial_connection_window_size(1 << 24);
    let mut scene = Scene::new(&builder, 10, 1 << 20).await;
    let (slow, slow_events) = scene.watch().await;
    let (mut body, events) = scene.watch().await;
    for _ in 0..20 {
        slow_events.send(text(10_000)).await.unwrap();
        events.send(text(100)).await.unwrap();
        assert_eq!(body.data().await.unwrap().unwrap(), text(100));
        body.flow_control().release_capacity(100).unwrap();
    }
    drop(slow_events);
    assert!(read(slow, 1).await.len() == 200_000);
}

/// It is woken, although the last reservation had nobody to wake.
#[tokio::test]
async fn a_watch_that_waits_for_a_window_ends_when_its_client_cancels_it() {
    let mut builder = client::Builder::new();
    builder.initial_window_size(10);
    let mut scene = Scene::new(&builder, 10, 1 << 20).await;
    let (mut body, events) = scene.watch().await;
    // The library has the rest of the first one.
    for _ in 0..2 {
        events.send(text(100)).await.unwrap();
    }
    assert_eq!(body.data().await.unwrap().unwrap(), text(10));
    while events.capacity() < events.max_capacity() {
        tokio::task::yield_now().await;
    }
    drop(body);
    timeout(Duration::from_secs(60), events.closed()).await.expect("the watch ends");
}

/// The library resets the stream, whoever has it.
#[tokio::test]
async fn an_answer_that_is_given_up_is_reset_and_its_end_waits_until_all_is_taken() {
    for is_watch in [true, false] {
        let (open, mut opened) = mpsc::channel(2);
        let begin = move |_: Request<RequestBody>, _| {
            let (sender, frames) = mpsc::channel(100);
            let cut = Cut::default();
            open.try_send((sender, cut.clone())).unwrap();
            let frames = ReceiverStream::new(frames).map(|data: Bytes| Ok::<_, BoxError>(Frame::data(data.into())));
            let mut response = Response::new(Body::new(StreamBody::new(frames)));
            response.extensions_mut().insert(cut);
            if is_watch {
                response.extensions_mut().insert(IsWatch);
            }
            Some(Box::pin(std::future::ready(Ok(response))) as Answered)
        };
        let mut client = connect(serve(1 << 20, begin)).await;
        let mut get = async || {
            let request = Request::get("http://a/").body(()).unwrap();
            client.send_request(request, true).unwrap().0.await.unwrap().into_body()
        };
        let (mut body, (events, cut)) = (get().await, opened.recv().await.unwrap());
        cut.give(5);
        events.send(text(5)).await.unwrap();
        drop(events);
        assert_eq!(body.data().await.unwrap().unwrap(), text(5));
        assert!(timeout(Duration::from_millis(50), body.data()).await.is_err(), "not all of it is taken");
        cut.taken(5);
        while let Some(data) = body.data().await {
            assert!(data.unwrap().is_empty(), "the end");
        }

        // The second has a window that is used up.
        let (mut body, (events, cut)) = (get().await, opened.recv().await.unwrap());
        events.send(text(100_000)).await.unwrap();
        assert!(body.data().await.unwrap().is_ok());
        cut.cut();
        let error = loop {
            if let Err(error) = body.data().await.unwrap() {
                break error;
            }
        };
        assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
    }
}

#[tokio::test]
async fn an_error_keeps_its_code_and_the_answer_to_a_head_has_no_body() {
    let begin = |request: Request<RequestBody>, _| {
        let error: BoxError = match request.uri().path() {
            "/calm" => h2::Error::from(Reason::ENHANCE_YOUR_CALM).into(),
            _ => "broken".into(),
        };
        let response = match request.method().as_str() {
            "HEAD" => Response::new(crate::http::answer::full(text(7))),
            _ => Response::new(Body::new(StreamBody::new(futures_util::stream::iter([Err(error)])))),
        };
        Some(Box::pin(std::future::ready(Ok(response))) as Answered)
    };
    let mut client = connect(serve(1 << 20, begin)).await;
    for (method, path, expected) in [
        ("HEAD", "/", None),
        ("GET", "/calm", Some(Reason::ENHANCE_YOUR_CALM)),
        ("GET", "/broken", Some(Reason::INTERNAL_ERROR)),
    ] {
        let request = Request::builder().method(method).uri(format!("http://a{path}")).body(()).unwrap();
        // The head may be reset with the body.
        let error = match client.send_request(request, true).unwrap().0.await {
            Err(error) => Some(error),
            Ok(mut response) if expected.is_none() => {
                assert_eq!(response.headers()["content-length"], "7");
                response.body_mut().data().await.map(Result::unwrap_err)
            }
            Ok(mut response) => response.body_mut().data().await.map(Result::unwrap_err),
        };
        assert_eq!(error.map(|error| error.reason().unwrap()), expected, "{method} {path}");
    }
}

/// The next larger size class of the allocator would add a quarter.
#[test]
fn an_idle_watch_is_small() {
    assert!(size_of::<Http2Body>() <= 80, "{}", size_of::<Http2Body>());
}
