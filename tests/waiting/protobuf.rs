//! Kubernetes protobuf: what a real kube-apiserver sends, and what informerd sends of its caches, byte for byte.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod poison;
mod policy;

use std::collections::BTreeMap;

use crate::cluster::Cluster;
use crate::support::client::{Answer, rv};
use crate::world::{PROTOBUF, World};
use base64::Engine as _;
use http::Method;
use informerd::codec::json::{ListMeta, WatchFrame};
use informerd::codec::{ListDecoder, WatchDecoder};
use informerd::meta::{Encoding, FieldTable};
use serde_json::{Value, json};

const GO: &str = "application/vnd.kubernetes.protobuf,application/json";

/// One object, or some, of many types, with fields that selectors can name set and unset.
const FIXTURES: &str = include_str!("../data/fixtures.yaml");

/// A type of the server that can be listed and watched.
#[derive(Debug)]
struct Type {
    path: String,
    resource: String,
    /// None of the kube-apiserver's own: there is no protobuf of it.
    custom: bool,
}

async fn world(yaml: &str) -> World {
    let cluster = Cluster::start().await;
    let (definitions, objects) = FIXTURES.split_once("# objects\n").unwrap();
    cluster.apply(definitions).await;
    let world = World::before(cluster, yaml).await;
    world.until_status("/apis/stable.example.com/v1/crontabs", 200).await;
    world.cluster.apply(&objects.replace("CSR_REQUEST", &certificate_request())).await;
    for (object, status) in [
        ("/api/v1/namespaces/a/pods/two", r#"{"phase":"Running","podIP":"10.1.2.3","podIPs":[{"ip":"10.1.2.3"}]}"#),
        ("/api/v1/namespaces/a/replicationcontrollers/one", r#"{"replicas":2}"#),
        ("/apis/batch/v1/namespaces/a/jobs/one", r#"{"succeeded":1}"#),
    ] {
        let status = serde_json::from_str::<Value>(status).unwrap();
        world.write(Method::PATCH, &format!("{object}/status"), &json!({"status": status})).await;
    }
    world
}

/// As a CertificateSigningRequest holds one.
fn certificate_request() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let request = rcgen::CertificateParams::new(vec!["example.com".to_owned()]).unwrap().serialize_request(&key);
    base64::engine::general_purpose::STANDARD.encode(request.unwrap().pem().unwrap())
}

fn partial(kind: &str, version: &str) -> String {
    format!("{PROTOBUF};as=PartialObjectMetadata{kind};g=meta.k8s.io;v={version}")
}

fn list_meta(answer: &Answer) -> ListMeta {
    let mut decoder = ListDecoder::new(Encoding::Protobuf, 16 << 20, FieldTable::default());
    decoder.push(answer.body.clone());
    while decoder.next().unwrap().is_some() {}
    decoder.finish().unwrap()
}

impl World {
    async fn compare(&self, path: &str, accept: &str) -> Answer {
        self.same(path, &[("accept", accept)]).await
    }

    async fn get(&self, path: &str, accept: &str) -> Answer {
        self.through.request(Method::GET, path, &[("accept", accept)], "").await
    }

    /// Every type that can be listed and watched, and is cached.
    async fn types(&self) -> Vec<Type> {
        let mut versions = vec!["/api/v1".to_owned()];
        for group in self.direct.json("/apis").await["groups"].as_array().unwrap() {
            for version in group["versions"].as_array().unwrap() {
                versions.push(format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
            }
        }
        let mut types = Vec::new();
        for version in versions {
            for resource in self.direct.json(&version).await["resources"].as_array().unwrap() {
                let name = resource["name"].as_str().unwrap();
                let can = |verb: &str| resource["verbs"].as_array().unwrap().iter().any(|known| known == verb);
                if can("list") && can("watch") && !name.contains('/') && name != "secrets" {
                    let custom = version.contains("example.com");
                    types.push(Type { path: format!("{version}/{name}"), resource: name.to_owned(), custom });
                }
            }
        }
        types
    }

    /// Has the protobuf informer of a collection synced at or past the server's state; gives a revision both know.
    async fn settled(&self, collection: &str) -> u64 {
        let now = rv(&self.direct.json(collection).await);
        let answer = self.get(&format!("{collection}?resourceVersion={now}"), PROTOBUF).await;
        assert_eq!((answer.status.as_u16(), &answer.headers["content-type"]), (200, &PROTOBUF.parse().unwrap()));
        list_meta(&answer).rv.get()
    }

    /// What the daemon holds, by resource: of JSON and of protobuf.
    fn informers(&self) -> BTreeMap<String, (usize, usize)> {
        let mut found = BTreeMap::new();
        for informer in self.daemon.daemon.factory.informers() {
            let counts: &mut (usize, usize) = found.entry(informer.key().gvr.group_resource()).or_default();
            match informer.key().encoding {
                Encoding::Json | Encoding::Table => counts.0 += 1,
                Encoding::Protobuf => counts.1 += 1,
            }
        }
        found
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_gets_of_every_built_in_type_are_equal() {
    let world = world("").await;
    let types = world.types().await;
    let mut with_objects = Vec::new();
    for Type { path, resource, custom } in &types {
        if *custom {
            continue;
        }
        let now = world.settled(path).await;
        let before = world.served();
        let exact = format!("{path}?resourceVersion={now}&resourceVersionMatch=Exact");
        let list = world.direct.json(&exact).await;
        let items = list["items"].as_array().unwrap();
        for accept in [PROTOBUF, GO, &partial("List", "v1"), &partial("List", "v1beta1")] {
            world.compare(&exact, accept).await;
            world.compare(&format!("{exact}&labelSelector=app%3Dx"), accept).await;
            world.compare(&format!("{exact}&fieldSelector=metadata.name!%3Done"), accept).await;
        }
        // Events come from etcd, whose exact lists are forwarded.
        if resource != "events" {
            assert_eq!(world.served() - before, 12, "{path}: served from the cache");
        }
        let mut page = format!("{exact}&limit=1");
        for _ in 0..3 {
            let answer = world.compare(&page, GO).await;
            match list_meta(&answer).continue_token {
                token if token.is_empty() => break,
                token => page = format!("{path}?limit=1&continue={token}"),
            }
        }
        for item in items.iter().take(5) {
            let metadata = &item["metadata"];
            let name = metadata["name"].as_str().unwrap();
            let version = path.strip_suffix(&format!("/{resource}")).unwrap();
            let object = match metadata["namespace"].as_str() {
                Some(namespace) => format!("{version}/namespaces/{namespace}/{resource}/{name}"),
                None => format!("{path}/{name}"),
            };
            let before = world.served();
            for accept in [PROTOBUF, GO, &partial("", "v1"), &partial("", "v1beta1")] {
                world.compare(&format!("{object}?resourceVersion=0"), accept).await;
            }
            assert_eq!(world.served() - before, 4, "{object}: served from the cache");
        }
        if !items.is_empty() {
            with_objects.push(path.as_str());
        }
    }
    println!("{} types, {} of them with objects: {with_objects:?}", types.len(), with_objects.len());
    assert!(with_objects.len() >= 40, "{with_objects:?}");
    let informers = world.informers();
    assert!(informers.values().all(|(json, _)| *json == 0), "nobody asked for JSON: {informers:?}");
}

/// A frame with the digits of its resourceVersion made equal, where a bookmark names the revision of its own cache.
fn without_revision(frame: &[u8]) -> Vec<u8> {
    // Tag and length of the sixth field of an ObjectMeta whose first five are empty.
    let lead = [0x0a, 0, 0x12, 0, 0x1a, 0, 0x22, 0, 0x2a, 0, 0x32];
    let at = frame.windows(lead.len()).position(|window| window == lead).expect("a bookmark's metadata") + lead.len();
    let digits = usize::from(frame[at]);
    [&frame[..at], b"#", &frame[at + 1 + digits..]].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn initial_events_and_bookmarks_are_equal() {
    let world = world("").await;
    for Type { path: collection, custom, .. } in &world.types().await {
        let now = rv(&world.direct.json(collection).await);
        let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let full = (!custom).then(|| PROTOBUF.to_owned());
        for accept in full.into_iter().chain([partial("", "v1"), partial("", "v1beta1")]) {
            let path = format!("{collection}?{query}&resourceVersion={now}&timeoutSeconds=20");
            let mut streams = Vec::new();
            for client in [&world.direct, &world.through] {
                let mut watch = client.watch_as(&path, &[("accept", accept.as_str())]).await;
                let mut frames = Vec::new();
                loop {
                    let frame = watch.next_frame().await.unwrap().expect("the bookmark comes before the end");
                    if frame.windows(26).any(|window| window == b"k8s.io/initial-events-end\x12") {
                        // The lengths before it differ with the number of digits.
                        frames.push(without_revision(&frame));
                        break;
                    }
                    frames.push(frame);
                }
                streams.push(frames);
            }
            // Events come from etcd in its own order, and nothing else changes while this runs but leases.
            if !collection.ends_with("/leases") {
                assert_eq!(streams[0], streams[1], "{path} {accept}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_equal() {
    let world = world("").await;
    let crontabs = "/apis/stable.example.com/v1/namespaces/a/crontabs";
    for collection in ["/api/v1/pods", "/api/v1/services", "/apis/apps/v1/deployments"] {
        world.settled(collection).await;
    }
    world.get(&format!("{crontabs}?resourceVersion=0"), GO).await;
    for path in [
        "/api/v1/namespaces/a/pods/missing?resourceVersion=0",
        "/apis/apps/v1/namespaces/a/deployments/missing?resourceVersion=0",
        &format!("{crontabs}/missing?resourceVersion=0"),
        "/api/v1/pods?limit=x",
        "/api/v1/pods?resourceVersion=abc",
        "/api/v1/pods?labelSelector=a+b",
        "/api/v1/pods?resourceVersionMatch=Exact",
        "/api/v1/pods?watch=1&sendInitialEvents=true",
        "/api/v1/pods?continue=!!!",
        "/api/v1/nopes",
        crontabs,
    ] {
        for accept in [PROTOBUF, GO, &partial("", "v1"), &partial("List", "v1")] {
            world.compare(path, accept).await;
        }
    }
    // In the stream: a revision that does not come.
    let future = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=99999999";
    for path in [format!("/api/v1/pods?{future}"), format!("/api/v1/services?{future}")] {
        for accept in [PROTOBUF.to_owned(), partial("", "v1")] {
            let headers = [("accept", accept.as_str())];
            let mut through = world.through.watch_as(&path, &headers).await;
            assert_eq!(through.headers["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
            let frame = through.next_frame().await.unwrap().expect("an error");
            let text = String::from_utf8_lossy(&frame).into_owned();
            assert!(text.contains("ERROR") && text.contains("Too large resource version"), "{text}");
            assert_eq!(through.next_frame().await.unwrap(), None, "nothing follows an error");
        }
    }
}
