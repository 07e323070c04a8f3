//! Users of a delegated listener while nothing is where the apiserver should be.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use informerd::auth::AuthMetrics;
use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::objects_client::ObjectsClient;
use informerd_sim::Server;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Request, Streaming};

use crate::config_map;
use crate::seeded::rights::{binding, define};
use crate::support::client::{self, Answer, Watch};
use crate::support::relay::{Loss, Relay};
use crate::support::{Through, eventually, unauthenticated, until, within};

const LISTEN: &str = "explainHeader: true\nlisten: [\"http://127.0.0.1:0\", \"delegated+https://127.0.0.1:0\"]\n";
/// What Ann may read, and what Bob may.
const OF_ANN: &str = "/api/v1/namespaces/a/configmaps";
const OF_BOB: &str = "/api/v1/namespaces/a-b/configmaps";
/// Bob's number among the bindings.
const BOB: usize = 2;
/// An answer that waits for nobody.
const AT_ONCE: Duration = Duration::from_secs(2);
/// For so long, what a review has said is not asked again.
const BEFORE_AGAIN: Duration = Duration::from_secs(8);

/// A token is the name of its user.
#[derive(Default)]
struct Reviews {
    /// Who has lost all rights.
    refused: Mutex<BTreeSet<&'static str>>,
    /// The token of a review, or the user and the question, and when they came.
    asked: Mutex<Vec<(Instant, String)>>,
}

struct World {
    server: Server,
    relay: Relay,
    through: Through,
    reviews: Arc<Reviews>,
}

impl Reviews {
    fn answer(&self, path: &str, spec: &Value) -> Option<Value> {
        match path.rsplit('/').next()? {
            "tokenreviews" => {
                let name = spec["token"].as_str()?;
                self.asked.lock().push((Instant::now(), name.to_owned()));
                Some(json!({"authenticated": true, "user": {"username": name, "uid": name}}))
            }
            "subjectaccessreviews" => {
                let (user, question) = (spec["user"].as_str()?, &spec["resourceAttributes"]);
                self.asked.lock().push((Instant::now(), format!("{user} {question}")));
                let namespace = question["namespace"].as_str().unwrap_or_default();
                let allowed = [("ann", "a"), ("bob", "a-b")].contains(&(user, namespace));
                let allowed = allowed && !self.refused.lock().contains(user);
                Some(json!({"allowed": allowed, "reason": if allowed { "RBAC: allowed by a binding" } else { "" }}))
            }
            _ => None,
        }
    }
}

impl World {
    /// Everything is known: the caches have what there is, and changes of rights are seen.
    async fn start(yaml: &str) -> Self {
        let mut other = config_map("one");
        other["metadata"]["namespace"] = "a-b".into();
        let server = Server::builder().object(config_map("one")).object(other).start().await.unwrap();
        define(&server);
        let reviews = Arc::<Reviews>::default();
        let scripted = Arc::clone(&reviews);
        server.set_reviews(move |path, question| scripted.answer(path, &question["spec"]));
        let relay = Relay::before(server.address()).await;
        let source = unauthenticated(&format!("http://{}", relay.address));
        let through = Through::start(source, &format!("{LISTEN}{yaml}")).await;
        let world = Self { server, relay, through, reviews };
        eventually("changes of rights are seen", || world.metrics().watches_live.get() >= 4).await;
        for (user, path) in [("ann", OF_ANN), ("bob", OF_BOB)] {
            until("it is served", async || is_served(&world.old(user, path).await)).await;
        }
        // A watch for changes of rights that breaks as soon as it is open begins anew, and nothing that was decided holds.
        sleep(Duration::from_secs(6)).await;
        world
    }

    fn metrics(&self) -> &AuthMetrics {
        self.through.daemon.access.metrics()
    }

    /// A read of the state that there is.
    async fn old(&self, user: &str, path: &str) -> Answer {
        self.through.bearer(1, user).get(&format!("{path}?resourceVersion=0")).await
    }

