//! Users, times what they ask for, times the forms they ask in: the same answers as from the apiserver itself.

use http::Method;
use serde_json::Value;

use crate::access::typed::{get, status};
use crate::access::wire::Socket;
use crate::access::world::World;
use crate::support::client::{Answer, Client, Watch, key};

const PARTIAL: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const PARTIAL_ALONE: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const PROTOBUF_FIRST: &str = "application/vnd.kubernetes.protobuf,application/json";

/// Reads that never change while the test runs.
const READS: &[&str] = &[
    "/api/v1/pods?resourceVersion=0",
    "/api/v1/pods",
    "/api/v1/namespaces/a/pods",
    "/api/v1/namespaces/b/pods",
    "/api/v1/namespaces/none/pods",
    "/api/v1/namespaces/a/pods/one",
    "/api/v1/namespaces/a/pods/one?resourceVersion=0",
    "/api/v1/namespaces/a/pods/missing?resourceVersion=0",
    "/api/v1/namespaces/b/pods/one?resourceVersion=0",
    "/api/v1/configmaps?resourceVersion=0",
    "/api/v1/namespaces/a/configmaps?resourceVersion=0",
    "/api/v1/namespaces/b/configmaps?resourceVersion=0",
    "/api/v1/namespaces/a/configmaps?resourceVersion=0&fieldSelector=metadata.name%3Done",
    "/api/v1/namespaces/a/configmaps?resourceVersion=0&fieldSelector=metadata.name%3D%3Dtwo",
    "/api/v1/namespaces/a/configmaps?resourceVersion=0&fieldSelector=metadata.name!%3Done",
    "/api/v1/namespaces/a/configmaps?resourceVersion=0&fieldSelector=metadata.name%3Done&labelSelector=!!",
    "/api/v1/namespaces/a/configmaps?resourceVersion=0&labelSelector=app+in+(x,y),!gone",
    "/api/v1/namespaces/a/configmaps/one?resourceVersion=0",
    "/api/v1/namespaces/a/configmaps/two?resourceVersion=0",
    "/api/v1/namespaces/a/configmaps/tow?resourceVersion=0",
    "/api/v1/configmaps?resourceVersion=0&fieldSelector=metadata.name%3Done",
    "/api/v1/namespaces/a?resourceVersion=0",
    "/api/v1/namespaces?resourceVersion=0",
    "/apis/apps/v1/deployments?resourceVersion=0",
    "/apis/apps/v1/namespaces/a/deployments/d?resourceVersion=0",
    "/api/v1/namespaces/a/configmaps?resourceVersion=abc",
    "/api/v1/namespaces/a/configmaps?limit=x",
    "/api/v1/namespaces/a/configmaps?resourceVersionMatch=Exact",
    // Nobody knows these.
    "/api/v1/nopes",
    "/api/v1/namespaces/a/nopes/n",
    "/apis/nope.example.com/v1/x",
    // Other ways to write a path.
    "/api/v1/namespaces/a/configmaps/?resourceVersion=0",
    "/api/v1//configmaps?resourceVersion=0",
    "//api/v1/configmaps?resourceVersion=0",
    "/api/v1/namespaces/a%2Fconfigmaps?resourceVersion=0",
    "/api/v1/namespaces/b/../a/configmaps?resourceVersion=0",
    "/api/v1/namespaces/b/%2e%2e/a/configmaps?resourceVersion=0",
    "/api/v1/namespaces/a/configmaps/one/?resourceVersion=0",
    "/api/v1/namespaces/a/configmaps%2Fone?resourceVersion=0",
    // Not ours at all.
    "/metrics/nothing",
    "/api/v1/namespaces/a/pods/one/status",
    "/apis",
];

const WATCHES: &[&str] = &[
    "/api/v1/pods?watch=1",
    "/api/v1/namespaces/a/pods?watch=1",
    "/api/v1/namespaces/b/pods?watch=1",
    "/api/v1/namespaces/a/configmaps?watch=1",
    "/api/v1/namespaces/b/configmaps?watch=1",
    "/api/v1/namespaces/a/configmaps?watch=1&fieldSelector=metadata.name%3Done",
    "/api/v1/namespaces/a/configmaps?watch=1&fieldSelector=metadata.name%3Dtwo",
    "/api/v1/watch/namespaces/a/configmaps/one?watch=1",
    "/api/v1/watch/namespaces/a/configmaps?watch=1&fieldSelector=metadata.name%3Done",
    "/api/v1/namespaces?watch=1",
    "/api/v1/nopes?watch=1",
];

const HEADERS: &[&str] = &["content-type", "cache-control", "content-length", "x-content-type-options", "warning"];

fn assert_equal(what: &str, direct: &Answer, through: &Answer) {
    assert_eq!(direct.status, through.status, "{what}\n{}\n{}", direct.text(), through.text());
    assert_eq!(settled(direct), settled(through), "{what}");
    for header in HEADERS {
        let of = |answer: &Answer| answer.headers.get(*header).map(|value| value.to_str().unwrap().to_owned());
        if *header == "content-length" && (direct.body.len() > 2048 || direct.status.is_success()) {
            continue;
        }
        assert_eq!(of(direct), of(through), "{what}: {header}");
    }
}

