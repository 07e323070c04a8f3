//! Clients that read nothing of their answers, and requests that nobody reads, on real sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::apiserver::client::{ConfigSource, Upstream, UpstreamConfig};
use crate::apiserver::raw_testing::{END_STREAM, RST_STREAM, frame, head};
use crate::apiserver::testing::{FakeServer, answer, streamed};
use crate::codec::negotiate::{ReadKind, StatusForm};
use crate::http::answer::{Bodies, Body, BodyOptions, BoxFuture, Handler, RequestBody, WantedFormat, body, respond};
use crate::http::door::Connection;
use crate::http::testing::{World, objects, serve, until};
use crate::lifecycle::drain::Drain;
use crate::lifecycle::multiplexer::IsWatch;
use crate::lifecycle::spawn;
use crate::memory::{Ledger, StallGuards};
use crate::meta::{RequestInfo, Status, Verb};
use crate::passthrough::testing::Recorder;
use crate::passthrough::{Forward, ForwardConfig, LendIdentity};
use crate::reads::ListAnswer;

/// Forwards everything.
struct Front(Forward);

impl Handler for Front {
    fn handle(&self, request: Request<RequestBody>, connection: &Arc<Connection>) -> BoxFuture<Response<Body>> {
        let (forward, sender) = (self.0.clone(), connection.sender(None, true, true));
        Box::pin(async move {
            let (method, uri) = (request.method().clone(), request.uri().clone());
            let info = RequestInfo::parse(method.as_str(), uri.path(), uri.query().unwrap_or_default());
            match forward.forward(request, &info, sender).await {
                Ok(answer) => {
                    let mut response = answer.response.map(body::relayed);
                    if info.verb == Verb::Watch {
                        response.extensions_mut().insert(IsWatch);
                    }
                    response
                }
                Err(error) => respond(&Status::from(&error), StatusForm::default()),
            }
        })
    }
}

struct Running {
    address: SocketAddr,
    forward: Forward,
    upstream: Upstream,
    server: FakeServer,
    _drain: Drain,
    _directory: tempfile::TempDir,
}

/// At most 28 requests are forwarded at once.
async fn start(server: FakeServer) -> Running {
    let settings = UpstreamConfig { max_connections: 2, streams_per_connection: 16, ..UpstreamConfig::default() };
    let upstream = Upstream::new(ConfigSource::Fixed(Box::new(server.config())), settings).await.unwrap();
    let lend = ForwardConfig { lend: LendIdentity::All, ..ForwardConfig::default() };
    let forward = Forward::new(lend, upstream.clone(), Arc::<Recorder>::default());
    let (address, drain, directory) = serve(Front(forward.clone()));
    Running { address, forward, upstream, server, _drain: drain, _directory: directory }
}

type Sent = UnsyncBoxBody<Bytes, std::convert::Infallible>;

impl Running {
    async fn client(&self) -> http2::SendRequest<Sent> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        spawn("client", connection);
        sender
    }

    /// What another client gets.
    async fn other(&self, method: Method) -> StatusCode {
        let body = if method == Method::GET {
            Empty::new().boxed_unsync()
        } else {
            Full::new(Bytes::from_static(b"{}")).boxed_unsync()
        };
        let request = Request::builder().method(method).uri("http://localhost/quick").body(body).unwrap();
        let mut client = self.client().await;
        let answered = async {
            let response = client.send_request(request).await.unwrap();
            let status = response.status();
            response.into_body().collect().await.unwrap();
            status
        };
        tokio::time::timeout(Duration::from_secs(60), answered).await.expect("an answer, whoever reads nothing")
    }
}

/// A client over HTTP/2 that answers pings and takes one byte of each answer. Counts the streams that are reset.
async fn idle2(address: SocketAddr, requests: u32, method: &str, path: &str, resets: Arc<AtomicUsize>) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    // SETTINGS_INITIAL_WINDOW_SIZE
    bytes.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0, 1]));
    for number in 0..requests {
        let fields = [(":method", method), (":scheme", "http"), (":authority", "localhost"), (":path", path)];
        bytes.extend(head(1 + 2 * number, END_STREAM, &fields));
    }
    stream.write_all(&bytes).await.unwrap();
    spawn("idle", async move {
        loop {
            let mut head = [0; 9];
            if stream.read_exact(&mut head).await.is_err() {
                return;
            }
            let [a, b, c, kind, flags, ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            stream.read_exact(&mut payload).await.unwrap();
            match kind {
                RST_STREAM => _ = resets.fetch_add(1, Ordering::SeqCst),
                4 | 6 if flags & 1 == 0 => {
                    let payload = if kind == 6 { &payload[..] } else { &[] };
                    stream.write_all(&frame(kind, 1, 0, payload)).await.unwrap();
                }
                _ => {}
            }
        }
    });
}

/// Small answers are read from the apiserver at once, and wait in the library. Large ones keep their place.
async fn speaks(large: usize) -> FakeServer {
    let (open, large) = (parking_lot::Mutex::new(Vec::new()), Bytes::from(vec![b'x'; large]));
    FakeServer::tls(&["h2"], 100, move |request, _| {
        let response = match request.uri().path() {
            "/quick" => answer(200, "{}"),
            path if path.ends_with("/small") => answer(200, vec![b'x'; 500]),
            path if path.ends_with("/large") => answer(200, large.clone()),
            // A watch.
            _ => {
                let (sender, response) = streamed();
                sender.try_send(Bytes::from(vec![b'x'; 500])).unwrap();
                open.lock().push(sender);
                response
            }
        };
        std::future::ready(response)
    })
    .await
}

