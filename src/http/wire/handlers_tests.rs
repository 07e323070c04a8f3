use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::duplex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::*;
use crate::http::answer::full;
use crate::http::door::OpenHeads;
use crate::http::testing::{http2_client, until};
use crate::lifecycle::spawn;
use crate::memory::{Ledger, Pressure};

type Sent = Empty<Bytes>;

/// The requests of a connection that are handled only if there is memory for them.
const FURTHER: usize = MOST_RUNNING - FEW;

/// Begins its answers when it is told to.
struct Held {
    begun: watch::Sender<usize>,
    released: watch::Sender<bool>,
}

impl Handler for Held {
    fn handle(&self, request: Request<RequestBody>, _: &Arc<Connection>) -> BoxFuture<Response<Body>> {
        if request.extensions().get::<NoRoom>().is_some() {
            let mut refused = Response::new(full(Bytes::from_static(b"refused")));
            *refused.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            return Box::pin(std::future::ready(refused));
        }
        self.begun.send_modify(|begun| *begun += 1);
        let mut released = self.released.subscribe();
        Box::pin(async move {
            released.wait_for(|released| *released).await.unwrap();
            Response::new(full(Bytes::from_static(b"answer")))
        })
    }
}

struct Scene {
    handler: Arc<Held>,
    heads: Arc<OpenHeads>,
    ledger: Ledger,
    unreserved: Unreserved,
    /// Answers begin as long as there are some.
    answers: Arc<Semaphore>,
    metrics: Arc<HttpMetrics>,
}

impl Scene {
    /// Heads that wait may take an eighth of `limit`, and those of one address half of that.
    fn new(limit: usize) -> Self {
        let (ledger, metrics) = (Ledger::new(limit, Pressure::default()), Arc::<HttpMetrics>::default());
        let heads = OpenHeads::new(ledger.clone(), 1 << 20, Arc::clone(&metrics));
        let handler = Arc::new(Held { begun: watch::Sender::new(0), released: watch::Sender::new(false) });
        let answers = Arc::new(Semaphore::new(10_000));
        Self { handler, heads, ledger, unreserved: Unreserved::new(limit), answers, metrics }
    }

    /// A client of a new connection from this host.
    async fn connect(&self, host: u8) -> http2::SendRequest<Sent> {
        let (ours, theirs) = duplex(64 << 10);
        let head = self.heads.of(Some([10, 0, 0, host].into()));
        let (unreserved, metrics) = (self.unreserved.clone(), Arc::clone(&self.metrics));
        let handlers = Handlers::new(Arc::clone(&self.handler) as _, MOST_RUNNING, unreserved, head, metrics);
        let connection = Arc::new(Connection::new("http://127.0.0.1:0".parse().unwrap(), None));
        let answers = Arc::clone(&self.answers);
        let service = service_fn(move |request: Request<Incoming>| {
            let handled = handlers.handle(request.map(RequestBody::Http1), &connection);
            let answers = Arc::clone(&answers);
            async move {
                let handled = handled.ok_or_else(|| h2::Error::from(h2::Reason::REFUSED_STREAM))?;
                let (response, _place) = handled.await;
                answers.acquire().await.unwrap().forget();
                Ok::<_, h2::Error>(response)
            }
        });
        let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        server.max_concurrent_streams(10_000).max_header_list_size(1 << 20);
        spawn("server", async move { server.serve_connection(TokioIo::new(ours), service).await.ok() });
        http2_client(theirs).await.0
    }

    /// Lets all go on, who then have their answers and leave nothing.
    async fn release(&self, answers: impl IntoIterator<Item = Answer>) {
        self.handler.released.send_replace(true);
        for answer in answers {
            assert_eq!(answer.await.unwrap(), (StatusCode::OK, Bytes::from_static(b"answer")));
        }
        assert_eq!((self.metrics.requests_waiting.get(), self.ledger.used()), (0, 0));
    }

    async fn begun(&self, count: usize) {
        let mut begun = self.handler.begun.subscribe();
        let seen = tokio::time::timeout(Duration::from_secs(30), begun.wait_for(|begun| *begun >= count)).await;
        assert_eq!(*seen.unwrap().unwrap(), count);
    }
}

type Answer = JoinHandle<(StatusCode, Bytes)>;

fn ask(client: &http2::SendRequest<Sent>, count: usize) -> Vec<Answer> {
    (0..count).map(|_| send(client, 0)).collect()
}

/// A request with this many small headers.
fn send(client: &http2::SendRequest<Sent>, headers: usize) -> Answer {
    let mut request = Request::get("http://host/").body(Empty::new()).unwrap();
    for _ in 0..headers {
        request.headers_mut().append("a", HeaderValue::from_static(""));
    }
    let mut client = client.clone();
    spawn("request", async move {
        let response = client.send_request(request).await.unwrap();
        (response.status(), response.into_body().collect().await.unwrap().to_bytes())
    })
}

