use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::*;
use crate::apiserver::client::Upstream;
use crate::apiserver::metadata::{Metadata, Seen};
use crate::apiserver::testing::{FakeServer, answer, streamed, until};
use crate::auth::authenticator::Source;
use crate::auth::bearer::Secret;
use crate::auth::config::AuthConfig;
use crate::auth::delegated::Delegated;
use crate::auth::metrics::AuthMetrics;
use crate::auth::rbac_generations::RbacGenerations;
use crate::auth::testing::{bearer, long, reviews_by};
use crate::auth::user::NODE_NAME;
use crate::lifecycle::Fatal;

const HASH: [u8; 32] = [7; 32];
const OTHER: [u8; 32] = [8; 32];
const LONG_AGO: &str = "Thu, 01 Jan 1970 00:00:00 GMT";

/// A cluster with the account `b` and the pod `p` of the namespace `a`.
#[derive(Default)]
struct Cluster {
    watches: Mutex<HashMap<String, mpsc::Sender<Bytes>>>,
    /// Reviews accept no token.
    refuses: AtomicBool,
    is_gone: AtomicBool,
    /// The next question for an object fails.
    fails: AtomicBool,
    date: Mutex<Option<&'static str>>,
}

fn user(pod: Option<&str>) -> Value {
    let extra = pod.map_or(json!({}), |pod| json!({POD_NAME: [pod], POD_UID: [pod], NODE_NAME: ["x"]}));
    json!({"username": "system:serviceaccount:a:b", "uid": "b", "extra": extra})
}

fn bindings(more: &Value) -> Value {
    let mut all = json!({"namespace": "a", "serviceaccount": {"name": "b", "uid": "b"}, "warnafter": 1});
    let more = more.as_object().unwrap().clone();
    all.as_object_mut().unwrap().extend(more);
    all
}

/// A token that ends so many seconds from now.
fn token(left: f64, bindings: &Value) -> String {
    let claims = json!({"exp": now().unwrap() + left, "aud": ["x"], "kubernetes.io": bindings});
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

async fn server(cluster: &Arc<Cluster>) -> (FakeServer, Upstream) {
    let cluster = Arc::clone(cluster);
    let server = FakeServer::tls(&["h2"], 100, move |request, _| {
        let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default());
        let name = path.rsplit('/').next().unwrap_or_default();
        let mut response = if query.contains("watch=true") {
            let (sender, response) = streamed();
            cluster.watches.lock().insert(path, sender);
            response
        } else if name == "tokenreviews" {
            let accepts = !cluster.refuses.load(Ordering::Relaxed);
            let status = if accepts { json!({"authenticated": true, "user": user(Some("p"))}) } else { json!({}) };
            answer(201, json!({ "status": status }).to_string())
        } else if ["b", "p"].contains(&name) {
            let code = match cluster.is_gone.load(Ordering::Relaxed) {
                _ if cluster.fails.swap(false, Ordering::Relaxed) => 500,
                true => 404,
                false => 200,
            };
            answer(code, json!({"metadata": {"uid": name}}).to_string())
        } else {
            answer(200, r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#)
        };
        if let Some(date) = *cluster.date.lock() {
            response.headers_mut().insert("date", date.parse().unwrap());
        }
        std::future::ready(response)
    })
    .await;
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    (server, upstream)
}

async fn eventually(what: &str, is_so: impl AsyncFn() -> bool) {
    let come = async {
        while !is_so().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), come).await.expect(what);
}

/// How a token loses what it is bound to, or may have.
#[derive(Clone, Copy, Debug)]
enum End {
    Pod,
    Account,
    Lost,
    /// While a watch was away, a review has refused the token.
    Refused,
}

