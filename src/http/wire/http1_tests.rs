use std::convert::Infallible;
use std::time::Duration;

use hyper::service::service_fn;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::cache::WatchStart;
use crate::http::answer::body;
use crate::http::testing::{FIRST, Takes, World, added_text, head, objects, until};
use crate::lifecycle::spawn;

/// Too large to be joined.
const LARGE: usize = 20_000;
const JOINED: usize = 16 << 10;
const STALL: Duration = Duration::from_secs(5);

/// Connections that answer with watches.
struct Answers {
    bodies: Mutex<Vec<Body>>,
    /// Whether the answers are known to be watches.
    are_watches: bool,
}

impl Answers {
    fn new(are_watches: bool) -> Self {
        Self { bodies: Mutex::default(), are_watches }
    }

    /// The next answer is a watch of this world.
    fn push(&self, world: &World) {
        self.bodies.lock().insert(0, world.body(WatchStart::State));
    }

    /// Serves a connection.
    fn serve<S>(self, stream: S) -> JoinHandle<Result<(), BoxError>>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let io = Bounded::new(stream, STALL, Arc::default(), None);
        spawn("server", async move {
            let handover = Handover::new(OpenHead::unlimited());
            let service = service_fn(|request| {
                let asked = handover.asked(&request, false);
                let ends = bytes::Bytes::from_static(b"no watch is left");
                let watch = self.bodies.lock().pop();
                let is_watch = watch.is_some() && self.are_watches;
                let mut response = Response::new(watch.unwrap_or_else(|| body::full(ends)));
                if is_watch {
                    response.extensions_mut().insert(IsWatch);
                }
                std::future::ready(Ok::<_, Infallible>(handover.answer(&asked, response)))
            });
            Http1::new(&Builder::new(), &WatchShards::default(), io, Arc::clone(&handover), service).await
        })
    }
}

const GET: &str = "GET /1 HTTP/1.1\r\nhost: a\r\n\r\n";

/// A connection with this request, whose answer is a watch of this world.
async fn begin(world: &World, size: usize, request: &str) -> (DuplexStream, JoinHandle<Result<(), BoxError>>) {
    let (mut client, ours) = duplex(size);
    let answers = Answers::new(true);
    answers.push(world);
    let server = answers.serve(ours);
    client.write_all(request.as_bytes()).await.unwrap();
    (client, server)
}

async fn chunk(client: &mut DuplexStream) -> Vec<u8> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    let len = usize::from_str_radix(std::str::from_utf8(&head).unwrap().trim(), 16).unwrap();
    let mut data = vec![0; len + 2];
    client.read_exact(&mut data).await.unwrap();
    assert_eq!(data.split_off(len), b"\r\n");
    data
}

/// Reads all chunks of an answer, and tells when the first is here.
async fn chunks(client: &mut DuplexStream, mut begun: Option<oneshot::Sender<()>>) -> String {
    let mut text = String::new();
    loop {
        match chunk(client).await {
            end if end.is_empty() => return text,
            data => text.push_str(std::str::from_utf8(&data).unwrap()),
        }
        if let Some(begun) = begun.take() {
            begun.send(()).unwrap();
        }
    }
}

fn without_date(text: &str) -> String {
    text.split_inclusive("\r\n").filter(|line| !line.starts_with("date: ")).collect()
}

