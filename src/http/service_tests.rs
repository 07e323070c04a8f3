//! Tests of the whole HTTP side, between a client's socket and the socket of a scripted apiserver.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::client::conn::http1;
use hyper::service::service_fn;
use hyper_util::{rt::TokioExecutor, rt::TokioIo, server::conn::auto};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::cache::{WatchCache, Writer};
use crate::http::testing::{FIRST, add, added_text, bookmark, fill, inflate, item, list_text, objects, parse};
use crate::http::{config::HttpConfig, config::ListenAddr, server::Server};
use crate::informer::Factory;
use crate::lifecycle::drain::{self, Drain, DrainEnd};
use crate::meta::{Gvr, Object, Origin, Resource, ResourceVersion};
use crate::passthrough::{ForwardConfig, LendIdentity, RevisionObserver};
use crate::reads::{ConsistentReads, NotSynced, ProtobufReads, ReadsConfig};
use crate::upstream::client::Upstream;
use crate::upstream::discovery::{ApiResource, Discovery};

/// Objects in the list of all config maps.
const OBJECTS: usize = 3000;
/// A watch that begins after the first state.
const WATCH: &str = "/api/v1/configmaps?watch=1&allowWatchBookmarks=1&resourceVersion=20000";

/// The resources that are cached, and their writers.
struct Cached {
    reads: Reads,
    configmaps: Writer,
    /// The cache behind `configmaps`.
    cache: WatchCache,
    /// Objects of 5 kB and 500 kB.
    _endpoints: Writer,
    /// Not ready.
    _pods: Writer,
}

impl Cached {
    async fn new(upstream: Upstream) -> Self {
        let resources = ["configmaps", "endpoints", "pods"].map(|name| ApiResource::core(name, "ConfigMap"));
        let discovery = Discovery::knowing(upstream.clone(), resources.to_vec());
        let factory = Factory::simple(Duration::from_secs(600), upstream.clone(), discovery);
        let [mut configmaps, mut endpoints, pods] =
            resources.map(|ApiResource { gvr, kind, namespaced, verbs, .. }| {
                let origin = Origin::BuiltIn;
                factory.put(Resource { gvr, kind: kind.into(), namespaced, verbs, origin })
            });
        fill(&mut configmaps, objects(OBJECTS, 100)).await;
        fill(&mut endpoints, [("big", 5000), ("huge", 500_000)].map(|(name, size)| named(name, size)).into()).await;
        for resource in ["configmaps", "pods"] {
            let warning = |n| (WARNING, HeaderValue::try_from(format!("299 - \"{resource} {n}\"")).unwrap());
            upstream.warnings().learn(&Gvr::new("", "v1", resource), &[1, 2].map(warning).into_iter().collect());
        }
        let mut config = ReadsConfig::simple(ConsistentReads::Cache, Duration::from_secs(3));
        config.modes.protobuf = ProtobufReads::Serve;
        config.not_synced = NotSynced { wait: Duration::ZERO, forward: false };
        let cache = factory.informers().remove(0).cache().clone();
        Self { reads: Reads::new(config, factory), configmaps, cache, _endpoints: endpoints, _pods: pods }
    }

    /// The next object of `configmaps`.
    async fn add(&mut self, number: usize, size: usize) {
        add(&mut self.configmaps, number, size).await;
    }

    fn watches(&self) -> usize {
        self.cache.stats().watchers
    }

    /// How many reads were forwarded, by reason.
    fn forwarded(&self) -> Vec<(&'static str, u64)> {
        let series = self.reads.metrics().series().into_iter();
        series.filter(|(plan, _, count)| *plan == "forward" && *count > 0).map(|(_, why, count)| (why, count)).collect()
    }
}

fn named(name: &str, size: usize) -> Arc<Object> {
    parse(&item(0, size).replace("c00000", name))
}

struct Nobody;

impl RevisionObserver for Nobody {
    fn wrote(&self, _: &RequestInfo, _: ResourceVersion) {}
    fn wrote_unknown(&self, _: &RequestInfo) {}
    fn may_have_written(&self, _: &RequestInfo) {}
    fn showed(&self, _: &RequestInfo, _: ResourceVersion) {}
    fn showed_unknown(&self, _: &RequestInfo) {}
}

