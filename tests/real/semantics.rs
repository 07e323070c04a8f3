//! The same requests to a real kube-apiserver and through informerd: the same bytes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::cluster::Cluster;
use crate::crontabs::definition_with;
use crate::support::Through;
use crate::support::client::{Answer, Client, rv};
use http::Method;
use informerd::upstream::client::ConfigSource;

const FIXTURES: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: a}
---
apiVersion: v1
kind: Namespace
metadata: {name: a-b}
"#;

struct World {
    _cluster: Cluster,
    direct: Client,
    through: Client,
    daemon: Through,
}

async fn world(yaml: &str) -> World {
    let cluster = Cluster::start().await;
    cluster.apply(FIXTURES).await;
    let properties = "{color: {type: string}, n: {type: number}}";
    cluster.apply(&definition_with("CronTabCollection", "[{jsonPath: .spec.color}]", properties)).await;
    let mut manifests = String::new();
    for (namespace, name, app) in [("a", "one", "x"), ("a", "two", "y"), ("a-b", "one", "x"), ("a", "three", "x")] {
        manifests.push_str(&format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}, labels: {{app: \"{app}\"}}}}\ndata: {{text: \"<{name}> & \\u2028 é\"}}\n"
        ));
        manifests.push_str(&format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}, labels: {{app: \"{app}\"}}}}\nspec: {{nodeName: node-{app}, containers: [{{name: main, image: image}}]}}\n"
        ));
        manifests.push_str(&format!(
            "---\napiVersion: stable.example.com/v1\nkind: CronTab\nmetadata: {{name: {name}, namespace: {namespace}, labels: {{app: \"{app}\"}}}}\nspec: {{color: \"{app}\", n: 1e3}}\n"
        ));
    }
    cluster.apply(&manifests).await;
    let daemon = Through::start(ConfigSource::kubeconfig(cluster.admin()), yaml).await;
    daemon.ready().await;
    let direct = Client::tls(&cluster.info.server, &cluster.info.ca, "admin-token");
    let through = Client::new(&daemon.url);
    World { _cluster: cluster, direct, through, daemon }
}

const COLLECTIONS: &[&str] = &[
    "/api/v1/pods",
    "/api/v1/namespaces/a/pods",
    "/api/v1/configmaps",
    "/api/v1/namespaces/a/configmaps",
    "/api/v1/namespaces/none/configmaps",
    "/api/v1/namespaces",
    "/apis/stable.example.com/v1/crontabs",
    "/apis/stable.example.com/v1/namespaces/a/crontabs",
    "/apis/stable.example.com/v1/namespaces/none/crontabs",
    "/apis/apps/v1/deployments",
];

const PARTIAL: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const PARTIAL_ONE: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

fn assert_equal(what: &str, direct: &Answer, through: &Answer) {
    let body = |answer: &Answer| answer.text();
    assert_eq!(direct.status, through.status, "{what}\n{}\n{}", body(direct), body(through));
    assert_eq!(body(direct), body(through), "{what}");
    for header in ["content-type", "cache-control", "content-length", "retry-after", "warning"] {
        let of = |answer: &Answer| answer.headers.get(header).map(|value| value.to_str().unwrap().to_owned());
        // HTTP/2 knows no chunks: what the apiserver sends without a length over HTTP/1.1 may have one there.
        if header == "content-length" && direct.body.len() > 2048 {
            continue;
        }
        assert_eq!(of(direct), of(through), "{what}: {header}");
    }
    assert!(through.headers.contains_key("audit-id"), "{what}: {:?}", through.headers);
}

impl World {
    async fn compare(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let direct = self.direct.request(Method::GET, path, headers, "").await;
        let through = self.through.request(Method::GET, path, headers, "").await;
        assert_equal(&format!("{path} {headers:?}"), &direct, &through);
        direct
    }

    /// Has the informer of a collection synced at or past the server's state; returns a revision both know: the
    /// informer may have been started by this, and know none before its own.
    async fn settle(&self, collection: &str) -> u64 {
        let now = rv(&self.direct.json(collection).await);
        let list = rv(&self.through.json(&format!("{collection}?resourceVersion={now}")).await);
        assert!(list >= now, "{collection}: a list not older than {now} is of {list}");
        list
    }