#[tokio::test]
async fn the_client_gets_the_same_bytes_from_any_socket() {
    for size in [50, 300, 20_000, 1 << 20] {
        let mut world = World::new(objects(3, 5)).await;
        let mut readers = Vec::new();
        for are_watches in [true, false] {
            let (mut client, ours) = duplex(size);
            let answers = Answers::new(are_watches);
            // Two on one connection: after the end of a watch the client may ask again.
            answers.push(&world);
            answers.push(&world);
            answers.serve(ours);
            client.write_all(GET.as_bytes()).await.unwrap();
            let (tell, begun) = oneshot::channel();
            readers.push(spawn("reader", async move {
                let mut text = head(&mut client).await + &chunks(&mut client, Some(tell)).await;
                client.write_all(b"GET /2 HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
                text += &head(&mut client).await;
                without_date(&(text + &chunks(&mut client, None).await))
            }));
            begun.await.unwrap();
        }
        for number in 0..40 {
            let large = [5, 2_000, JOINED, LARGE][number % 4];
            world.add(FIRST + number, large).await;
            if number % 3 == 0 {
                world.settle().await;
                tokio::task::yield_now().await;
            }
        }
        world.settle().await;
        world.cache.end_watchers(false);
        let library = timeout(Duration::from_secs(60), readers.pop().unwrap()).await.unwrap().unwrap();
        let ours = timeout(Duration::from_secs(60), readers.pop().unwrap()).await.unwrap().unwrap();
        assert!(ours.starts_with("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"), "{size}");
        assert!(ours.contains(&added_text(FIRST + 39, LARGE)), "{size}");
        assert!(ours == library, "{size}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_given_up() {
    let mut world = World::new(objects(1, 5)).await;
    let (_client, server) = begin(&world, 4_096, GET).await;
    for number in 0..10 {
        world.add(FIRST + number, 2_000).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut server = std::pin::pin!(server);
    assert!(timeout(STALL - Duration::from_secs(1), server.as_mut()).await.is_err(), "it may still read");
    server.await.unwrap().unwrap_err();
    assert_eq!(world.cache.stats().watchers, 0);
}

#[tokio::test]
async fn a_watch_ends_with_its_client() {
    // A client that has sent more than its request is noticed when the next event is written.
    for early in ["", "G"] {
        let mut world = World::new(objects(1, 5)).await;
        let (mut client, server) = begin(&world, 4_096, GET).await;
        head(&mut client).await;
        chunk(&mut client).await;
        client.write_all(early.as_bytes()).await.unwrap();
        world.settle().await;
        drop(client);
        if !early.is_empty() {
            world.add(FIRST, 5).await;
        }
        timeout(Duration::from_secs(60), server).await.unwrap().unwrap().unwrap_err();
        assert_eq!(world.cache.stats().watchers, 0, "{early}");
    }
}

#[tokio::test]
async fn requests_that_come_early_are_answered_after_the_watch() {
    // With the first request, in the middle of the watch, and in pieces.
    for (together, later) in [
        ("GET /2 HTTP/1.1\r\nhost: a\r\n\r\n", vec![]),
        ("", vec!["GET /2 HTTP/1.1\r\nhost: a\r\n\r\n".to_owned()]),
        ("GET /2 HT", vec!["TP/1.1\r\nhost:".to_owned(), " a\r\n\r\n".to_owned()]),
        ("", vec![format!("GET /2 HTTP/1.1\r\nhost: a\r\nx: {}\r\n", "x".repeat(3_000)), "\r\n".to_owned()]),
    ] {
        let world = World::new(objects(1, 5)).await;
        let (mut client, _server) = begin(&world, 1 << 20, &format!("{GET}{together}")).await;
        head(&mut client).await;
        chunk(&mut client).await;
        for part in &later {
            client.write_all(part.as_bytes()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        world.cache.end_watchers(false);
        while !chunk(&mut client).await.is_empty() {}
        assert!(timeout(Duration::from_secs(60), head(&mut client)).await.unwrap().contains("content-length: 16"));
    }
}

#[tokio::test]
async fn the_connection_ends_when_its_client_wants_it() {
    for (option, ends) in [("close", true), ("Keep-Alive, CLOSE", true), ("keep-alive", false)] {
        let world = World::new(objects(1, 5)).await;
        let request = format!("GET /1 HTTP/1.1\r\nhost: a\r\nconnection: {option}\r\n\r\n");
        let (mut client, server) = begin(&world, 4_096, &request).await;
        assert_eq!(head(&mut client).await.contains("connection: close"), ends, "{option}");
        world.cache.end_watchers(false);
        while !chunk(&mut client).await.is_empty() {}
        if !ends {
            client.write_all(b"GET /2 HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
            assert!(head(&mut client).await.contains("content-length: 16"));
            continue;
        }
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "{option}");
        server.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_body_that_fails_has_no_end() {
    let (mut client, ours) = duplex(4_096);
    let answers = Answers::new(true);
    let frames = [Ok(Frame::data(Slices::from(bytes::Bytes::from_static(b"a")))), Err("broken".into())];
    let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
    answers.bodies.lock().push(Body::new(body));
    let server = answers.serve(ours);
    client.write_all(GET.as_bytes()).await.unwrap();
    head(&mut client).await;
    let mut rest = String::new();
    client.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "1\r\na\r\n");
    assert_eq!(server.await.unwrap().unwrap_err().to_string(), "broken");
}

#[tokio::test]
async fn a_delivery_is_one_system_call() {
    let mut world = World::new(objects(1, 5)).await;
    let calls = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let taken = Arc::clone(&calls);
    let answers = Answers::new(true);
    answers.push(&world);
    let took = move |bytes: &[u8]| taken.lock().push(bytes.to_vec());
    answers.serve(Takes::new(GET, false, took));
    // The state.
    until(|| calls.lock().concat().ends_with(b"}\n\r\n")).await;
    calls.lock().clear();
    for number in 0..50 {
        // Joined, and too large for that.
        let size = [2_000, 2 * JOINED][number % 2];
        world.add(FIRST + number, size).await;
        let event = added_text(FIRST + number, size);
        until(|| calls.lock().concat().ends_with(b"}\n\r\n")).await;
        let calls = std::mem::take(&mut *calls.lock());
        assert!(calls.len() == 1 && calls[0].ends_with(format!("{event}\r\n").as_bytes()));
    }
}

#[tokio::test]
async fn the_library_keeps_what_is_no_plain_watch() {
    for (request, is_chunked) in [
        ("GET /1 HTTP/1.0\r\nhost: a\r\n\r\n", false),
        ("POST /1 HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx", true),
        ("GET /1 HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx", true),
    ] {
        let world = World::new(objects(1, 5)).await;
        let (mut client, _server) = begin(&world, 4_096, request).await;
        assert_eq!(head(&mut client).await.contains("chunked"), is_chunked, "{request}");
        world.cache.end_watchers(false);
        let mut text = String::new();
        if is_chunked {
            text = chunks(&mut client, None).await;
        } else {
            client.read_to_string(&mut text).await.unwrap();
        }
        assert!(text.starts_with(r#"{"type":"ADDED""#), "{text}");
    }
}
