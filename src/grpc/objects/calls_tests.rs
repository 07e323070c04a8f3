//! Whole calls of every method, with a scripted apiserver: who may ask, and what happens before that is known.

use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use http_body_util::{BodyExt, Full};
use prost::Message;
use tonic::Code;

use crate::apiserver::client::Upstream;
use crate::apiserver::discovery::{ApiResource, Discovery};
use crate::apiserver::testing::{FakeServer, answer, head_with};
use crate::auth::testing::{Rights, allowing, bearer, right};
use crate::auth::{self, Access, AuthConfig, Mode};
use crate::grpc::pb::v1;
use crate::grpc::pb::v1::{sync_request, watch_response, work_request};
use crate::grpc::queue::{Groups, QueueConfig};
use crate::grpc::testing::{Nowhere, call};
use crate::grpc::*;
use crate::informer::Factory;
use crate::lifecycle::drain::DrainWatch;
use crate::lifecycle::readiness::Registry;
use crate::memory::{Cut, HURRY, Ledger, Pressure, StallGuards};
use crate::reads::{ConsistentReads, NotSynced, Reads, ReadsConfig};

const HOUR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_secs(60);

/// Every method that authorizes.
const METHODS: [&str; 8] = [
    "Objects/Get",
    "Objects/List",
    "Objects/Watch",
    "Objects/Sync",
    "Queue/Work",
    "Cache/ListInformers",
    "Cache/Freshness",
    "Cache/WatchInformers",
];

const CORE: &str = r#"{"kind":"APIGroupDiscoveryList","items":[{"versions":[{"version":"v1","resources":[{"resource":"configmaps","responseKind":{"kind":"ConfigMap"},"scope":"Namespaced","verbs":["get","list","watch"]}]}]}]}"#;
const GROUPS: &str = r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"down.io"},"versions":[{"version":"v1","freshness":"Stale"}]},{"metadata":{"name":"up.io"},"versions":[{"version":"v1","freshness":"Current"}]}]}"#;

struct World {
    /// Who reviews tokens and rights is another one.
    server: FakeServer,
    grpc: Grpc,
    rights: Arc<Rights>,
    access: Access,
    ledger: Ledger,
    stall_guards: StallGuards,
    _reviews: FakeServer,
}

struct Nothing;

impl Introspect for Nothing {
    fn informers(&self) -> Vec<v1::Informer> {
        Vec::new()
    }
}

impl World {
    /// The apiserver takes a token for its user's name. It has `configmaps`, and was asked for its resources before.
    async fn new(ledger: Ledger) -> Self {
        let (rights, access, reviews) = allowing(&[], &AuthConfig::default()).await;
        let server = FakeServer::plain(|request, _| {
            std::future::ready(match request.uri().path() {
                "/api" => answer(200, CORE),
                "/apis" => answer(200, GROUPS),
                _ => answer(404, r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":404}"#),
            })
        })
        .await;
        let upstream = Upstream::from_config(server.config()).await.unwrap();
        let discovery = Discovery::knowing(upstream.clone(), vec![ApiResource::core("configmaps", "ConfigMap")]);
        let factory = Factory::simple(HOUR, upstream.clone(), discovery);
        let not_synced = NotSynced { wait: Duration::ZERO, forward: true };
        let config = ReadsConfig { not_synced, ..ReadsConfig::simple(ConsistentReads::Auto, HOUR) };
        let reads = Reads::new(config, factory);
        let queues = QueueConfig { linger: HOUR, max_groups: 10, max_deletions: 10 };
        let stall_guards = StallGuards::default();
        let grpc = Grpc::new(GrpcParts {
            reads: reads.clone(),
            cluster: Arc::new(Nowhere),
            groups: Groups::new(queues, reads, DrainWatch::never()),
            informers: Arc::new(Nothing),
            readiness: Registry::default(),
            drain: DrainWatch::never(),
            drain_spread: Duration::ZERO,
            ledger: ledger.clone(),
            stall_guards: stall_guards.clone(),
            metrics: Arc::default(),
        });
        Self { server, grpc, rights, access, ledger, stall_guards, _reviews: reviews }
    }

    fn caller(&self, mode: Mode, headers: &HeaderMap, call: CallInfo) -> Result<Caller, tonic::Status> {
        let caller = auth::Caller { mode, certificates: None, headers, may_impersonate: true };
        Caller::new(self.access.clone(), call, &caller, &self.ledger)
    }

    async fn send(&self, caller: Caller, path: &str, message: &[u8]) -> http::Response<crate::grpc::call::Body> {
        let body = [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), message].concat();
        let mut request = http::Request::new(tonic::body::Body::new(Full::new(bytes::Bytes::from(body))));
        *request.uri_mut() = path.parse().unwrap();
        *request.method_mut() = http::Method::POST;
        request.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        request.extensions_mut().insert(caller);
        request.extensions_mut().insert(Retiring(DrainWatch::never()));
        self.grpc.call(request).await
    }

