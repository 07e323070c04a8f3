//! The whole HTTP side between a client's socket and a scripted apiserver's.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{Empty, Full};
use hyper::client::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::*;
use crate::codec::Form;
use crate::http::config::{HttpConfig, ListenAddr};
use crate::http::read::{ForwardReason, Served, WatcherEvent};
use crate::http::server::Server;
use crate::http::testing::{LAST_BOOKMARK, added, added_text, form, inflate, item, list, list_text, object, watch};
use crate::lifecycle::drain::{self, Drain, DrainEnd};
use crate::meta::{Gvr, Object, ResourceVersion, errors};
use crate::passthrough::{ForwardConfig, LendIdentity, RevisionObserver};
use crate::upstream::client::Upstream;

/// Answers by resource: `configmaps` is cached, `secrets` is not, and `pods` is not ready.
struct Cached {
    form: Arc<Form>,
    huge: Arc<Object>,
    watches: Mutex<Vec<mpsc::Sender<WatcherEvent>>>,
    unread: Mutex<Vec<ForwardReason>>,
}

impl Default for Cached {
    fn default() -> Self {
        Self { form: form(), huge: object(0, 500_000), watches: Mutex::default(), unread: Mutex::default() }
    }
}

impl Cached {
    fn outcome<T>(gvr: &Gvr, make: impl FnOnce() -> Outcome<T>) -> BoxFuture<Outcome<T>>
    where
        T: Send + 'static,
    {
        let outcome = match &*gvr.resource {
            "configmaps" => make(),
            "pods" => Outcome::Refuse(Box::new(errors::too_many_requests("storage is (re)initializing", 1))),
            _ => Outcome::Forward(ForwardReason::Excluded),
        };
        Box::pin(std::future::ready(outcome))
    }
}

impl ReadHandler for Cached {
    fn get(&self, request: ReadRequest) -> BoxFuture<Outcome<GetAnswer>> {
        Self::outcome(&request.gvr, || match request.name.as_deref() {
            Some("huge") => {
                let (form, object) = (self.form.clone(), self.huge.clone());
                Outcome::Serve(GetAnswer { form, shape: request.format.shape, object }, Served::default())
            }
            Some(name @ ("c0" | "big")) => {
                let object = object(0, if name == "c0" { 5 } else { 5000 });
                Outcome::Serve(GetAnswer { form: form(), shape: request.format.shape, object }, Served::default())
            }
            name => Outcome::Refuse(Box::new(errors::not_found(&request.gvr, name.unwrap_or_default()))),
        })
    }

    fn list(&self, request: ReadRequest) -> BoxFuture<Outcome<ListAnswer>> {
        Self::outcome(&request.gvr, || {
            let objects = if request.namespace.is_some() { 2 } else { 10_000 };
            Outcome::Serve(list(objects, 100), Served::default())
        })
    }

    fn watch(&self, request: ReadRequest) -> BoxFuture<Outcome<WatchAnswer>> {
        Self::outcome(&request.gvr, || {
            let (sender, answer) = watch();
            self.watches.lock().push(sender);
            Outcome::Serve(answer, Served::default())
        })
    }

    fn warnings(&self, gvr: &Gvr) -> Arc<[HeaderValue]> {
        match &*gvr.resource {
            "secrets" => [].into(),
            resource => [1, 2].map(|n| HeaderValue::try_from(format!("299 - \"{resource} {n}\"")).unwrap()).into(),
        }
    }

    fn forwarded(&self, reason: ForwardReason) {
        self.unread.lock().push(reason);
    }
}

struct Nobody;

impl RevisionObserver for Nobody {
    fn wrote(&self, _: &RequestInfo, _: ResourceVersion) {}
    fn wrote_unknown(&self, _: &RequestInfo) {}
    fn showed(&self, _: &RequestInfo, _: ResourceVersion) {}
    fn showed_unknown(&self, _: &RequestInfo) {}
}

