//! What is not served from a cache passes to a real kube-apiserver and back as it is.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::support::client::{Answer, Client};
use crate::world::{JSON, PROTOBUF, World, assert_alike};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

pub(super) async fn world() -> World {
    World::start("lendSessions: true\n").await
}

impl World {
    /// A read that both have to answer alike, whatever it is; by both versions of HTTP.
    pub(super) async fn same_over_both(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
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

    /// One write to each of two objects that differ in their names only, one directly and one through.
    async fn twins(
        &self,
        method: Method,
        path: impl Fn(&str) -> String,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Value {
        let direct = self.direct.request(method.clone(), &path("dir"), headers, &named(body, "dir")).await;
        let through = self.through.request(method.clone(), &path("thr"), headers, &named(body, "thr")).await;
        let what = format!("{method} {} {headers:?}", path("*"));
        assert_eq!(without_identity(&through.json(), "thr"), without_identity(&direct.json(), "dir"), "{what}");
        assert_eq!(through.status, direct.status, "{what}");
        assert_eq!(through.headers["content-type"], direct.headers["content-type"], "{what}");
        through.json()
    }
}

/// The body as text with `NAME` replaced.
fn named(body: &Value, name: &str) -> String {
    if body.is_null() { String::new() } else { body.to_string().replace("NAME", name) }
}

/// What two objects with different names, made one after the other, have in common.
fn without_identity(object: &Value, name: &str) -> String {
    let mut object = object.clone();
    strip(&mut object);
    object.to_string().replace(name, "NAME")
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for field in ["uid", "resourceVersion", "creationTimestamp", "time", "deletionTimestamp"] {
                fields.remove(field);
            }
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_of_every_kind() {
    let world = world().await;
    let all = |_: &str| format!("{CONFIG_MAPS}?fieldManager=test");
    let one = |name: &str| format!("{CONFIG_MAPS}/{name}?fieldManager=test");
    let body = json!({"metadata": {"name": "NAME", "labels": {"set": "NAME"}}, "data": {"a": "1"}});
    world.twins(Method::POST, all, &[JSON], &body).await;
    // Created twice: the apiserver's own conflict.
    world.twins(Method::POST, all, &[JSON], &body).await;
    world.twins(Method::POST, all, &[JSON], &json!({"metadata": {"name": "NAME_"}})).await;
    let put = json!({"metadata": {"name": "NAME"}, "data": {"a": "2", "list": "x"}});
    world.twins(Method::PUT, one, &[JSON], &put).await;
    for (kind, patch) in [
        ("application/merge-patch+json", json!({"data": {"b": "3"}})),
        ("application/strategic-merge-patch+json", json!({"data": {"c": "4", "a": null}})),
        ("application/json-patch+json", json!([{"op": "add", "path": "/data/d", "value": "5"}])),
        ("application/json-patch+json", json!([{"op": "test", "path": "/data/d", "value": "6"}])),
        ("application/xml", json!({})),
    ] {
        world.twins(Method::PATCH, one, &[("content-type", kind)], &patch).await;
    }
    let apply = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "NAME"}, "data": {"e": "7"}});
    let applied = world
        .twins(
            Method::PATCH,
            |name| format!("{CONFIG_MAPS}/{name}?fieldManager=other&force=true"),
            &[("content-type", "application/apply-patch+yaml")],
            &apply,
        )
        .await;
    assert_eq!(applied["data"]["e"], "7");
    // A watch that is served has seen all of it, and a delete through us is seen by a list right after.
    world.twins(Method::DELETE, |name| format!("{CONFIG_MAPS}/{name}"), &[], &Value::Null).await;
    world.twins(Method::DELETE, |name| format!("{CONFIG_MAPS}/{name}"), &[], &Value::Null).await;
    for name in ["x1", "x2", "x3"] {
        let body = json!({"metadata": {"name": name, "labels": {"gone": "soon"}}});
        world.through.request(Method::POST, CONFIG_MAPS, &[JSON], &body.to_string()).await;
    }
    let answer = world.through.request(Method::DELETE, &format!("{CONFIG_MAPS}?labelSelector=gone"), &[], "").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["items"].as_array().unwrap().len(), 3);
    for selection in ["labelSelector=gone", "labelSelector=gone&resourceVersion=0"] {
        let left = world.through.json(&format!("{CONFIG_MAPS}?{selection}")).await;
        assert_eq!(left["items"], json!([]), "{selection}: read after the write");
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
async fn subresources_and_reviews() {
    let world = world().await;
    let template =
        json!({"metadata": {"labels": {"app": "NAME"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let body = json!({"metadata": {"name": "NAME"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": "NAME"}}, "template": template,
    }});
    world.twins(Method::POST, |_| format!("{DEPLOYMENTS}?fieldManager=test"), &[JSON], &body).await;
    let merge = [("content-type", "application/merge-patch+json")];
    let scale = |name: &str| format!("{DEPLOYMENTS}/{name}/scale?fieldManager=test");
    let scaled = world.twins(Method::PATCH, scale, &merge, &json!({"spec": {"replicas": 3}})).await;
    assert_eq!((scaled["kind"].as_str(), scaled["spec"]["replicas"].as_i64()), (Some("Scale"), Some(3)));
    world.same_over_both(&format!("{DEPLOYMENTS}/dir/scale"), &[]).await;
    let status = |name: &str| format!("{DEPLOYMENTS}/{name}/status?fieldManager=test");
    world.twins(Method::PATCH, status, &merge, &json!({"status": {"replicas": 2}})).await;
    world.same_over_both(&format!("{DEPLOYMENTS}/dir/status"), &[]).await;
    // Read after the write, from the cache, too.
    for version in ["", "?resourceVersion=0"] {
        let object = world.through.json(&format!("{DEPLOYMENTS}/thr{version}")).await;
        assert_eq!((&object["spec"]["replicas"], &object["status"]["replicas"]), (&json!(3), &json!(2)), "{version}");
    }
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": "nobody", "resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "NAME"}},
    });
    let reviews = |_: &str| "/apis/authorization.k8s.io/v1/subjectaccessreviews".to_owned();
    let answer = world.twins(Method::POST, reviews, &[JSON], &review).await;
    assert_eq!(answer["status"]["allowed"], false);

    let pod = json!({"metadata": {"name": "NAME"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    world.twins(Method::POST, |_| "/api/v1/namespaces/default/pods?fieldManager=test".to_owned(), &[JSON], &pod).await;
    for path in ["log", "log?follow=true", "ephemeralcontainers", "status", "proxy/", "nothing"] {
        world.same_over_both(&format!("/api/v1/namespaces/default/pods/dir/{path}"), &[]).await;
    }
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "NAME", "namespace": "default"}});
    let evict = |name: &str| format!("/api/v1/namespaces/default/pods/{name}/eviction");
    world.twins(Method::POST, evict, &[JSON], &eviction).await;
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
