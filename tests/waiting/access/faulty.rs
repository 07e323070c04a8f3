//! A proxy between the daemon and the apiserver that does with reviews, and with the watches of roles and bindings, as it is
//! told.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::body::Incoming;
use informerd::apiserver::client::ConfigSource;
use kube::config::AuthInfo;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::cluster::Cluster;
use crate::support::client::Client;
use crate::support::serve::{connection, listen};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// Before each review.
    Slow(Duration),
    /// 500.
    Failing,
    /// The connection ends.
    Down,
    /// 201, and nonsense.
    Nonsense,
    /// Accesses are allowed by rights as they were before.
    Stale,
}

/// What becomes of the watches of roles and bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watches {
    Live,
    /// Those that are open end, and no other begins.
    Ended,
    /// Those that are open say nothing more, and do not end. Others live.
    Silent,
}

/// Counts the reviews that it saw, and how many there were at once.
#[derive(Debug)]
pub(super) struct Faulty {
    pub source: ConfigSource,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    fault: Mutex<Fault>,
    watches: watch::Sender<Watches>,
    /// Watches of roles and bindings that were ever opened.
    opened: AtomicUsize,
    tokens: AtomicUsize,
    accesses: AtomicUsize,
    now: AtomicUsize,
    peak: AtomicUsize,
}

struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

type Answer = Response<UnsyncBoxBody<Bytes, hyper::Error>>;

impl Faulty {
    pub(super) async fn before(cluster: &Cluster) -> Self {
        let state = Arc::new(State {
            fault: Mutex::new(Fault::None),
            watches: watch::Sender::new(Watches::Live),
            opened: AtomicUsize::new(0),
            tokens: AtomicUsize::new(0),
            accesses: AtomicUsize::new(0),
            now: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
        });
        let server = Client::tls_anonymous(&cluster.info.server, &cluster.info.ca);
        let shared = state.clone();
        let address = listen(None, move |stream| {
            let (state, server) = (shared.clone(), server.clone());
            connection(stream, move |request| {
                let (state, server) = (state.clone(), server.clone());
                async move { state.pass(request, &server).await.map_err(Into::into) }
            })
        })
        .await;
        let mut config = kube::Config::new(format!("http://{address}").parse().unwrap());
        config.auth_info = AuthInfo { token: Some("admin-token".to_owned().into()), ..AuthInfo::default() };
        Self { source: ConfigSource::Fixed(Box::new(config)), state }
    }

    pub(super) fn set(&self, fault: Fault) {
        *self.state.fault.lock() = fault;
    }

    pub(super) fn watches(&self, watches: Watches) {
        self.state.watches.send_replace(watches);
    }

    /// Watches of roles and bindings that were ever opened.
    pub(super) fn opened(&self) -> usize {
        self.state.opened.load(Ordering::SeqCst)
    }

    /// Token reviews and access reviews.
    pub(super) fn seen(&self) -> (usize, usize) {
        (self.state.tokens.load(Ordering::SeqCst), self.state.accesses.load(Ordering::SeqCst))
    }

    pub(super) fn peak(&self) -> usize {
        self.state.peak.load(Ordering::SeqCst)
    }
}

impl State {
    async fn pass(&self, request: Request<Incoming>, server: &Client) -> io::Result<Answer> {
        let counter = match request.uri().path() {
            path if path.ends_with("/tokenreviews") => &self.tokens,
            path if path.ends_with("/subjectaccessreviews") => &self.accesses,
            path if path.starts_with("/apis/rbac.authorization.k8s.io/") => {
                return Ok(self.rights(request, server).await);
            }
            _ => return Ok(forward(request, server).await),
        };
        counter.fetch_add(1, Ordering::SeqCst);
        let _running = self.running();
        let is_token = request.uri().path().ends_with("/tokenreviews");
        let fault = *self.fault.lock();
        match fault {
            Fault::None => Ok(forward(request, server).await),
            Fault::Slow(pause) => {
                tokio::time::sleep(pause).await;
                Ok(forward(request, server).await)
            }
            Fault::Failing => Ok(say(StatusCode::INTERNAL_SERVER_ERROR, "no")),
            Fault::Nonsense => Ok(say(StatusCode::CREATED, r#"{"status":{"allowed":"yes","authenticated":"yes"}}"#)),
            Fault::Stale if is_token => Ok(forward(request, server).await),
            Fault::Stale => {
                Ok(say(StatusCode::CREATED, r#"{"status":{"allowed":true,"reason":"RBAC: allowed by RoleBinding"}}"#))
            }
            Fault::Down => Err(io::Error::other("down")),
        }
    }

    /// One more is running, until what this returns is dropped: a review that its client gave up does not run any more.
    fn running(&self) -> Running<'_> {
        let running = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak.fetch_max(running, Ordering::SeqCst);
        Running(&self.now)
    }

    async fn rights(&self, request: Request<Incoming>, server: &Client) -> Answer {
        let mut watches = self.watches.subscribe();
        if *watches.borrow_and_update() == Watches::Ended {
            return say(StatusCode::SERVICE_UNAVAILABLE, "no");
        }
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let answer = forward(request, server).await;
        if !is_watch {
            return answer;
        }
        self.opened.fetch_add(1, Ordering::SeqCst);
        let (head, body) = answer.into_parts();
        let over = async move {
            watches.changed().await.ok();
            if *watches.borrow() == Watches::Silent {
                std::future::pending::<()>().await;
            }
        };
        // What is silent is not read any more, either.
        let mut silenced = self.watches.subscribe();
        silenced.mark_unchanged();
        let frames = body.into_data_stream().map_ok(Frame::data).filter_map(move |frame| {
            let silent = silenced.has_changed().unwrap_or(false) && *silenced.borrow() == Watches::Silent;
            std::future::ready((!silent).then_some(frame))
        });
        Response::from_parts(head, StreamBody::new(frames.take_until(Box::pin(over))).boxed_unsync())
    }
}

fn say(status: StatusCode, text: &'static str) -> Answer {
    let body =
        Full::new(Bytes::from_static(text.as_bytes())).map_err(|never: Infallible| match never {}).boxed_unsync();
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
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = head.status;
    *answer.headers_mut() = head.headers;
    answer
}