struct Running {
    address: SocketAddr,
    cached: Arc<Cached>,
    metrics: Arc<HttpMetrics>,
    drain: Drain,
    /// What the apiserver was asked.
    asked: Arc<Mutex<Vec<String>>>,
    _directory: tempfile::TempDir,
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
    let (cached, metrics) = (Arc::<Cached>::default(), Arc::<HttpMetrics>::default());
    let (drain, watch) = drain::channel();
    let fatal = Fatal::new();
    let parts = ServiceParts {
        guard: Guard::default(),
        access: Access::trusting(),
        audit: Audit::off(),
        reads: Arc::clone(&cached) as _,
        forward: Forward::new(lend, upstream, Arc::new(Nobody)),
        drain: watch.clone(),
        drain_spread: Duration::from_millis(300),
        stall_timeout: Duration::from_secs(300),
        explain: false,
        grpc: None,
        gzip: GzipConfig::default(),
        metrics: Arc::clone(&metrics),
    };
    let server = Server::bind(config, Arc::clone(&metrics)).unwrap();
    let ListenAddr::Http(address) = server.addresses().remove(0) else { panic!("http") };
    server.serve(Arc::new(Service::start(parts, &fatal)), &watch, &fatal);
    Running { address, cached, metrics, drain, asked, _directory: directory }
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

    fn watcher(&self) -> mpsc::Sender<WatcherEvent> {
        self.cached.watches.lock().pop().unwrap()
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
    let request = Request::get("/api/v1/namespaces/a/configmaps/c0").header("audit-id", "mine");
    let response = server.send(request).await;
    assert_eq!(response.status(), 200);
    for (name, value) in
        [("audit-id", "mine"), ("cache-control", "no-cache, private"), ("content-type", "application/json")]
    {
        assert_eq!(header(&response, name), value);
    }
    assert!(!header(&response, "content-length").is_empty() && !header(&response, "date").is_empty());
    let body = format!("{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",{}\n", &item(0, 5)[1..]);
    assert_eq!(text(response).await, body);
    let big = server.get("/api/v1/namespaces/a/configmaps/big").await;
    assert_eq!((header(&big, "content-length"), header(&big, "transfer-encoding")), ("", "chunked"));
    assert!(text(big).await.len() > 5000);
    assert!(server.asked.lock().is_empty());
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
    assert!(large == list_text(10_000, 100));
    assert_eq!(server.metrics.list_objects.get(), 10_002);
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
        ("/api/v1/namespaces/a/configmaps/huge", "gzip", true),
        ("/api/v1/namespaces/a/configmaps/big", "gzip", false),
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
            assert_eq!(server.metrics.list_objects.get() - objects, 20_000);
            assert_eq!(server.metrics.list_bytes.get() - bytes, (sent.len() + body.len()) as u64);
        }
    }
    // What comes to very little is sent with its length.
    let response = ask("/api/v1/namespaces/a/configmaps/huge", "gzip").await;
    assert!(!header(&response, "content-length").is_empty());
    // The same object was compressed once.
    assert_eq!((server.metrics.gzip_responses.get(), server.metrics.gzip_compressions.get()), (4, 3));
    assert_eq!(header(&ask("/api/v1/configmaps?watch=1", "gzip").await, "content-encoding"), "");
}

#[tokio::test]
async fn a_watch_answers_before_its_first_event_and_ends_with_its_client() {
    let server = start().await;
    let response = server.get("/api/v1/configmaps?watch=1").await;
    assert_eq!((response.status().as_u16(), header(&response, "transfer-encoding")), (200, "chunked"));
    assert_eq!(header(&response, "content-type"), "application/json");
    let events = server.watcher();
    let mut body = response.into_body();
    for number in 0..3 {
        events.send(added(number, 7)).await.unwrap();
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(frame, added_text(number, 7));
    }
    drop(body);
    events.closed().await;
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
    assert_eq!(server.metrics.requests_refused.get(), 2);
}