#[tokio::test]
async fn who_reads_nothing_over_http2_takes_nothing_from_others() {
    let watch = "/api/v1/namespaces/a/pods?watch=1";
    let logs = "/api/v1/namespaces/a/pods/p/log?follow=1";
    let each = [("GET", "/large"), ("POST", "/large"), ("GET", "/small"), ("GET", watch), ("GET", logs)];
    join_all(each.map(|(method, path)| async move {
        let running = start(speaks(3 << 20).await).await;
        let resets = Arc::new(AtomicUsize::new(0));
        for _ in 0..2 {
            idle2(running.address, 40, method, path, Arc::clone(&resets)).await;
        }
        until(|| running.server.requests().len() >= 14).await;
        for method in [Method::POST, Method::GET] {
            assert_eq!(running.other(method).await, StatusCode::OK, "{path}");
        }
        // Whoever gets no place makes room. Who has one and takes nothing loses it, and the stream is gone.
        running.forward.hurry();
        if path == "/small" {
            tokio::time::sleep(Duration::from_millis(2100)).await;
            running.forward.hurry();
        }
        until(|| resets.load(Ordering::SeqCst) >= 14).await;
        assert!(running.forward.metrics().given_up.get() >= 14);
    }))
    .await;
}

/// More than the sockets take.
const LARGE: usize = 10 << 20;

#[tokio::test]
async fn who_reads_nothing_over_http1_loses_the_connection() {
    let running = start(speaks(LARGE).await).await;
    let mut idle = Vec::new();
    for _ in 0..32 {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        stream.write_all(b"GET /large HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
        idle.push(stream);
    }
    until(|| running.server.requests().len() >= 14).await;
    assert_eq!(running.other(Method::POST).await, StatusCode::OK);
    let whole = async {
        let mut cut = 0;
        for mut stream in idle {
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.ok();
            cut += usize::from(!answer.ends_with(b"0\r\n\r\n") && answer.len() < LARGE);
        }
        cut
    };
    until(|| running.forward.metrics().given_up.get() > 0).await;
    let cut = tokio::time::timeout(Duration::from_secs(120), whole).await.expect("each ends");
    assert!(cut > 0, "their answers are cut");
    until(|| running.upstream.metrics().in_flight.get() == 0).await;
}

/// Answers with lists from a cache.
struct Cached {
    lists: parking_lot::Mutex<Vec<ListAnswer>>,
    bodies: Arc<Bodies>,
}

impl Handler for Cached {
    fn handle(&self, request: Request<RequestBody>, connection: &Arc<Connection>) -> BoxFuture<Response<Body>> {
        let (head, _) = request.into_parts();
        let wanted = WantedFormat::of(&head.headers, &head.uri, ReadKind::List).unwrap();
        let taken = BodyOptions::of(&head, wanted, connection);
        let (bodies, list) = (Arc::clone(&self.bodies), self.lists.lock().pop().unwrap());
        Box::pin(async move { bodies.list(list, &taken).await.unwrap().response })
    }
}

/// The library has the only frame of the first, and waits with the second.
#[tokio::test]
async fn what_is_read_from_a_cache_and_not_taken_is_cut_over_http2() {
    join_all([20, 1000].map(|length| async move {
        let world = World::new(objects(length, 1000)).await;
        let (stall_guards, metrics) = (StallGuards::default(), Arc::default());
        let bodies = Arc::new(Bodies::new(0, &Ledger::default(), stall_guards.clone(), &metrics));
        let lists = parking_lot::Mutex::new((0..10).map(|_| world.list()).collect());
        let (address, _drain, _directory) = serve(Cached { lists, bodies });
        let resets = Arc::new(AtomicUsize::new(0));
        idle2(address, 10, "GET", "/", Arc::clone(&resets)).await;
        until(|| stall_guards.held() == 10).await;
        until(|| {
            stall_guards.hurry();
            resets.load(Ordering::SeqCst) == 10
        })
        .await;
        assert_eq!(stall_guards.held(), 0, "nothing is left of them");
    }))
    .await;
}

/// The library gives a connection one window for all uploads.
#[tokio::test]
async fn uploads_that_nobody_reads_leave_room_for_others_of_their_connection() {
    let server = FakeServer::tls(&["h2"], 100, |request: Request<Incoming>, _| async move {
        if request.uri().path() == "/stuck" {
            std::future::pending::<()>().await;
        }
        let length = request.into_body().collect().await.unwrap().to_bytes().len();
        answer(200, length.to_string())
    })
    .await;
    let running = start(server).await;
    let client = running.client().await;
    let sent = Arc::new(AtomicUsize::new(0));
    let mut stuck = Vec::new();
    for _ in 0..8 {
        let sent = Arc::clone(&sent);
        let endless = futures_util::stream::repeat_with(move || {
            sent.fetch_add(1, Ordering::SeqCst);
            Ok(Frame::data(Bytes::from(vec![b'x'; 16 << 10])))
        });
        let request = Request::post("http://localhost/stuck").body(StreamBody::new(endless).boxed_unsync()).unwrap();
        let mut client = client.clone();
        stuck.push(spawn("stuck", async move { client.send_request(request).await.map(drop) }));
    }
    let mut before = 0;
    while before == 0 || sent.load(Ordering::SeqCst) != before {
        before = sent.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let body = Full::new(Bytes::from(vec![b'x'; 300_000])).boxed_unsync();
    let request = Request::post("http://localhost/read").body(body).unwrap();
    let mut client = client.clone();
    let answered = tokio::time::timeout(Duration::from_secs(60), client.send_request(request)).await;
    let response = answered.expect("the upload is read beside those that are stuck").unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "300000");
    stuck.into_iter().for_each(|stuck| stuck.abort());
}
