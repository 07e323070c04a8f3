//! Compressed answers: for the same requests as the apiserver's, with the same headers, and the same bytes inside.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::Read;

use http::Method;
use serde_json::Value;

use crate::support::client::{Answer, rv};
use crate::world::{World, assert_alike, assert_alike_but_revisions};

const PARTIAL: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn inflate(answer: &Answer) -> Vec<u8> {
    if !answer.headers.contains_key("content-encoding") {
        return answer.body.to_vec();
    }
    let mut plain = Vec::new();
    flate2::read::MultiGzDecoder::new(&*answer.body).read_to_end(&mut plain).unwrap();
    plain
}

impl World {
    async fn create(&self, name: &str, bytes: usize) {
        // Not all the same, so that it stays long when it is compressed.
        let noise: String = (0..bytes).map(|n| char::from(b'a' + (n * n / 7 % 23) as u8)).collect();
        self.create_with(name, &format!(r#""text":"{noise}""#)).await;
    }

    async fn create_with(&self, name: &str, data: &str) {
        let object = format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{{data}}}}}"#);
        self.write(Method::POST, MAPS, &serde_json::from_str(&object).unwrap()).await;
    }

    /// Both answer the same, from the cache here; returns whether it was compressed, and the length of what was said.
    async fn equal(&self, path: &str, headers: &[(&str, &str)]) -> (bool, usize) {
        let http = &self.daemon.daemon.http;
        let served = http.requests_served.get();
        let direct = self.direct.request(Method::GET, path, headers, "").await;
        let through = self.through.request(Method::GET, path, headers, "").await;
        assert_eq!(http.requests_served.get() - served, 1, "{path} {headers:?} is answered from the cache");
        let plain = |answer: Answer| Answer { body: inflate(&answer).into(), ..answer };
        let (direct, through) = (plain(direct), plain(through));
        let same = if path.contains("Exact") { assert_alike } else { assert_alike_but_revisions };
        same(&format!("{path} {headers:?}"), &direct, &through);
        (through.headers.contains_key("content-encoding"), through.body.len())
    }
}

/// The name of the last object is stretched until the list is of a given length.
async fn list_of(world: &World, length: usize, n: usize) -> String {
    let label = |list: &str| format!("{MAPS}?{list}&fieldSelector=metadata.name%3Dexact-{n}");
    world.create(&format!("exact-{n}"), 1000).await;
    let now = world.direct.get(&label("")).await.body.len();
    world.write(Method::DELETE, &format!("{MAPS}/exact-{n}"), &Value::Null).await;
    world.create(&format!("exact-{n}"), 1000 + length - now).await;
    let list = world.direct.get(&label("")).await;
    assert_eq!(list.body.len(), length, "the revision may have got a digit more");
    label(&format!("resourceVersion={}", rv(&list.json())))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_answers_are_compressed_to_the_same_bytes() {
    let world = World::start("").await;
    for n in 0..6 {
        world.create(&format!("some-{n}"), 40_000).await;
    }
    world.create("z-large", 200_000).await;
    let short: Vec<_> = (1000..6500).map(|n| format!(r#""{n}":"""#)).collect();
    world.create_with("zz-airy", &short.join(",")).await;
    let now = world.settle(MAPS).await;
    let exact = format!("resourceVersion={now}&resourceVersionMatch=Exact");
    for accepted in ["gzip", "deflate,  gzip , br", "gzip;q=1.0", "GZIP", "*", "", "identity", "x-gzip"] {
        let headers = [("accept-encoding", accepted)];
        let (compressed, _) = world.equal(&format!("{MAPS}?{exact}"), &headers).await;
        assert_eq!(compressed, matches!(accepted, "gzip" | "deflate,  gzip , br"), "{accepted}");
    }
    // Only the first header counts.
    for (lines, want) in [
        ([("accept-encoding", "br"), ("accept-encoding", "gzip")], false),
        ([("accept-encoding", "gzip"), ("accept-encoding", "br")], true),
    ] {
        assert_eq!(world.equal(&format!("{MAPS}?{exact}"), &lines).await.0, want, "{lines:?}");
    }
    let (gzip, json, curl) = (("accept-encoding", "gzip"), ("accept", "application/json"), ("user-agent", "curl/8"));
    for (path, header, want) in [
        (format!("{MAPS}?{exact}"), json, true),
        (format!("/api/v1/configmaps?{exact}"), json, true),
        (format!("{MAPS}?{exact}&limit=2"), json, false),
        (format!("{MAPS}?{exact}&limit=4"), json, true),
        // A name is read from etcd at an exact revision.
        (format!("{MAPS}?resourceVersion={now}&fieldSelector=metadata.name%3Dz-large"), json, true),
        (format!("{MAPS}?{exact}"), ("accept", PARTIAL), false),
        (format!("{MAPS}/z-large?resourceVersion=0"), json, true),
        (format!("{MAPS}/some-1?resourceVersion=0"), json, false),
        // Indented, it is longer, and something else.
        (format!("{MAPS}?{exact}&limit=4"), curl, true),
        (format!("{MAPS}?{exact}&limit=2"), curl, false),
        (format!("{MAPS}/z-large?resourceVersion=0"), curl, true),
        (format!("{MAPS}/zz-airy?resourceVersion=0"), curl, true),
        (format!("{MAPS}/zz-airy?resourceVersion=0"), ("user-agent", "other"), false),
    ] {
        assert_eq!(world.equal(&path, &[gzip, header]).await.0, want, "{path} {header:?}");
    }
    // Watches are not.
    let watch = world.through.watch_as(&format!("{MAPS}?watch=1&resourceVersion=0&timeoutSeconds=1"), &[gzip]).await;
    assert!(!watch.headers.contains_key("content-encoding"));

    // The limit to the byte.
    for (n, (length, want)) in [(131_072, false), (131_073, true)].into_iter().enumerate() {
        let path = list_of(&world, length, n).await;
        assert_eq!(world.equal(&path, &[gzip]).await, (want, length));
    }
}
