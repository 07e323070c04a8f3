//! These tests use real sockets and therefore the real clock: they wait for events, and the time limits are generous.

use std::net::SocketAddr;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Incoming;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

use super::super::answer::{Body, BoxFuture, full};
use super::super::wire::{MAX_HEAD, MAX_HEADER_LIST, MAX_HEADERS};
use super::*;
use crate::codec::Slices;
use crate::http::testing::{http1_client, http2_client, raw, self_signed, trusting, until};
use crate::lifecycle::drain::{self, Drain, DrainEnd};

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

type Respond = dyn Fn(Request<RequestBody>) -> BoxFuture<Response<Body>> + Send + Sync;

struct Scripted(Box<Respond>);

impl Handler for Scripted {
    fn handle(&self, request: Request<RequestBody>, connection: &Arc<Connection>) -> BoxFuture<Response<Body>> {
        let heard = connection.hear(&request);
        let answer = (self.0)(request);
        Box::pin(async move {
            let _heard = heard;
            answer.await
        })
    }
}

struct Running {
    address: ListenAddr,
    ca_file: Option<PathBuf>,
    newcomers: Arc<Newcomers>,
    waiting: Arc<Slots>,
    metrics: Arc<HttpMetrics>,
    drain: Drain,
    _directory: tempfile::TempDir,
}

impl Running {
    fn tcp(&self) -> SocketAddr {
        match &self.address {
            ListenAddr::Http(address) | ListenAddr::Https(address) | ListenAddr::Delegated(address) => *address,
            ListenAddr::Unix(_) => panic!("a tcp listener"),
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.tcp()).await.unwrap()
    }

    /// Connects while the server does not run.
    fn connect_at_once(&self) -> Box<dyn Io> {
        if let ListenAddr::Unix(path) = &self.address {
            let stream = std::os::unix::net::UnixStream::connect(path).unwrap();
            stream.set_nonblocking(true).unwrap();
            return Box::new(UnixStream::from_std(stream).unwrap());
        }
        let stream = std::net::TcpStream::connect(self.tcp()).unwrap();
        stream.set_nonblocking(true).unwrap();
        Box::new(TcpStream::from_std(stream).unwrap())
    }

    /// Begins TLS if the listener has it.
    async fn begin(&self, stream: Box<dyn Io>, protocol: &str) -> Box<dyn Io> {
        let Some(ca) = &self.ca_file else { return stream };
        let connector = trusting([CertificateDer::from_pem_file(ca).unwrap()], &[protocol.into()]);
        let stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol.as_bytes()));
        Box::new(stream)
    }
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Io for S {}

fn start(listen: &str, change: impl FnOnce(&mut HttpConfig), respond: Box<Respond>) -> Running {
    start_with(listen, Ledger::default(), change, respond)
}

fn start_with(listen: &str, ledger: Ledger, change: impl FnOnce(&mut HttpConfig), respond: Box<Respond>) -> Running {
    let directory = tempfile::tempdir().unwrap();
    let listen = listen.replace("DIR", directory.path().to_str().unwrap());
    let mut config = HttpConfig::new(vec![listen.parse().unwrap()], directory.path().join("state"));
    change(&mut config);
    let metrics = Arc::new(HttpMetrics::default());
    let mut server = Server::bind(config, Arc::clone(&metrics)).unwrap();
    server.ledger = ledger;
    let (address, ca_file) = (server.addresses().remove(0), server.ca_file());
    let (newcomers, waiting) = (Arc::clone(&server.newcomers), Arc::clone(&server.waiting));
    let (drain, watch) = drain::channel();
    server.serve(Arc::new(Scripted(respond)), &watch, &Fatal::new()).unwrap();
    Running { address, ca_file, newcomers, waiting, metrics, drain, _directory: directory }
}

fn plain(respond: Box<Respond>) -> Running {
    start("http://127.0.0.1:0", |_| {}, respond)
}

fn hello() -> Box<Respond> {
    Box::new(|_| Box::pin(async { Response::new(full(Bytes::from_static(b"hello"))) }))
}

