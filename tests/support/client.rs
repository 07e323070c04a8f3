//! A plain HTTP client that hides nothing.

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Frame, Incoming};
use hyper::rt::Executor;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client as HyperClient, Error as LegacyError};
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::patience::{LONG, STREAM, within};
use super::proto;

#[derive(Clone)]
pub(crate) struct Client {
    base: String,
    token: Option<String>,
    resends: bool,
    accept: Option<&'static str>,
    tasks: Tasks,
    inner: HyperClient<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// Runs the tasks of a client's connections, and counts them.
#[derive(Clone, Default)]
struct Tasks(Arc<Counts>);

#[derive(Default)]
struct Counts {
    begun: AtomicUsize,
    ended: AtomicUsize,
}

/// One task, for as long as it lives.
struct Counted(Arc<Counts>);

/// How often a client looks whether a request that is not answered has disappeared.
const LOOK: Duration = Duration::from_secs(5);

/// For an event that has happened.
const EVENT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// An open watch of JSON events. What a test waits for in it has to come in [`STREAM`].
pub(crate) struct Watch {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Incoming,
    pending: Vec<u8>,
    path: String,
    /// `None` for a task that watches until its test has ended.
    bound: Option<Instant>,
}

/// Whether an answer says that the apiserver does not answer, and that the state is an old one.
pub(crate) fn is_old(headers: &HeaderMap) -> bool {
    headers.get_all("warning").iter().any(|warning| warning.as_bytes().starts_with(b"110 "))
}

pub(crate) fn is_protobuf(headers: &HeaderMap) -> bool {
    headers.get("content-type").is_some_and(|of| of.as_bytes().starts_with(b"application/vnd.kubernetes.protobuf"))
}

/// Whether the connection has ended before the answer. A server that has read everything says nothing but the end.
fn is_cut(error: &LegacyError) -> bool {
    ["ConnectionReset", "UnexpectedEof"].iter().any(|kind| format!("{error:?}").contains(kind))
}

impl Client {
    /// HTTP/1.1, a connection for each request that is under way.
    pub(crate) fn new(base: &str) -> Self {
        Self::over(base, connector(None).https_or_http().enable_http1().build(), false)
    }

    /// HTTP/2 with prior knowledge, one connection.
    pub(crate) fn http2(base: &str) -> Self {
        Self::over(base, connector(None).https_or_http().enable_http2().build(), true)
    }

    /// HTTP/2 over TLS, with a bearer token.
    pub(crate) fn tls(base: &str, ca: &Path, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..Self::tls_anonymous(base, ca) }
    }

    /// The same, and what is written is sent at once, as by clients in Go. Without this, a write takes 40 ms.
    pub(crate) fn tls_prompt(base: &str, ca: &Path, token: &str) -> Self {
        let mut plain = HttpConnector::new();
        plain.enforce_http(false);
        plain.set_nodelay(true);
        let connector = connector(Some(ca)).https_only().enable_http2().wrap_connector(plain);
        Self::over(base, connector, false).with_token(token)
    }

    /// HTTP/2 over TLS, by ALPN.
    pub(crate) fn tls_anonymous(base: &str, ca: &Path) -> Self {
        Self::over(base, connector(Some(ca)).https_only().enable_http2().build(), false)
    }

    /// HTTP/2 over TLS, with a client certificate, and a bearer token beside it.
    pub(crate) fn tls_certificate(base: &str, ca: &Path, certificate: &Path, key: &Path, token: Option<&str>) -> Self {
        let chain = CertificateDer::pem_file_iter(certificate).unwrap().map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(key).unwrap();
        let config = trust(Some(ca)).with_client_auth_cert(chain, key).unwrap();
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http2().build();
        Self { token: token.map(str::to_owned), ..Self::over(base, connector, false) }
    }

    fn over(base: &str, connector: HttpsConnector<HttpConnector>, http2_only: bool) -> Self {
        let tasks = Tasks::default();
        let inner = HyperClient::builder(tasks.clone()).http2_only(http2_only).build(connector);
        Self { base: base.to_owned(), token: None, resends: false, accept: None, tasks, inner }
    }

