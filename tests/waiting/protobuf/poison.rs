//! Objects that the apiserver accepts although they have strings that are not UTF-8. Whoever reads them through informerd sees
//! what the apiserver sends, and no resource falls silent. `vectors` has such strings in all fields of all types.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::{PROTOBUF, World, partial, world};
use crate::support::client::rv;
use crate::world::assert_alike;

/// Secrets are not cached unless somebody says so.
const YAML: &str = "resources: [{resource: secrets}]\n";
const JSON: &str = "application/json";
const PARTIAL: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

/// Where an object has this text, it gets the bytes instead, of the same number.
const PLACE: &[u8; 6] = b"POISON";
const BYTES: &[u8; 6] = b"p\xff\xe2\x82\xc3n";

/// Objects with the text in one field each.
fn objects() -> Vec<(&'static str, &'static str, Vec<Value>)> {
    let containers = json!([{"name": "main", "image": "image"}]);
    let note = json!({"annotations": {"note": "POISON"}});
    let event = json!({
        "eventTime": "2026-01-02T03:04:05.000000Z", "reportingController": "example.com/c", "reportingInstance": "i",
        "action": "A", "reason": "POISON", "note": "POISON", "type": "Normal", "regarding": {"kind": "Pod", "namespace": "a", "name": "one"},
        "series": {"count": 2, "lastObservedTime": "2026-01-02T03:04:06.000000Z"},
    });
    vec![
        (
            "/api/v1/namespaces/a/pods",
            "Pod",
            vec![
                json!({"spec": {"schedulerName": "POISON", "containers": containers}}),
                json!({"metadata": note, "spec": {"containers": containers}}),
            ],
        ),
        ("/api/v1/namespaces/a/secrets", "Secret", vec![json!({"type": "POISON"}), json!({"metadata": note})]),
        ("/apis/events.k8s.io/v1/namespaces/a/events", "Event", vec![event]),
        (
            "/apis/apps/v1/namespaces/a/controllerrevisions",
            "ControllerRevision",
            vec![json!({"revision": 1, "data": {"POISON": ["POISON"]}})],
        ),
    ]
}

fn replaced(body: &[u8]) -> Bytes {
    let (mut body, mut at) = (body.to_vec(), 0);
    while let Some(found) = body[at..].windows(PLACE.len()).position(|window| window == PLACE) {
        at += found;
        body[at..at + BYTES.len()].copy_from_slice(BYTES);
    }
    body.into()
}

impl World {
    /// Creates the object with the bytes; whether the apiserver has taken it.
    async fn poison(&self, collection: &str, object: &Value) -> bool {
        // The apiserver itself encodes it in protobuf, without the bytes and without keeping it.
        let headers = [("content-type", JSON), ("accept", PROTOBUF)];
        let path = format!("{collection}?dryRun=All");
        let encoded = self.direct.request(Method::POST, &path, &headers, &object.to_string()).await;
        if !encoded.status.is_success() {
            return false;
        }
        let headers = [("content-type", PROTOBUF), ("accept", JSON)];
        let body = replaced(&encoded.body);
        self.direct.request(Method::POST, collection, &headers, body).await.status.is_success()
    }

    async fn equal(&self, path: &str, accept: &str) {
        self.equal_at(async || path.to_owned(), accept).await;
    }

    /// Compares what is at a path that may be another one each time.
    async fn equal_at(&self, path: impl AsyncFn() -> String, accept: &str) {
        // A table shows ages, and the list of a resource that is not cached is of the moment.
        for attempt in 1.. {
            let (path, headers) = (path().await, [("accept", accept)]);
            let direct = self.direct.request(Method::GET, &path, &headers, "").await;
            let through = self.through.request(Method::GET, &path, &headers, "").await;
            if attempt == 5 || (direct.status, &direct.body) == (through.status, &through.body) {
                return assert_alike(&format!("{path} {accept}"), &direct, &through);
            }
        }
    }
}

/// Whether a list of this collection is read from etcd, at whose revision no cache is.
fn is_of_etcd(collection: &str) -> bool {
    collection.ends_with("/events")
}

/// The revision of a list. It may have JSON that is not UTF-8.
async fn revision(world: &World, collection: &str) -> u64 {
    rv(&world.direct.get(collection).await.value().unwrap())
}

/// Has the objects created, and what is read of them compared. Returns how many the apiserver has taken.
async fn compare(world: &World, collection: &str, objects: Vec<Value>) -> usize {
    let group = collection.split("/namespaces/").next().unwrap();
    let group = if group == collection { collection.rsplit_once('/').unwrap().0 } else { group };
    let api_version = group.trim_start_matches("/apis/").trim_start_matches("/api/");
    // Watches that are open before the objects come.
    let now = revision(world, collection).await;
    let mut watches = Vec::new();
    for accept in [JSON, PROTOBUF, &partial("", "v1")] {
        let path = format!("{collection}?watch=1&resourceVersion={now}&timeoutSeconds=600");
        let headers = [("accept", accept)];
        let direct = world.direct.watch_as(&path, &headers).await;
        let through = world.through.watch_as(&path, &headers).await;
        watches.push((format!("{path} {accept}"), accept == JSON, direct, through));
    }
    let mut names = Vec::new();
    for (n, mut object) in objects.into_iter().enumerate() {
        // Events of both groups are the same objects.
        let name = format!("odd-{}-{n}", api_version.replace(['/', '.'], "-"));
        object["apiVersion"] = api_version.into();
        object["metadata"]["name"] = name.clone().into();
        if world.poison(collection, &object).await {
            names.push(name);
        }
    }
    // A cache may be at a later revision than the one that is asked for: of a write to another resource.
    let newest = async || format!("{collection}?resourceVersion={}", revision(world, collection).await);
    let at = newest().await;
    for accept in [JSON, PROTOBUF, PARTIAL, TABLE, &partial("List", "v1")] {
        world.equal(&format!("{at}&resourceVersionMatch=Exact"), accept).await;
        if !is_of_etcd(collection) {
            world.equal_at(newest, accept).await;
        }
    }
    for name in names.iter().take(8) {
        for accept in [JSON, PROTOBUF, &partial("", "v1")] {
            world.equal(&format!("{collection}/{name}?resourceVersion=0"), accept).await;
        }
    }
    for (what, is_json, mut direct, mut through) in watches {
        let (mut want, mut have) = (Vec::new(), Vec::new());
        for (watch, frames) in [(&mut direct, &mut want), (&mut through, &mut have)] {
            while frames.len() < names.len() {
                let frame = if is_json { watch.next_bytes().await } else { watch.next_frame().await };
                frames.push(frame.unwrap().expect("an event of each object"));
            }
        }
        assert_eq!(want, have, "{what}");
    }
    names.len()
}