#[tokio::test(start_paused = true)]
async fn requests_of_one_connection_wait_their_turn_and_those_of_others_do_not() {
    let scene = Scene::new(64 << 20);
    let (one, other) = (scene.connect(1).await, scene.connect(2).await);
    let mut answers = ask(&one, MOST_RUNNING + 40);
    scene.begun(MOST_RUNNING).await;
    until(|| scene.metrics.requests_waiting.get() == 40).await;
    let before = FURTHER * RUNNING + 40 * (WAITING + "/".len());
    assert_eq!(scene.ledger.used(), before);
    answers.push(send(&one, 500));
    until(|| scene.metrics.requests_waiting.get() == 41).await;
    assert!(scene.ledger.used() >= before + WAITING + 500 * HEADER_COST, "{}", scene.ledger.used());
    let others = ask(&other, 1);
    scene.begun(MOST_RUNNING + 1).await;
    scene.release(answers.into_iter().chain(others)).await;
}

#[tokio::test(start_paused = true)]
async fn requests_for_whose_heads_there_is_no_memory_are_refused() {
    // There is room for four requests that wait.
    let scene = Scene::new(8 * 2 * (FURTHER * RUNNING + 4 * (WAITING + 1)));
    let client = scene.connect(1).await;
    let mut answers = ask(&client, MOST_RUNNING + 20);
    scene.begun(MOST_RUNNING).await;
    until(|| scene.metrics.requests_waiting.get() == 20).await;
    let begun = tokio::time::Instant::now();
    until(|| answers.iter().filter(|answer| answer.is_finished()).count() == 20).await;
    assert!(begun.elapsed() > WAIT / 2, "they wait before");
    for answer in answers.extract_if(.., |answer| answer.is_finished()) {
        let (status, body) = answer.await.unwrap();
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{body:?}");
    }
    assert_eq!(scene.metrics.requests_waiting.get(), 0);
    scene.release(answers).await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_memory_is_handled_once_there_is_some() {
    let scene = Scene::new(8 * 2 * 10 * RUNNING);
    let (one, other) = (scene.connect(1).await, scene.connect(1).await);
    let answers = ask(&one, FEW + 10);
    scene.begun(FEW + 10).await;
    let others = ask(&other, FEW + 20);
    until(|| scene.metrics.requests_waiting.get() == 20).await;
    scene.release(answers.into_iter().chain(others)).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_given_up_while_it_waits_leaves_nothing() {
    let scene = Scene::new(64 << 20);
    let client = scene.connect(1).await;
    let running = ask(&client, MOST_RUNNING);
    scene.begun(MOST_RUNNING).await;
    let waiting = ask(&client, 3);
    until(|| scene.metrics.requests_waiting.get() == 3).await;
    for answer in waiting {
        answer.abort();
    }
    until(|| scene.metrics.requests_waiting.get() == 0 && scene.ledger.used() == FURTHER * RUNNING).await;
    scene.release(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_waited_keeps_its_place_until_its_answer_begins() {
    let scene = Scene { answers: Arc::new(Semaphore::new(0)), ..Scene::new(0) };
    let client = scene.connect(1).await;
    scene.handler.released.send_replace(true);
    let mut answers = ask(&client, FEW);
    for handled in [FEW, 2 * FEW] {
        scene.begun(handled).await;
        answers.extend(ask(&client, FEW));
        until(|| scene.metrics.requests_waiting.get() == FEW as i64).await;
        scene.begun(handled).await;
        scene.answers.add_permits(FEW);
    }
    scene.answers.add_permits(FEW);
    scene.release(answers).await;
}

/// The running ones may need the answer of one that waits.
#[tokio::test(start_paused = true)]
async fn no_request_waits_for_ever() {
    let scene = Scene::new(64 << 20);
    let client = scene.connect(1).await;
    let answers = ask(&client, MOST_RUNNING + 2);
    scene.begun(MOST_RUNNING).await;
    scene.begun(MOST_RUNNING + 2).await;
    assert!(scene.ledger.used() >= (FURTHER + 2) * RUNNING);
    scene.release(answers).await;
}

#[tokio::test(start_paused = true)]
async fn what_comes_while_too_many_wait_for_memory_is_reset_at_once_and_who_waits_is_handled() {
    let mut scene = Scene::new(8 * 2 * 10 * RUNNING);
    scene.unreserved = Unreserved::new(SHARE * UNRESERVED);
    let (one, other) = (scene.connect(1).await, scene.connect(1).await);
    let mut answers = ask(&one, FEW + 10);
    scene.begun(FEW + 10).await;
    answers.extend(ask(&other, FEW));
    scene.begun(FEW + 10 + FEW).await;
    for (client, waiting, all) in [(&one, FEW + 1, 5), (&other, FEW, 9)] {
        answers.extend(ask(client, waiting));
        until(|| scene.metrics.requests_waiting.get() == all).await;
        let request = Request::get("http://host/").body(Empty::new()).unwrap();
        let error = client.clone().send_request(request).await.unwrap_err();
        let reset = std::error::Error::source(&error).unwrap().downcast_ref::<h2::Error>().unwrap();
        assert_eq!(reset.reason(), Some(h2::Reason::REFUSED_STREAM));
    }
    assert_eq!(scene.metrics.requests_refused.get(), 2);
    scene.release(answers).await;
}
