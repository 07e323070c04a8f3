//! These tests use a scripted apiserver on a real socket.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use http_body_util::{Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;

use super::*;
use crate::apiserver::testing::FakeServer;
use crate::http::testing::{head, until};
use crate::lifecycle::spawn;
use crate::memory::Pressure;
use crate::passthrough::testing::Recorder;

pub(super) type Script = Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<ForwardBody>> + Send + Sync>;

/// An apiserver that lives as long as the tests.
pub(super) async fn serve(script: Script) -> SocketAddr {
    Box::leak(Box::new(FakeServer::plain(move |request, _| script(request)).await)).address
}

pub(super) async fn forward_to(address: SocketAddr, config: ForwardConfig) -> (Forward, Arc<Recorder>) {
    forward_of(kube::Config::new(format!("http://{address}").parse().unwrap()), config).await
}

pub(super) async fn forward_of(to: kube::Config, config: ForwardConfig) -> (Forward, Arc<Recorder>) {
    let (upstream, recorder) = (Upstream::from_config(to).await.unwrap(), Arc::new(Recorder::default()));
    (Forward::new(config, upstream, Arc::clone(&recorder) as _), recorder)
}

pub(super) const LOCAL: Sender =
    Sender { address: None, known: true, accepted: true, sessions: true, client: Client::Connection(0) };

pub(super) fn lend_all() -> ForwardConfig {
    ForwardConfig { lend: LendIdentity::All, ..ForwardConfig::default() }
}

pub(super) async fn ask<B>(forward: &Forward, request: Request<B>) -> Result<Response<ForwardBody>, ForwardError>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let uri = request.uri().clone();
    let info = RequestInfo::parse(request.method().as_str(), uri.path(), uri.query().unwrap_or_default());
    forward.forward(request, &info, LOCAL).await.map(|answer| answer.response)
}

pub(super) fn get(target: &str) -> Request<Empty<Bytes>> {
    Request::get(target).body(Empty::new()).unwrap()
}

