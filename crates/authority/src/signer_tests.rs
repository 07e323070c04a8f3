use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use rcgen::KeyPair;
use serde_json::json;

use super::*;
use crate::requester::request;
use informerd_apiserver::UpstreamError;
use informerd_apiserver::testing::{FakeServer, answer, endless};
use informerd_lifecycle::spawn;

/// The requests that the apiserver has, by name, and the paths of all writes.
#[derive(Default)]
struct Store {
    requests: BTreeMap<String, String>,
    writes: Vec<(String, String)>,
}

struct World {
    store: Arc<Mutex<Store>>,
    metrics: Arc<SignerMetrics>,
    _server: FakeServer,
    _ca: watch::Sender<Option<Ca>>,
}

/// A signer before these requests. Writes of requests named `stuck` always fail.
async fn signing(requests: Vec<(&str, String)>) -> World {
    let requests = requests.into_iter().map(|(name, text)| (name.to_owned(), text)).collect();
    let store = Arc::new(Mutex::new(Store { requests, ..Store::default() }));
    let stored = Arc::clone(&store);
    let server = FakeServer::plain(move |request, _| {
        let stored = Arc::clone(&stored);
        async move {
            let (head, body) = request.into_parts();
            let (path, query) = (head.uri.path().to_owned(), head.uri.query().unwrap_or_default().to_owned());
            if path == NODES {
                let node = r#"{"metadata":{"name":"one","resourceVersion":"1"},"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"}]}}"#;
                return answer(200, format!(r#"{{"kind":"NodeList","apiVersion":"v1","metadata":{{"resourceVersion":"5"}},"items":[{node}]}}"#));
            }
            if query.contains("watch=1") {
                return endless(Vec::new());
            }
            if let Some(target) = path.strip_prefix(&format!("{REQUESTS}/")) {
                let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
                let name = target.split('/').next().unwrap();
                let name = percent_encoding::percent_decode_str(name).decode_utf8().unwrap().into_owned();
                let mut store = stored.lock();
                store.writes.push((target.to_owned(), text.clone()));
                if name.starts_with("stuck") {
                    return answer(500, r#"{"kind":"Status","message":"etcdserver: request is too large"}"#);
                }
                store.requests.insert(name, text.clone());
                return answer(200, text);
            }
            let store = stored.lock();
            let only = query.split("metadata.name%3D").nth(1).map(|rest| selected(rest.split("%2Cspec.").next().unwrap()));
            let items = store.requests.iter().filter(|(name, _)| only.as_ref().is_none_or(|only| only == *name));
            // A token has the name of an object.
            let is_page = only.is_none() && query.contains("limit=");
            let (most, token) = if is_page { (2, "t".repeat(70_000)) } else { (usize::MAX, String::new()) };
            let items: Vec<_> = items.map(|(_, text)| &**text).take(most).collect();
            let items = items.join(",");
            answer(200, format!(r#"{{"kind":"CertificateSigningRequestList","apiVersion":"certificates.k8s.io/v1","metadata":{{"resourceVersion":"9","continue":"{token}"}},"items":[{items}]}}"#))
        }
    })
    .await;
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    let made = Ca::make(Timestamp::now(), Duration::from_secs(86_400), None).unwrap();
    let (ca, current) = watch::channel(Some(made));
    let account = ObjectName { namespace: "x".into(), name: "agent".into() };
    let config = SignerConfig { name: "informerd.io/node-serving".into(), account };
    let metrics = Arc::<SignerMetrics>::default();
    let signer = Signer::new(config, Duration::from_secs(3600), upstream, current, Arc::clone(&metrics));
    spawn("signer", signer.run());
    World { store, metrics, _server: server, _ca: ca }
}

/// The name that a field selector selects.
fn selected(text: &str) -> String {
    let text = percent_encoding::percent_decode_str(text).decode_utf8().unwrap();
    let (mut name, mut chars) = (String::new(), text.chars());
    while let Some(next) = chars.next() {
        name.extend(if next == '\\' { chars.next() } else { Some(next) });
    }
    name
}

impl World {
    async fn until(&self, what: &str, is: impl Fn(&Store) -> bool) {
        for _ in 0..20_000 {
            if is(&self.store.lock()) {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
        panic!("{what}: {:?}", self.store.lock().writes.iter().map(|(path, _)| path).collect::<Vec<_>>());
    }
}

/// A request of this user with these managed fields and this label.
fn of(name: &str, user: &str, managed: &str) -> String {
    let pem = request(&["10.0.0.1".to_owned()], &KeyPair::generate().unwrap()).unwrap();
    let spec = json!({
        "signerName": "informerd.io/node-serving",
        "request": STANDARD.encode(pem),
        "username": user,
        "extra": {
            "authentication.kubernetes.io/pod-name": ["p"],
            "authentication.kubernetes.io/node-name": ["one"],
        },
        "usages": ["digital signature", "server auth"],
    });
    let name = json!(name);
    format!(
        r#"{{"metadata":{{"name":{name},"uid":{name},"resourceVersion":"3","labels":{{"a":"b"}},"managedFields":[{{"fieldsV1":{managed}}}]}},"spec":{spec},"status":{{}}}}"#
    )
}

const AGENT: &str = "system:serviceaccount:x:agent";

fn nested(levels: usize) -> String {
    format!("{}{{}}{}", "{\"f:a\":".repeat(levels), "}".repeat(levels))
}

/// Whether the apiserver has a certificate or this condition of a request.
fn decided<'a>(name: &'a str, how: &'a str) -> impl Fn(&Store) -> bool + 'a {
    move |store| store.requests[name].contains(how)
}

#[tokio::test]
async fn a_bad_request_costs_itself_alone() {
    let large = format!("{{\"f:{}\":1}}", "\\u003c".repeat(1_300_000));
    let names: Vec<_> = (0..12).map(|n| format!("large{n}")).collect();
    let long = "y".repeat(70_000);
    let mut requests: Vec<_> = names.iter().map(|name| (&**name, of(name, "eve", &large))).collect();
    requests.extend([
        ("deep", of("deep", "eve", &nested(5000))),
        ("deepagent", of("deepagent", AGENT, &nested(140))),
        ("stuck1", of("stuck1", "eve", "{}")),
        ("stuck2", of("stuck2", AGENT, "{}")),
        ("stuck3", of("stuck3", "eve", &large)),
        ("victim?", of("victim?", "eve", "{}")),
        ("a,b=c\\?..", of("a,b=c\\?..", "eve", &large)),
        (&long, of(&long, "eve", "{}")),
        ("zgood", of("zgood", AGENT, "{}")),
        ("zlarge", of("zlarge", "eve", &large)),
    ]);
    let count = requests.len();
    let world = signing(requests).await;
    world.until("the agent has its certificate", decided("zgood", "\"certificate\":")).await;
    for name in
        ["deepagent", "deep", "victim?", "a,b=c\\?..", "zlarge"].into_iter().chain(names.iter().map(|name| &**name))
    {
        let how = if name == "deepagent" { "\"certificate\":" } else { "\"Denied\"" };
        world.until(name, decided(name, how)).await;
    }
    let counted = || (world.metrics.signed.get(), world.metrics.denied.get());
    world.until("all are counted", |_| counted() == (2, count as u64 - 6)).await;
    let store = world.store.lock();
    let at = |is: &dyn Fn(&str) -> bool| store.writes.iter().position(|(target, _)| is(target)).unwrap();
    assert!(
        at(&|target| target == "zgood/status") < at(&|target| target.starts_with("large")),
        "small ones come first"
    );
    let path = |path: &str| store.writes.iter().any(|(target, _)| target == path);
    assert!(path("victim%3F/approval") && path("a%2Cb%3Dc%5C%3F../approval"));
    for (target, text) in &store.writes {
        assert!(text.len() < 10_000 && text.contains(r#""labels":{"a":"b"}"#), "{target}: {}", text.len());
    }
}

#[tokio::test]
async fn a_request_that_cannot_be_decided_is_tried_ever_more_rarely_and_then_dropped() {
    let world = signing(vec![("stuck", of("stuck", AGENT, "{}"))]).await;
    world.until("a first attempt", |store| !store.writes.is_empty()).await;
    tokio::time::pause();
    let started = Instant::now();
    while world.metrics.dropped.get() == 0 {
        assert!(started.elapsed() < 3 * GIVEN_UP);
        sleep(Duration::from_millis(100)).await;
    }
    let writes = world.store.lock().writes.len();
    assert!((7..=20).contains(&writes), "{writes}");
    sleep(Duration::from_secs(900)).await;
    assert_eq!((world.store.lock().writes.len(), world.metrics.dropped.get()), (writes, 1));
    // A request that comes later is decided, of course.
    world.store.lock().requests.insert("good".to_owned(), of("good", AGENT, "{}"));
    world.until("the later one", decided("good", "\"certificate\":")).await;
}

#[tokio::test]
async fn what_a_round_takes_and_remembers_has_bounds() {
    let upstream = Upstream::from_config(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).await.unwrap();
    let account = ObjectName { namespace: "x".into(), name: "agent".into() };
    let config = SignerConfig { name: "informerd.io/node-serving".into(), account };
    let (_sender, ca) = watch::channel(None);
    let mut signer = Signer::new(config, Duration::ZERO, upstream, ca, Arc::default());
    // Exchanges that fail, among requests that the apiserver refuses.
    let mut round = Round::default();
    for number in 1..=MOST_BROKEN {
        let refused = AuthorityError::Refused { what: String::new(), status: 500, message: String::new() };
        signer.fail("refused".to_owned(), "a", refused, &mut round).unwrap();
        let broken = signer.fail(number.to_string(), "a", AuthorityError::Upstream(UpstreamError::Busy), &mut round);
        assert_eq!(broken.is_ok(), number < MOST_BROKEN, "it is the apiserver that fails");
    }
    let later = Instant::now() + Duration::from_secs(3600);
    let of = |number: usize| (number.to_string(), Failed { again: Some(later), ..Failed::new(later) });
    signer.failed = (1..MOST_FAILED).map(of).collect();
    for (uid, left) in [("one", MOST_FAILED), ("another", 1)] {
        let refused = AuthorityError::TooLong { what: String::new() };
        signer.fail(uid.to_owned(), "a", refused, &mut Round::default()).unwrap();
        assert_eq!(signer.failed.len(), left);
    }
    let mut found = Found::default();
    for number in 0..=MOST_LATER {
        assert_eq!((found.later.len(), found.again.is_some()), (number, false));
        let large = format!(r#"{{"metadata":{{"uid":"{number}"}},"spec":"{}"}}"#, "x".repeat(SMALL));
        found.take(large.as_bytes(), &mut HashMap::new());
    }
    assert_eq!((found.later.len(), found.again.is_some()), (MOST_LATER, true), "the round is repeated");
}

#[test]
fn what_a_client_wrote_is_quoted_in_short() {
    let object = serde_json::from_str(&of("a", "eve", "{}")).unwrap();
    let mut request = Request::new(object).unwrap();
    request.add_condition("Denied", "NotAllowed", &"é".repeat(1_000_000)).unwrap();
    assert!(serde_json::to_string(&request.object).unwrap().len() < 5000);
}
