//! An HTTP proxy between the daemon and one or two kube-apiservers that can hold watch events back, cut what is open, and
//! change the apiserver: what a load balancer and a slow network do.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, HOST, HeaderValue, TRANSFER_ENCODING};
use http::{Request, Response, Uri};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use informerd::lifecycle::spawn;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Frames on their way to the daemon; the server writes far fewer in the time they are held back.
const HELD: usize = 10_000;

pub(super) struct Proxy {
    pub url: String,
    shared: Arc<Shared>,
}

struct Shared {
    /// `https://127.0.0.1:port` of each apiserver.
    backends: Vec<String>,
    chosen: AtomicUsize,
    /// Milliseconds by which watch events are late, for each apiserver.
    lag: Vec<AtomicU64>,
    /// Moves when what is open is to be cut.
    cuts: watch::Sender<u64>,
    /// So many watches more are answered with 200 and nothing.
    empty: AtomicU64,
    client: Client<HttpsConnector<HttpConnector>, Incoming>,
}

impl Proxy {
    pub(super) async fn start(ca: &std::path::Path, backends: &[&str]) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(ca).unwrap() {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1().build();
        let shared = Arc::new(Shared {
            backends: backends.iter().map(|&url| url.to_owned()).collect(),
            chosen: AtomicUsize::new(0),
            lag: backends.iter().map(|_| AtomicU64::new(0)).collect(),
            cuts: watch::Sender::new(0),
            empty: AtomicU64::new(0),
            client: Client::builder(TokioExecutor::new()).build(connector),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = Arc::clone(&shared);
        spawn("proxy", async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&serving);
                let mut cuts = shared.cuts.subscribe();
                spawn("proxied", async move {
                    let service = hyper::service::service_fn(move |request| {
                        let shared = Arc::clone(&shared);
                        async move { Ok::<_, Infallible>(shared.relay(request).await) }
                    });
                    let server = auto::Builder::new(TokioExecutor::new());
                    let serving = server.serve_connection(TokioIo::new(stream), service);
                    tokio::select! {
                        _ = serving => {}
                        _ = cuts.changed() => {}
                    }
                });
            }
        });
        Self { url, shared }
    }

    /// From now on requests go to this apiserver; what is open stays.
    pub(super) fn choose(&self, backend: usize) {
        self.shared.chosen.store(backend, Ordering::Relaxed);
    }

    /// Holds back the events of watches through this apiserver from now on.
    pub(super) fn lag(&self, backend: usize, by: Duration) {
        self.shared.lag[backend].store(u64::try_from(by.as_millis()).unwrap(), Ordering::Relaxed);
    }

    /// Answers the next watches with 200 and nothing, as a load balancer does that has lost its backend.
    pub(super) fn answer_nothing(&self, watches: u64) {
        self.shared.empty.store(watches, Ordering::Relaxed);
    }

    /// Watches that are still to be answered so.
    pub(super) fn to_be_empty(&self) -> u64 {
        self.shared.empty.load(Ordering::Relaxed)
    }

    /// Closes every connection of the daemon.
    pub(super) fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }
}

impl Shared {
    async fn relay(&self, request: Request<Incoming>) -> Response<Body> {
        let backend = self.chosen.load(Ordering::Relaxed);
        let (mut head, body) = request.into_parts();
        let target = head.uri.path_and_query().unwrap().as_str();
        let is_watch = target.contains("watch=");
        let count_down = |left: u64| left.checked_sub(1);
        if is_watch && self.empty.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count_down).is_ok() {
            return Response::new(full(String::new()));
        }
        head.uri = format!("{}{target}", self.backends[backend]).parse::<Uri>().unwrap();
        head.version = http::Version::HTTP_11;
        head.headers.remove(HOST);
        head.headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer admin-token"));
        let answer = match self.client.request(Request::from_parts(head, body)).await {
            Ok(answer) => answer,
            Err(error) => {
                let mut response = Response::new(full(format!("{error}")));
                *response.status_mut() = http::StatusCode::BAD_GATEWAY;
                return response;
            }
        };
        let (mut head, body) = answer.into_parts();
        head.headers.remove(CONNECTION);
        head.headers.remove(TRANSFER_ENCODING);
        head.version = http::Version::HTTP_11;
        let lag = Duration::from_millis(self.lag[backend].load(Ordering::Relaxed));
        let body = if is_watch && !lag.is_zero() { late(body, lag) } else { body.map_err(Into::into).boxed_unsync() };
        Response::from_parts(head, body)
    }
}

fn full(text: String) -> Body {
    http_body_util::Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync()
}

/// The same frames, each so much later.
fn late(mut body: Incoming, lag: Duration) -> Body {
    let (sender, receiver) = mpsc::channel(HELD);
    spawn("late", async move {
        while let Some(frame) = body.frame().await {
            if sender.send((Instant::now() + lag, frame)).await.is_err() {
                return;
            }
        }
    });
    let frames = futures_util::stream::unfold(receiver, |mut receiver| async move {
        let (due, frame): (Instant, Result<Frame<Bytes>, hyper::Error>) = receiver.recv().await?;
        sleep_until(due).await;
        Some((frame.map_err(Into::into), receiver))
    });
    StreamBody::new(frames).boxed_unsync()
}
