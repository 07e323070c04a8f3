//! Tests of the whole HTTP side, between a client's socket and the socket of a scripted apiserver.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::door::{HttpConfig, ListenAddr};
use super::*;
use crate::apiserver::client::Upstream;
use crate::apiserver::discovery::{ApiResource, Discovery};
use crate::apiserver::testing::FakeServer;
use crate::auth::AuthConfig;
use crate::cache::{WatchCache, Writer};
use crate::http::server::Server;
use crate::http::testing::{fill, head, http1_client, list_text, objects, raw, until};
use crate::informer::Factory;
use crate::lifecycle::drain::{self, Drain};
use crate::meta::{Origin, Resource};
use crate::passthrough::testing::Recorder;
use crate::passthrough::{ForwardConfig, LendIdentity};
use crate::reads::{ConsistentReads, Modes, NotSynced, ProtobufReads, ReadsConfig};

/// Objects in the list of all config maps.
const OBJECTS: usize = 3000;
/// The token of the daemon: `{"sub":"a","exp":1e11}`.
const OURS: &str = "e30.eyJzdWIiOiJhIiwiZXhwIjoxZTExfQ.c2ln";
/// A watch that begins after the first state.
const WATCH: &str = "/api/v1/configmaps?watch=1&allowWatchBookmarks=1&resourceVersion=20000";

/// The resources that are cached, and their writers.
struct Cached {
    reads: Reads,
    /// That of config maps.
    cache: WatchCache,
    _configmaps: Writer,
    /// Not ready.
    _pods: Writer,
}