    async fn watch(&self, user: &str, path: &str) -> Watch {
        let mut watch = self.through.bearer(1, user).watch(&format!("{path}?watch=1&resourceVersion=0")).await;
        assert!(watch.status == 200 && !watch.is_forwarded(), "{user}: {} {:?}", watch.status, watch.headers);
        assert_eq!(watch.next_event().await["type"], "ADDED");
        watch
    }

    async fn watch_typed(&self) -> Streaming<v1::WatchResponse> {
        let (to, origin) = (client::typed(&self.through.ca()), self.through.listener(1).parse().unwrap());
        let filter = v1::Filter { namespace: "a".into(), ..Default::default() };
        let resource = v1::Resource { group: String::new(), version: "v1".into(), resource: "configmaps".into() };
        let selection = v1::Selection { resource: Some(resource), filters: vec![filter], ..Default::default() };
        let mut request = Request::new(v1::WatchRequest { selection: Some(selection), ..Default::default() });
        request.metadata_mut().insert("authorization", "Bearer ann".parse().unwrap());
        ObjectsClient::with_origin(to, origin).watch(request).await.unwrap().into_inner()
    }

    /// The apiserver has just said something when it is cut off.
    async fn cut(&self, loss: Loss, watch: &mut Watch) -> Instant {
        self.server.create(config_map("before")).unwrap();
        assert_eq!(watch.next_event().await["object"]["metadata"]["name"], "before");
        self.relay.lose(loss);
        Instant::now()
    }

    /// Requests that have reached the apiserver with the token of a user.
    fn forwarded(&self) -> usize {
        self.server.requests().iter().filter(|request| request.authorization.is_some()).count()
    }
}

fn is_served(answer: &Answer) -> bool {
    let plan = answer.headers.get("x-informerd-plan");
    answer.status == 200 && !plan.is_some_and(|plan| plan.as_bytes().starts_with(b"forwarded"))
}

/// The network loses everything, or the answers, or closes each connection.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_allowed_stays_allowed_until_the_apiserver_is_back() {
    join_all([Loss::Closed, Loss::Both, Loss::Down].map(stays)).await;
}