struct Running {
    address: SocketAddr,
    cached: Cached,
    metrics: Arc<HttpMetrics>,
    ledger: Ledger,
    drain: Drain,
    /// The requests that the apiserver received.
    asked: Arc<Mutex<Vec<String>>>,
    _directory: tempfile::TempDir,
}

/// Has no room for requests with the header `crowded`.
struct Crowded(Service);

impl Handler for Crowded {
    fn handle(&self, mut request: Request<Incoming>, connection: &Arc<Connection>) -> BoxFuture<Response<Body>> {
        if request.headers().contains_key("crowded") {
            request.extensions_mut().insert(NoRoom);
        }
        self.0.handle(request, connection)
    }
}

async fn scripted(asked: Arc<Mutex<Vec<String>>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    spawn("scripted", async move {
        while let Ok((stream, _)) = listener.accept().await {
            let asked = Arc::clone(&asked);
            spawn("scripted-connection", async move {
                let service = service_fn(|request: Request<Incoming>| {
                    asked.lock().push(format!("{} {}", request.method(), request.uri()));
                    let response = Response::builder().header("audit-id", "theirs").header("x-upgrade", {
                        request.headers().get("upgrade").cloned().unwrap_or(HeaderValue::from_static("none"))
                    });
                    async move { response.body(Full::new(Bytes::from_static(b"forwarded"))) }
                });
                auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await.ok();
            });
        }
    });
    address
}

async fn start() -> Running {
    let asked = Arc::default();
    let upstream = scripted(Arc::clone(&asked)).await;
    start_with(upstream, asked).await
}

async fn start_with(upstream: SocketAddr, asked: Arc<Mutex<Vec<String>>>) -> Running {
    let directory = tempfile::tempdir().unwrap();
    let config = HttpConfig::new(vec!["http://127.0.0.1:0".parse().unwrap()], directory.path().into());
    let upstream = kube::Config::new(format!("http://{upstream}").parse().unwrap());
    let upstream = Upstream::from_config(upstream).await.unwrap();
    let lend = ForwardConfig { lend: LendIdentity::All, ..ForwardConfig::default() };
    let metrics = Arc::<HttpMetrics>::default();
    let (drain, watch) = drain::channel();
    let fatal = Fatal::new();
    let ledger = Ledger::default();
    let cached = Cached::new(upstream.clone()).await;
    let parts = ServiceParts {
        guard: Guard::default(),
        access: Access::trusting(),
        audit: Audit::off(),
        access_log: AccessLog::off(),
        reads: cached.reads.clone(),
        forward: Forward::new(lend, upstream, Arc::new(Nobody)),
        drain: watch.clone(),
        drain_spread: Duration::from_millis(300),
        stall_timeout: Duration::from_secs(300),
        stall_guards: StallGuards::default(),
        ledger: ledger.clone(),
        explain: true,
        lend_sessions: true,
        via: HeaderValue::from_static("ours"),
        grpc: None,
        gzip: GzipConfig::default(),
        metrics: Arc::clone(&metrics),
    };
    let server = Server::bind(config, Arc::clone(&metrics)).unwrap();
    let ListenAddr::Http(address) = server.addresses().remove(0) else { panic!("http") };
    server.serve(Arc::new(Crowded(Service::start(parts, &fatal))), &watch, &fatal);
    Running { address, cached, metrics, ledger, drain, asked, _directory: directory }
}

impl Running {
    async fn send(&self, request: http::request::Builder) -> Response<Incoming> {
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(TcpStream::connect(self.address).await.unwrap())).await.unwrap();
        spawn("client", connection);
        let mut request = request.body(Empty::<Bytes>::new()).unwrap();
        request.headers_mut().entry("host").or_insert(HeaderValue::from_static("localhost"));
        sender.send_request(request).await.unwrap()
    }

    async fn get(&self, target: &str) -> Response<Incoming> {
        self.send(Request::get(target)).await
    }
}