    /// The same connection for somebody else.
    pub(crate) fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    /// HTTP/1.1 over TLS.
    pub(crate) fn tls_http1(base: &str, ca: &Path) -> Self {
        Self::over(base, connector(Some(ca)).https_only().enable_http1().build(), false)
    }

    /// The same connections. A request whose connection is cut before the answer is sent again, as client-go does.
    pub(crate) fn resending(&self) -> Self {
        Self { resends: true, ..self.clone() }
    }

    /// The same connections. Requests that do not say what they accept accept this.
    pub(crate) fn accepting(&self, accept: &'static str) -> Self {
        Self { accept: Some(accept), ..self.clone() }
    }

    fn built(&self, method: &Method, path: &str, headers: &[(&str, &str)], body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(method.clone()).uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(accept) = self.accept.filter(|_| headers.iter().all(|(name, _)| *name != "accept")) {
            request = request.header("accept", accept);
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request.body(Full::new(body)).unwrap()
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> http::Response<Incoming> {
        let request = self.built(&method, path, headers, body.into());
        loop {
            match self.answer(&request).await {
                Ok(answer) => return answer,
                // The apiserver closes a connection that carried an unauthenticated request, and so does informerd. What
                // meets that was not looked at, and any client sends it again.
                Err(error) if format!("{error:?}").contains("GoAway(b\"\", NO_ERROR, Remote)") => {}
                Err(error) if self.resends && is_cut(&error) => {}
                Err(error) => panic!("{path}: {error:?}"),
            }
        }
    }

    /// Sends a request, and sends it again if it has disappeared: a request that meets the end of its connection may stay
    /// in the queue between the client and the task of the connection, where nobody reads it. Such a request was never
    /// sent: a task has ended meanwhile, none is left that could send it, and what ended has not answered.
    ///
    /// # Panics
    /// There is no answer for long.
    async fn answer(&self, request: &Request<Full<Bytes>>) -> Result<http::Response<Incoming>, LegacyError> {
        let bound = Instant::now() + LONG;
        loop {
            let ended = self.tasks.ended();
            let mut answer = pin!(self.inner.request(request.clone()));
            loop {
                if let Ok(answer) = timeout(LOOK, &mut answer).await {
                    return answer;
                }
                assert!(Instant::now() < bound, "no answer in {LONG:?}: {} {}", request.method(), request.uri());
                if self.tasks.are_gone() && self.tasks.ended() != ended {
                    match timeout(Duration::ZERO, &mut answer).await {
                        Ok(answer) => return answer,
                        Err(_) => break,
                    }
                }
            }
        }
    }

    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> Answer {
        let body = Bytes::copy_from_slice(body.as_ref());
        let (parts, body) = self.send(method, path, headers, body).await.into_parts();
        let body = within(&format!("all of {path}"), body.collect()).await.unwrap().to_bytes();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.request(Method::GET, path, &[], "").await
    }

    /// A GET of a server that may not be there; the error says how.
    pub(crate) async fn try_get(&self, path: &str) -> Result<Answer, String> {
        self.try_request(Method::GET, path, &[], "").await
    }

    pub(crate) async fn try_request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Answer, String> {
        let request = self.built(&method, path, headers, Bytes::from(body.to_owned()));
        let (parts, body) = self.answer(&request).await.map_err(|error| error.to_string())?.into_parts();
        let body = within(&format!("all of {path}"), body.collect()).await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    }

    /// A watch of a server that may not be there; the error says how.
    pub(crate) async fn try_watch(&self, path: &str) -> Result<Watch, String> {
        let request = self.built(&Method::GET, path, &[], Bytes::new());
        let (parts, body) = self.answer(&request).await.map_err(|error| error.to_string())?.into_parts();
        Ok(Watch::new(parts, body, path))
    }

    /// What the admin side counts. On a busy machine a request may be sent later than the admin side waits for one.
    pub(crate) async fn metrics(&self) -> String {
        let mut last = String::new();
        for _ in 0..5 {
            match self.try_get("/metrics").await {
                Ok(answer) => return answer.text(),
                Err(error) => last = error,
            }
        }
        panic!("/metrics: {last}");
    }

    /// A write that has to succeed; what it answers.
    pub(crate) async fn write(&self, method: Method, path: &str, body: &Value) -> Value {
        let patch = if method == Method::PATCH { "merge-patch+" } else { "" };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.request(method, path, &[("content-type", &format!("application/{patch}json"))], &body).await;
        assert!(answer.status.is_success(), "{path}: {} {}", answer.status, answer.text());
        answer.json()
    }

    /// A successful JSON answer.
    pub(crate) async fn json(&self, path: &str) -> Value {
        let answer = self.get(path).await;
        assert!(answer.status.is_success(), "{path}: {} {}", answer.status, answer.text());
        answer.json()
    }

    pub(crate) async fn watch(&self, path: &str) -> Watch {
        self.watch_as(path, &[]).await
    }

    pub(crate) async fn watch_as(&self, path: &str, headers: &[(&str, &str)]) -> Watch {
        let (parts, body) = self.send(Method::GET, path, headers, "").await.into_parts();
        Watch::new(parts, body, path)
    }
}

/// A connection on which every byte is chosen.
pub(crate) async fn raw_tls(url: &str, ca: &Path) -> tokio_rustls::client::TlsStream<TcpStream> {
    let socket = TcpStream::connect(url.strip_prefix("https://").unwrap()).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(trusting(ca)));
    connector.connect(ServerName::try_from("localhost").unwrap(), socket).await.unwrap()
}

/// For typed calls over TLS.
pub(crate) fn typed(ca: &Path) -> HyperClient<HttpsConnector<HttpConnector>, tonic::body::Body> {
    let connector = connector(Some(ca)).https_only().enable_http2().build();
    HyperClient::builder(TokioExecutor::new()).http2_only(true).build(connector)
}

fn connector(ca: Option<&Path>) -> HttpsConnectorBuilder<hyper_rustls::builderstates::WantsSchemes> {
    HttpsConnectorBuilder::new().with_tls_config(trust(ca).with_no_client_auth())
}

pub(crate) fn trusting(ca: &Path) -> rustls::ClientConfig {
    trust(Some(ca)).with_no_client_auth()
}

pub(crate) fn trust(ca: Option<&Path>) -> rustls::ConfigBuilder<rustls::ClientConfig, rustls::client::WantsClientCert> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in ca.into_iter().flat_map(|path| CertificateDer::pem_file_iter(path).unwrap()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
}

impl Tasks {
    fn are_gone(&self) -> bool {
        self.ended() == self.0.begun.load(Ordering::SeqCst)
    }