#[tokio::test]
async fn a_token_is_reviewed_once_and_ends_with_what_it_is_bound_to() {
    for (node, end) in [None, Some("x")]
        .into_iter()
        .flat_map(|node| [End::Pod, End::Account, End::Lost, End::Refused].map(|end| (node, end)))
    {
        let case = format!("{node:?} {end:?}");
        let cluster = Arc::<Cluster>::default();
        let (server, upstream) = server(&cluster).await;
        // Nothing is remembered for longer than a moment.
        let (token_ttl, node) = (Duration::from_millis(1), node.map(str::to_owned));
        let pods = if node.is_some() { "/api/v1/pods" } else { "/api/v1/namespaces/a/pods" };
        let config = AuthConfig { node, token_ttl, ..AuthConfig::default() };
        let metrics = Arc::<AuthMetrics>::default();
        let delegated = Delegated::start(
            &config,
            &upstream,
            tokio::sync::watch::channel(false).1,
            Arc::clone(&metrics),
            &Fatal::new(),
        )
        .unwrap();
        let pod = json!({"pod": {"name": "p", "uid": "p"}, "node": {"name": "x", "uid": "x"}});
        let token = token(3600.0, &bindings(&pod));
        until(|| delegated.revoked.accounts.is_open()).await;
        let authenticator = &delegated.authenticator;
        let source = Source::Token(Secret::new(&token));
        let again = async || {
            let known = authenticator.again(&source).await.ok()?;
            Some((known.user.is_some(), known.on.is_some()))
        };
        let stands = Some((true, true));
        eventually(&case, async || again().await == stands).await;
        let reviews = metrics.token_reviews.get();
        let gets = || server.uris().into_iter().filter(|uri| uri.ends_with("/b") || uri.ends_with("/p")).count();
        assert_eq!(gets(), 2, "{case}: the account and the pod");
        for _ in 0..20 {
            sleep(Duration::from_millis(2)).await;
            assert_eq!(again().await, stands, "{case}");
        }
        assert_eq!((metrics.token_reviews.get(), gets()), (reviews, 2), "{case}");
        cluster.refuses.store(true, Ordering::Relaxed);
        assert_eq!(again().await, stands, "{case}: nobody asks");
        let delete = |path: &str, uid: &str| {
            let metadata = json!({"namespace": "a", "name": uid, "uid": uid, "resourceVersion": "2"});
            let event = format!("{}\n", json!({"type": "DELETED", "object": {"metadata": metadata}}));
            cluster.watches.lock()[path].try_send(event.into()).unwrap();
        };
        match end {
            End::Pod => delete(pods, "p"),
            End::Account => delete("/api/v1/serviceaccounts", "b"),
            End::Lost => server.reset(),
            End::Refused => _ = delegated.revoked.accounts.tell(&Seen::Lost { is_due: true }),
        }
        eventually(&case, async || again().await.is_some_and(|(is_known, _)| !is_known)).await;
        delegated.revoked.accounts.tell(&Seen::Pinged);
        sleep(2 * token_ttl).await;
        assert!(again().await.is_none_or(|(is_known, _)| !is_known), "{case}: it stays so");
    }
}

#[tokio::test]
async fn a_token_that_the_apiserver_refuses_does_not_stand_before_it_accepts_it() {
    let cluster = Arc::<Cluster>::default();
    let (_server, upstream) = server(&cluster).await;
    let token_ttl = Duration::from_millis(20);
    let config = AuthConfig { node: Some("x".into()), token_ttl, ..AuthConfig::default() };
    let delegated =
        Delegated::start(&config, &upstream, tokio::sync::watch::channel(false).1, Arc::default(), &Fatal::new())
            .unwrap();
    until(|| delegated.revoked.accounts.is_open() && delegated.revoked.pods.is_open()).await;
    let token = token(7200.0, &bindings(&json!({"pod": {"name": "p", "uid": "p"}})));
    let source = Source::Token(Secret::new(&token));
    let stands = async || delegated.authenticator.again(&source).await.unwrap().on.is_some();
    for is_accepted in [true, false, true] {
        // What is known of the token may be over before the answer of the apiserver comes.
        let is_said = async || {
            delegated.authenticator.again(&source).await.unwrap();
            let Some(recalled) = delegated.authenticator.recall(&bearer(&token)).await else { return false };
            delegated.authenticator.said(&recalled, is_accepted).await;
            true
        };
        eventually("it is said", is_said).await;
        eventually("it follows", async || stands().await == is_accepted).await;
        for _ in 0..3 {
            sleep(2 * token_ttl).await;
            assert_eq!(stands().await, is_accepted);
        }
    }
}

/// An account that is watched, and a review that has just accepted the token.
async fn standing(cluster: &Arc<Cluster>) -> (Standing, FakeServer) {
    let (server, upstream) = server(cluster).await;
    let reviews = Arc::new(reviews_by(upstream, &AuthConfig::default(), &Arc::default()));
    let standing = Standing::new(reviews, Arc::default(), None);
    for watch in [&standing.revoked.accounts, &standing.revoked.pods] {
        watch.tell(&Seen::Restarted(Vec::new()));
        watch.tell(&Seen::Pinged);
    }
    (standing, server)
}

impl Standing {
    async fn reviewed(&self, token: &str, user: &Value) {
        self.reviewed_as(HASH, token, user).await;
    }