    fn served(&self) -> u64 {
        self.daemon.daemon.reads.metrics().local()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_are_equal_byte_for_byte() {
    let world = world("").await;
    for collection in COLLECTIONS {
        let now = world.settle(collection).await;
        let before = world.served();
        let exact = format!("resourceVersion={now}&resourceVersionMatch=Exact");
        for selection in
            ["", "&labelSelector=app%3Dx", "&labelSelector=app+notin+(x),!none", "&fieldSelector=metadata.name!%3Done"]
        {
            world.compare(&format!("{collection}?{exact}{selection}"), &[]).await;
            world.compare(&format!("{collection}?{exact}{selection}"), &[("accept", PARTIAL)]).await;
        }
        assert_eq!(world.served() - before, 8, "{collection}: served from the cache");
        // Pages of one snapshot: the tokens are the apiserver's own, so each side takes the other's.
        let mut path = format!("{collection}?limit=1&{exact}");
        loop {
            let page = world.compare(&path, &[]).await.json();
            match page["metadata"]["continue"].as_str() {
                Some(token) if !token.is_empty() => path = format!("{collection}?limit=1&continue={token}"),
                _ => break,
            }
        }
    }
    world.settle("/api/v1/pods").await;
    let served = world.served();
    for object in [
        "/api/v1/namespaces/a/pods/one",
        "/api/v1/namespaces/a/configmaps/two",
        "/apis/stable.example.com/v1/namespaces/a-b/crontabs/one",
        "/api/v1/namespaces/a",
        "/api/v1/namespaces/a/pods/missing",
        "/apis/apps/v1/namespaces/a/deployments/missing",
        "/apis/stable.example.com/v1/namespaces/a/crontabs/missing",
    ] {
        world.compare(&format!("{object}?resourceVersion=0"), &[]).await;
        world.compare(&format!("{object}?resourceVersion=0"), &[("accept", PARTIAL_ONE)]).await;
    }
    assert_eq!(world.served() - served, 14 - 6, "misses are refusals, not answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn selectors_are_equal() {
    let world = world("").await;
    for (collection, selectors) in [
        (
            "/api/v1/pods",
            &[
                "spec.nodeName=node-x",
                "spec.nodeName!=node-x",
                "status.phase=Pending",
                "spec.restartPolicy=Always",
                "spec.hostNetwork=false",
                "status.podIP=",
                "metadata.namespace=a",
                "metadata.name=one,spec.nodeName=node-y",
            ][..],
        ),
        ("/apis/stable.example.com/v1/crontabs", &["spec.color=x", "spec.color!=x", "metadata.name=two"]),
        ("/api/v1/namespaces", &["status.phase=Active", "status.phase!=Active", "metadata.name=a"]),
    ] {
        let now = world.settle(collection).await;
        for selector in selectors {
            let escaped = selector.replace('=', "%3D").replace('!', "%21");
            world
                .compare(
                    &format!("{collection}?resourceVersion={now}&resourceVersionMatch=Exact&fieldSelector={escaped}"),
                    &[],
                )
                .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_the_apiservers_own() {
    let world = world("").await;
    world.settle("/api/v1/pods").await;
    for path in [
        "/api/v1/pods?limit=x",
        "/api/v1/pods?resourceVersion=abc",
        "/api/v1/pods?watch=1&resourceVersion=abc",
        "/api/v1/namespaces/a/pods/one?resourceVersion=abc",
        "/api/v1/pods?labelSelector=a+b",
        "/api/v1/pods?fieldSelector=spec.foo%3Dx",
        "/api/v1/configmaps?fieldSelector=spec.foo%3Dx",
        "/apis/stable.example.com/v1/crontabs?fieldSelector=spec.foo%3Dx",
        "/api/v1/pods?resourceVersionMatch=Exact",
        "/api/v1/pods?sendInitialEvents=true",
        "/api/v1/pods?watch=1&sendInitialEvents=true",
        "/api/v1/pods?continue=!!!",
        "/api/v1/pods?continue=e30",
        "/api/v1/nopes",
        "/api/v1/namespaces/a/pods/one/nosub",
        "/apis/nope/v1/x",
        "/apis/stable.example.com/v1/nopes",
        "/api/v1/namespaces/a/nodes",
        "/api/v1//pods",
    ] {
        world.compare(path, &[]).await;
    }
    world.compare("/api/v1/pods", &[("accept", "application/xml")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_are_equal_event_for_event() {
    let world = world("").await;
    for collection in ["/api/v1/namespaces/a/configmaps", "/apis/stable.example.com/v1/namespaces/a/crontabs"] {
        let now = world.settle(collection).await;
        let selections =
            ["", "&labelSelector=app%3Dx", "&fieldSelector=metadata.name%3Done", "&labelSelector=app%3Dx,never"];
        let mut pairs = Vec::new();
        for selection in selections {
            for accept in ["application/json", PARTIAL_ONE] {
                let path = format!("{collection}?watch=1&resourceVersion={now}&timeoutSeconds=8{selection}");
                let headers = [("accept", accept)];
                let direct = world.direct.watch_as(&path, &headers).await;
                let through = world.through.watch_as(&path, &headers).await;
                assert_eq!(direct.headers["content-type"], through.headers["content-type"]);
                pairs.push((format!("{path} {accept}"), direct, through));
            }
        }
        // Every edge: into the selection, within it, out of it, deletion, and creation anew.
        for label in ["z", "x", "x", "y"] {
            let patch = format!(r#"{{"metadata":{{"labels":{{"app":"{label}","n":"{label}"}}}}}}"#);
            let headers = [("content-type", "application/merge-patch+json")];
            let answer = world.direct.request(Method::PATCH, &format!("{collection}/one"), &headers, &patch).await;
            assert!(answer.status.is_success(), "{}", answer.text());
        }
        let object = world.direct.json(&format!("{collection}/three")).await;
        for name in ["three", "two"] {
            let answer = world.direct.request(Method::DELETE, &format!("{collection}/{name}"), &[], "").await;
            assert!(answer.status.is_success(), "{}", answer.text());
        }
        let mut again = object.clone();
        again["metadata"] = serde_json::json!({"name": "three", "namespace": "a", "labels": {"app": "x"}});
        let headers = [("content-type", "application/json")];
        let answer = world.direct.request(Method::POST, collection, &headers, &again.to_string()).await;
        assert!(answer.status.is_success(), "{}", answer.text());

        for (what, mut direct, mut through) in pairs {
            let (mut want, mut have) = (Vec::new(), Vec::new());
            while let Some(line) = direct.next_line().await.unwrap() {
                want.push(line);
            }
            while let Some(line) = through.next_line().await.unwrap() {
                have.push(line);
            }
            assert_eq!(want, have, "{what}");
            assert_eq!(want.is_empty(), what.contains("never"), "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_lists_are_equal_up_to_the_revision_of_their_end() {
    let world = world("").await;
    for collection in
        ["/api/v1/pods", "/apis/stable.example.com/v1/crontabs", "/apis/apps/v1/deployments", "/api/v1/nodes"]
    {
        world.settle(collection).await;
        for accept in ["application/json", PARTIAL_ONE] {
            let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
            let path = format!("{collection}?{query}&timeoutSeconds=20");
            let mut streams = Vec::new();
            for client in [&world.direct, &world.through] {
                let mut watch = client.watch_as(&path, &[("accept", accept)]).await;
                let mut lines = Vec::new();
                loop {
                    let line = watch.next_line().await.unwrap().expect("the bookmark comes before the end");
                    let marked = line.contains(r#""k8s.io/initial-events-end":"true""#);
                    // Each side names the revision its own cache is at.
                    lines.push(if marked { without_revision(&line) } else { line });
                    if marked {
                        break;
                    }
                }
                streams.push(lines);
            }
            assert_eq!(streams[0], streams[1], "{path} {accept}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn consistent_reads_see_every_acknowledged_write() {
    for mode in ["upstream", "probe"] {
        let world = world(&format!("consistentReads: {{ get: {mode}, list: {mode}, watch: probe }}\n")).await;
        let collection = "/api/v1/namespaces/a/configmaps";
        world.settle(collection).await;
        for n in 0..15 {
            let body = format!(r#"{{"metadata":{{"name":"w-{n}"}}}}"#);
            let headers = [("content-type", "application/json")];
            let created = world.direct.request(Method::POST, collection, &headers, &body).await;
            let written = rv(&created.json());
            let got = world.through.get(&format!("{collection}/w-{n}")).await;
            assert_eq!(got.status, 200, "{mode}: {}", got.text());
            let list = world.through.json(collection).await;
            assert!(rv(&list) >= written, "{mode}");
            assert!(list["items"].as_array().unwrap().iter().any(|item| rv(item) == written), "{mode}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_read_their_own_writes() {
    let world = world("consistentReads: { get: cache, list: cache, watch: cache }\n").await;
    let collection = "/api/v1/namespaces/a/configmaps";
    world.settle(collection).await;
    for n in 0..30 {
        let body = format!(r#"{{"metadata":{{"name":"own-{n}"}}}}"#);
        let json = [("content-type", "application/json")];
        let created = world.through.request(Method::POST, collection, &json, &body).await;
        assert_eq!(created.status, 201, "{}", created.text());
        let object = format!("{collection}/own-{n}");
        assert_eq!(world.through.get(&object).await.status, 200);
        let patch = [("content-type", "application/merge-patch+json")];
        let patched = world.through.request(Method::PATCH, &object, &patch, r#"{"data":{"k":"v"}}"#).await;
        assert_eq!(rv(&world.through.json(&object).await), rv(&patched.json()));
        let deleted = world.through.request(Method::DELETE, &object, &[], "").await;
        assert!(deleted.status.is_success());
        assert_eq!(world.through.get(&object).await.status, 404, "deleted means gone");
    }
}

fn without_revision(line: &str) -> String {
    let (before, rest) = line.split_once(r#""resourceVersion":""#).unwrap();
    let (_, after) = rest.split_once('"').unwrap();
    format!("{before}{after}")
}