async fn stays(loss: Loss) {
    let world = World::start("").await;
    let (mut ann, mut bob) = (world.watch("ann", OF_ANN).await, world.watch("bob", OF_BOB).await);
    let mut typed = world.watch_typed().await;
    let cut = world.cut(loss, &mut ann).await;
    // Somebody asks, so that it is noticed.
    until("it is noticed", async || {
        world.old("ann", OF_ANN).await;
        world.metrics().keeps.get() == 1
    })
    .await;
    let forwarded = world.forwarded();
    // Far beyond the time after which nothing would be known any more of changes of rights, or of a token.
    while cut.elapsed() < Duration::from_secs(45) {
        for (user, path, query, code) in [
            ("ann", OF_ANN, "?resourceVersion=0", 200),
            ("bob", OF_BOB, "?resourceVersion=0", 200),
            // Nothing is known of these.
            ("nobody", OF_ANN, "?resourceVersion=0", 503),
            ("ann", OF_BOB, "?resourceVersion=0", 503),
            // The newest state is not known.
            ("ann", OF_ANN, "", 503),
        ] {
            let (begun, client) = (Instant::now(), world.through.bearer(1, user));
            let answer = client.get(&format!("{path}{query}")).await;
            let (what, took) = (format!("{loss:?} {user} {path}{query}"), begun.elapsed());
            assert_eq!(answer.status.as_u16(), code, "{what}: {}", answer.text());
            assert!(took < AT_ONCE, "{what}: {took:?}");
            assert_eq!(answer.headers.contains_key("retry-after"), code == 503, "{what}: {:?}", answer.headers);
        }
        sleep(Duration::from_secs(1)).await;
    }
    assert!(world.metrics().kept.get() > 0 && world.metrics().streams_unconfirmed.get() == 0, "{loss:?}");
    let asked = world.reviews.asked.lock().len();
    let change = || {
        world.server.create(config_map("after")).unwrap();
        world.reviews.refused.lock().insert("bob");
        world.server.update(binding(BOB, 1)).unwrap();
    };
    // What a connection has lost it never gets back here, as over no network, and a watch over it without TLS is dead for a minute.
    let is_closed = loss == Loss::Closed;
    if is_closed {
        change();
    }
    world.relay.lose(Loss::None);
    if is_closed {
        assert_eq!(ann.next_event().await["object"]["metadata"]["name"], "after", "{loss:?}");
    } else {
        change();
    }
    let gone = bob.next_event().await;
    assert_eq!((&gone["type"], &gone["object"]["code"]), (&json!("ERROR"), &json!(403)), "{loss:?}: {gone}");
    if is_closed {
        within("the typed watch goes on", async {
            while !format!("{:?}", typed.message().await.unwrap().expect("it goes on")).contains("name: \"after\"") {}
        })
        .await;
    }
    eventually("all is as usual", || world.metrics().keeps.get() == 0).await;
    assert!(is_served(&world.old("ann", OF_ANN).await), "{loss:?}");
    assert_eq!(world.old("bob", OF_BOB).await.status, 403, "{loss:?}");
    let asked = world.reviews.asked.lock()[asked..].to_vec();
    let mut times = BTreeMap::new();
    for (_, question) in asked.iter().filter(|(at, _)| *at < asked[0].0 + BEFORE_AGAIN) {
        *times.entry(question.clone()).or_insert(0) += 1;
    }
    // Once, and once more if what is known was about to end; Bob's rights have changed, and settle.
    assert!(times.iter().all(|(asked, times)| asked.starts_with("bob ") || *times <= 2), "{loss:?}: {times:?}");
    assert_eq!(world.forwarded(), forwarded, "{loss:?}: nothing was forwarded for want of a review");
    assert_eq!(world.metrics().streams_unconfirmed.get(), 0, "{loss:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_the_bound_streams_end_without_an_error_and_nothing_is_allowed() {
    // With the first setting, everything is kept for a while. With the second one, nothing is.
    let settings = ["authorization: {whileAway: keep=25s}\n", "authorization: {whileAway: refuse}\n"];
    join_all(settings.map(ends)).await;
}

async fn ends(settings: &str) {
    let world = World::start(settings).await;
    let (mut watch, mut typed) = (world.watch("ann", OF_ANN).await, world.watch_typed().await);
    let cut = world.cut(Loss::Closed, &mut watch).await;
    // Bookmarks may come.
    while let Some(event) = watch.next().await.unwrap() {
        assert_ne!(event["type"], "ERROR", "{settings}: {event}");
    }
    let lived = cut.elapsed();
    assert!((Duration::from_secs(5)..Duration::from_secs(60)).contains(&lived), "{settings}: {lived:?}");
    let status = within("the typed watch ends", async {
        loop {
            if let Err(status) = typed.message().await.map(|message| message.expect("it says why it ends")) {
                return status;
            }
        }
    })
    .await;
    assert_eq!(status.code(), Code::Unavailable, "{settings}: {status:?}");
    eventually("both are counted", || world.metrics().streams_unconfirmed.get() == 2).await;
    assert_eq!(world.metrics().streams_revoked.get(), 0, "{settings}: nobody has said that the right is gone");
    // Streams end one after another before the bound, and until then something that is kept may still allow a read.
    tokio::time::sleep_until(cut + Duration::from_secs(27)).await;
    for n in 0..10 {
        let answer = timeout(AT_ONCE, world.old("ann", OF_ANN)).await.expect("it waits for nobody");
        assert_eq!(answer.status, 503, "{settings} {n}: {}", answer.text());
    }
    world.relay.lose(Loss::None);
    until("all is as before", async || is_served(&world.old("ann", OF_ANN).await)).await;
}