pub(super) async fn text(response: Response<ForwardBody>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// What a client reads from a target, in a task of its own.
fn reader(forward: &Forward, target: &'static str) -> JoinHandle<String> {
    let forward = forward.clone();
    spawn("reader", async move { text(ask(&forward, get(target)).await.unwrap()).await })
}

fn full(bytes: impl Into<Bytes>) -> ForwardBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn json(body: impl Into<Bytes>) -> Response<ForwardBody> {
    Response::builder().header("content-type", "application/json").body(full(body)).unwrap()
}

#[tokio::test]
async fn bodies_stream_both_ways() {
    let echo: Script = Arc::new(|request| {
        Box::pin(async move { Response::new(ForwardBody::new(request.into_body().map_err(Into::into))) })
    });
    let (forward, _) = forward_to(serve(echo).await, lend_all()).await;
    let (sender, receiver) = mpsc::channel::<Bytes>(1);
    let body = StreamBody::new(ReceiverStream::new(receiver).map(|part| Ok::<_, Infallible>(Frame::data(part))));
    sender.send(Bytes::from_static(b"one")).await.unwrap();
    let request = Request::post("/api/v1/namespaces/a/pods/p/exec").body(body).unwrap();
    let mut echoed = ask(&forward, request).await.unwrap().into_body();
    // Each part arrives before the next is sent.
    for (part, next) in [("one", Some("two")), ("two", Some("three")), ("three", None)] {
        assert_eq!(echoed.frame().await.unwrap().unwrap().into_data().unwrap(), part);
        if let Some(next) = next {
            sender.send(Bytes::from_static(next.as_bytes())).await.unwrap();
        }
    }
    drop(sender);
    assert!(echoed.frame().await.is_none());
}

#[tokio::test]
async fn a_request_that_may_not_go_does_not_and_what_goes_is_observed() {
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    let script: Script = Arc::new(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { json(r#"{"metadata":{"resourceVersion":"5"}}"#) })
    });
    let (forward, recorder) = forward_to(serve(script).await, ForwardConfig::default()).await;
    assert_eq!(ask(&forward, get("/api/v1/pods")).await.unwrap_err(), ForwardError::NoCredentials);
    let connect = Request::connect("example.org:443").body(Empty::<Bytes>::new()).unwrap();
    assert!(matches!(ask(&forward, connect).await, Err(ForwardError::BadRequest(_))));
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    for method in ["GET", "POST", "DELETE"] {
        let own = Request::builder().method(method).uri("/api/v1/pods").header("authorization", "Bearer x");
        let answer = ask(&forward, own.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), 200, "{method}");
        text(answer).await;
    }
    assert_eq!(*recorder.0.lock(), ["showed pods 5", "wrote pods 5", "wrote pods ?"]);
    assert_eq!(asked.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn an_apiserver_that_is_not_there() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (forward, recorder) = forward_to(address, lend_all()).await;
    let error = ask(&forward, get("/api/v1/pods")).await.unwrap_err();
    assert!(matches!(error, ForwardError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    let write = Request::delete("/api/v1/nodes/n").body(Empty::<Bytes>::new()).unwrap();
    assert!(ask(&forward, write).await.is_err());
    assert!(recorder.0.lock().is_empty(), "nothing was sent, so nothing was written");
}

/// Counts reads. Each read waits for a permit and returns its number.
async fn gated(limit: usize, pad: usize) -> (Forward, Arc<Recorder>, Arc<AtomicU64>, Arc<Semaphore>) {
    let (reads, gate) = (Arc::new(AtomicU64::new(0)), Arc::new(Semaphore::new(0)));
    let (count, wait) = (Arc::clone(&reads), Arc::clone(&gate));
    let script: Script = Arc::new(move |_| {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        let wait = Arc::clone(&wait);
        Box::pin(async move {
            wait.acquire().await.unwrap().forget();
            json(format!(r#"{{"metadata":{{"resourceVersion":"{number}"}}{}}}"#, " ".repeat(pad)))
        })
    });
    let config = ForwardConfig { share_limit: limit, ..lend_all() };
    let (forward, recorder) = forward_to(serve(script).await, config).await;
    (forward, recorder, reads, gate)
}

#[tokio::test]
async fn equal_reads_share_one_that_started_after_them() {
    let (forward, recorder, reads, gate) = gated(1 << 20, 0).await;
    let reader = |target| reader(&forward, target);
    let first = reader("/api/v1/pods?limit=500");
    until(|| reads.load(Ordering::SeqCst) == 1).await;
    let late = || {
        let forward = forward.clone();
        spawn("late", async move { ask(&forward, get("/api/v1/pods?limit=500")).await.unwrap() })
    };
    let late = [late(), late(), late(), late(), late()];
    let other = reader("/api/v1/pods?limit=501");
    until(|| reads.load(Ordering::SeqCst) == 2).await;
    gate.add_permits(3);
    assert!(first.await.unwrap().contains(r#""1""#));
    assert!(other.await.unwrap().contains(r#""2""#), "another target waits for nobody");
    let mut shared = 0;
    for task in late {
        let response = task.await.unwrap();
        shared += u32::from(response.extensions().get::<crate::passthrough::Shared>().is_some());
        assert!(text(response).await.contains(r#""3""#), "all late ones have the second read of theirs");
    }
    assert_eq!(reads.load(Ordering::SeqCst), 3);
    assert_eq!((forward.metrics().shared_followers.get(), shared), (4, 4), "one of them has cost something");
    assert_eq!(*recorder.0.lock(), ["showed pods 1", "showed pods 2", "showed pods 3"]);
}

#[tokio::test]
async fn a_body_too_large_to_share_is_read_by_each() {
    let (forward, _, reads, gate) = gated(1000, 5000).await;
    let reader = || reader(&forward, "/api/v1/pods");
    let first = reader();
    until(|| reads.load(Ordering::SeqCst) == 1).await;
    let late = [reader(), reader(), reader()];
    tokio::time::sleep(Duration::from_millis(50)).await;
    gate.add_permits(100);
    assert_eq!(first.await.unwrap().len(), 5000 + r#"{"metadata":{"resourceVersion":"1"}}"#.len());
    let mut bodies = Vec::new();
    for task in late {
        bodies.push(task.await.unwrap().trim_end_matches(['}', ' ']).to_owned());
    }
    bodies.sort();
    bodies.dedup();
    assert_eq!((bodies.len(), reads.load(Ordering::SeqCst)), (3, 4), "{bodies:?}");
    assert_eq!(forward.metrics().shared_too_large.get(), 1);
}

#[tokio::test]
async fn without_memory_to_spare_each_reads_for_itself_and_without_any_is_refused() {
    let reads = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&reads);
    let script: Script = Arc::new(move |_| {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        Box::pin(async move { json(format!("{number}{}", " ".repeat(5000))) })
    });
    let ledger = Ledger::new(10_000, Pressure::default());
    let config = ForwardConfig { ledger: ledger.clone(), window: Some(1000), ..lend_all() };
    let (forward, _) = forward_to(serve(script).await, config).await;
    // There is memory for five reads, and a client gets that of three. Less than half of it may be used for a shared body.
    let read = async || {
        let (mut body, mut length) = (ask(&forward, get("/api/v1/pods")).await.unwrap().into_body(), 0);
        // Each part is dropped before the next is read, as for data that a connection has sent.
        while let Some(part) = body.frame().await {
            length += part.unwrap().into_data().unwrap().len();
        }
        length
    };
    assert_eq!(tokio::join!(read(), read(), read()), (5001, 5001, 5001));
    assert_eq!(reads.load(Ordering::SeqCst), 3);
    assert_eq!(forward.metrics().shared_too_large.get(), 1);
    let held = ledger.reserve(8001).unwrap();
    let refused = ask(&forward, get("/api/v1/nodes")).await.err().unwrap();
    assert!(matches!(refused, ForwardError::Memory { .. }), "{refused}");
    assert_eq!((reads.load(Ordering::SeqCst), ledger.refused()), (3, 1), "nothing was asked for");
    drop(held);
    let answer = ask(&forward, Request::post("/api/v1/nodes").body(Empty::new()).unwrap()).await.unwrap();
    assert!(ledger.used() > 0, "until it is read");
    drop(answer);
    assert_eq!(ledger.used(), 0, "nothing is left of it");
}

#[tokio::test]
async fn a_shared_failure_is_everybodys() {
    let (forward, _, reads, gate) = gated(1 << 20, 0).await;
    let own = |token: &'static str| {
        let forward = forward.clone();
        let request = Request::get("/api/v1/pods").header("authorization", token).body(Empty::<Bytes>::new()).unwrap();
        spawn("reader", async move { ask(&forward, request).await.map(drop) })
    };
    let tasks = [own("Bearer a"), own("Bearer b")];
    until(|| reads.load(Ordering::SeqCst) == 2).await;
    gate.close();
    for task in tasks {
        // Two users never share a read, and the script panics without an answer.
        assert!(matches!(task.await.unwrap(), Err(ForwardError::Broken { .. })));
    }
}

#[tokio::test]
async fn discovery_is_confirmed_with_every_request() {
    let (version, asked) = (Arc::new(AtomicU64::new(1)), Arc::new(Mutex::new(Vec::new())));
    let (current, record) = (Arc::clone(&version), Arc::clone(&asked));
    let script: Script = Arc::new(move |request| {
        let tag = format!("\"v{}\"", current.load(Ordering::SeqCst));
        let presented = request.headers().get(IF_NONE_MATCH).map(|tag| tag.to_str().unwrap().to_owned());
        record.lock().push(presented.clone());
        let mut response = json(format!("document {tag}"));
        if presented.as_deref() == Some(&tag) {
            response = Response::builder().status(304).header("audit-id", "fresh").body(empty()).unwrap();
        }
        response.headers_mut().insert("etag", tag.parse().unwrap());
        Box::pin(async move { response })
    });
    let (forward, _) = forward_to(serve(script).await, lend_all()).await;
    assert_eq!(text(ask(&forward, get("/apis")).await.unwrap()).await, "document \"v1\"");
    let again = ask(&forward, get("/apis")).await.unwrap();
    assert_eq!((again.status(), again.headers()["audit-id"].to_str().unwrap()), (StatusCode::OK, "fresh"));
    assert_eq!(text(again).await, "document \"v1\"");

    let with_tag = |tag: &str| Request::get("/apis").header(IF_NONE_MATCH, tag).body(Empty::<Bytes>::new()).unwrap();
    let unchanged = ask(&forward, with_tag("\"v1\"")).await.unwrap();
    assert_eq!(unchanged.status(), StatusCode::NOT_MODIFIED);
    assert_eq!(unchanged.headers()["etag"], "\"v1\"");
    assert_eq!(text(unchanged).await, "");

    version.store(2, Ordering::SeqCst);
    assert_eq!(text(ask(&forward, with_tag("\"v1\"")).await.unwrap()).await, "document \"v2\"");
    let known = [None, Some("\"v1\""), Some("\"v1\""), Some("\"v1\"")].map(|tag| tag.map(str::to_owned));
    assert_eq!(*asked.lock(), known);
    assert_eq!(forward.metrics().documents_confirmed.get(), 2);
}

#[tokio::test]
async fn a_document_that_is_too_large_is_passed_on_and_not_kept() {
    let script: Script = Arc::new(|request| {
        let (_, length) = request.uri().path().rsplit_once('/').unwrap();
        let grown = usize::from(request.headers().contains_key(IF_NONE_MATCH));
        let mut response = json(vec![b' '; length.parse::<usize>().unwrap() + grown]);
        response.headers_mut().insert("etag", HeaderValue::from_static("\"1\""));
        Box::pin(async move { response })
    });
    let (forward, _) = forward_to(serve(script).await, lend_all()).await;
    for (length, grown, kept) in [(MAX_DOCUMENT, 0, 1), (MAX_DOCUMENT + 1, 0, 1), (MAX_DOCUMENT, 1, 0)] {
        let answer = ask(&forward, get(&format!("/openapi/v3/{length}"))).await.unwrap();
        assert_eq!(text(answer).await.len(), length + grown);
        forward.inner.documents.run_pending_tasks().await;
        assert_eq!(forward.inner.documents.entry_count(), kept, "{length}");
    }
}

/// As does every other answer.
#[tokio::test]
async fn a_document_that_is_not_read_counts() {
    const SIZE: usize = 100 << 10;
    const WINDOW: usize = 1 << 10;
    let script: Script = Arc::new(|request| {
        let mut response = json(vec![b' '; SIZE]);
        if request.headers().contains_key(IF_NONE_MATCH) {
            response = Response::builder().status(304).body(empty()).unwrap();
        }
        response.headers_mut().insert("etag", HeaderValue::from_static("\"1\""));
        Box::pin(async move { response })
    });
    let ledger = Ledger::new(1 << 20, Pressure::default());
    let config = ForwardConfig { ledger: ledger.clone(), window: Some(WINDOW), ..lend_all() };
    let (forward, _) = forward_to(serve(script).await, config).await;
    // Half of the memory has room for five documents. Others are passed on, and so is what a client makes up.
    let cases = [("/openapi/v2?x=", 0, 0_usize), ("/openapi/v3/", 0, 5), ("/openapi/v3/1?timeout=", 5, 5)];
    for (targets, before, most) in cases {
        let mut unread = Vec::new();
        for n in 1..=10 {
            unread.push(ask(&forward, get(&format!("{targets}{n}"))).await.unwrap());
            let documents = most.min(before + n);
            assert_eq!(ledger.used(), documents * SIZE + n * 2 * WINDOW, "{targets}{n}");
        }
        drop(unread);
        assert_eq!(ledger.used(), most * SIZE, "{targets}: those that are kept");
    }
}

/// Its client may leave one byte of it.
#[tokio::test]
async fn what_is_left_of_a_document_counts_as_all_of_it() {
    const SIZE: usize = 100 << 10;
    let ledger = Ledger::new(1 << 20, Pressure::default());
    let Ok(Buffered::Whole(whole)) = collect(json(vec![b' '; SIZE]), SIZE, &ledger).await else { panic!("no memory") };
    let mut body = Document::new(None, whole).whole.body();
    let last = body.frame().await.unwrap().unwrap().into_data().unwrap().slice(SIZE - 1..);
    drop(body);
    assert_eq!(ledger.used(), SIZE);
    drop(last);
    assert_eq!(ledger.used(), 0);
}

/// A front server that forwards everything, upgrades included.
async fn front(forward: Forward) -> SocketAddr {
    serve(Arc::new(move |request: Request<Incoming>| {
        let forward = forward.clone();
        Box::pin(async move {
            let uri = request.uri().clone();
            let info = RequestInfo::parse(request.method().as_str(), uri.path(), uri.query().unwrap_or_default());
            let answer = forward.forward(request, &info, LOCAL).await.unwrap();
            if let Some(tunnel) = answer.tunnel {
                spawn("tunnel", tunnel.run());
            }
            answer.response
        })
    }))
    .await
}

#[tokio::test]
async fn an_upgrade_becomes_a_pipe_with_half_close() {
    let script: Script = Arc::new(|mut request| {
        assert_eq!(request.headers()["upgrade"], "SPDY/3.1");
        let upgrade = hyper::upgrade::on(&mut request);
        spawn("session", async move {
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            let mut said = String::new();
            // The client has sent everything and still reads.
            stream.read_to_string(&mut said).await.unwrap();
            stream.write_all(format!("you said {said}").as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        });
        let response = Response::builder()
            .status(101)
            .header("connection", "Upgrade")
            .header("upgrade", "SPDY/3.1")
            .header("x-stream-protocol-version", "v4.channel.k8s.io");
        Box::pin(async move { response.body(empty()).unwrap() })
    });
    let (forward, _) = forward_to(serve(script).await, lend_all()).await;
    let mut client = TcpStream::connect(front(forward).await).await.unwrap();
    client
        .write_all(b"POST /api/v1/namespaces/a/pods/p/exec HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\ncontent-length: 0\r\n\r\n")
        .await
        .unwrap();
    let head = head(&mut client).await.to_lowercase();
    assert!(head.starts_with("http/1.1 101") && head.contains("x-stream-protocol-version: v4"), "{head}");
    client.write_all(b"hello").await.unwrap();
    client.shutdown().await.unwrap();
    let mut rest = String::new();
    client.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "you said hello");
}

#[tokio::test]
async fn a_refused_upgrade_is_answered_whole() {
    let body = "no".repeat(200_000);
    let (refusal, asks) = (body.clone(), ["Upgrade", "SPDY/3.1"]);
    let script: Script = Arc::new(move |request| {
        let asked = [CONNECTION, UPGRADE].map(|name| request.headers()[name].to_str().unwrap().to_owned());
        let response = Response::builder().status(403).header("connection", "close, x-hop").header("x-hop", "1");
        let response = response.header("x-kept", "1").body(full(refusal.clone())).unwrap();
        Box::pin(async move { if asked == asks { response } else { json("{}") } })
    });
    let (forward, _) = forward_to(serve(script).await, lend_all()).await;
    let request = Request::post("/api/v1/namespaces/a/pods/p/exec").header("connection", "Upgrade");
    let request = request.header("upgrade", "SPDY/3.1").body(Empty::<Bytes>::new()).unwrap();
    let response = ask(&forward, request).await.unwrap();
    assert_eq!(response.status(), 403);
    let has = |name: &str| response.headers().contains_key(name);
    assert!(has("x-kept") && !has("x-hop") && !has("connection"), "{:?}", response.headers());
    assert_eq!(text(response).await, body);
}

#[tokio::test]
async fn a_request_has_a_place_and_a_time_for_its_answer() {
    let script: Script = Arc::new(|_| Box::pin(std::future::pending()));
    let ledger = Ledger::new(8000, Pressure::default());
    let read_timeout = Duration::from_millis(300);
    let config = ForwardConfig { read_timeout, ledger: ledger.clone(), window: Some(1000), ..lend_all() };
    let (forward, _) = forward_to(serve(script).await, config).await;
    let exec = || {
        let request = Request::post("/api/v1/namespaces/a/pods/p/exec").header("connection", "Upgrade");
        request.header("upgrade", "SPDY/3.1").body(Empty::<Bytes>::new()).unwrap()
    };
    let asked: [fn() -> Request<Empty<Bytes>>; 2] = [exec, || get("/api/v1/pods")];
    for request in asked.map(|asked| asked()) {
        let target = request.uri().clone();
        let (error, ()) = tokio::join!(ask(&forward, request), until(|| ledger.used() > 0));
        assert!(matches!(error, Err(ForwardError::Timeout { .. })), "{target}: {error:?}");
        assert_eq!(ledger.used(), 0, "{target}: nothing is left of it");
    }
    let _held = ledger.reserve(8000).unwrap();
    assert!(matches!(ask(&forward, exec()).await, Err(ForwardError::Memory { .. })));
}
