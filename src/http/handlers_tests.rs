use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::duplex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::*;
use crate::http::body::full;
use crate::http::open_head::{OF_HEADS, OpenHeads};
use crate::http::server::BoxFuture;
use crate::lifecycle::spawn;
use crate::memory::{Ledger, Pressure};

/// Begins its answers when it is told to.
struct Held {
    begun: watch::Sender<usize>,
    released: watch::Sender<bool>,
}

impl Handler for Held {
    fn handle(&self, request: Request<Incoming>, _: &Arc<Connection>) -> BoxFuture<Response<Body>> {
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
    running: Arc<OpenHeads>,
    refused: Arc<OpenHeads>,
    ledger: Ledger,
    metrics: Arc<HttpMetrics>,
}

impl Scene {
    /// Requests may take an eighth of `limit`, refusals as much, and those of one address half of that.
    fn new(limit: usize) -> Self {
        let (ledger, metrics) = (Ledger::new(limit, Pressure::default()), Arc::<HttpMetrics>::default());
        let heads = || OpenHeads::new(ledger.clone(), OF_HEADS, 1 << 20, Arc::clone(&metrics));
        let (running, refused) = (heads(), heads());
        let handler = Arc::new(Held { begun: watch::Sender::new(0), released: watch::Sender::new(false) });
        Self { handler, running, refused, ledger, metrics }
    }

    /// A client of a new connection from this host. It ends as the server's do.
    async fn connect(&self, host: u8) -> http2::SendRequest<Empty<Bytes>> {
        let (ours, theirs) = duplex(64 << 10);
        let [running, refused] = [&self.running, &self.refused].map(|heads| heads.of(Some([10, 0, 0, host].into())));
        let handler = Arc::clone(&self.handler) as Arc<dyn Handler>;
        let handlers = Arc::new(Handlers::new(handler, running, refused, Arc::clone(&self.metrics)));
        let connection = Arc::new(Connection::new("http://127.0.0.1:0".parse().unwrap(), None));
        let of = Arc::clone(&connection);
        let service = service_fn(move |request| {
            let response = handlers.handle(request, &of);
            async move { Ok::<_, Infallible>(response.await) }
        });
        let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        server.max_concurrent_streams(10_000).max_header_list_size(1 << 20);
        spawn("server", async move {
            tokio::select! {
                _ = server.serve_connection(TokioIo::new(ours), service) => {}
                () = connection.sent_away() => {}
            }
        });
        // Bodies do not arrive before they are read.
        let mut client = http2::Builder::new(TokioExecutor::new());
        client.initial_stream_window_size(0);
        let (client, connection) = client.handshake(TokioIo::new(theirs)).await.unwrap();
        spawn("client", async move { connection.await.ok() });
        client
    }

    async fn begun(&self, count: usize) {
        let mut begun = self.handler.begun.subscribe();
        let seen = tokio::time::timeout(Duration::from_secs(30), begun.wait_for(|begun| *begun >= count)).await;
        assert_eq!(*seen.unwrap().unwrap(), count);
    }
}

type Answers = Vec<JoinHandle<Option<StatusCode>>>;

fn ask(client: &http2::SendRequest<Empty<Bytes>>, count: usize) -> Answers {
    (0..count).map(|_| send(client, 0)).collect()
}

/// A request with this many small headers. Its answer is not read. `None` if there is no answer.
fn send(client: &http2::SendRequest<Empty<Bytes>>, headers: usize) -> JoinHandle<Option<StatusCode>> {
    let mut request = Request::get("http://host/").body(Empty::new()).unwrap();
    for _ in 0..headers {
        request.headers_mut().append("a", HeaderValue::from_static(""));
    }
    let mut client = client.clone();
    spawn("request", async move {
        let response = client.send_request(request).await.ok()?;
        let status = response.status();
        // The refusals of a client that reads nothing stay.
        if status == StatusCode::TOO_MANY_REQUESTS {
            spawn("unread", async move {
                let _unread = response;
                std::future::pending::<()>().await;
            });
        }
        Some(status)
    })
}

async fn until(what: impl Fn() -> bool) {
    let waits = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waits).await.unwrap();
}