#[tokio::test]
async fn warnings_stand_on_every_answer_of_ours() {
    let server = start().await;
    for (target, resource) in [
        ("/api/v1/namespaces/a/configmaps/c0", "configmaps"),
        ("/api/v1/namespaces/a/configmaps/nope", "configmaps"),
        ("/api/v1/namespaces/a/configmaps", "configmaps"),
        ("/api/v1/configmaps?watch=1", "configmaps"),
        ("/api/v1/pods", "pods"),
    ] {
        let response = server.get(target).await;
        let warnings: Vec<_> = response.headers().get_all("warning").iter().collect();
        assert_eq!(warnings, [1, 2].map(|n| format!("299 - \"{resource} {n}\"")).each_ref(), "{target}");
    }
    // What is forwarded has those of the apiserver.
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
    let unread = [ForwardReason::Invalid, ForwardReason::Encoding];
    assert_eq!(*server.cached.unread.lock(), unread, "reads are counted, and nothing else is");
    let websocket =
        Request::get("/api/v1/configmaps?watch=1").header("connection", "upgrade").header("upgrade", "websocket");
    assert_eq!(header(&server.send(websocket).await, "x-upgrade"), "websocket", "never a plain watch");
    assert!(server.cached.watches.lock().is_empty());
    assert_eq!(server.metrics.requests_forwarded.get(), 10);
}

/// As clients of a proxy write it; Go's server takes it too.
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
async fn web_pages_are_kept_out() {
    let server = start().await;
    let with = |name: &str, value: &str| Request::get("/api/v1/configmaps").header(name, value);
    for request in [
        with("host", "evil.example"),
        with("origin", "http://evil.example"),
        with("origin", "null").header("connection", "upgrade").header("upgrade", "websocket"),
        with("sec-fetch-site", "cross-site"),
    ] {
        let response = server.send(request).await;
        assert_eq!(response.status(), 403);
        assert!(text(response).await.contains("\"reason\":\"Forbidden\""));
    }
    let own = with("origin", &format!("http://{}", server.address)).header("host", server.address.to_string());
    assert_eq!(server.send(own).await.status(), 200);
    assert!(server.asked.lock().is_empty());

    for request in ["GET /api HTTP/1.1\r\n\r\n", "GET /api HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n\r\n"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&start), "HTTP/1.1 400", "{request:?}");
    }
}

#[tokio::test]
async fn an_apiserver_that_is_away_is_named() {
    let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let server = start_with(upstream, Arc::default()).await;
    let response = server.get("/api/v1/secrets").await;
    assert_eq!((response.status().as_u16(), header(&response, "retry-after")), (503, "1"));
    let text = text(response).await;
    assert!(text.contains("informerd") && text.contains(&upstream.to_string()), "{text}");
    assert!(text.contains("\"reason\":\"ServiceUnavailable\""), "{text}");
    assert_eq!(server.get("/api/v1/namespaces/a/configmaps/c0").await.status(), 200, "what is cached is served");
}

#[tokio::test]
async fn a_drain_ends_watches_with_a_bookmark_and_takes_no_new_ones() {
    let server = start().await;
    // A connection that was there before the drain, and is kept busy.
    let (mut sender, connection) = hyper::client::conn::http2::handshake(
        TokioExecutor::new(),
        TokioIo::new(TcpStream::connect(server.address).await.unwrap()),
    )
    .await
    .unwrap();
    let client = spawn("client", connection);
    let request = |target: &str| Request::get(format!("http://localhost{target}")).body(Empty::<Bytes>::new()).unwrap();
    let open = sender.send_request(request("/api/v1/configmaps?watch=1")).await.unwrap();
    let events = server.watcher();
    let plain = server.get("/api/v1/configmaps?watch=1").await;
    let plain_events = server.watcher();

    server.drain.start(Duration::from_secs(30));
    plain_events.send(added(3, 1)).await.unwrap();
    events.send(added(1, 1)).await.unwrap();
    for (response, number) in [(open, 1), (plain, 3)] {
        let text = text(response).await;
        let bookmark = text.strip_prefix(&added_text(number, 1)).unwrap();
        assert!(bookmark.starts_with(LAST_BOOKMARK), "{bookmark}");
    }
    assert_eq!(server.drain.completed().await, DrainEnd::Clean);
    client.await.unwrap().unwrap();
    assert_eq!(server.metrics.watches_drained.get(), 2);
}

#[tokio::test]
async fn a_new_watch_during_a_drain_is_put_off() {
    let server = start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // The request's head is under way when the drain starts, so the connection is not idle.
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