async fn text(response: Response<Incoming>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

fn header<'r>(response: &'r Response<Incoming>, name: &str) -> &'r str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn an_object_is_served() {
    let server = start().await;
    let request = Request::get("/api/v1/namespaces/a/configmaps/c00000").header("audit-id", "mine");
    let response = server.send(request).await;
    assert_eq!(response.status(), 200);
    for (name, value) in
        [("audit-id", "mine"), ("cache-control", "no-cache, private"), ("content-type", "application/json")]
    {
        assert_eq!(header(&response, name), value);
    }
    assert!(!header(&response, "content-length").is_empty() && !header(&response, "date").is_empty());
    let body = format!("{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",{}\n", &item(0, 100)[1..]);
    assert_eq!(text(response).await, body);
    let big = server.get("/api/v1/namespaces/a/endpoints/big").await;
    assert_eq!((header(&big, "content-length"), header(&big, "transfer-encoding")), ("", "chunked"));
    assert!(text(big).await.len() > 5000);
    assert!(server.asked.lock().is_empty());
}

#[tokio::test]
async fn what_is_refused_while_memory_is_short_is_counted() {
    let server = start().await;
    server.ledger.pressure().set(crate::memory::Level::Short);
    for target in ["/api/v1/configmaps", "/api/v1/configmaps?watch=1"] {
        let response = server.get(target).await;
        assert_eq!((response.status().as_u16(), header(&response, "retry-after")), (429, "1"));
    }
    assert_eq!(server.get("/api/v1/namespaces/a/configmaps/c00000").await.status(), 200);
    assert_eq!(server.ledger.refused(), 2);
}

#[tokio::test]
async fn lists_are_served() {
    let server = start().await;
    let small = server.get("/api/v1/namespaces/a/configmaps").await;
    assert!(!header(&small, "content-length").is_empty());
    assert_eq!(header(&small, "audit-id").len(), 36, "a new one");
    assert!(text(small).await == list_text(2, 100));
    let large = server.get("/api/v1/configmaps").await;
    assert_eq!(header(&large, "transfer-encoding"), "chunked");
    let large = text(large).await;
    assert!(large == list_text(OBJECTS, 100));
    assert_eq!(server.metrics.list_objects.get(), OBJECTS as u64 + 2);
    assert_eq!(server.metrics.list_bytes.get(), (large.len() + list_text(2, 100).len()) as u64);
}

#[tokio::test]
async fn large_answers_are_compressed_for_those_who_take_it() {
    let server = start().await;
    let ask = |target: &'static str, accepted: &'static str| {
        let request = Request::get(target).header("accept-encoding", accepted);
        server.send(request)
    };
    for (target, accepted, compressed) in [
        ("/api/v1/configmaps", "gzip", true),
        ("/api/v1/configmaps", "br, gzip", true),
        ("/api/v1/configmaps", "gzip;q=1.0", false),
        ("/api/v1/configmaps", "identity", false),
        ("/api/v1/namespaces/a/configmaps", "gzip", false),
        ("/api/v1/namespaces/a/endpoints/huge", "gzip", true),
        ("/api/v1/namespaces/a/endpoints/big", "gzip", false),
    ] {
        let (objects, bytes) = (server.metrics.list_objects.get(), server.metrics.list_bytes.get());
        let response = ask(target, accepted).await;
        let (encoding, vary) = if compressed { ("gzip", "Accept-Encoding") } else { ("", "") };
        assert_eq!((header(&response, "content-encoding"), header(&response, "vary")), (encoding, vary), "{target}");
        let sent = response.into_body().collect().await.unwrap().to_bytes();
        let body = if compressed { inflate(&sent) } else { sent.to_vec() };
        let plain = server.get(target).await;
        assert_eq!(header(&plain, "content-encoding"), "");
        assert!(body == plain.into_body().collect().await.unwrap().to_bytes(), "{target}");
        if target == "/api/v1/configmaps" {
            assert_eq!(server.metrics.list_objects.get() - objects, 2 * OBJECTS as u64);
            assert_eq!(server.metrics.list_bytes.get() - bytes, (sent.len() + body.len()) as u64);
        }
    }
    // A body that compresses to very few bytes is sent with its length.
    let response = ask("/api/v1/namespaces/a/endpoints/huge", "gzip").await;
    assert!(!header(&response, "content-length").is_empty());
    // One answer was compressed for the list and one for the object.
    assert_eq!((server.metrics.gzip_responses.get(), server.metrics.gzip_compressions.get()), (4, 2));
    assert_eq!(header(&ask("/api/v1/configmaps?watch=1", "gzip").await, "content-encoding"), "");
}