impl Cached {
    async fn new(upstream: Upstream) -> Self {
        let resources = ["configmaps", "pods"].map(|name| ApiResource::core(name, "ConfigMap"));
        let discovery = Discovery::knowing(upstream.clone(), resources.to_vec());
        let factory = Factory::simple(Duration::from_secs(600), upstream.clone(), discovery);
        let [mut configmaps, pods] = resources.map(|ApiResource { gvr, kind, namespaced, verbs, .. }| {
            let origin = Origin::BuiltIn;
            factory.put(Resource { gvr, kind: kind.into(), namespaced, verbs, origin })
        });
        fill(&mut configmaps, objects(OBJECTS, 100)).await;
        let mut config = ReadsConfig::simple(ConsistentReads::Cache, Duration::from_secs(3));
        config.modes.protobuf = ProtobufReads::Serve;
        let auto = Modes { consistent: ConsistentReads::Auto, ..config.modes };
        config.exceptions.push((String::new(), "secrets".to_owned(), auto));
        config.not_synced = NotSynced { wait: Duration::ZERO, forward: false };
        let cache = factory.informers().remove(0).cache().clone();
        Self { reads: Reads::new(config, factory), cache, _configmaps: configmaps, _pods: pods }
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

struct Running {
    address: SocketAddr,
    cached: Cached,
    metrics: Arc<HttpMetrics>,
    ledger: Ledger,
    _drain: Drain,
    /// The apiserver, unless it is another.
    apiserver: Option<FakeServer>,
    _directory: tempfile::TempDir,
}

/// Has no room for requests with the header `crowded`.
struct Crowded(Service);

impl Handler for Crowded {
    fn handle(&self, mut request: Request<RequestBody>, connection: &Arc<Connection>) -> BoxFuture<Response<Body>> {
        if request.headers().contains_key("crowded") {
            request.extensions_mut().insert(NoRoom);
        }
        self.0.handle(request, connection)
    }
}

async fn start() -> Running {
    let apiserver = FakeServer::plain(|request, _| {
        let upgrade = request.headers().get("upgrade").cloned().unwrap_or(HeaderValue::from_static("none"));
        let response = Response::builder().header("audit-id", "theirs").header("x-upgrade", upgrade);
        std::future::ready(response.body(Full::new(Bytes::from_static(b"forwarded"))).unwrap())
    })
    .await;
    let running = start_before(apiserver.address).await;
    Running { apiserver: Some(apiserver), ..running }
}

async fn start_before(upstream: SocketAddr) -> Running {
    let directory = tempfile::tempdir().unwrap();
    let config = HttpConfig::new(vec!["http://127.0.0.1:0".parse().unwrap()], directory.path().into());
    let mut upstream = kube::Config::new(format!("http://{upstream}").parse().unwrap());
    upstream.auth_info.token = Some(OURS.to_owned().into());
    let upstream = Upstream::from_config(upstream).await.unwrap();
    let lend = ForwardConfig { lend: LendIdentity::All, ..ForwardConfig::default() };
    let metrics = Arc::<HttpMetrics>::default();
    let (drain, watch) = drain::channel();
    let fatal = Fatal::new();
    let ledger = Ledger::default();
    let cached = Cached::new(upstream.clone()).await;
    let access = Access::trusting().knowing_ourselves(&AuthConfig::default(), &upstream).unwrap();
    let parts = ServiceParts {
        guard: Guard::default(),
        access,
        audit: Audit::off(),
        access_log: AccessLog::off(),
        forward: Forward::new(lend, upstream, Arc::<Recorder>::default()),
        drain: watch.clone(),
        drain_spread: Duration::from_millis(300),
        stall_timeout: Duration::from_secs(300),
        stall_guards: StallGuards::default(),
        ledger: ledger.clone(),
        explain: true,
        lend_sessions: true,
        via: HeaderValue::from_static("ours"),
        grpc: None,
        gzip_bytes: 1 << 20,
        metrics: Arc::clone(&metrics),
    };
    let server = Server::bind(config, Arc::clone(&metrics)).unwrap();
    let ListenAddr::Http(address) = server.addresses().remove(0) else { panic!("http") };
    server.serve(Arc::new(Crowded(Service::start(cached.reads.clone(), parts, &fatal))), &watch, &fatal).unwrap();
    Running { address, cached, metrics, ledger, apiserver: None, _drain: drain, _directory: directory }
}

impl Running {
    async fn send(&self, request: http::request::Builder) -> Response<Incoming> {
        let mut sender = http1_client(TcpStream::connect(self.address).await.unwrap()).await;
        let mut request = request.body(Empty::<Bytes>::new()).unwrap();
        request.headers_mut().entry("host").or_insert(HeaderValue::from_static("localhost"));
        sender.send_request(request).await.unwrap()
    }

    /// The requests that the apiserver received.
    fn asked(&self) -> Vec<String> {
        let seen = self.apiserver.as_ref().unwrap().requests();
        seen.iter().map(|seen| format!("{} {}", seen.method, seen.uri)).collect()
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
async fn refusals_are_statuses() {
    let server = start().await;
    assert_eq!(server.get("/api/v1/namespaces/a/configmaps/nope").await.status(), 404);
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
        assert_eq!(server.asked().pop().unwrap(), format!("{method} {target}"));
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
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let answer = raw(server.address, &request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {want}\r\n")), "{target}: {answer}");
    }
    assert_eq!(server.asked(), ["GET /version?x=1", "GET /"]);
    assert_eq!(server.metrics.requests_served.get(), 2);
}

#[tokio::test]
async fn an_upgraded_connection_keeps_its_place() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = listener.local_addr().unwrap();
    let server = start_before(upstream).await;
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client
        .write_all(b"GET /api/v1/namespaces/a/pods/p/exec HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n")
        .await
        .unwrap();
    let (mut far, _) = listener.accept().await.unwrap();
    head(&mut far).await;
    far.write_all(b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\nhello")
        .await
        .unwrap();
    let answer = head(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    client.read_exact(&mut [0; b"hello".len()]).await.unwrap();
    assert_eq!((server.metrics.upgrades_open.get(), server.metrics.connections_open.get()), (1, 1));
    drop(client);
    assert_eq!(far.read(&mut [0; 8]).await.unwrap(), 0, "the end is passed on");
    drop(far);
    until(|| server.metrics.connections_open.get() == 0).await;
    assert_eq!(server.metrics.upgrades_open.get(), 0);
}

#[tokio::test]
async fn an_apiserver_that_is_away_is_named() {
    let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let server = start_before(upstream).await;
    let response = server.get("/api/v1/secrets").await;
    assert_eq!((response.status().as_u16(), header(&response, "retry-after")), (503, "1"));
    assert_eq!(header(&response, "x-informerd-plan"), "refused; reason=not_forwarded");
    let text = text(response).await;
    assert!(text.contains("informerd") && text.contains(&upstream.to_string()), "{text}");
    assert!(text.contains("\"reason\":\"ServiceUnavailable\""), "{text}");
    assert_eq!(server.get("/api/v1/namespaces/a/configmaps/c00000").await.status(), 200, "what is cached is served");
}

#[tokio::test]
async fn a_request_of_our_own_goes_no_further() {
    let server = start().await;
    let pods = "/api/v1/namespaces/a/pods";
    let response = server.send(Request::get(pods).header("x-informerd-via", "ours")).await;
    assert_eq!(response.status(), 508);
    assert!(text(response).await.contains("its kubeconfig leads to informerd itself"));
    assert!(server.asked().is_empty());
    assert_ne!(server.send(Request::get(pods).header("x-informerd-via", "another's")).await.status(), 508);
}

#[tokio::test]
async fn it_is_not_asked_whose_token_it_is_if_everybody_is_answered_alike() {
    let server = start().await;
    for (target, asks) in [
        ("/api/v1/configmaps", false),
        ("/api/v1/secrets?resourceVersion=0", false),
        ("/api/v1/secrets?watch=1", false),
        ("/api/v1/secrets", true),
    ] {
        let alike = Request::get(target).header("authorization", format!("Bearer {OURS}2"));
        assert_eq!(server.send(alike).await.status(), 200);
        assert_eq!(server.asked().iter().any(|asked| asked.contains("/selfsubjectreviews")), asks, "{target}");
    }
}

#[tokio::test]
async fn bodies_that_cannot_be_read_are_refused() {
    let server = start().await;
    for (head, wanted) in [
        ("Transfer-Encoding: chunked", "HTTP/1.1 400 Bad Request"),
        ("Transfer-Encoding: identity, chunked", "HTTP/1.1 501 Not Implemented"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "HTTP/1.1 400 Bad Request"),
    ] {
        let request =
            format!("POST /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\nzz\r\nno chunk\r\n");
        let answer = raw(server.address, &request).await;
        assert!(answer.starts_with(wanted), "{head}: {answer}");
    }
}

#[path = "head_tests.rs"]
mod heads;
