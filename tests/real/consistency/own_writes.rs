//! Clients read their own writes: in the mode `cache`, with a watch that is late, by every kind of write.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::{APPLY, JSON, JSON_PATCH, MERGE, STRATEGIC, Scene};
use crate::support::client::{Answer, rv};

const CACHE: &str = "consistentReads: { get: cache, list: cache, watch: cache }\n";
/// Long enough that no event arrives before the read that needs it.
const LATE: Duration = Duration::from_millis(700);
const CONFIG_MAPS: &str = "/api/v1/namespaces/a/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/a/deployments";
const PODS: &str = "/api/v1/namespaces/a/pods";
const CRON_TABS: &str = "/apis/stable.example.com/v1/namespaces/a/crontabs";

async fn scene() -> Scene {
    let scene = Scene::start(CACHE).await;
    for collection in [CONFIG_MAPS, DEPLOYMENTS, PODS, CRON_TABS] {
        scene.through.json(&format!("{collection}?resourceVersion=0")).await;
    }
    // Watches that are open already are not late.
    scene.proxy.lag(0, LATE);
    scene.proxy.cut();
    scene
}

impl Scene {
    /// A write through the daemon that must succeed.
    async fn write(&self, method: Method, path: &str, kind: (&str, &str), body: &Value) -> Answer {
        let answer = self.through.request(method.clone(), path, &[kind], &body.to_string()).await;
        assert!(answer.status.is_success(), "{method} {path}: {} {}", answer.status, answer.text());
        answer
    }

    /// What the apiserver says and what the daemon says right after a write; they must agree.
    async fn agree(&self, what: &str, path: &str) -> Answer {
        let through = self.through.get(path).await;
        let direct = self.direct.get(path).await;
        assert_eq!(through.status, direct.status, "{what}: {path}\n{}\n{}", through.text(), direct.text());
        if through.status.is_success() && direct.json()["items"].is_null() {
            assert_eq!(through.text(), direct.text(), "{what}: {path}");
        } else if through.status.is_success() {
            assert_eq!(through.json()["items"], direct.json()["items"], "{what}: {path}");
        }
        through
    }
}

fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "image"}]}}}})
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": {
        "terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "image"}]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn objects() {
    let scene = scene().await;
    for (collection, group_version, kind, strategic) in
        [(CONFIG_MAPS, "v1", "ConfigMap", true), (CRON_TABS, "stable.example.com/v1", "CronTab", false)]
    {
        let object = format!("{collection}/own");
        let labelled = |n: &str| json!({"metadata": {"labels": {"n": n}}});
        let full = |n: &str| json!({"apiVersion": group_version, "kind": kind, "metadata": {"name": "own", "labels": {"n": n}}});
        scene.write(Method::POST, collection, JSON, &full("created")).await;
        scene.agree("create", &object).await;
        scene.agree("create", collection).await;
        let mut updated = full("updated");
        updated["metadata"]["resourceVersion"] = rv(&scene.direct.json(&object).await).to_string().into();
        scene.write(Method::PUT, &object, JSON, &updated).await;
        scene.agree("update", &object).await;
        scene.write(Method::PATCH, &object, MERGE, &labelled("merged")).await;
        scene.agree("merge patch", &format!("{collection}?labelSelector=n%3Dmerged")).await;
        if strategic {
            scene.write(Method::PATCH, &object, STRATEGIC, &labelled("strategic")).await;
            scene.agree("strategic patch", &object).await;
        }
        let operations = json!([{"op": "replace", "path": "/metadata/labels/n", "value": "patched"}]);
        scene.write(Method::PATCH, &object, JSON_PATCH, &operations).await;
        scene.agree("json patch", &object).await;
        let apply = format!("{collection}/applied?fieldManager=test");
        let mut applied = full("applied");
        applied["metadata"]["name"] = "applied".into();
        scene.write(Method::PATCH, &apply, APPLY, &applied).await;
        scene.agree("apply", &format!("{collection}/applied")).await;
        let generated = json!({"apiVersion": group_version, "kind": kind, "metadata": {"generateName": "own-"}});
        let name = scene.write(Method::POST, collection, JSON, &generated).await.json();
        let name = name["metadata"]["name"].as_str().unwrap().to_owned();
        scene.agree("generateName", &format!("{collection}/{name}")).await;
        // The answer to a deletion is a Status, or a last state older than the deletion.
        scene.write(Method::DELETE, &object, JSON, &json!({})).await;
        assert_eq!(scene.agree("delete", &object).await.status, 404);
        scene.write(Method::DELETE, collection, JSON, &json!({})).await;
        let left = scene.agree("deletecollection", collection).await.json();
        assert_eq!(left["items"], json!([]));
    }
    assert!(scene.served() > 20, "answered from the cache: {}", scene.served());
}

