//! An HTTP proxy between the daemon and one or two kube-apiservers that can hold watch events back, cut what is open, and
//! change the apiserver: what a load balancer and a slow network do.

use std::pin::Pin;
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
use hyper_util::rt::TokioExecutor;
use informerd::lifecycle::spawn;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::support::client::trusting;
use crate::support::serve::{connection, listen};

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
    /// How the paths of the watches end that are muted, and the first one that is not.
    mute: watch::Sender<(String, u64)>,
    /// Watches that were ever opened.
    opened: AtomicU64,
    client: Client<HttpsConnector<HttpConnector>, Incoming>,
}

impl Proxy {
    pub(super) async fn start(ca: &std::path::Path, backends: &[&str]) -> Self {
        let connector = HttpsConnectorBuilder::new().with_tls_config(trusting(ca)).https_only().enable_http1().build();
        let shared = Arc::new(Shared {
            backends: backends.iter().map(|&url| url.to_owned()).collect(),
            chosen: AtomicUsize::new(0),
            lag: backends.iter().map(|_| AtomicU64::new(0)).collect(),
            cuts: watch::Sender::new(0),
            mute: watch::Sender::default(),
            opened: AtomicU64::new(0),
            client: Client::builder(TokioExecutor::new()).build(connector),
        });
        let serving = Arc::clone(&shared);
        let address = listen(None, move |stream| {
            let shared = Arc::clone(&serving);
            let mut cuts = shared.cuts.subscribe();
            let answered = connection(stream, move |request| {
                let shared = Arc::clone(&shared);
                async move { Ok(shared.relay(request).await) }
            });
            let mut answered: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(answered);
            async move {
                tokio::select! {
                    () = &mut answered => {}
                    _ = cuts.changed() => {}
                }
            }
        })
        .await;
        Self { url: format!("http://{address}"), shared }
    }

    /// From now on requests go to this apiserver; what is open stays.
    pub(super) fn choose(&self, backend: usize) {
        self.shared.chosen.store(backend, Ordering::Relaxed);
    }

    /// Holds back the events of watches through this apiserver from now on.
    pub(super) fn lag(&self, backend: usize, by: Duration) {
        self.shared.lag[backend].store(u64::try_from(by.as_millis()).unwrap(), Ordering::Relaxed);
    }

    /// Watches that are open now and whose path ends like this say nothing more, and stay open.
    pub(super) fn mute(&self, path: &str) {
        self.shared.mute.send_replace((path.to_owned(), self.shared.opened.load(Ordering::SeqCst)));
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
        let path = head.uri.path().to_owned();
        head.uri = format!("{}{target}", self.backends[backend]).parse::<Uri>().unwrap();
        head.version = http::Version::HTTP_11;
        head.headers.remove(HOST);
        head.headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer admin-token"));
        let answer = match self.client.request(Request::from_parts(head, body)).await {
            Ok(answer) => answer,
            Err(error) => {
                return Response::builder().status(502).body(full(error.to_string().into())).unwrap();
            }
        };
        let (mut head, body) = answer.into_parts();
        head.headers.remove(CONNECTION);
        head.headers.remove(TRANSFER_ENCODING);
        head.version = http::Version::HTTP_11;
        let lag = Duration::from_millis(self.lag[backend].load(Ordering::Relaxed));
        let body = if is_watch && !lag.is_zero() {
            late(body, lag)
        } else if is_watch {
            let number = self.opened.fetch_add(1, Ordering::SeqCst);
            muted(body, path, number, self.mute.subscribe())
        } else {
            body.map_err(Into::into).boxed_unsync()
        };
        Response::from_parts(head, body)
    }
}

fn full(body: Bytes) -> Body {
    http_body_util::Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

/// The frames, but for those that are dropped; then the body does not end.
fn muted(body: Incoming, path: String, number: u64, mute: watch::Receiver<(String, u64)>) -> Body {
    let is_muted = move || {
        let state = mute.borrow();
        path.ends_with(&state.0) && number < state.1
    };
    let frames = futures_util::stream::unfold((body, is_muted), |(mut body, is_muted)| async move {
        loop {
            match body.frame().await {
                Some(_) if is_muted() => {}
                None if is_muted() => std::future::pending::<()>().await,
                Some(frame) => return Some((frame.map_err(Into::into), (body, is_muted))),
                None => return None,
            }
        }
    });
    StreamBody::new(frames).boxed_unsync()
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
