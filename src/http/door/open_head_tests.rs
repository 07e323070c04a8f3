use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::time::{sleep, timeout};

use super::super::config::HttpConfig;
use super::super::preface::HTTP2_PREFACE;
use super::*;
use crate::http::answer::{RequestBody, full};
use crate::http::wire::{
    Answered, Bounded, CONTINUATION, END_HEADERS, END_STREAM, FrameHead, HEADERS, Handover, LARGEST, PUSH_PROMISE,
    Protocols, default_limits,
};
use crate::lifecycle::spawn;
use crate::memory::Pressure;

const KIB: usize = 1 << 10;
/// All heads may take one MiB of this ledger, and those of one address half of that.
const LIMIT: usize = 8 << 20;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Over {
    Http1,
    Http2,
}

const BOTH: [Over; 2] = [Over::Http1, Over::Http2];

struct Scene {
    ledger: Ledger,
    heads: Arc<OpenHeads>,
    metrics: Arc<HttpMetrics>,
}

/// Answers with the number of bytes in the headers and in the body.
async fn count(request: Request<impl http_body::Body<Error: std::fmt::Debug>>) -> Response<crate::http::answer::Body> {
    let (head, body) = request.into_parts();
    let headers: usize = head.headers.values().map(http::HeaderValue::len).sum();
    let body = body.collect().await.unwrap().to_bytes();
    Response::new(full(Bytes::from(format!("<{headers}+{}>", body.len()))))
}

impl Scene {
    fn new() -> Self {
        let (ledger, metrics) = (Ledger::new(LIMIT, Pressure::default()), Arc::<HttpMetrics>::default());
        let heads = OpenHeads::new(ledger.clone(), 1 << 20, Arc::clone(&metrics));
        Self { ledger, heads, metrics }
    }

    /// A new connection from this host.
    async fn connect(&self, over: Over, host: u8) -> DuplexStream {
        let (ours, mut client) = duplex(64 * KIB);
        let io = Bounded::new(ours, Duration::from_secs(60), Arc::default(), None);
        let (head, metrics) = (self.heads.of(Some([10, 0, 0, host].into())), Arc::clone(&self.metrics));
        spawn("server", async move {
            match over {
                Over::Http1 => {
                    let handover = Handover::new(head);
                    let of_service = Arc::clone(&handover);
                    let service = service_fn(move |request: Request<Incoming>| {
                        let (asked, handover) = (of_service.asked(&request, false), Arc::clone(&of_service));
                        async move { Ok::<_, Infallible>(handover.answer(&asked, count(request).await)) }
                    });
                    let config = HttpConfig::new(Vec::new(), "state".into());
                    Protocols::new(&config).http1(io, handover, service).await.ok();
                }
                Over::Http2 => {
                    let begin = |request: Request<RequestBody>, _| {
                        Some(Box::pin(async { Ok(count(request).await) }) as Answered)
                    };
                    Protocols::http2(io, head, &metrics, default_limits(usize::MAX), begin).await.ok();
                }
            }
        });
        if over == Over::Http2 {
            client.write_all(HTTP2_PREFACE).await.unwrap();
            client.write_all(&FrameHead { len: 0, kind: 4, flags: 0, stream: 0 }.to_bytes()).await.unwrap();
        }
        client
    }

    /// The bytes that are reserved once all has arrived that can.
    async fn used(&self) -> usize {
        sleep(Duration::from_millis(50)).await;
        self.ledger.used()
    }
}

/// A request with a header of this size, without its end. Over HTTP/2, the end is a CONTINUATION.
fn begun(over: Over, size: usize) -> Vec<u8> {
    match over {
        Over::Http1 => format!("GET / HTTP/1.1\r\nx: {}", "v".repeat(size)).into(),
        Over::Http2 => {
            // GET / over http, and a header with a length of up to four bytes (RFC 7541, section 5.1).
            let mut block = vec![0x82, 0x86, 0x84, 0x41, 1, b'a', 0, 1, b'x', 127];
            let mut rest = size - 127;
            while rest >= 128 {
                block.push(u8::try_from(rest % 128).unwrap() | 128);
                rest /= 128;
            }
            block.push(u8::try_from(rest).unwrap());
            block.resize(block.len() + size, b'v');
            let frames = block.chunks(LARGEST).enumerate().map(|(n, part)| {
                let (kind, flags) = if n == 0 { (HEADERS, END_STREAM) } else { (CONTINUATION, 0) };
                [&FrameHead { len: part.len(), kind, flags, stream: 1 }.to_bytes()[..], part].concat()
            });
            frames.collect::<Vec<_>>().concat()
        }
    }
}

fn end(over: Over) -> Vec<u8> {
    match over {
        Over::Http1 => b"\r\n\r\n".into(),
        Over::Http2 => FrameHead { len: 0, kind: CONTINUATION, flags: END_HEADERS, stream: 1 }.to_bytes().into(),
    }
}

/// Sends as much as is read, in the background. The result is the client once it has sent all.
fn send(mut client: DuplexStream, bytes: Vec<u8>) -> tokio::task::JoinHandle<Option<DuplexStream>> {
    spawn("client", async move { client.write_all(&bytes).await.is_ok().then_some(client) })
}

/// Reads until this comes.
async fn reads(client: &mut DuplexStream, expected: &str) -> bool {
    let mut read = Vec::new();
    let answer = async {
        while !read.windows(expected.len()).any(|part| part == expected.as_bytes()) {
            if client.read_buf(&mut read).await.unwrap_or(0) == 0 {
                return false;
            }
        }
        true
    };
    timeout(Duration::from_secs(60), answer).await.unwrap_or(false)
}