    /// The answer to a call on a trusted connection.
    async fn answer(&self, connection: u64, path: &str, message: &[u8]) -> http::Response<crate::grpc::call::Body> {
        let caller = self.caller(Mode::Trust, &HeaderMap::new(), CallInfo { connection, ..call(path) });
        self.send(caller.unwrap(), path, message).await
    }

    /// The code of a call, or of the only watch of a stream of watches, and its message.
    async fn call(&self, mode: Mode, headers: &HeaderMap, method: &str, message: Vec<u8>) -> (Code, String) {
        let path = format!("/informerd.v1.{method}");
        let caller = match self.caller(mode, headers, call(&path)) {
            Ok(caller) => caller,
            Err(status) => return (status.code(), status.message().to_owned()),
        };
        let answered = tokio::time::timeout(SOON, async {
            let (head, body) = self.send(caller, &path, &message).await.into_parts();
            let body = body.collect().await.unwrap();
            let trailers = body.trailers().cloned().unwrap_or_default();
            (head.headers, trailers, body.to_bytes())
        });
        let (head, trailers, body) = answered.await.unwrap_or_else(|_| panic!("{method} has no end"));
        let status = tonic::Status::from_header_map(&head).or_else(|| tonic::Status::from_header_map(&trailers));
        let status = status.unwrap_or_else(|| panic!("{method} has no status"));
        match body.get(5..) {
            Some(response) if method == "Objects/Sync" && status.code() == Code::Ok => {
                let response = v1::SyncResponse::decode(response).unwrap().response.unwrap();
                let Some(watch_response::Frame::Goodbye(goodbye)) = response.frame else { panic!("{response:?}") };
                let error = goodbye.error.unwrap();
                (Code::from_i32(error.code), error.message)
            }
            _ => (status.code(), status.message().to_owned()),
        }
    }

    /// How often the apiserver was asked about a right, and for what it has.
    fn asked(&self) -> (usize, usize) {
        let uris = self.server.uris();
        let discovery = |uri: &&String| {
            let path = uri.split('?').next().unwrap_or_default();
            ["/api", "/api/v1"].contains(&path) || path.starts_with("/apis") && path.split('/').count() <= 4
        };
        (self.rights.asked.lock().len(), uris.iter().filter(discovery).count())
    }
}

fn selection(resource: &str, version: &str) -> Option<v1::Selection> {
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let resource = Some(v1::Resource { group: group.into(), version: version.into(), resource: resource.into() });
    Some(v1::Selection { resource, ..Default::default() })
}

