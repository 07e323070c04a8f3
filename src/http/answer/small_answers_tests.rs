use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::io::duplex;

use super::super::body::{chunked, full};
use super::super::request_body::RequestBody;
use super::*;
use crate::http::door::{ConnectionLimits, OpenHead, OpenHeads};
use crate::http::testing::until;
use crate::http::wire::{Answered, Bounded, Protocols, default_limits};
use crate::lifecycle::spawn;
use crate::memory::{Ledger, Pressure};

/// More than a window of one byte.
const TEXT: &[u8] = b"forbidden";
/// What one answer takes.
const ONE: usize = STREAM + TEXT.len();
const TIMEOUT: Duration = Duration::from_secs(8);

struct Scene {
    heads: Arc<OpenHeads>,
    ledger: Ledger,
    all: Arc<SmallAnswers>,
}

impl OfConnection {
    fn count(&self) -> usize {
        FEW - self.few.available_permits()
    }

    async fn answer(self: Arc<Self>, response: Response<Body>, is_read: bool) -> Result<Response<Body>, Reason> {
        match self.looked_after(response, is_read) {
            Ok(response) => Ok(response),
            Err(later) => later.await,
        }
    }
}

impl Scene {
    /// There is room for so many answers that are not free, and for half of them of one connection.
    fn new(room: usize) -> Self {
        let (ledger, metrics) = (Ledger::new(8 * room * ONE, Pressure::default()), Arc::<HttpMetrics>::default());
        let heads = OpenHeads::new(ledger.clone(), 1 << 20, Arc::clone(&metrics));
        Self { heads, ledger, all: SmallAnswers::new(0, metrics) }
    }

    /// A connection whose streams have this window, and its answers.
    async fn connect(&self, id: u64, window: u32) -> (h2::client::SendRequest<Bytes>, Arc<OfConnection>) {
        let (ours, theirs) = duplex(64 << 10);
        let unread = self.all.of_connection(self.heads.of_connection(id));
        let of = Arc::clone(&unread);
        let begin = move |_: http::Request<RequestBody>, _| {
            let answer = Response::new(full(Bytes::from_static(TEXT)));
            Some(Box::pin(Arc::clone(&of).answer(answer, true)) as Answered)
        };
        let limits = ConnectionLimits { streams: 10_000, ..default_limits(usize::MAX) };
        spawn("server", async move {
            let io = Bounded::new(ours, Duration::from_secs(3600), Arc::default(), None);
            Protocols::http2(io, OpenHead::unlimited(), &Arc::default(), limits, begin).await.ok()
        });
        let (client, connection) =
            h2::client::Builder::new().initial_window_size(window).handshake(theirs).await.unwrap();
        spawn("client", async move { connection.await.ok() });
        (client, unread)
    }
}

/// Sends a request and reads nothing of the body.
fn ask(client: &h2::client::SendRequest<Bytes>) -> tokio::task::JoinHandle<Option<h2::RecvStream>> {
    let client = client.clone();
    spawn("request", async move {
        let request = http::Request::get("http://host/").body(()).unwrap();
        let (answer, _) = client.ready().await.unwrap().send_request(request, true).unwrap();
        answer.await.ok().map(Response::into_body)
    })
}

