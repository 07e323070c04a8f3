//! Objects that the apiserver accepts although their names are not UTF-8: no resource falls silent. `vectors` and `served` have such
//! strings in all other fields of all types.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::{PROTOBUF, World, partial, world};
use crate::support::client::rv;
use crate::world::assert_alike;

const JSON: &str = "application/json";
const PARTIAL: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

/// Where an object has this text, it gets the bytes instead, of the same number.
const PLACE: &[u8; 6] = b"POISON";
const BYTES: &[u8; 6] = b"p\xff\xe2\x82\xc3n";

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
        // A table shows ages, and the list of a resource that is not cached is of the moment.
        for attempt in 1.. {
            let headers = [("accept", accept)];
            let direct = self.direct.request(Method::GET, path, &headers, "").await;
            let through = self.through.request(Method::GET, path, &headers, "").await;
            if attempt == 5 || (direct.status, &direct.body) == (through.status, &through.body) {
                return assert_alike(&format!("{path} {accept}"), &direct, &through);
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
    let informers = world.daemon.daemon.factory.informers();
    let have_given_up = async || informers.iter().filter(|informer| informer.has_given_up()).count() >= 2;
    crate::support::until("both encodings are given up", have_given_up).await;
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
    let series = world.daemon.daemon.reads.metrics().series();
    let undecodable = series.iter().filter(|(_, reason, _)| *reason == "undecodable").map(|(.., count)| count);
    assert!(undecodable.sum::<u64>() >= 10, "its reads are forwarded with that reason: {series:?}");

    // Once it is gone, the resource is cached again.
    let path = format!("{collection}/a-p%FF%E2%82%C3n");
    world.write(Method::DELETE, &path, &Value::Null).await;
    // It is tried again after 30 to 45 seconds, and then after a minute and a half at most.
    crate::support::until("the roles are cached again", async || given_up().next().is_none()).await;
    world.settled(collection).await;
}