#[tokio::test(flavor = "multi_thread")]
async fn subresources() {
    let scene = scene().await;
    let object = format!("{DEPLOYMENTS}/own");
    scene.write(Method::POST, DEPLOYMENTS, JSON, &deployment("own")).await;
    scene.agree("create", &object).await;
    let status = json!({"status": {"replicas": 3, "observedGeneration": 1}});
    scene.write(Method::PATCH, &format!("{object}/status"), MERGE, &status).await;
    assert_eq!(scene.agree("status", &object).await.json()["status"]["replicas"], 3);
    scene.write(Method::PATCH, &format!("{object}/scale"), MERGE, &json!({"spec": {"replicas": 7}})).await;
    assert_eq!(scene.agree("scale", &object).await.json()["spec"]["replicas"], 7);
    let mut scale = scene.through.json(&format!("{object}/scale")).await;
    scale["spec"]["replicas"] = 9.into();
    scene.write(Method::PUT, &format!("{object}/scale"), JSON, &scale).await;
    assert_eq!(scene.agree("scale", &object).await.json()["spec"]["replicas"], 9);

    // These answer with a Status, without a revision.
    for name in ["bound", "bound-by-the-old-way", "evicted"] {
        scene.write(Method::POST, PODS, JSON, &pod(name)).await;
    }
    let target = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"}})
    };
    scene.write(Method::POST, &format!("{PODS}/bound/binding"), JSON, &target("bound")).await;
    assert_eq!(scene.agree("binding", &format!("{PODS}/bound")).await.json()["spec"]["nodeName"], "node-1");
    let old = "bound-by-the-old-way";
    scene.write(Method::POST, "/api/v1/namespaces/a/bindings", JSON, &target(old)).await;
    assert_eq!(scene.agree("bindings", &format!("{PODS}/{old}")).await.json()["spec"]["nodeName"], "node-1");
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "evicted"}});
    scene.write(Method::POST, &format!("{PODS}/evicted/eviction"), JSON, &eviction).await;
    assert_eq!(scene.agree("eviction", &format!("{PODS}/evicted")).await.status, 404);
    assert!(scene.served() > 8, "answered from the cache: {}", scene.served());
}

/// One kind under two groups, in one place of the store.
#[tokio::test(flavor = "multi_thread")]
async fn events_of_both_groups() {
    let scene = scene().await;
    let (core, own) = ("/api/v1/namespaces/a/events", "/apis/events.k8s.io/v1/namespaces/a/events");
    for collection in [core, own] {
        scene.through.json(&format!("{collection}?resourceVersion=0")).await;
    }
    for n in 0..3 {
        let event = json!({"metadata": {"name": format!("by-core-{n}")}, "involvedObject": {"namespace": "a"}});
        scene.write(Method::POST, core, JSON, &event).await;
        assert_eq!(scene.agree("core", &format!("{own}/by-core-{n}")).await.status, 200);
        let event = json!({"metadata": {"name": format!("by-own-{n}")}, "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "example.com/test", "reportingInstance": "test-1", "action": "Test",
            "reason": "Test", "type": "Normal", "regarding": {"namespace": "a"}});
        scene.write(Method::POST, own, JSON, &event).await;
        assert_eq!(scene.agree("own", &format!("{core}/by-own-{n}")).await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_that_change_nothing() {
    let scene = scene().await;
    let object = format!("{CONFIG_MAPS}/own");
    scene.write(Method::POST, CONFIG_MAPS, JSON, &json!({"metadata": {"name": "own"}})).await;
    scene.agree("create", &object).await;
    let floor = || scene.floor("", "configmaps");
    let before = floor();
    let patch = json!({"data": {"k": "dry"}});
    for (method, path, kind, body) in [
        (Method::PATCH, format!("{object}?dryRun=All"), MERGE, &patch),
        (Method::POST, format!("{CONFIG_MAPS}?dryRun=All"), JSON, &json!({"metadata": {"name": "dry"}})),
        (Method::DELETE, object.clone(), JSON, &json!({"dryRun": ["All"]})),
    ] {
        scene.write(method, &path, kind, body).await;
        scene.agree("dry run", &object).await;
    }
    assert_eq!(scene.agree("dry run", &format!("{CONFIG_MAPS}/dry")).await.status, 404);
    // The store's own revision bounds every floor: a floor above it could never be reached.
    let revision = rv(&scene.direct.json(&format!("{CONFIG_MAPS}?limit=1")).await);
    assert!(before <= floor() && floor() <= revision, "{before} {} {revision}", floor());
    let before = floor();
    for (method, path, body, code) in [
        (Method::POST, CONFIG_MAPS.to_owned(), json!({"metadata": {"name": "own"}}), 409),
        (Method::PUT, object.clone(), json!({"metadata": {"name": "own", "resourceVersion": "1"}}), 409),
        (Method::POST, CONFIG_MAPS.to_owned(), json!({"metadata": {"name": "Not A Name"}}), 422),
        (Method::DELETE, format!("{CONFIG_MAPS}/none"), json!({}), 404),
    ] {
        let answer = scene.through.request(method, &path, &[JSON], &body.to_string()).await;
        assert_eq!(answer.status, code, "{}", answer.text());
        assert_eq!(floor(), before, "a refusal writes nothing: {}", answer.text());
        scene.agree("refused", &object).await;
    }
}

/// kubectl's generators send protobuf and take protobuf.
#[tokio::test(flavor = "multi_thread")]
async fn protobuf() {
    let scene = scene().await;
    let kubeconfig = scene.kubeconfig();
    for n in 0..3 {
        let name = format!("by-kubectl-{n}");
        let args = ["create", "configmap", &name, "-n", "a", "--from-literal=k=v"];
        let output = scene.cluster.kubectl(&kubeconfig, args).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(scene.agree("create", &format!("{CONFIG_MAPS}/{name}")).await.status, 200);
        let output =
            scene.cluster.kubectl(&kubeconfig, ["delete", "configmap", &name, "-n", "a", "--wait=false"]).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(scene.agree("delete", &format!("{CONFIG_MAPS}/{name}")).await.status, 404);
    }
}
