use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::oneshot;
use tokio::time::{Duration, timeout};

use super::super::watch_body::WatchBody;
use super::*;
use crate::auth::Lease;
use crate::cache::WatchStart;
use crate::http::metrics::HttpMetrics;
use crate::http::testing::{FIRST, World, added_text, objects};
use crate::http::{AccessLog, Bounded, Connection, ListenAddr};
use crate::lifecycle::drain::DrainWatch;
use crate::lifecycle::ending::Ending;
use crate::lifecycle::spawn;
use crate::memory::Ledger;

/// Too large to be joined.
const LARGE: usize = 20_000;

/// Counts the calls that would be system calls.
struct Counting {
    inner: DuplexStream,
    writes: Arc<AtomicUsize>,
}

impl AsyncRead for Counting {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for Counting {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Answers each request on `stream` with one of these bodies.
async fn serve(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, bodies: Vec<WatchBody>) {
    let bodies = Mutex::new(bodies.into_iter());
    let service = service_fn(|_| {
        let body = bodies.lock().next().unwrap();
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
}

/// A connection whose socket holds `size` bytes, and what counts the bytes that are written directly.
fn connection(size: usize) -> (DuplexStream, SharedIo<Bounded<DuplexStream>>, Arc<HttpMetrics>) {
    let (theirs, ours) = duplex(size);
    let bounded = Bounded::new(ours, Duration::from_secs(5), Arc::default(), None);
    (theirs, SharedIo::new(bounded), Arc::default())
}

fn body(world: &World, socket: Option<Arc<Socket>>, metrics: &Arc<HttpMetrics>) -> WatchBody {
    let ending = Ending::new(&DrainWatch::never(), Duration::ZERO, Duration::ZERO);
    let answer = world.watch(WatchStart::State);
    let mut body = WatchBody::new(answer, Lease::all([]), None, ending, metrics, &Ledger::default());
    if let Some(socket) = socket {
        let of = Connection::new(ListenAddr::Http(([127, 0, 0, 1], 1).into()), None);
        let record = RequestRecord::begin(&Request::new(()), &of, false, metrics, &AccessLog::off());
        body.write_directly(Direct::new(socket, record));
    }
    body
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

/// Reads one chunked body, and tells when the first chunk is here.
async fn text(client: &mut DuplexStream, mut begun: Option<oneshot::Sender<()>>) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    let mut text = Vec::new();
    loop {
        match chunk(client).await {
            end if end.is_empty() => return String::from_utf8(text).unwrap(),
            data => text.extend(data),
        }
        if let Some(begun) = begun.take() {
            begun.send(()).unwrap();
        }
    }
}

#[tokio::test]
async fn the_client_gets_the_same_bytes_from_any_socket() {
    for size in [50, 300, 20_000, 1 << 20] {
        let mut world = World::new(objects(3, 5)).await;
        let (mut client, stream, metrics) = connection(size);
        // Two on one connection: after the end of a watch the client may ask again.
        let bodies = vec![body(&world, Some(stream.socket()), &metrics), body(&world, None, &metrics)];
        spawn("server", serve(stream, bodies));
        client.write_all(b"GET /1 HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let (tell, begun) = oneshot::channel();
        let reader = spawn("reader", async move {
            let first = text(&mut client, Some(tell)).await;
            client.write_all(b"GET /2 HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
            [first, text(&mut client, None).await]
        });
        // Then the library has written all that it was given.
        begun.await.unwrap();
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
        let [direct, library] = timeout(Duration::from_secs(60), reader).await.unwrap().unwrap();
        assert!(direct.ends_with(&added_text(FIRST + 39, LARGE)), "{size}");
        assert!(direct == library, "{size}");
        assert!(metrics.clients.sent_bytes() > 0, "{size}: some of it went past the library");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_given_up() {
    let mut world = World::new(objects(1, 5)).await;
    let (mut client, stream, metrics) = connection(4_096);
    let bodies = vec![body(&world, Some(stream.socket()), &metrics)];
    let server = spawn("server", serve(stream, bodies));
    client.write_all(b"GET /1 HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    for number in 0..10 {
        world.add(FIRST + number, 2_000).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(metrics.clients.sent_bytes() > 0);
    assert!(timeout(Duration::from_secs(4), server).await.is_err(), "it may still read");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.cache.stats().watchers, 0);
}

#[tokio::test]
async fn a_delivery_is_one_system_call() {
    let mut world = World::new(objects(1, 5)).await;
    let ((mut client, ours), writes) = (duplex(1 << 20), Arc::<AtomicUsize>::default());
    let counting = Counting { inner: ours, writes: Arc::clone(&writes) };
    let (stream, metrics) = (SharedIo::new(counting), Arc::default());
    let bodies = vec![body(&world, Some(stream.socket()), &metrics)];
    spawn("server", serve(stream, bodies));
    client.write_all(b"GET /1 HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    // The state, with the library.
    chunk(&mut client).await;
    let before = writes.load(Ordering::Relaxed);
    for number in 0..50 {
        // Joined, and too large for that.
        let size = [2_000, 2 * JOINED][number % 2];
        world.add(FIRST + number, size).await;
        assert!(chunk(&mut client).await == added_text(FIRST + number, size).as_bytes());
    }
    let each = writes.load(Ordering::Relaxed) - before;
    assert_eq!(each, 50);
}

#[tokio::test]
async fn nothing_overtakes_what_the_library_holds() {
    let world = World::new(objects(1, 5)).await;
    let (_client, stream, metrics) = connection(64);
    let socket = stream.socket();
    let mut direct = body(&world, Some(Arc::clone(&socket)), &metrics);
    socket.lock().is_flushed = true;
    // The head is with the library when it polls the body first, whatever was flushed before.
    let frame = direct.frame().await.unwrap().unwrap();
    assert!(frame.is_data() && !socket.lock().is_flushed);
}