/// The body, without the revision of a list: RBAC's own objects move the apiserver's. The items of an empty list of metadata
/// are null.
fn settled(answer: &Answer) -> String {
    match serde_json::from_slice::<Value>(&answer.body) {
        Ok(mut body) if answer.status.is_success() && body.get("items").is_some() => {
            body["metadata"].as_object_mut().unwrap().remove("resourceVersion");
            body.to_string()
        }
        _ => answer.text(),
    }
}

async fn initial(watch: &mut Watch) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        let event = watch.next().await.unwrap().unwrap();
        if event["type"] == "BOOKMARK" {
            seen.sort();
            return seen;
        }
        seen.push(format!("{} {}", event["type"], key(&event["object"])));
    }
}

async fn compare(what: &str, direct: &Client, through: &Client, target: &str, headers: &[(&str, &str)]) -> u16 {
    let ours = through.request(Method::GET, target, headers, "").await;
    let theirs = direct.request(Method::GET, target, headers, "").await;
    assert_equal(&format!("{what}: {target} {headers:?}"), &theirs, &ours);
    ours.status.as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_user_reads_what_it_may_and_nothing_else() {
    let world = World::start("authentication: {anonymous: forward}\n").await;
    world.settled().await;
    world.warm(&["/api/v1/pods", "/api/v1/configmaps", "/api/v1/namespaces", "/apis/apps/v1/deployments"]).await;
    let users = world.users().await;
    let before = world.served();
    let mut answers = std::collections::BTreeMap::<u16, usize>::new();
    for (user, token) in &users {
        let (direct, through) = (world.direct(token.as_deref()), world.through(token.as_deref()));
        for target in READS {
            for accept in [None, Some("application/json"), Some(PARTIAL), Some(PARTIAL_ALONE), Some(PROTOBUF_FIRST)] {
                let headers: Vec<_> = accept.map(|accept| ("accept", accept)).into_iter().collect();
                // Whoever takes JSON too gets it, where the apiserver sends protobuf.
                if accept == Some(PROTOBUF_FIRST) {
                    let ours = through.request(Method::GET, target, &headers, "").await;
                    let theirs = direct.request(Method::GET, target, &headers, "").await;
                    assert_eq!(ours.status, theirs.status, "{user}: {target}");
                    if matches!(ours.status.as_u16(), 401 | 403) {
                        assert_eq!(ours.body, theirs.body, "{user}: {target}");
                    }
                    continue;
                }
                *answers.entry(compare(user, &direct, &through, target, &headers).await).or_default() += 1;
            }
            for pretty in [("user-agent", "curl/8"), ("accept", "application/yaml")] {
                compare(user, &direct, &through, target, &[pretty]).await;
            }
        }
        for target in WATCHES {
            let query = "&allowWatchBookmarks=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan";
            let target = format!("{target}{query}");
            let (mut ours, mut theirs) = (through.watch(&target).await, direct.watch(&target).await);
            assert_eq!(ours.status, theirs.status, "{user}: {target}");
            if ours.status == 200 {
                assert_eq!(initial(&mut ours).await, initial(&mut theirs).await, "{user}: {target}");
            } else {
                drop((ours, theirs));
                compare(user, &direct, &through, &target, &[]).await;
            }
            let metadata = [("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")];
            let (ours, theirs) =
                (through.watch_as(&target, &metadata).await, direct.watch_as(&target, &metadata).await);
            assert_eq!(ours.status, theirs.status, "{user}: metadata of {target}");
            let token = token.as_deref();
            let ours = Socket::through(&world, token, &target).await.status;
            assert_eq!(ours, Socket::direct(&world, token, &target).await.status, "{user}: WebSocket {target}");
        }
        for (namespace, name) in
            ["a", "b", "none"].iter().flat_map(|space| ["one", "two", "gone"].map(|name| (space, name)))
        {
            let target = format!("/api/v1/namespaces/{namespace}/configmaps/{name}?resourceVersion=0");
            // Without credentials nothing is served by gRPC, whatever the apiserver lets the anonymous read.
            let wanted = match (token, direct.get(&target).await.status.as_u16()) {
                (None, _) | (_, 401) => "16",
                (_, 403) => "7",
                (_, 404) => "5",
                (_, code) => ["0"][usize::from(code != 200)],
            };
            assert_eq!(status(&through, "Get", &get(namespace, name)).await.0, wanted, "{user}: gRPC {target}");
        }
    }
    assert!(world.served() - before > 200, "too little was served from the cache: {}", world.served() - before);
    for code in [200, 401, 403, 404] {
        assert!(answers.get(&code).is_some_and(|count| *count > 10), "{code}: {answers:?}");
    }
}
