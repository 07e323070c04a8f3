//! What is not served from a cache passes to a real kube-apiserver and back as it is.

use bytes::Bytes;
use http::Method;
use serde_json::json;

use crate::support::client::{Answer, Client};
use crate::world::{PROTOBUF, World, assert_alike};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub(super) async fn world() -> World {
    World::start("lendSessions: true\n").await
}

impl World {
    /// A read that both have to answer alike, whatever it is; by both versions of HTTP.
    pub(crate) async fn same_over_both(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut direct = self.direct.request(Method::GET, path, headers, "").await;
        for client in [&self.through, &Client::http2(&self.daemon.url)] {
            let mut through = client.request(Method::GET, path, headers, "").await;
            // The revision of a list moves with any write to the cluster, its own leases included.
            for _ in 0..10 {
                let after = self.direct.request(Method::GET, path, headers, "").await;
                if after.body == direct.body {
                    break;
                }
                direct = after;
                through = client.request(Method::GET, path, headers, "").await;
            }
            assert_alike(&format!("{path} {headers:?}"), &direct, &through);
        }
        direct
    }
}

/// Typed Go clients speak protobuf: their bodies go up and come back byte for byte.
#[tokio::test(flavor = "multi_thread")]
async fn protobuf_goes_both_ways() {
    let world = world().await;
    world.write(Method::POST, CONFIG_MAPS, &json!({"metadata": {"name": "one"}, "data": {"k": "v"}})).await;
    let accept = [("accept", PROTOBUF)];
    let got = world.same_over_both(&format!("{CONFIG_MAPS}/one"), &accept).await;
    assert!(got.body.starts_with(b"k8s\0"));
    world.same_over_both("/api/v1/configmaps", &accept).await;
    world.same_over_both(&format!("{CONFIG_MAPS}/missing"), &accept).await;
    // The same object under another name of the same length, sent as protobuf.
    let mut body = got.body.to_vec();
    let at = body.windows(3).position(|window| window == b"one").unwrap();
    body[at..at + 3].copy_from_slice(b"two");
    let headers = [("accept", PROTOBUF), ("content-type", PROTOBUF)];
    // It carries a resourceVersion, which the apiserver reads out of the protobuf and refuses.
    let bytes = Bytes::from(body);
    let direct = world.direct.request_bytes(Method::POST, CONFIG_MAPS, &headers, bytes.clone()).await;
    let through = world.through.request_bytes(Method::POST, CONFIG_MAPS, &headers, bytes).await;
    assert!(direct.text().contains("resourceVersion should not be set"), "{}", direct.text());
    assert_alike("create", &direct, &through);
    let put = world.through.request_bytes(Method::PUT, &format!("{CONFIG_MAPS}/one"), &headers, got.body.clone()).await;
    assert_eq!(put.status, 200, "{}", put.text());
    assert!(put.body.starts_with(b"k8s\0"));
    assert_eq!(world.through.json(&format!("{CONFIG_MAPS}/one")).await["data"]["k"], "v");
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_and_openapi() {
    let world = world().await;
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    for path in
        ["/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/version", "/openapi/v3", "/apis/nope", "/"]
    {
        for _ in 0..2 {
            world.same_over_both(path, &[]).await;
            world.same_over_both(path, &[("accept", aggregated)]).await;
        }
    }
    let legacy = world.through.get("/apis").await;
    let grouped = world.through.request(Method::GET, "/apis", &[("accept", aggregated)], "").await;
    assert_eq!(
        (legacy.json()["kind"].as_str(), grouped.json()["kind"].as_str()),
        (Some("APIGroupList"), Some("APIGroupDiscoveryList"))
    );

    // A document that is known costs no body, and one that is asked for by hash is the apiserver's.
    let index = world.through.json("/openapi/v3").await;
    let document = index["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    for path in ["/openapi/v2", &document, "/apis"] {
        let headers: &[(&str, &str)] = if path == "/apis" { &[("accept", aggregated)] } else { &[] };
        let whole = world.same_over_both(path, headers).await;
        assert_eq!(whole.status, 200, "{path}");
        let etag = whole.headers["etag"].to_str().unwrap().to_owned();
        let mut asked = headers.to_vec();
        asked.push(("if-none-match", &etag));
        let unchanged = world.same_over_both(path, &asked).await;
        assert_eq!((unchanged.status.as_u16(), unchanged.body.len()), (304, 0), "{path}");
        asked.pop();
        asked.push(("if-none-match", "\"other\""));
        assert_eq!(world.same_over_both(path, &asked).await.status, 200, "{path}");
    }
    let (status, metrics) = super::fixtures::admin(&world.daemon, "/metrics").await;
    let confirmed = metrics.lines().find_map(|line| line.strip_prefix("informerd_forward_documents_confirmed_total "));
    assert_eq!(status, 200);
    assert!(confirmed.is_some_and(|count| count.parse::<u64>().unwrap() > 10), "{confirmed:?}");
}