    async fn reviewed_as(&self, hash: [u8; 32], token: &str, user: &Value) {
        let asked = (Instant::now(), self.losses());
        self.reviews.token(token, &[]).await.unwrap();
        let user = Arc::new(serde_json::from_value(user.clone()).unwrap());
        self.accept(hash, token, &user, asked).await;
    }
}

#[tokio::test]
async fn only_a_token_stands_whose_claims_are_those_of_the_reviewed_user() {
    let pod = json!({"name": "p", "uid": "p"});
    for (more, of, stands) in [
        (json!({}), user(None), true),
        (json!({ "pod": pod }), user(Some("p")), true),
        (json!({"pod": pod, "node": {"name": "x", "uid": "x"}}), user(Some("p")), true),
        (json!({ "pod": pod }), user(None), false),
        (json!({ "pod": pod }), user(Some("q")), false),
        (json!({}), user(Some("p")), false),
        (json!({"node": {"name": "x", "uid": "x"}}), user(None), false),
        (json!({"secret": {"name": "s", "uid": "s"}}), user(None), false),
        (json!({"lease": {"name": "l", "uid": "l"}}), user(None), false),
        (json!({"namespace": "z"}), user(None), false),
        (json!({"serviceaccount": {"name": "z", "uid": "b"}}), user(None), false),
        (json!({"serviceaccount": {"name": "b", "uid": "z"}}), user(None), false),
        (json!({"serviceaccount": {"name": "b"}}), user(None), false),
        (json!({}), json!({"username": "jane", "uid": "b"}), false),
        (json!({"serviceaccount": {"name": "b", "uid": ""}}), json!({"username": "system:serviceaccount:a:b"}), false),
    ] {
        let (standing, _server) = standing(&Arc::default()).await;
        standing.reviewed(&token(3600.0, &bindings(&more)), &of).await;
        assert_eq!(standing.again(&HASH).await.is_some(), stands, "{more} {of}");
    }
    let (standing, _server) = standing(&Arc::default()).await;
    standing.reviewed("opaque", &user(None)).await;
    assert!(standing.again(&HASH).await.is_none());
}

#[tokio::test]
async fn a_token_does_not_stand_beyond_its_end_by_any_clock_nor_for_long() {
    for (left, date, stands) in [
        (60.0, None, true),
        (60.0, Some(LONG_AGO), true),
        (60.0, Some("Fri, 01 Jan 2100 00:00:00 GMT"), false),
        (60.0, Some("yesterday"), false),
        (-1.0, Some(LONG_AGO), false),
    ] {
        let cluster = Arc::new(Cluster { date: Mutex::new(date), ..Cluster::default() });
        let (standing, _server) = standing(&cluster).await;
        standing.reviewed(&token(left, &bindings(&json!({}))), &user(None)).await;
        assert_eq!(standing.again(&HASH).await.is_some(), stands, "{left} {date:?}");
    }
    let (standing, _server) = standing(&Arc::default()).await;
    let capacities = [standing.accepted.policy().max_capacity(), standing.in_vain.policy().max_capacity()];
    assert_eq!(capacities, [Some(MAX_TOKENS); 2]);
    standing.reviewed(&token(1e6, &bindings(&json!({}))), &user(None)).await;
    assert!(standing.again(&HASH).await.is_some_and(|stands| stands.until <= Instant::now() + LONGEST));
    tokio::time::pause();
    tokio::time::advance(LONGEST).await;
    assert!(standing.again(&HASH).await.is_none());
}