    fn ended(&self) -> usize {
        self.0.ended.load(Ordering::SeqCst)
    }
}

impl<F> Executor<F> for Tasks
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        let counted = Counted(Arc::clone(&self.0));
        TokioExecutor::new().execute(async move {
            let _counted = counted;
            future.await;
        });
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn warnings(&self) -> Vec<&str> {
        self.headers.get_all("warning").iter().map(|value| std::str::from_utf8(value.as_bytes()).unwrap()).collect()
    }

    pub(crate) fn is_old(&self) -> bool {
        is_old(&self.headers)
    }

    /// The last state, with its age, because the apiserver does not answer.
    #[track_caller]
    pub(crate) fn assert_old(&self, what: &str) {
        let (status, warnings) = (self.status.as_u16(), self.warnings());
        assert_eq!((status, warnings.len()), (200, 2), "{what}: {} {:?}", self.text(), self.headers);
        for (warning, code) in warnings.iter().zip(["110", "299"]) {
            let begin = format!("{code} - \"informerd: the kube-apiserver does not answer, this is");
            assert!(warning.starts_with(&begin) && warning.ends_with(" s ago\""), "{what}: {warning}");
        }
    }

    /// Nothing, because the apiserver does not answer.
    #[track_caller]
    pub(crate) fn assert_unanswered(&self, what: &str) {
        assert!([503, 504].contains(&self.status.as_u16()), "{what}: {} {}", self.status, self.text());
        assert_eq!(self.warnings(), [""; 0], "{what}");
    }