/// What one request takes.
const ONE: usize = RUNNING + "/".len();

async fn answered(answers: Answers, status: StatusCode) {
    for answer in answers {
        assert_eq!(answer.await.unwrap(), Some(status));
    }
}

#[tokio::test(start_paused = true)]
async fn memory_is_reserved_until_an_answer_begins() {
    let scene = Scene::new(64 << 20);
    let (one, other) = (scene.connect(1).await, scene.connect(2).await);
    let free = ask(&one, FREE);
    scene.begun(FREE).await;
    assert_eq!(scene.ledger.used(), 0);
    let further = ask(&one, 40);
    scene.begun(FREE + 40).await;
    assert_eq!(scene.ledger.used(), 40 * ONE);
    let others = ask(&other, FREE + 1);
    scene.begun(2 * FREE + 41).await;
    assert_eq!(scene.ledger.used(), 41 * ONE);
    scene.handler.released.send_replace(true);
    answered([free, further, others].into_iter().flatten().collect(), StatusCode::OK).await;
    assert_eq!(scene.ledger.used(), 0, "although nobody has read the answers");
}

#[tokio::test(start_paused = true)]
async fn requests_for_which_there_is_no_memory_are_refused() {
    // There is room for eight requests, and for four of one address.
    let scene = Scene::new(8 * 8 * ONE);
    let (one, other) = (scene.connect(1).await, scene.connect(2).await);
    let running = ask(&one, FREE + 4);
    scene.begun(FREE + 4).await;
    answered(ask(&one, 3), StatusCode::TOO_MANY_REQUESTS).await;
    assert_eq!(scene.ledger.used(), 4 * ONE + 3 * REFUSED);
    let others = ask(&other, FREE + 4);
    scene.begun(2 * FREE + 8).await;
    scene.handler.released.send_replace(true);
    answered(running.into_iter().chain(others).collect(), StatusCode::OK).await;
    assert_eq!(scene.ledger.used(), 3 * REFUSED, "until they are read");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_reads_no_refusals_is_cut() {
    let scene = Scene::new(8 * 8 * ONE);
    let (one, other) = (scene.connect(1).await, scene.connect(2).await);
    let running = ask(&one, FREE + 4);
    scene.begun(FREE + 4).await;
    let most = 4 * ONE / REFUSED;
    answered(ask(&one, most), StatusCode::TOO_MANY_REQUESTS).await;
    assert_eq!(scene.metrics.heads_cut.get(), 0);
    for answer in running.into_iter().chain(ask(&one, 1)) {
        assert_eq!(answer.await.unwrap(), None);
    }
    assert_eq!(scene.metrics.heads_cut.get(), 1);
    until(|| scene.ledger.used() == 0).await;
    scene.handler.released.send_replace(true);
    answered(ask(&other, 1), StatusCode::OK).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_given_up_leaves_nothing() {
    let scene = Scene::new(64 << 20);
    let client = scene.connect(1).await;
    let running = ask(&client, FREE + 3);
    scene.begun(FREE + 3).await;
    running.iter().for_each(JoinHandle::abort);
    until(|| scene.ledger.used() == 0).await;
    let again = ask(&client, FREE);
    scene.begun(2 * FREE + 3).await;
    assert_eq!(scene.ledger.used(), 0);
    scene.handler.released.send_replace(true);
    answered(again, StatusCode::OK).await;
}

#[tokio::test(start_paused = true)]
async fn requests_with_many_headers_take_more() {
    let scene = Scene::new(64 << 20);
    let client = scene.connect(1).await;
    let mut answers = ask(&client, FREE);
    scene.begun(FREE).await;
    answers.push(send(&client, 500));
    scene.begun(FREE + 1).await;
    assert!(scene.ledger.used() >= 500 * HEADER_COST, "{}", scene.ledger.used());
    scene.handler.released.send_replace(true);
    answered(answers, StatusCode::OK).await;
    assert_eq!(scene.ledger.used(), 0);
}

#[test]
fn an_answer_that_has_not_begun_is_small() {
    assert!(size_of::<Handled>() <= 5 * size_of::<usize>());
}
