//! A scripted server on a real socket, with TLS and ALPN or plain. A closure gives the answers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{iter, pending, poll_fn};
use futures_util::{Stream, StreamExt as _};
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle};
use tokio_rustls::TlsAcceptor;

use super::error::BoxError;
use informerd_lifecycle::spawn;
use informerd_meta::{AttributesBuilder, Object, ObjectKey, Raw, ResourceVersion};

pub type Body = UnsyncBoxBody<Bytes, Infallible>;
type Sent = UnsyncBoxBody<Bytes, BoxError>;
type Handler = Arc<dyn Fn(Request<Incoming>, Peer) -> BoxFuture<'static, Response<Sent>> + Send + Sync>;

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub connection: u64,
    pub client_certificate: bool,
}

/// A request that the server has received. Requests are kept in order.
#[derive(Clone, Debug)]
pub struct Seen {
    pub peer: Peer,
    pub method: Method,
    pub uri: String,
    pub headers: http::HeaderMap,
}

pub struct FakeServer {
    pub address: SocketAddr,
    pub seen: Arc<Mutex<Vec<Seen>>>,
    pub certificates: Option<Certificates>,
    /// How the server accepts the next connections.
    pub manners: Arc<Mutex<Manners>>,
    connections: Arc<Mutex<Vec<AbortHandle>>>,
    accepting: JoinHandle<()>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Manners {
    /// The number of connections that get no answer once TLS is established.
    pub silent: usize,
    /// The delay before TLS begins.
    pub delay: Duration,
}

/// PEM texts: the CA, a server certificate for 127.0.0.1 and a client certificate.
#[derive(Clone)]
pub struct Certificates {
    pub ca: String,
    pub server: (String, String),
    pub client: (String, String),
}

impl Default for Certificates {
    fn default() -> Self {
        Self::new()
    }
}

impl Certificates {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let leaf = |names: Vec<String>, usage| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(names).unwrap();
            params.extended_key_usages = vec![usage];
            (params.signed_by(&key, &ca).unwrap().pem(), key.serialize_pem())
        };
        Self {
            ca: ca.pem(),
            server: leaf(vec!["127.0.0.1".into()], ExtendedKeyUsagePurpose::ServerAuth),
            client: leaf(vec!["us".into()], ExtendedKeyUsagePurpose::ClientAuth),
        }
    }

    pub fn acceptor(&self, alpn: Vec<Vec<u8>>) -> TlsAcceptor {
        use rustls::pki_types::pem::PemObject as _;
        rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ca.as_bytes()).unwrap()).unwrap();
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated().build().unwrap();
        let chain = vec![CertificateDer::from_pem_slice(self.server.0.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(self.server.1.as_bytes()).unwrap();
        let config = rustls::ServerConfig::builder().with_client_cert_verifier(verifier);
        let mut config = config.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = alpn;
        TlsAcceptor::from(Arc::new(config))
    }
}

impl FakeServer {
    pub async fn plain<F, Fut, B>(handler: F) -> Self
    where
        F: Fn(Request<Incoming>, Peer) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Response<B>> + Send + 'static,
        B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        Self::start(None, 100, boxed(handler)).await
    }

    pub async fn tls<F, Fut, B>(alpn: &[&str], max_streams: u32, handler: F) -> Self
    where
        F: Fn(Request<Incoming>, Peer) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Response<B>> + Send + 'static,
        B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let alpn = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Self::start(Some(alpn), max_streams, boxed(handler)).await
    }

    /// Over TLS with these protocols, or without TLS.
    async fn start(alpn: Option<Vec<Vec<u8>>>, max_streams: u32, handler: Handler) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let certificates = alpn.as_ref().map(|_| Certificates::new());
        let acceptor = certificates.as_ref().zip(alpn).map(|(known, alpn)| known.acceptor(alpn));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(Mutex::new(Vec::new()));
        let manners = Arc::new(Mutex::new(Manners::default()));
        let (log, open, taking) = (Arc::clone(&seen), Arc::clone(&connections), Arc::clone(&manners));
        let ids = AtomicU64::new(1);
        let accepting = spawn("fake-accept", async move {
            loop {
                let Ok((tcp, _)) = listener.accept().await else { return };
                let connection = ids.fetch_add(1, Ordering::Relaxed);
                let (acceptor, handler, log) = (acceptor.clone(), Arc::clone(&handler), Arc::clone(&log));
                let Manners { silent, delay } = *taking.lock();
                taking.lock().silent = silent.saturating_sub(1);
                let task = spawn("fake-connection", async move {
                    tokio::time::sleep(delay).await;
                    let mut server = auto::Builder::new(TokioExecutor::new());
                    server.http2().timer(TokioTimer::new()).max_concurrent_streams(max_streams);
                    // As the kube-apiserver: uploads that nobody reads leave room for others.
                    server.http2().initial_connection_window_size(25 << 20);
                    let serve = |client_certificate| {
                        let peer = Peer { connection, client_certificate };
                        service_fn(move |request: Request<Incoming>| {
                            log.lock().push(Seen {
                                peer: peer.clone(),
                                method: request.method().clone(),
                                uri: request.uri().path_and_query().unwrap().to_string(),
                                headers: request.headers().clone(),
                            });
                            let answer = handler(request, peer.clone());
                            async move { Ok::<_, Infallible>(answer.await) }
                        })
                    };
                    match acceptor {
                        Some(acceptor) => {
                            let Ok(tls) = acceptor.accept(tcp).await else { return };
                            if silent > 0 {
                                let _open = tls;
                                return std::future::pending().await;
                            }
                            let certificate = tls.get_ref().1.peer_certificates().is_some();
                            server.serve_connection_with_upgrades(TokioIo::new(tls), serve(certificate)).await.ok();
                        }
                        None => {
                            server.serve_connection_with_upgrades(TokioIo::new(tcp), serve(false)).await.ok();
                        }
                    }
                });
                open.lock().push(task.abort_handle());
            }
        });
        Self { address, seen, certificates, manners, connections, accepting }
    }

    pub fn url(&self) -> String {
        url(self.address, self.certificates.as_ref())
    }

    /// A configuration that trusts this server and presents a client certificate to it.
    pub fn config(&self) -> kube::Config {
        config(self.address, self.certificates.as_ref())
    }

    /// Breaks every open connection.
    pub fn reset(&self) {
        for connection in self.connections.lock().drain(..) {
            connection.abort();
        }
    }

    pub fn requests(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    pub fn uris(&self) -> Vec<String> {
        self.seen.lock().iter().map(|seen| seen.uri.clone()).collect()
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.accepting.abort();
        self.reset();
    }
}