/// Bodies that send one line and then stay open until `closed` becomes true.
fn open_until(closed: &watch::Sender<bool>) -> Box<Respond> {
    let closed = closed.clone();
    Box::new(move |_| {
        let mut closed = closed.subscribe();
        Box::pin(async move {
            let (sender, receiver) = mpsc::channel(1);
            spawn("body", async move {
                sender.send(Bytes::from_static(b"open\n")).await.ok();
                closed.wait_for(|closed| *closed).await.ok();
            });
            Response::new(streamed(receiver))
        })
    })
}

fn streamed(receiver: mpsc::Receiver<Bytes>) -> Body {
    let frames = ReceiverStream::new(receiver).map(|part| Ok(http_body::Frame::data(Slices::from(part))));
    Body::new(StreamBody::new(frames))
}

/// Whether no more data comes and the body ends properly. (HTTP/2 ends with an empty frame.)
async fn ends_clean(body: &mut Incoming) -> bool {
    body.collect().await.is_ok_and(|rest| rest.to_bytes().is_empty())
}

fn get(uri: &str) -> Request<Empty<Bytes>> {
    Request::get(uri).header("host", "localhost").body(Empty::new()).unwrap()
}

/// Asks for what [`hello`] answers.
async fn greet(stream: &mut Box<dyn Io>) {
    stream.write_all(GET).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"hello") {
        stream.read_buf(&mut answer).await.unwrap();
    }
}

/// The table of header fields of a connection keeps memory of earlier headers. It goes with the connection.
#[tokio::test]
async fn after_many_large_headers_a_client_connects_again() {
    let closed = watch::Sender::new(false);
    let server = plain(open_until(&closed));
    let (mut sender, end) = http2_client(server.connect().await).await;
    // Its Huffman code has eight bits.
    let large = "X".repeat(100 << 10);
    let mut bodies = Vec::new();
    while sender.ready().await.is_ok() {
        assert!(bodies.len() < 8, "it takes more than 512 KiB");
        let mut request = get("http://localhost/");
        request.headers_mut().insert("large", large.parse().unwrap());
        // A request that meets the GOAWAY is sent again on another connection.
        let Ok(answer) = sender.send_request(request).await else { break };
        let mut body = answer.into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "open\n");
        bodies.push(body);
    }
    assert!(bodies.len() > 2, "{} requests", bodies.len());
    closed.send_replace(true);
    for mut body in bodies {
        assert!(ends_clean(&mut body).await, "what runs goes on");
    }
    end.await.unwrap().unwrap();
}

#[tokio::test]
async fn who_offers_no_protocol_over_tls_speaks_http1() {
    let server = start("https://127.0.0.1:0", |_| {}, hello());
    let connector = trusting([CertificateDer::from_pem_file(server.ca_file.as_ref().unwrap()).unwrap()], &[]);
    let stream = connector.connect("localhost".try_into().unwrap(), server.connect().await).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), None);
    let response = http1_client(stream).await.send_request(get("/")).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
    // Plain HTTP on a TLS port fails in the handshake and is counted.
    raw(server.tcp(), "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert_eq!(server.metrics.tls_handshake_errors.get(), 1);
}

#[tokio::test]
async fn a_client_that_says_nothing_is_cut() {
    let server = start("http://127.0.0.1:0", |config| config.handshake_timeout = Duration::from_millis(200), hello());
    assert_eq!(raw(server.tcp(), "").await, "");
    assert_eq!(raw(server.tcp(), "PRI * HTT").await, "");
    let slow = start("http://127.0.0.1:0", |config| config.header_read_timeout = Duration::from_millis(200), hello());
    assert_eq!(raw(slow.tcp(), "GET / HTTP/1.1\r\nx: ").await, "");
}

#[tokio::test]
async fn ambiguous_requests_are_refused() {
    let server = plain(hello());
    for request in [
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\nabc",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nhost : a\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\n folded: x\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\x00b\r\n\r\n",
        "GET /a?b>1 HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET /<a> HTTP/1.1\r\nhost: a\r\n\r\n",
    ] {
        let answer = raw(server.tcp(), request).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{request:?}: {answer:?}");
    }
    let long = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "a".repeat(1 << 16));
    assert!(raw(server.tcp(), &long).await.starts_with("HTTP/1.1 414 "));
}