#[tokio::test]
async fn a_watch_answers_before_its_first_event_and_ends_with_its_client() {
    let mut server = start().await;
    let response = server.get(WATCH).await;
    assert_eq!((response.status().as_u16(), header(&response, "transfer-encoding")), (200, "chunked"));
    assert_eq!(header(&response, "content-type"), "application/json");
    let mut body = response.into_body();
    for number in FIRST..FIRST + 3 {
        server.cached.add(number, 7).await;
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(frame, added_text(number, 7));
    }
    drop(body);
    while server.cached.watches() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    while server.metrics.watches_open.get() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn refusals_are_statuses() {
    let server = start().await;
    let response = server.get("/api/v1/namespaces/a/configmaps/nope").await;
    assert_eq!((response.status().as_u16(), header(&response, "content-type")), (404, "application/json"));
    assert_eq!(
        text(response).await,
        "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"configmaps \\\"nope\\\" not found\",\"reason\":\"NotFound\",\"details\":{\"name\":\"nope\",\"kind\":\"configmaps\"},\"code\":404}\n"
    );
    let response = server.get("/api/v1/pods").await;
    assert_eq!((response.status().as_u16(), header(&response, "retry-after")), (429, "1"));
    let response = server.send(Request::get("/api/v1/configmaps").header("crowded", "1").header("audit-id", "mine"));
    let response = response.await;
    let headers = (header(&response, "audit-id"), header(&response, "retry-after"));
    assert_eq!((response.status().as_u16(), headers), (429, ("mine", "1")));
    assert!(text(response).await.contains(r#""reason":"TooManyRequests""#));
    assert_eq!(server.metrics.requests_refused.get(), 3);
}

#[tokio::test]
async fn warnings_stand_on_every_answer_of_ours() {
    let server = start().await;
    for (target, resource) in [
        ("/api/v1/namespaces/a/configmaps/c00000", "configmaps"),
        ("/api/v1/namespaces/a/configmaps/nope", "configmaps"),
        ("/api/v1/namespaces/a/configmaps", "configmaps"),
        ("/api/v1/configmaps?watch=1", "configmaps"),
        ("/api/v1/pods", "pods"),
    ] {
        let response = server.get(target).await;
        let warnings: Vec<_> = response.headers().get_all("warning").iter().collect();
        assert_eq!(warnings, [1, 2].map(|n| format!("299 - \"{resource} {n}\"")).each_ref(), "{target}");
    }
    // A forwarded answer has the warnings of the apiserver.
    assert_eq!(header(&server.get("/api/v1/configmaps?limit=x").await, "warning"), "");
}

#[tokio::test]
async fn everything_else_is_forwarded() {
    let server = start().await;
    for (method, target) in [
        ("GET", "/version"),
        ("GET", "/api/v1/secrets?limit=500"),
        ("HEAD", "/api/v1/configmaps"),
        ("POST", "/api/v1/namespaces/a/configmaps"),
        ("GET", "/api/v1/configmaps?limit=x"),
        ("GET", "/api/v1/namespaces/a/pods/p/log?follow=1"),
        ("OPTIONS", "/"),
        ("GET", "/api/v1//configmaps"),
    ] {
        let response = server.send(Request::builder().method(method).uri(target)).await;
        assert_eq!((response.status().as_u16(), header(&response, "audit-id")), (200, "theirs"), "{target}");
        let body = text(response).await;
        assert_eq!(body, if method == "HEAD" { "" } else { "forwarded" });
        assert_eq!(server.asked.lock().pop().unwrap(), format!("{method} {target}"));
    }
    let table = Request::get("/api/v1/configmaps").header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    assert_eq!(text(server.send(table).await).await, "forwarded");
    let reasons = [("invalid", 1), ("excluded", 1), ("seldom", 1)];
    assert_eq!(server.cached.forwarded(), reasons, "reads are counted, and nothing else is");
    let websocket =
        Request::get("/api/v1/configmaps?watch=1").header("connection", "upgrade").header("upgrade", "websocket");
    assert_eq!(header(&server.send(websocket).await, "x-upgrade"), "websocket", "never a plain watch");
    assert_eq!(server.cached.watches(), 0);
    assert_eq!(server.metrics.requests_forwarded.get(), 10);
}

/// Clients of a proxy send absolute targets. Go's server accepts them too.
#[tokio::test]
async fn targets_may_be_absolute() {
    let server = start().await;
    for (target, host, want) in [
        ("http://localhost/api/v1/namespaces/a/configmaps", "localhost", "200 OK"),
        ("http://127.0.0.1:1/api/v1/namespaces/a/configmaps", "elsewhere.example", "200 OK"),
        ("http://localhost/version?x=1", "localhost", "200 OK"),
        ("http://localhost", "localhost", "200 OK"),
        ("http://elsewhere.example/version", "localhost", "403 Forbidden"),
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {want}\r\n")), "{target}: {answer}");
    }
    assert_eq!(*server.asked.lock(), ["GET /version?x=1", "GET /"]);
    assert_eq!(server.metrics.requests_served.get(), 2);
}

#[tokio::test]
async fn an_upgraded_connection_keeps_its_place() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = listener.local_addr().unwrap();
    let server = start_with(upstream, Arc::default()).await;
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client
        .write_all(b"GET /api/v1/namespaces/a/pods/p/exec HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n")
        .await
        .unwrap();
    let (mut far, _) = listener.accept().await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(far.read_u8().await.unwrap());
    }
    far.write_all(b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\nhello")
        .await
        .unwrap();
    let mut answer = String::new();
    while !answer.ends_with("hello") {
        answer.push(client.read_u8().await.unwrap().into());
    }
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    assert_eq!((server.metrics.upgrades_open.get(), server.metrics.connections_open.get()), (1, 1));
    drop(client);
    assert_eq!(far.read(&mut [0; 8]).await.unwrap(), 0, "the end is passed on");
    drop(far);
    while server.metrics.connections_open.get() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(server.metrics.upgrades_open.get(), 0);
}

#[tokio::test]
async fn an_apiserver_that_is_away_is_named() {
    let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let server = start_with(upstream, Arc::default()).await;
    let response = server.get("/api/v1/secrets").await;
    assert_eq!((response.status().as_u16(), header(&response, "retry-after")), (503, "1"));
    assert_eq!(header(&response, "x-informerd-plan"), "refused; reason=not_forwarded");
    let text = text(response).await;
    assert!(text.contains("informerd") && text.contains(&upstream.to_string()), "{text}");
    assert!(text.contains("\"reason\":\"ServiceUnavailable\""), "{text}");
    assert_eq!(server.get("/api/v1/namespaces/a/configmaps/c00000").await.status(), 200, "what is cached is served");
}

#[tokio::test]
async fn a_drain_ends_watches_with_a_bookmark_and_takes_no_new_ones() {
    let mut server = start().await;
    // A connection that was open before the drain, and is kept busy.
    let (mut sender, connection) = hyper::client::conn::http2::handshake(
        TokioExecutor::new(),
        TokioIo::new(TcpStream::connect(server.address).await.unwrap()),
    )
    .await
    .unwrap();
    let client = spawn("client", connection);
    let request = |target: &str| Request::get(format!("http://localhost{target}")).body(Empty::<Bytes>::new()).unwrap();
    let open = sender.send_request(request(WATCH)).await.unwrap();
    let plain = server.get(WATCH).await;

    server.drain.start(Duration::from_secs(30));
    server.cached.add(FIRST, 1).await;
    for response in [open, plain] {
        let text = text(response).await;
        let last = text.strip_prefix(&added_text(FIRST, 1)).unwrap();
        assert!(last.starts_with(&bookmark(FIRST)), "{last}");
    }
    assert_eq!(server.drain.completed().await, DrainEnd::Clean);
    client.await.unwrap().unwrap();
    assert_eq!(server.metrics.watches_drained.get(), 2);
}

#[tokio::test]
async fn a_new_watch_during_a_drain_is_put_off() {
    let server = start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // The headers of the request are incomplete when the drain starts, so the connection is not idle.
    stream.write_all(b"GET /api/v1/configmaps?watch=1 HTTP/1.1\r\nhost: ").await.unwrap();
    while server.metrics.connections_open.get() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.drain.start(Duration::from_secs(30));
    tokio::time::sleep(Duration::from_millis(50)).await;
    stream.write_all(b"localhost\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let answer = answer.to_lowercase();
    assert!(answer.starts_with("http/1.1 429") && answer.contains("retry-after: 1\r\n"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
}

#[path = "refusals_tests.rs"]
mod refusals;

#[path = "head_tests.rs"]
mod heads;