fn boxed<F, Fut, B>(handler: F) -> Handler
where
    F: Fn(Request<Incoming>, Peer) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Response<B>> + Send + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    Arc::new(move |request, peer| {
        let answer = handler(request, peer);
        Box::pin(async move { answer.await.map(|body| body.map_err(Into::into).boxed_unsync()) })
    })
}

fn url(address: SocketAddr, certificates: Option<&Certificates>) -> String {
    format!("{}://{address}", if certificates.is_some() { "https" } else { "http" })
}

/// A configuration that trusts the server at this address and presents a client certificate to it.
pub fn config(address: SocketAddr, certificates: Option<&Certificates>) -> kube::Config {
    use base64::Engine as _;
    use rustls::pki_types::pem::PemObject as _;
    let mut config = kube::Config::new(url(address, certificates).parse().unwrap());
    if let Some(certificates) = certificates {
        let ca = CertificateDer::from_pem_slice(certificates.ca.as_bytes()).unwrap();
        config.root_cert = Some(vec![ca.to_vec()]);
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        config.auth_info.client_certificate_data = Some(encode(&certificates.client.0));
        config.auth_info.client_key_data = Some(encode(&certificates.client.1).into());
    }
    config
}

/// Waits until it is so.
pub async fn until(is_so: impl Fn() -> bool) {
    let come = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), come).await.expect("it comes");
}

/// On a paused clock, lets time go on slowly while there is nothing to do, so that what was sent arrives before its time is over.
#[expect(clippy::disallowed_methods, reason = "real time is to go on")]
pub fn ticks() {
    spawn("clock", async {
        for step in 1_u32.. {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if step.is_multiple_of(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
}

/// A text and so many spaces that it is as long as this.
pub fn padded(text: &str, bytes: usize) -> String {
    format!("{text}{}", " ".repeat(bytes - text.len()))
}

/// A head with these lines, in this order.
pub fn head_with(lines: &[(&str, &str)]) -> http::HeaderMap {
    let line = |(name, value): &(&str, &str)| {
        let value = http::HeaderValue::from_bytes(value.as_bytes()).unwrap();
        (name.parse::<http::HeaderName>().unwrap(), value)
    };
    lines.iter().map(line).collect()
}

/// An object without any content.
pub fn bare(namespace: &str, name: &str, rv: u64) -> Object {
    let raw = Raw::new(Bytes::from_static(b"{}"), 0..0, 0..0);
    Object::new(ObjectKey::new(namespace, name), ResourceVersion(rv), AttributesBuilder::new("u").build(), raw)
}

pub fn answer(code: u16, body: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(body.into()).boxed_unsync();
    Response::builder().status(code).header("content-type", "application/json").body(body).unwrap()
}

/// An answer that does not come.
pub async fn silence() -> Response<Body> {
    std::future::pending().await
}

/// A body that streams what is sent, and ends when the sender is dropped.
pub fn streamed() -> (mpsc::Sender<Bytes>, Response<Body>) {
    let (sender, mut receiver) = mpsc::channel::<Bytes>(64);
    (sender, streaming(poll_fn(move |cx| receiver.poll_recv(cx))))
}

/// A body that has these chunks, and no end.
pub fn endless(chunks: Vec<Bytes>) -> Response<Body> {
    streaming(iter(chunks).chain(pending()))
}

fn streaming(chunks: impl Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    let frames = chunks.map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)));
    let response = Response::builder().header("content-type", "application/json");
    response.body(StreamBody::new(frames).boxed_unsync()).unwrap()
}