async fn asked(client: &h2::client::SendRequest<Bytes>, count: usize) -> Vec<Option<h2::RecvStream>> {
    let mut all = Vec::new();
    for asked in (0..count).map(|_| ask(client)).collect::<Vec<_>>() {
        all.push(asked.await.unwrap());
    }
    all
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_read_cost_nothing() {
    let scene = Scene::new(200);
    let (client, unread) = scene.connect(1, 65_535).await;
    for _ in 0..10 {
        for body in asked(&client, 30).await {
            let (mut body, mut read) = (body.unwrap(), Vec::new());
            while let Some(part) = body.data().await {
                read.extend_from_slice(&part.unwrap());
            }
            assert_eq!(read, TEXT);
        }
    }
    until(|| unread.count() == 0 && scene.ledger.used() == 0).await;
    assert_eq!((scene.all.guards.held(), scene.all.metrics.answers_reset.get()), (0, 0));
}

/// With a window of one byte, the library takes all of a body.
#[tokio::test(start_paused = true)]
async fn memory_for_answers_that_are_not_read_is_bounded_and_only_their_streams_end() {
    for window in [0, 1] {
        let scene = Scene::new(20);
        let ((client, unread), (other, _)) = (scene.connect(1, window).await, scene.connect(2, 65_535).await);
        let first = asked(&client, FEW + 10).await;
        assert!(first.iter().all(Option::is_some));
        assert_eq!((unread.count(), scene.ledger.used()), (FEW, 10 * ONE), "{window}");
        assert!(asked(&client, 5).await.iter().all(Option::is_none), "there is no room for its share");
        assert_eq!(scene.all.metrics.answers_reset.get(), 5);
        assert!(asked(&other, 2 * FEW).await.iter().all(Option::is_some), "others have theirs");
        let waits = (0..2 * FEW).map(|_| ask(&client)).collect::<Vec<_>>();
        tokio::time::sleep(WAIT / 2).await;
        drop(first);
        for waits in waits {
            assert!(waits.await.unwrap().is_some(), "there is room once others are taken");
        }
        until(|| unread.count() == 0 && scene.ledger.used() == 0).await;
        assert!(asked(&client, 1).await[0].is_some(), "the connection goes on");
    }
}

#[tokio::test(start_paused = true)]
async fn some_answers_of_all_connections_are_free() {
    let mut scene = Scene::new(20);
    scene.all = SmallAnswers::new(SHARE * STREAM * 2, Arc::default());
    let ((client, unread), (other, of_other)) = (scene.connect(1, 0).await, scene.connect(2, 0).await);
    let first = asked(&client, FEW + 5).await;
    assert_eq!((unread.count(), scene.all.free.available_permits(), scene.ledger.used()), (FEW, 0, 3 * ONE));
    let second = asked(&other, FEW + 1).await;
    assert_eq!((of_other.count(), scene.ledger.used()), (FEW, 4 * ONE), "few are free whatever others do");
    drop((first, second));
    until(|| scene.all.free.available_permits() == 2 && scene.ledger.used() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_not_read_are_given_up_after_a_while() {
    for window in [0, 1] {
        let scene = Scene::new(20);
        spawn("stalled", Arc::clone(&scene.all).watch(TIMEOUT, Pressure::default()));
        let (client, unread) = scene.connect(1, window).await;
        let held = asked(&client, FEW + 10).await;
        assert_eq!(scene.ledger.used(), 10 * ONE);
        tokio::time::sleep(4 * TIMEOUT).await;
        assert_eq!((unread.count(), scene.ledger.used()), (FEW, 0), "{window}");
        drop(held);
    }
}

#[tokio::test]
async fn what_others_look_after_is_left_alone() {
    let scene = Scene::new(20);
    let unread = scene.all.of_connection(scene.heads.of_connection(1));
    let _taken: Vec<_> = (0..FEW).map(|_| unread.free(1)).collect();
    let text = || full(Bytes::from_static(TEXT));
    let (mut cut, mut watch) = (Response::new(text()), Response::new(text()));
    cut.extensions_mut().insert(Cut::default());
    watch.extensions_mut().insert(IsWatch);
    let other = [cut, watch, Response::new(full(Bytes::new())), Response::new(chunked(Bytes::from_static(TEXT)))];
    for answer in other {
        let kept = unread.looked_after(answer, true).ok().unwrap();
        assert_eq!(scene.ledger.used(), 0);
        drop(kept.into_body().collect().await.unwrap());
    }
    // An answer that quotes a long path is not small.
    let answer = unread.looked_after(Response::new(full(Bytes::from(vec![b'x'; 10_000]))), true).ok().unwrap();
    assert_eq!((answer.body().size_hint().exact(), scene.ledger.used()), (Some(10_000), STREAM + 10_000));
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), 10_000);
    until(|| scene.ledger.used() == 0).await;
}

/// They are hurried, and others are not: the answers of which nothing is taken make room for one that waits.
#[tokio::test(start_paused = true)]
async fn those_of_which_nothing_is_taken_make_room() {
    let scene = Scene::new(20);
    spawn("stalled", Arc::clone(&scene.all).watch(Duration::from_secs(3600), Pressure::default()));
    let (client, unread) = scene.connect(1, 0).await;
    let held = asked(&client, FEW + 10).await;
    until(|| unread.count() == FEW && scene.ledger.used() == 10 * ONE).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(scene.ledger.used(), 10 * ONE, "nobody needs the room");
    assert!(asked(&client, 1).await[0].is_some());
    until(|| unread.count() == FEW && scene.ledger.used() == 0).await;
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn clients_do_not_repeat_what_may_have_changed_something() {
    let scene = Scene::new(1);
    let unread = scene.all.of_connection(scene.heads.of_connection(1));
    for (is_read, reason) in [(true, Reason::REFUSED_STREAM), (false, Reason::ENHANCE_YOUR_CALM)] {
        let large = Response::new(full(Bytes::from(vec![b'x'; 10_000])));
        let reset = Arc::clone(&unread).answer(large, is_read).await.err().unwrap();
        assert_eq!(reset, reason);
    }
}
