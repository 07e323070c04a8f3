//! A proxy between the daemon and the apiserver that does with reviews as it is told.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use informerd::lifecycle;
use informerd::upstream::client::ConfigSource;
use kube::config::AuthInfo;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use crate::cluster::Cluster;
use crate::support::client::Client;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Before each review.
    Slow(Duration),
    /// 500.
    Failing,
    /// The connection ends.
    Down,
    /// 201, and nonsense.
    Nonsense,
}

/// Counts the reviews that it saw, and how many there were at once.
#[derive(Debug)]
pub struct Faulty {
    pub source: ConfigSource,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    fault: Mutex<Fault>,
    tokens: AtomicUsize,
    accesses: AtomicUsize,
    now: AtomicUsize,
    peak: AtomicUsize,
}

type Answer = Response<BoxBody<Bytes, hyper::Error>>;

impl Faulty {
    pub async fn before(cluster: &Cluster) -> Self {
        let state = Arc::new(State {
            fault: Mutex::new(Fault::None),
            tokens: AtomicUsize::new(0),
            accesses: AtomicUsize::new(0),
            now: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Client::tls_anonymous(&cluster.info.server, &cluster.info.ca);
        let shared = state.clone();
        lifecycle::spawn("faulty", async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let (state, server) = (shared.clone(), server.clone());
                lifecycle::spawn("faulty-connection", async move {
                    let service = service_fn(|request: Request<Incoming>| {
                        let (state, server) = (state.clone(), server.clone());
                        async move { state.pass(request, &server).await }
                    });
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    builder.serve_connection(TokioIo::new(stream), service).await.ok();
                });
            }
        });
        let mut config = kube::Config::new(format!("http://{address}").parse().unwrap());
        config.auth_info = AuthInfo { token: Some("admin-token".to_owned().into()), ..AuthInfo::default() };
        Self { source: ConfigSource::Fixed(Box::new(config)), state }
    }

    pub fn set(&self, fault: Fault) {
        *self.state.fault.lock() = fault;
    }

    /// Token reviews and access reviews.
    pub fn seen(&self) -> (usize, usize) {
        (self.state.tokens.load(Ordering::SeqCst), self.state.accesses.load(Ordering::SeqCst))
    }

    pub fn peak(&self) -> usize {
        self.state.peak.load(Ordering::SeqCst)
    }
}

impl State {
    async fn pass(&self, request: Request<Incoming>, server: &Client) -> io::Result<Answer> {
        let counter = match request.uri().path() {
            path if path.ends_with("/tokenreviews") => &self.tokens,
            path if path.ends_with("/subjectaccessreviews") => &self.accesses,
            _ => return Ok(forward(request, server).await),
        };
        counter.fetch_add(1, Ordering::SeqCst);
        self.peak.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let fault = *self.fault.lock();
        let answer = match fault {
            Fault::None => Ok(forward(request, server).await),
            Fault::Slow(pause) => {
                tokio::time::sleep(pause).await;
                Ok(forward(request, server).await)
            }
            Fault::Failing => Ok(say(StatusCode::INTERNAL_SERVER_ERROR, "no")),
            Fault::Nonsense => Ok(say(StatusCode::CREATED, r#"{"status":{"allowed":"yes","authenticated":"yes"}}"#)),
            Fault::Down => Err(io::Error::other("down")),
        };
        self.now.fetch_sub(1, Ordering::SeqCst);
        answer
    }
}

fn say(status: StatusCode, text: &'static str) -> Answer {
    let body = Full::new(Bytes::from_static(text.as_bytes())).map_err(|never: Infallible| match never {}).boxed();
    Response::builder().status(status).body(body).unwrap()
}

async fn forward(request: Request<Incoming>, server: &Client) -> Answer {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let target = head.uri.path_and_query().unwrap().as_str().to_owned();
    let headers: Vec<(String, String)> = head
        .headers
        .iter()
        .filter(|(name, _)| !["host", "connection", "content-length", "transfer-encoding"].contains(&name.as_str()))
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let (head, body) = server.send(head.method, &target, &headers, body).await.into_parts();
    let mut answer = Response::new(body.boxed());
    *answer.status_mut() = head.status;
    *answer.headers_mut() = head.headers;
    answer
}