#[tokio::test]
async fn a_length_beside_chunks_does_not_smuggle() {
    let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let record = Arc::clone(&seen);
    let server = plain(Box::new(move |request| {
        let record = Arc::clone(&record);
        Box::pin(async move {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            record.lock().push((path, body));
            Response::new(full(Bytes::new()))
        })
    }));
    raw(
        server.tcp(),
        "POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n",
    )
    .await;
    let seen = seen.lock();
    assert!(seen.iter().all(|(path, _)| path != "/smuggled"), "{seen:?}");
    assert!(seen.iter().all(|(_, body)| body.is_empty()), "chunks win over the length: {seen:?}");
}

#[tokio::test]
async fn a_drain_lets_running_requests_end() {
    let closed = watch::Sender::new(false);
    let server = plain(open_until(&closed));
    let mut one = http1_client(server.connect().await).await;
    let (mut two, _) = http2_client(server.connect().await).await;
    let mut first = one.send_request(get("/")).await.unwrap().into_body();
    let mut second = two.send_request(get("http://localhost/")).await.unwrap().into_body();
    for body in [&mut first, &mut second] {
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "open\n");
    }
    server.drain.start(Duration::from_secs(30));
    while TcpStream::connect(server.tcp()).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(server.drain.guards(), 2);
    closed.send_replace(true);
    assert!(ends_clean(&mut first).await && ends_clean(&mut second).await);
    assert_eq!(server.drain.completed().await, DrainEnd::Clean);
}

/// Whichever request of a connection it is.
#[tokio::test]
async fn a_head_that_is_too_large_is_answered_with_431() {
    let large = |header: usize, all: usize| vec![("large", "x".repeat(header.min(all))); all / header.min(all)];
    // The rest of a head, or what is read of a larger one at once.
    let (less, more, one, list) = (1 << 10, 32 << 10, usize::MAX, MAX_HEADER_LIST as usize);
    for (listen, protocol, header, most, beyond) in [
        ("http://127.0.0.1:0", "http/1.1", one, MAX_HEAD - less, MAX_HEAD + more),
        ("http://127.0.0.1:0", "http/1.1", 1, MAX_HEADERS - 2, MAX_HEADERS - 1),
        ("http://127.0.0.1:0", "h2", 8 << 10, list - (8 << 10), list),
        ("https://127.0.0.1:0", "http/1.1", one, MAX_HEAD - less, MAX_HEAD + more),
        ("https://127.0.0.1:0", "h2", 8 << 10, list - (8 << 10), list),
        ("unix://DIR/socket", "http/1.1", one, MAX_HEAD - less, MAX_HEAD + more),
        // Its client is not authenticated.
        ("delegated+https://127.0.0.1:0", "http/1.1", one, 60 << 10, 200 << 10),
        ("delegated+https://127.0.0.1:0", "h2", one, 60 << 10, 200 << 10),
        ("delegated+https://127.0.0.1:0", "h2", 8 << 10, 60 << 10, 200 << 10),
    ] {
        let server = start(listen, |_| {}, hello());
        for (earlier, all, status) in [(0, most, 200), (0, beyond, 431), (2, beyond, 431)] {
            let mut stream = server.begin(server.connect_at_once(), protocol).await;
            if protocol == "h2" {
                let (mut sender, _) = http2_client(stream).await;
                for _ in 0..earlier {
                    assert_eq!(sender.send_request(get("http://localhost/")).await.unwrap().status(), 200);
                }
                let mut request = get("http://localhost/");
                for (name, value) in large(header, all) {
                    request.headers_mut().append(name, value.parse().unwrap());
                }
                let answer = sender.send_request(request).await.unwrap();
                assert_eq!(answer.status(), status, "{listen} {protocol} {earlier} {all}");
                continue;
            }
            for _ in 0..earlier {
                greet(&mut stream).await;
            }
            let lines: String = large(header, all).iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let (mut reader, mut writer) = tokio::io::split(stream);
            let mut answer = Vec::new();
            let (_, read) = tokio::join!(
                async {
                    let head = format!("GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{lines}\r\n");
                    writer.write_all(head.as_bytes()).await
                },
                reader.read_to_end(&mut answer)
            );
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{listen} {earlier} {all}: {answer} {read:?}");
        }
    }
}