fn message(method: &str, selection: Option<v1::Selection>) -> Vec<u8> {
    let watch = v1::WatchRequest { selection: selection.clone(), ..Default::default() };
    let resource = selection.clone().and_then(|selection| selection.resource);
    match method {
        "Objects/Get" => v1::GetRequest { resource, name: "x".into(), ..Default::default() }.encode_to_vec(),
        "Objects/List" => v1::ListRequest { selection, ..Default::default() }.encode_to_vec(),
        "Objects/Watch" => watch.encode_to_vec(),
        "Objects/Sync" => {
            let action = Some(sync_request::Action::Add(v1::AddWatch { watch: Some(watch), credit: None }));
            v1::SyncRequest { watch_id: 1, action }.encode_to_vec()
        }
        "Queue/Work" => {
            let selections = selection.into_iter().collect();
            let join = v1::JoinGroup { group: "g".into(), selections, capacity: 1 };
            v1::WorkRequest { action: Some(work_request::Action::Join(join)) }.encode_to_vec()
        }
        "Cache/Freshness" => v1::FreshnessRequest { resource }.encode_to_vec(),
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn nobody_is_impersonated_however_long_the_head_is() {
    let world = World::new(Ledger::default()).await;
    world.rights.given.lock().insert(right("t", ""));
    let token = ("authorization", "Bearer t");
    for (who, mode) in [
        (("impersonate-user", "admin"), Mode::Trust),
        (("impersonate-group", "system:masters"), Mode::Trust),
        (("impersonate-uid", "1"), Mode::Trust),
        (("impersonate-extra-x", "y"), Mode::Trust),
        (("impersonate-user", "admin"), Mode::Delegated),
        (("impersonate-extra-x", "y"), Mode::Delegated),
        // Two servers could read them differently.
        (token, Mode::Trust),
        (token, Mode::Delegated),
    ] {
        for fillers in [0, 62, 63, 64, 65, 3000] {
            let mut head = bearer("t");
            for n in 0..fillers {
                head.append(["grpc-x", "grpc-trace-bin", "x-remote-user"][n % 3], HeaderValue::from_static("v"));
            }
            head.append(who.0, HeaderValue::from_static(who.1));
            for method in METHODS {
                let message = message(method, selection("configmaps", "v1"));
                let (code, said) = world.call(mode, &head, method, message).await;
                assert_eq!(code, Code::Unavailable, "{method} {mode:?} {who:?} behind {fillers}: {said}");
                assert!(said.contains("only the apiserver can"), "{said}");
            }
        }
    }
    assert_eq!(world.asked(), (0, 0));
    let (code, _) = world.call(Mode::Trust, &HeaderMap::new(), "Cache/ListInformers", Vec::new()).await;
    assert_eq!(code, Code::Ok);
}

#[tokio::test]
async fn who_may_not_ask_learns_nothing_and_causes_reviews_alone() {
    let (world, token) = (World::new(Ledger::default()).await, bearer("t"));
    for method in ["Objects/Get", "Objects/List", "Objects/Watch", "Objects/Sync", "Queue/Work"] {
        for version in ["", "v1", "v9"] {
            let mut said = Vec::new();
            for resource in ["configmaps", "nothings", "configmaps.nowhere.io"] {
                let (before, _) = world.asked();
                // Each time another filter, so that no decision is remembered.
                let mut selection = selection(resource, version);
                if let (Some(selection), true) = (&mut selection, method != "Objects/Get") {
                    selection.filters =
                        vec![v1::Filter { label_selector: format!("m={}", method.len()), ..Default::default() }];
                }
                let (code, text) = world.call(Mode::Delegated, &token, method, message(method, selection)).await;
                let reviews = world.asked().0 - before;
                assert!(reviews <= 1, "{method} {resource} {version}: {reviews}");
                let (name, group) = resource.split_once('.').unwrap_or((resource, ""));
                let text = text.replace(resource, "R").replace(name, "R").replace(&format!("\"{group}\""), "G");
                said.push((code, text));
            }
            assert_eq!(said[0].0, Code::PermissionDenied, "{method} {version}");
            assert!(said.iter().all(|one| *one == said[0]), "{method} {version}: {said:?}");
        }
    }
    assert_eq!(world.asked().1, 0, "it was not asked what it has: {:?}", world.server.uris());
    // Who may, is told.
    world.rights.given.lock().insert(right("t", ""));
    let message = message("Objects/List", selection("nothings.elsewhere.io", ""));
    let (code, text) = world.call(Mode::Delegated, &token, "Objects/List", message).await;
    assert!(matches!(code, Code::NotFound | Code::Unavailable), "{code:?} {text}");
    assert!(world.asked().1 > 0, "it was asked now");
}

/// A message of a mebibyte that would become hundreds.
#[tokio::test]
async fn what_is_too_large_is_refused_before_it_is_authorized() {
    let world = World::new(Ledger::new(64 << 20, Pressure::default())).await;
    let token = bearer("t");
    let many = |part: &str, count: usize| vec![part; count].join(",");
    let names: Vec<_> = (0..16).map(|n| n.to_string()).collect();
    for (labels, fields, wanted) in [
        (many("a", 500_000), String::new(), Code::InvalidArgument),
        (many("a", 1001), String::new(), Code::InvalidArgument),
        (format!("a in ({})", many("-0", 300_000)), String::new(), Code::InvalidArgument),
        (String::new(), many("a=b", 1001), Code::InvalidArgument),
        (many("a", 1000), many("a=b", 1000), Code::PermissionDenied),
    ] {
        for method in ["Objects/List", "Objects/Watch", "Objects/Sync", "Queue/Work"] {
            let (before, _) = world.asked();
            let mut selection = selection("configmaps", "v1").unwrap();
            let (label_selector, field_selector) = (labels.clone(), fields.clone());
            let names = names.clone();
            selection.filters = vec![v1::Filter { label_selector, field_selector, names, ..Default::default() }];
            let (code, text) = world.call(Mode::Delegated, &token, method, message(method, Some(selection))).await;
            assert_eq!(code, wanted, "{method}: {text}");
            assert_eq!(world.asked().0 > before, wanted == Code::PermissionDenied, "{method}");
        }
    }
    assert_eq!(world.ledger.used(), 0);
}

/// A token without rights may keep many streams, but not their heads.
#[tokio::test]
async fn a_stream_keeps_little_of_its_head() {
    let world = World::new(Ledger::default()).await;
    let head = bytes::Bytes::from(vec![b'x'; 780_000]);
    let mut headers = head_with(&[("authorization", "Bearer t"), ("user-agent", "agent")]);
    for name in ["grpc-padding", "grpc-padding-bin", "x-padding", "baggage", "cookie"] {
        headers.append(name, HeaderValue::from_maybe_shared(head.clone()).unwrap());
    }
    let padded = HeaderValue::from_bytes(&[b"Bearer t ", &head[..]].concat()).unwrap();
    headers.insert(AUTHORIZATION, padded);
    headers.insert("user-agent", HeaderValue::from_maybe_shared(head.clone()).unwrap());
    let call = call("/informerd.v1.Objects/Sync");
    let callers: Vec<_> = (0..360).map(|_| world.caller(Mode::Delegated, &headers, call.clone()).unwrap()).collect();
    let caller = auth::Caller { mode: Mode::Delegated, certificates: None, headers: &headers, may_impersonate: true };
    // Without memory, calls that need no authentication go on.
    let none = Ledger::new(0, Pressure::default());
    let probe = CallInfo { uri: "/grpc.health.v1.Health/Check".into(), ..call.clone() };
    assert!(Caller::new(world.access.clone(), probe, &caller, &none).is_ok());
    let refused = Caller::new(world.access.clone(), call, &caller, &none).unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    drop(headers);
    assert!(head.is_unique(), "nothing else holds the head");
    let each = world.ledger.used() / callers.len();
    assert!((100..2000).contains(&each), "{each}");
    drop(callers);
    assert_eq!(world.ledger.used(), 0);
}

#[tokio::test]
async fn streams_of_users_without_rights_leave_memory_to_others() {
    let world = World::new(Ledger::new(1 << 20, Pressure::default())).await;
    let open = async |token: &str| {
        let path = "/informerd.v1.Objects/Sync";
        let caller = world.caller(Mode::Delegated, &bearer(token), call(path)).ok()?;
        Some(world.send(caller, path, &[]).await).filter(|response| !response.headers().contains_key("grpc-status"))
    };
    let mut streams = Vec::new();
    while let Some(stream) = open("jane").await {
        streams.push(stream);
    }
    let used = world.ledger.used();
    assert!((370 << 10..=384 << 10).contains(&used), "three eighths, with what is kept of heads: {used}");
    let mut others = Vec::new();
    while let Some(stream) = open("joe").await {
        others.push(stream);
    }
    let used = world.ledger.used();
    assert!((630 << 10..=640 << 10).contains(&used), "five eighths: {used}");
    assert!(open("ann").await.is_some(), "a third user");
    drop(others);
    streams.pop();
    assert!(open("jane").await.is_some(), "there is room");
    drop(streams);
    assert_eq!(world.ledger.used(), 0);
}

const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const HEALTH: &str = "/grpc.health.v1.Health/Watch";

/// `file_containing_symbol`: an answer with all descriptors.
fn symbol(name: &str) -> Vec<u8> {
    [&[0x22, u8::try_from(name.len()).unwrap()][..], name.as_bytes()].concat()
}

#[tokio::test]
async fn a_resource_of_a_server_that_does_not_answer_may_be_asked_for_again() {
    let world = World::new(Ledger::default()).await;
    let headers = HeaderMap::new();
    for method in ["Objects/Get", "Objects/List", "Objects/Watch", "Objects/Sync", "Queue/Work"] {
        for version in ["", "v1"] {
            for (resource, wanted) in [
                ("things.down.io", Code::Unavailable),
                ("things.up.io", Code::NotFound),
                ("things.none.io", Code::NotFound),
            ] {
                let message = message(method, selection(resource, version));
                let (code, text) = world.call(Mode::Trust, &headers, method, message).await;
                assert_eq!(code, wanted, "{method} {resource} {version}: {text}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_answer_that_its_client_does_not_take_is_given_up() {
    let world = World::new(Ledger::default()).await;
    let symbol = symbol("informerd.v1.Objects");
    for (path, message) in [
        (REFLECTION, &symbol[..]),
        (HEALTH, &[]),
        ("/grpc.health.v1.Health/Check", &[]),
        ("/informerd.v1.Cache/ListInformers", &[]),
        ("/informerd.v1.Cache/WatchInformers", &[]),
    ] {
        let response = world.answer(1, path, message).await;
        assert!(!response.headers().contains_key("grpc-status"), "{path}: {:?}", response.headers());
        let cut = response.extensions().get::<Cut>().cloned().unwrap_or_else(|| panic!("{path} is not looked after"));
        tokio::time::sleep(HURRY).await;
        assert_eq!(world.stall_guards.hurry(), 1, "{path}");
        tokio::time::sleep(2 * HURRY).await;
        world.stall_guards.hurry();
        assert!(cut.is_cut(), "{path}");
        let trailers = response.into_body().collect().await.unwrap().trailers().cloned().unwrap();
        assert_eq!(trailers["grpc-status"], "8", "{path}");
    }
    assert_eq!(world.stall_guards.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_whose_client_takes_all_lives_while_there_is_nothing_to_say() {
    let world = World::new(Ledger::default()).await;
    for path in [HEALTH, "/informerd.v1.Cache/WatchInformers"] {
        let mut body = world.answer(1, path, &[]).await.into_body();
        drop(body.frame().await.unwrap().unwrap());
        let silent = tokio::time::timeout(HOUR, body.frame()).await;
        assert!(silent.is_err(), "{path}: {silent:?}");
        tokio::time::sleep(HOUR).await;
        assert_eq!(world.stall_guards.hurry(), 0, "{path}");
        // It wakes often, but what it has said is not taken.
        let mut body = world.answer(1, path, &[]).await.into_body();
        let first = body.frame().await.unwrap().unwrap();
        assert!(tokio::time::timeout(2 * HURRY, body.frame()).await.is_err(), "{path}");
        assert_eq!(world.stall_guards.hurry(), 1, "{path}");
        drop(first);
        let trailers = body.frame().await.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(trailers["grpc-status"], "8", "{path}");
    }
}

#[tokio::test]
async fn a_client_has_few_streams_that_last() {
    let world = World::new(Ledger::new(16 << 20, Pressure::default())).await;
    let mut open = Vec::new();
    let refused = loop {
        let response = world.answer(1, HEALTH, &[]).await;
        if response.headers().contains_key("grpc-status") {
            break response;
        }
        open.push(response);
    };
    assert_eq!((open.len(), &refused.headers()["grpc-status"]), (64, &HeaderValue::from_static("8")));
    open.pop();
    assert!(!world.answer(1, HEALTH, &[]).await.headers().contains_key("grpc-status"));
}

#[tokio::test]
async fn what_a_client_sends_is_quoted_in_part() {
    let world = World::new(Ledger::default()).await;
    let long = "x".repeat(3000);
    let request = tonic_health::pb::HealthCheckRequest { service: long.clone() }.encode_to_vec();
    let resource = selection("configmaps", "v1").and_then(|selection| selection.resource);
    let bound = Some(v1::consistency::Bound::NotOlderThan(long.clone()));
    let consistency = Some(v1::Consistency { bound, max_staleness: None });
    let get = v1::GetRequest { resource, name: "x".into(), consistency, ..Default::default() }.encode_to_vec();
    for (path, message) in [
        (&*format!("/no.Service/{long}"), &[][..]),
        ("/grpc.health.v1.Health/Check", &request),
        ("/informerd.v1.Objects/Get", &get),
    ] {
        let response = world.answer(1, path, message).await;
        let status = tonic::Status::from_header_map(response.headers()).unwrap();
        let method = &path[..20];
        assert!(status.message().contains(&long[..200]) && status.message().len() < 400, "{method}: {status:?}");
        assert!(status.details().len() < 1000, "{method}");
    }
}