/// The time until the server closes the connection.
async fn lasts(client: &mut DuplexStream) -> Duration {
    let begun = Instant::now();
    let mut read = Vec::new();
    timeout(Duration::from_secs(600), client.read_to_end(&mut read)).await.expect("the connection ends").ok();
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn open_heads_of_one_client_take_a_small_share_and_others_go_on() {
    for over in BOTH {
        let scene = Scene::new();
        let mut open = Vec::new();
        for _ in 0..8 {
            open.push(send(scene.connect(over, 1).await, begun(over, 200 * KIB)));
        }
        let used = scene.used().await;
        assert!((400 * KIB..=512 * KIB).contains(&used), "{over:?} {used}");
        let client = scene.connect(over, 2).await;
        let mut client = send(client, [begun(over, 300 * KIB), end(over)].concat()).await.unwrap().unwrap();
        assert!(reads(&mut client, "<307200+0>").await, "{over:?}");
        drop(client);
        // Those that hold something give way to those that wait, which do not wait long.
        sleep(2 * HURRY).await;
        assert_eq!((scene.used().await, scene.metrics.heads_cut.get()), (0, 8), "{over:?}");
        assert!(scene.heads.taken.lock().by_holder.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_does_not_end_is_cut_after_the_time_of_the_apiserver_or_in_a_hurry() {
    for over in BOTH {
        for size in [KIB, 100 * KIB] {
            let scene = Scene::new();
            let mut client = send(scene.connect(over, 1).await, begun(over, size)).await.unwrap().unwrap();
            let lasted = lasts(&mut client).await;
            assert!((HEAD_TIMEOUT..=HEAD_TIMEOUT + HURRY).contains(&lasted), "{over:?} {size} {lasted:?}");
            let mut client = send(scene.connect(over, 1).await, begun(over, size)).await.unwrap().unwrap();
            sleep(2 * HURRY).await;
            scene.ledger.pressure().set(Level::Short);
            let lasted = lasts(&mut client).await;
            assert!(lasted <= HURRY, "{over:?} {size} {lasted:?}");
            assert_eq!((scene.used().await, scene.metrics.heads_cut.get()), (0, 2), "{over:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_come_slowly_or_have_large_bodies_are_no_open_heads() {
    let scene = Scene::new();
    let mut client = scene.connect(Over::Http1, 1).await;
    for size in [0, 3 << 20, 5] {
        let head = format!("POST / HTTP/1.1\r\nx: v\r\ncontent-length: {size}\r\n\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        for part in vec![b'b'; size].chunks(1 << 20) {
            sleep(2 * HEAD_TIMEOUT).await;
            client.write_all(part).await.unwrap();
            assert_eq!(scene.used().await, 0);
        }
        let digits = size.to_string().len() + 1;
        assert!(reads(&mut client, &format!("<{digits}+{size}>")).await, "{size}");
        // Between two requests.
        sleep(HEAD_TIMEOUT + HURRY).await;
    }
    assert_eq!((scene.ledger.used(), scene.metrics.heads_cut.get()), (0, 0));
}

/// The library's buffer for the head lives as long as the connection.
#[tokio::test(start_paused = true)]
async fn a_large_head_over_http1_is_the_last_one_of_its_connection() {
    for (size, is_last) in [(10 * KIB, false), (300 * KIB, true)] {
        let scene = Scene::new();
        let head = String::from_utf8(begun(Over::Http1, size)).unwrap() + "\r\ncontent-length: 3\r\n\r\n";
        let mut client = send(scene.connect(Over::Http1, 1).await, head.into()).await.unwrap().unwrap();
        let used = scene.used().await;
        assert!(if is_last { used > size } else { used == 0 }, "{used}");
        client.write_all(b"abc").await.unwrap();
        assert!(reads(&mut client, &format!("<{}+3>", size + 1)).await);
        let closed = timeout(HURRY, client.read_u8()).await;
        assert_eq!((closed.is_ok(), scene.used().await), (is_last, 0));
    }
}

/// Decoded, each byte would be a header of its own.
#[test]
fn the_library_gets_no_part_of_an_open_block() {
    use crate::http::wire::FrameFilter;
    for kind in [HEADERS, PUSH_PROMISE] {
        let (mut filter, mut out) = (FrameFilter::new(10_000), Vec::new());
        filter.filter(HTTP2_PREFACE, &mut out);
        out.clear();
        let mut filtered = |kind, flags, len| {
            let frame = [&FrameHead { len, kind, flags, stream: 1 }.to_bytes()[..], &vec![0x82; len]].concat();
            filter.filter(&frame, &mut out);
            (std::mem::take(&mut out).len(), filter.open_head())
        };
        assert_eq!(filtered(kind, 0, 4_000), (0, 4_009));
        assert_eq!(filtered(CONTINUATION, 0, 0), (0, 4_018));
        assert_eq!(filtered(CONTINUATION, END_HEADERS, 1_000), (5_027, 0));
        // Larger than what is accepted.
        assert_eq!(filtered(kind, 0, 9_000), (0, 9_009));
        assert_eq!(filtered(CONTINUATION, 0, 2_000), (11_018, 10_000));
        assert_eq!(filtered(CONTINUATION, 0, 0), (9, 10_000));
        assert_eq!(filtered(CONTINUATION, END_HEADERS, 0), (9, 0));
    }
}