/// As the apiserver does it: clients that have connected get their first answer, however far they were.
#[tokio::test]
async fn a_drain_lets_those_who_have_connected_ask_once() {
    for (listen, protocol) in [
        ("http://127.0.0.1:0", "http/1.1"),
        ("http://127.0.0.1:0", "h2"),
        ("https://127.0.0.1:0", "http/1.1"),
        ("https://127.0.0.1:0", "h2"),
        ("delegated+https://127.0.0.1:0", "http/1.1"),
        ("unix://DIR/socket", "http/1.1"),
    ] {
        let server = start(listen, |config| config.drain_patience = Duration::from_secs(600), hello());
        let (begun, mut idle) = (server.connect_at_once(), server.begin(server.connect_at_once(), "http/1.1").await);
        greet(&mut idle).await;
        until(|| server.metrics.connections_total.get() == 2).await;
        // The runtime does not know of this one.
        let waiting = server.connect_at_once();
        server.drain.start(Duration::from_secs(600));
        assert_eq!(idle.read_to_end(&mut Vec::new()).await.unwrap(), 0);
        for stream in [begun, waiting] {
            let mut stream = server.begin(stream, protocol).await;
            if protocol == "h2" {
                let (mut sender, end) = http2_client(stream).await;
                assert_eq!(sender.send_request(get("http://localhost/")).await.unwrap().status(), 200, "{listen}");
                end.await.unwrap().unwrap();
                continue;
            }
            let mut answer = String::new();
            stream.write_all(GET).await.unwrap();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.contains("\r\nconnection: close\r\n") && answer.ends_with("hello"), "{listen}: {answer}");
        }
        assert_eq!(server.drain.completed().await, DrainEnd::Clean);
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_who_says_nothing() {
    for listen in ["http://127.0.0.1:0", "https://127.0.0.1:0"] {
        let server = start(listen, |config| config.handshake_timeout = Duration::from_secs(600), hello());
        let _silent = server.connect_at_once();
        until(|| server.metrics.connections_total.get() == 1).await;
        server.drain.start(Duration::from_secs(600));
        assert_eq!(server.drain.completed().await, DrainEnd::Clean);
    }
}

#[tokio::test]
async fn past_the_deadline_the_rest_is_cut() {
    let closed = watch::Sender::new(false);
    let server = plain(open_until(&closed));
    let mut sender = http1_client(server.connect().await).await;
    let mut body = sender.send_request(get("/")).await.unwrap().into_body();
    assert!(body.frame().await.unwrap().is_ok());
    server.drain.start(Duration::from_millis(100));
    assert_eq!(server.drain.completed().await, DrainEnd::Forced { left: 0 });
    assert!(body.frame().await.unwrap().is_err(), "no clean end");
}

/// Clients that connect later get the new certificate. Open connections stay open.
#[tokio::test]
async fn a_certificate_is_replaced_without_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    // As certificate managers do it: write another file, then rename it.
    let put = |(certificate, key): &(rcgen::Certificate, String)| {
        for (name, text) in [("tls.key", key.clone()), ("tls.crt", certificate.pem())] {
            std::fs::write(path("new"), text).unwrap();
            std::fs::rename(path("new"), path(name)).unwrap();
        }
    };
    let (first, second) = (self_signed(), self_signed());
    put(&first);
    let (closed, _) = watch::channel(false);
    let files = super::super::door::CertificateFiles { certificate: path("tls.crt"), key: path("tls.key") };
    let server = start(
        "https://127.0.0.1:0",
        |config| (config.tls.files, config.tls.reload_interval) = (Some(files), Duration::from_millis(20)),
        open_until(&closed),
    );
    let shown = |stream: &tokio_rustls::client::TlsStream<TcpStream>| {
        stream.get_ref().1.peer_certificates().unwrap()[0].clone()
    };
    let connector = || trusting([first.0.der().clone(), second.0.der().clone()], &[]);
    let connect =
        || async { connector().connect("localhost".try_into().unwrap(), server.connect().await).await.unwrap() };
    let before = connect().await;
    assert_eq!(shown(&before), *first.0.der());
    let mut sender = http1_client(before).await;
    let mut body = sender.send_request(get("/")).await.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "open\n");

    put(&second);
    // Every connection made in the meantime gets one of the two certificates.
    while shown(&connect().await) != *second.0.der() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    closed.send_replace(true);
    assert!(ends_clean(&mut body).await, "the open answer is not cut");
    sender.ready().await.unwrap();
    assert_eq!(sender.send_request(get("/")).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_connection_has_fewer_streams_where_memory_is_small() {
    for (memory, streams, window) in
        [(16 << 20, 256, 512 << 10), (100 << 20, 800, (100 << 20) / 64), (usize::MAX, 2000, 8 << 20)]
    {
        let limits = default_limits(memory);
        assert_eq!((limits.connection_window, limits.stream_window), (window, (window / 8).min(256 << 10)));
        let ledger = Ledger::new(memory, Pressure::default());
        let running = start_with("http://127.0.0.1:0", ledger, |_| {}, hello());
        let (mut client, connection) = h2::client::handshake(running.connect().await).await.unwrap();
        spawn("connection", async move { connection.await.ok() });
        let request = Request::get("http://localhost/").body(()).unwrap();
        client.send_request(request, true).unwrap().0.await.unwrap();
        assert_eq!(client.current_max_send_streams(), streams);
    }
}

/// For a further one, the first of them is closed.
#[tokio::test(start_paused = true)]
async fn few_wait_for_a_place_among_newcomers() {
    for (connections, most) in [(8, 2), (5 * WAITING, WAITING)] {
        let server = start("delegated+https://127.0.0.1:0", |config| config.max_connections = connections, hello());
        let at = server.tcp().ip();
        let _present: Vec<_> = std::iter::from_fn(|| server.newcomers.try_place(at).ok()).collect();
        let (_first, _second) = (server.connect_at_once(), server.connect_at_once());
        until(|| server.metrics.connections_total.get() == 2).await;
        let _others: Vec<_> = (2..most).map(|_| server.waiting.take(at)).collect();
        assert_eq!(server.metrics.connections_refused.get(), 0);
        let _further = server.connect_at_once();
        until(|| server.metrics.connections_refused.get() == 1).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(server.drain.guards(), 3, "the listener and two connections");
    }
}

/// The library reads on while an answer is on its way, and the client may send no more than this before it is authenticated.
#[tokio::test]
async fn no_answer_is_within_another() {
    let respond: Box<Respond> = Box::new(|_| {
        let (sender, receiver) = mpsc::channel::<Bytes>(1);
        spawn("body", async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            sender.send(Bytes::from_static(&[b'x'; 100])).await.ok();
        });
        let mut response = Response::new(streamed(receiver));
        response.headers_mut().insert("content-length", "100".parse().unwrap());
        Box::pin(async { response })
    });
    let server = start("delegated+https://127.0.0.1:0", |_| {}, respond);
    let mut stream = server.begin(server.connect_at_once(), "http/1.1").await;
    let head = "GET / HTTP/1.1\r\nhost: localhost\r\nfill: ";
    let request = format!("{head}{}\r\n\r\n", "x".repeat(4096 - head.len() - 4));
    let mut answers = Vec::new();
    for _ in 0..17 {
        stream.write_all(request.as_bytes()).await.unwrap();
        let before = answers.len();
        while !answers[before..].ends_with(&[b'x'; 100])
            && stream.read_buf(&mut answers).await.is_ok_and(|read| read > 0)
        {}
    }
    let answers = String::from_utf8(answers).unwrap();
    for answer in answers.split("HTTP/1.1 200 OK").skip(1) {
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        assert!(body.is_empty() || body.starts_with(&"x".repeat(100)), "{answer}");
    }
}