    /// What it says in JSON or protobuf, unless it is cut. Strings need not be UTF-8.
    pub(crate) fn value(&self) -> Option<Value> {
        if is_protobuf(&self.headers) { proto::value(&self.body) } else { serde_json::from_str(&self.text()).ok() }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

impl Watch {
    fn new(head: http::response::Parts, body: Incoming, path: &str) -> Self {
        let (pending, bound) = (Vec::new(), Some(Instant::now() + STREAM));
        Self { status: head.status, headers: head.headers, body, pending, path: path.to_owned(), bound }
    }

    /// For a task that watches until its test has ended.
    pub(crate) fn until_the_end(self) -> Self {
        Self { bound: None, ..self }
    }

    /// Whether the daemon says that the stream is the apiserver's. Only some daemons say it.
    pub(crate) fn is_forwarded(&self) -> bool {
        self.headers.get("x-informerd-plan").is_some_and(|plan| plan.as_bytes().starts_with(b"forwarded"))
    }

    async fn frame(&mut self) -> Option<Result<Frame<Bytes>, hyper::Error>> {
        let frame = self.body.frame();
        let Some(bound) = self.bound else { return frame.await };
        let late = |_| panic!("neither the end nor what is waited for in {STREAM:?}: the watch {}", self.path);
        timeout_at(bound, frame).await.unwrap_or_else(late)
    }

    /// The next piece, once its length is known; `None` at a clean end. A broken stream is an error.
    async fn piece(&mut self, length: impl Fn(&[u8]) -> Option<usize>) -> Result<Option<Vec<u8>>, hyper::Error> {
        loop {
            if let Some(length) = length(&self.pending).filter(|length| *length <= self.pending.len()) {
                return Ok(Some(self.pending.drain(..length).collect()));
            }
            let Some(frame) = self.frame().await else {
                assert!(self.pending.is_empty() || self.is_forwarded(), "the stream ended within an event");
                return Ok(None);
            };
            if let Ok(data) = frame?.into_data() {
                self.pending.extend_from_slice(&data);
            }
        }
    }

    /// The next event as it was sent, with its newline.
    pub(crate) async fn next_line(&mut self) -> Result<Option<String>, hyper::Error> {
        Ok(self.next_bytes().await?.map(|line| String::from_utf8(line).unwrap()))
    }

    /// The same of an event that need not be UTF-8.
    pub(crate) async fn next_bytes(&mut self) -> Result<Option<Vec<u8>>, hyper::Error> {
        self.piece(|pending| Some(pending.iter().position(|&byte| byte == b'\n')? + 1)).await
    }

    /// The next frame of protobuf as it was sent, with the length in front.
    pub(crate) async fn next_frame(&mut self) -> Result<Option<Vec<u8>>, hyper::Error> {
        let length = |four: &[u8; 4]| 4 + usize::try_from(u32::from_be_bytes(*four)).unwrap();
        self.piece(|pending| pending.first_chunk().map(length)).await
    }

    /// The next event that is no bookmark. It comes by itself: a bookmark that brings it would come later.
    pub(crate) async fn next_event(&mut self) -> Value {
        loop {
            let next = timeout(EVENT, self.next()).await.unwrap_or_else(|_| panic!("nothing in {EVENT:?}"));
            let event = next.unwrap().expect("the watch goes on");
            if event["type"] != "BOOKMARK" {
                return event;
            }
        }
    }

    pub(crate) async fn next(&mut self) -> Result<Option<Value>, hyper::Error> {
        let event = if is_protobuf(&self.headers) {
            self.next_frame().await?.map(|frame| proto::event(&frame[4..]))
        } else {
            self.next_bytes().await?.map(|line| serde_json::from_str(&String::from_utf8_lossy(&line)).ok())
        };
        Ok(event.map(|event| {
            // The garbage is the apiserver's.
            assert!(event.is_some() || self.is_forwarded(), "no event in the watch {}", self.path);
            event.unwrap_or_default()
        }))
    }
}

/// Names of a list's items.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

/// `namespace/name` of an object.
pub(crate) fn key(object: &Value) -> String {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap();
    metadata["namespace"].as_str().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

/// The revision of an object or a list.
pub(crate) fn rv(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_else(|| panic!("no version: {object}")).parse().unwrap()
}
