use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use parking_lot::Mutex;
use tokio::io::duplex;
use tokio::sync::watch;
use tokio::task::{Id, JoinHandle};

use super::super::io::Bounded;
use super::super::protocol::{Protocols, default_limits};
use super::*;
use crate::http::answer::BoxError;
use crate::http::door::OpenHead;
use crate::http::testing::http2_client;
use crate::lifecycle::testing::Wakes;

/// Sends a line for each value, and ends with zero.
struct Counting {
    values: watch::Receiver<u32>,
    changed: Option<Pin<Box<dyn Future<Output = watch::Receiver<u32>> + Send>>>,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    /// The tasks that ran the last poll of each kind of body.
    watch: Mutex<Vec<Id>>,
    other: Mutex<Vec<Id>>,
    open: AtomicUsize,
    /// How often the connection was polled.
    turns: AtomicUsize,
}

/// Values that make watches fail, and busy without end.
const PANICS: u32 = u32::MAX;
const NEVER_ENDS: u32 = u32::MAX - 1;

struct Served {
    client: SendRequest<Empty<Bytes>>,
    server: JoinHandle<(Id, Result<(), String>)>,
    values: watch::Sender<u32>,
    seen: Arc<Seen>,
}

impl Counting {
    fn new(mut values: watch::Receiver<u32>, seen: &Arc<Seen>) -> Self {
        values.mark_unchanged();
        seen.open.fetch_add(1, Ordering::SeqCst);
        Self { values, changed: None, seen: Arc::clone(seen) }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.seen.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl http_body::Body for Counting {
    type Data = Slices;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Slices>, BoxError>>> {
        self.seen.watch.lock().push(tokio::task::id());
        match *self.values.borrow() {
            PANICS => panic!("as the test wants it"),
            NEVER_ENDS => return Poll::Ready(Some(Ok(Frame::data(Slices::new())))),
            _ => {}
        }
        let mut values = self.values.clone();
        let changed = self.changed.get_or_insert_with(|| {
            Box::pin(async move {
                values.changed().await.ok();
                values
            })
        });
        let values = std::task::ready!(changed.as_mut().poll(cx));
        self.changed = None;
        self.values = values;
        let value = *self.values.borrow_and_update();
        Poll::Ready((value != 0).then(|| Ok(Frame::data(Bytes::from(format!("{value}\n")).into()))))
    }
}

async fn serve() -> Served {
    let (ours, theirs) = duplex(1 << 20);
    let (values, receiver) = watch::channel(1);
    let seen = Arc::new(Seen::default());
    let of_service = Arc::clone(&seen);
    let begin = move |request: Request<RequestBody>, _| {
        let (receiver, seen) = (receiver.clone(), Arc::clone(&of_service));
        let answered = async move {
            if request.uri().path() == "/watch" {
                let mut response = Response::new(Body::new(Counting::new(receiver, &seen)));
                response.extensions_mut().insert(IsWatch);
                return Ok(response);
            }
            seen.other.lock().push(tokio::task::id());
            Ok(Response::new(crate::http::answer::full(Bytes::from_static(b"list"))))
        };
        Some(Box::pin(answered) as Answered)
    };
    let of_server = Arc::clone(&seen);
    let server = crate::lifecycle::spawn("connection", async move {
        let (io, metrics) = (Bounded::new(ours, Duration::from_secs(60), Arc::default(), None), Arc::default());
        let http = Protocols::http2(io, OpenHead::unlimited(), &metrics, default_limits(usize::MAX), begin);
        let mut http = std::pin::pin!(http);
        let result = std::future::poll_fn(|cx| {
            of_server.turns.fetch_add(1, Ordering::SeqCst);
            http.as_mut().poll(cx)
        });
        (tokio::task::id(), result.await.map_err(|error| error.to_string()))
    });
    let (client, _) = http2_client(theirs).await;
    Served { client, server, values, seen }
}

impl Served {
    async fn get(&mut self, path: &str) -> Incoming {
        get(&mut self.client, path).await
    }

    async fn watches(&mut self, count: usize) -> Vec<Incoming> {
        let mut bodies = Vec::new();
        for _ in 0..count {
            bodies.push(self.get("/watch").await);
        }
        bodies
    }

    async fn until_open(&self, open: usize) {
        while self.seen.open.load(Ordering::SeqCst) != open {
            tokio::task::yield_now().await;
        }
    }
}

async fn get(client: &mut SendRequest<Empty<Bytes>>, path: &str) -> Incoming {
    client.ready().await.unwrap();
    let request = Request::get(format!("http://a{path}")).body(Empty::new()).unwrap();
    client.send_request(request).await.unwrap().into_body()
}

async fn line(body: &mut Incoming) -> String {
    let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
    String::from_utf8(data.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_run_in_the_task_of_their_connection_and_other_streams_do_not() {
    let mut served = serve().await;
    let mut bodies = served.watches(20).await;
    for value in [2, 3, 4] {
        if value == 3 {
            // What went before may still have been polled by tasks of their own.
            served.seen.watch.lock().clear();
        }
        served.values.send(value).unwrap();
        for body in &mut bodies {
            assert_eq!(line(body).await, format!("{value}\n"));
        }
        let list = served.get("/list").await.collect().await.unwrap().to_bytes();
        assert_eq!(list, "list");
    }
    served.values.send(0).unwrap();
    for body in bodies {
        assert!(body.collect().await.unwrap().to_bytes().is_empty());
    }
    served.until_open(0).await;
    let Served { client, server, seen, .. } = served;
    drop(client);
    let (connection, result) = server.await.unwrap();
    assert_eq!(result, Ok(()));
    assert!(seen.watch.lock().iter().all(|task| *task == connection));
    assert!(seen.other.lock().iter().all(|task| *task != connection));
}

/// Lists keep the connection busy, so it runs while its only watch is handed over to it. Lists do not wake watches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_watch_is_forgotten_that_is_handed_over_while_its_connection_runs() {
    let mut served = serve().await;
    let mut client = served.client.clone();
    let lists = crate::lifecycle::spawn("lists", async move {
        loop {
            get(&mut client, "/list").await.collect().await.unwrap();
        }
    });
    for value in 2..2000 {
        let mut body = served.get("/watch").await;
        served.values.send(value).unwrap();
        let line = tokio::time::timeout(Duration::from_secs(60), line(&mut body)).await;
        assert_eq!(line.as_deref(), Ok(&*format!("{value}\n")), "watch {value}");
        drop(body);
        served.until_open(0).await;
    }
    lists.abort();
}

#[tokio::test]
async fn a_watch_ends_when_its_client_cancels_it_and_all_end_with_the_connection() {
    let mut served = serve().await;
    let mut bodies = served.watches(5).await;
    bodies.truncate(3);
    served.until_open(3).await;
    served.values.send(2).unwrap();
    for body in &mut bodies {
        assert_eq!(line(body).await, "2\n");
    }
    served.server.abort();
    served.until_open(0).await;
}

#[tokio::test]
async fn a_panic_in_a_watch_ends_no_other_stream() {
    let mut served = serve().await;
    let mut bodies = served.watches(2).await;
    served.values.send(PANICS).unwrap();
    for body in &mut bodies {
        assert!(body.frame().await.unwrap().is_err());
    }
    served.until_open(0).await;
    assert_eq!(served.get("/list").await.collect().await.unwrap().to_bytes(), "list");
}

#[tokio::test]
async fn a_watch_that_always_pauses_gives_other_tasks_their_turns_and_ends_with_its_stream() {
    let mut served = serve().await;
    let mut bodies = served.watches(3).await;
    served.values.send(NEVER_ENDS).unwrap();
    let turns = || served.seen.turns.load(Ordering::SeqCst);
    let before = turns();
    while turns() < before + 20 {
        tokio::task::yield_now().await;
    }
    let polls = served.seen.watch.lock().len();
    assert!(polls <= 6 * turns(), "{polls} polls in {} turns", turns());
    bodies.truncate(2);
    served.until_open(2).await;
    served.values.send(3).unwrap();
    for body in &mut bodies {
        assert_eq!(line(body).await, "3\n");
    }
}

/// Neither the stream nor the library has the task of the connection scheduled again.
#[tokio::test(start_paused = true)]
async fn an_event_takes_one_turn_of_its_connection() {
    const EVENTS: u32 = 100;
    let mut served = serve().await;
    let mut body = served.watches(1).await.remove(0);
    let mut before = 0;
    for value in 2..2 + 2 * EVENTS {
        if value == 2 + EVENTS {
            before = served.seen.turns.load(Ordering::SeqCst);
        }
        served.values.send(value).unwrap();
        assert_eq!(line(&mut body).await, format!("{value}\n"));
    }
    let turns = served.seen.turns.load(Ordering::SeqCst) - before;
    assert!((EVENTS as usize..EVENTS as usize * 5 / 4).contains(&turns), "{turns} turns");
}

#[tokio::test]
async fn the_library_wakes_the_task_once_before_each_turn() {
    let (ours, _theirs) = duplex(1 << 10);
    let io = Bounded::new(ours, Duration::from_secs(60), Arc::default(), None);
    let refuse = |_: Request<RequestBody>, _: bool| -> Option<Answered> { None };
    let mut http = Http2::new(&Builder::new(), Http2Socket::new(io, Arc::default()), refuse);
    let library = Waker::from(Arc::clone(&http.library));
    let (wakes, task) = Wakes::new();
    for turn in 1..5 {
        assert!(Pin::new(&mut http).poll(&mut Context::from_waker(&task)).is_pending());
        library.wake_by_ref();
        library.wake_by_ref();
        assert_eq!(wakes.count(), turn);
    }
}