#[tokio::test]
async fn no_token_stands_without_its_watches() {
    let (standing, _server) = standing(&Arc::default()).await;
    let token = token(60.0, &bindings(&json!({"pod": {"name": "p", "uid": "p"}})));
    let (accounts, pods) = (&standing.revoked.accounts, &standing.revoked.pods);
    for watch in [accounts, pods] {
        standing.reviewed(&token, &user(Some("p"))).await;
        assert!(standing.again(&HASH).await.is_some());
        watch.tell(&Seen::Lost { is_due: true });
        assert!(standing.again(&HASH).await.is_none());
        watch.tell(&Seen::Pinged);
        assert!(standing.again(&HASH).await.is_some(), "it went on from there");
        let known = standing.again(&HASH).await.unwrap().on;
        watch.tell(&Seen::Lost { is_due: false });
        assert!(known.iter().all(There::holds) && standing.again(&HASH).await.is_none(), "not for longer than before");
        watch.tell(&Seen::Pinged);
        let stands = standing.again(&HASH).await.is_some();
        assert_eq!(stands, std::ptr::eq(watch, pods), "the apiserver may have been restarted with other keys");
    }
    // No review is as new as the watch that was made while there was none.
    accounts.tell(&Seen::Lost { is_due: false });
    standing.reviewed(&token, &user(Some("p"))).await;
    accounts.tell(&Seen::Live);
    accounts.tell(&Seen::Pinged);
    assert!(standing.again(&HASH).await.is_none());
    // A review that was under way meanwhile may be older.
    let asked = (Instant::now(), standing.losses());
    accounts.tell(&Seen::Restarted(Vec::new()));
    accounts.tell(&Seen::Pinged);
    let user = Arc::new(serde_json::from_value(user(Some("p"))).unwrap());
    standing.accept(HASH, &token, &user, asked).await;
    assert!(standing.again(&HASH).await.is_none());
}

#[tokio::test]
async fn a_token_whose_object_is_not_found_is_reviewed_for_a_while_without_looking() {
    let cluster = Arc::<Cluster>::default();
    let (standing, server) = standing(&cluster).await;
    cluster.is_gone.store(true, Ordering::Relaxed);
    let token = token(60.0, &bindings(&json!({})));
    for _ in 0..3 {
        standing.reviewed(&token, &user(None)).await;
        assert!(standing.again(&HASH).await.is_none());
    }
    standing.reviewed_as(OTHER, &token, &user(None)).await;
    assert!(standing.again(&OTHER).await.is_none());
    assert_eq!(looked_up(&server), 1, "once for all tokens of the account");
}

#[tokio::test]
async fn an_object_whose_look_up_fails_is_looked_up_again_at_the_next_review() {
    let cluster = Arc::<Cluster>::default();
    let (standing, server) = standing(&cluster).await;
    cluster.fails.store(true, Ordering::Relaxed);
    let token = token(60.0, &bindings(&json!({})));
    for stands in [false, true] {
        standing.reviewed(&token, &user(None)).await;
        assert_eq!(standing.again(&HASH).await.is_some(), stands);
    }
    assert_eq!(looked_up(&server), 2);
}

#[tokio::test]
async fn tokens_of_one_account_share_its_look_up() {
    let (standing, server) = standing(&Arc::default()).await;
    let token = token(60.0, &bindings(&json!({})));
    for hash in [HASH, OTHER] {
        standing.reviewed_as(hash, &token, &user(None)).await;
    }
    let (one, other) = tokio::join!(standing.again(&HASH), standing.again(&OTHER));
    assert!(one.is_some() && other.is_some());
    assert_eq!(looked_up(&server), 1);
}

/// How often the account was looked up.
fn looked_up(server: &FakeServer) -> usize {
    server.uris().into_iter().filter(|uri| uri == "/api/v1/namespaces/a/serviceaccounts/b").count()
}

/// Over HTTP/1.1, the watch of accounts is not open.
#[tokio::test]
async fn no_pod_is_watched_for_nothing() {
    let (_server, upstream) = server(&Arc::default()).await;
    let (revoked, reviews) = (Arc::<Revoked>::default(), reviews_by(upstream.clone(), &long(), &Arc::default()));
    let watches = Arc::new(PodWatches::new(upstream, Arc::clone(&revoked), Arc::new(RbacGenerations::default())));
    let standing = Standing::new(Arc::new(reviews), Arc::clone(&revoked), Some(Arc::clone(&watches)));
    let token = token(60.0, &bindings(&json!({"pod": {"name": "p", "uid": "p"}})));
    for is_open in [false, true] {
        standing.reviewed(&token, &user(Some("p"))).await;
        assert!(standing.again(&HASH).await.is_none(), "the watch of the pod is not open yet");
        // Each watch has two.
        assert_eq!(Arc::weak_count(&watches), 2 * usize::from(is_open));
        revoked.accounts.tell(&Seen::Pinged);
    }
    let object = Metadata { uid: "q".into(), ..Metadata::default() };
    revoked.tell(&Seen::Change { deleted: true, object: &object }, &RbacGenerations::default());
    let token = self::token(60.0, &bindings(&json!({"pod": {"name": "q", "uid": "q"}})));
    standing.reviewed_as(OTHER, &token, &user(Some("q"))).await;
    assert!(standing.again(&OTHER).await.is_none());
    assert_eq!(Arc::weak_count(&watches), 2, "of a pod that is gone");
}