fn assert_all_are_cached(world: &World) {
    let given_up = world.daemon.daemon.factory.informers().into_iter().filter(|informer| informer.has_given_up());
    assert_eq!(given_up.map(|informer| informer.key().to_string()).collect::<Vec<_>>(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn strings_that_are_not_utf8_are_sent_as_the_apiserver_sends_them() {
    let world = world(YAML).await;
    let mut taken = Vec::new();
    for (collection, kind, mut objects) in objects() {
        objects.iter_mut().for_each(|object| object["kind"] = kind.into());
        let count = objects.len();
        let accepted = compare(&world, collection, objects).await;
        assert!(accepted > 0, "{collection}: nothing odd is accepted");
        taken.push(format!("{collection}: {accepted} of {count}"));
    }
    println!("odd objects that were taken: {taken:#?}");
    assert_all_are_cached(&world);

    // The bytes can be selected by, and are told from those of others.
    for selector in ["p%FF%E2%82%C3n", "p%EF%BF%BD%EF%BF%BD%EF%BF%BD%EF%BF%BDn", "other"] {
        for operator in ["%3D", "!%3D"] {
            for accept in [JSON, PROTOBUF] {
                let fields = format!("fieldSelector=spec.schedulerName{operator}{selector}");
                world.equal(&format!("/api/v1/namespaces/a/pods?resourceVersion=0&{fields}"), accept).await;
            }
        }
    }
}

/// In JSON, a name that is not UTF-8 cannot be told from others. No cache can hold such objects.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_no_cache_can_hold_does_not_silence_its_resource() {
    let world = world("").await;
    let collection = "/apis/rbac.authorization.k8s.io/v1/namespaces/a/roles";
    let plain =
        |name: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}});
    world.write(Method::POST, collection, &plain("before")).await;
    let now = rv(&world.through.json(&format!("{collection}?resourceVersion=0")).await);
    world.settled(collection).await;
    let path = format!("{collection}?watch=1&resourceVersion={now}&timeoutSeconds=120");
    let mut watch = world.through.watch(&path).await;
    assert!(world.poison(collection, &plain("a-POISON")).await, "the apiserver takes the name");
    world.write(Method::POST, collection, &plain("after")).await;
    // It ends without an error, as the apiserver ends a watch. Whoever reads on goes to the apiserver, and hears the rest.
    let mut seen = Vec::new();
    while let Some(event) = watch.next().await.unwrap() {
        seen.push(event["object"]["metadata"]["name"].clone());
    }
    assert_eq!(seen, Vec::<Value>::new(), "nothing of what was after it");
    let mut watch = world.through.watch(&path).await;
    for name in ["a-p\u{fffd}\u{fffd}\u{fffd}\u{fffd}n", "after"] {
        assert_eq!(watch.next().await.unwrap().expect("an event")["object"]["metadata"]["name"], name);
    }
    for accept in [JSON, PROTOBUF, PARTIAL, TABLE, &partial("List", "v1")] {
        world.equal(&format!("{collection}?resourceVersion=0"), accept).await;
        world.equal(collection, accept).await;
    }
    for name in ["a-p%FF%E2%82%C3n", "a-p%EF%BF%BD%EF%BF%BD%EF%BF%BD%EF%BF%BDn", "after", "missing"] {
        world.equal(&format!("{collection}/{name}?resourceVersion=0"), JSON).await;
        world.equal(&format!("{collection}/{name}"), PROTOBUF).await;
    }
    let informers = world.daemon.daemon.factory.informers();
    let given_up = || informers.iter().filter(|informer| informer.has_given_up());
    crate::support::until("both encodings are given up", async || given_up().count() >= 2).await;
    for informer in given_up() {
        let said = informer.status().last_error.unwrap_or_default();
        assert!(said.contains("a/a-p\u{fffd}"), "{}: {said}", informer.key());
    }
    let forwarded = world.daemon.daemon.reads.metrics().series().into_iter();
    let undecodable = forwarded.filter(|(_, reason, _)| *reason == "undecodable").map(|(.., count)| count);
    assert!(undecodable.sum::<u64>() >= 10, "its reads are forwarded with that reason");

    // Once it is gone, the resource is cached again.
    let path = format!("{collection}/a-p%FF%E2%82%C3n");
    world.write(Method::DELETE, &path, &Value::Null).await;
    // It is tried again after 30 to 45 seconds, and then after a minute and a half at most.
    crate::support::until("the roles are cached again", async || given_up().next().is_none()).await;
    world.settled(collection).await;
}
