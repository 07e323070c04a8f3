//! Writes of every kind have the apiserver's own answers, and clients read what they wrote: in the mode `cache`, with a watch
//! that is late.

use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};

use super::{APPLY, JSON, JSON_PATCH, MERGE, STRATEGIC, Scene};
use crate::support::client::{Answer, rv};

const CACHE: &str = "lendSessions: true\nconsistentReads: cache\n";
/// Long enough that no event arrives before the read that needs it.
const LATE: Duration = Duration::from_millis(400);
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
    /// One write to each of two objects that differ in their names only, one past the daemon and one through it: both have
    /// one answer. `RV` is what the object has.
    async fn twins(&self, method: Method, path: impl Fn(&str) -> String, kind: (&str, &str), body: &Value) -> Answer {
        let what = format!("{method} {} {kind:?}", path("NAME"));
        let mut answers = Vec::new();
        for (client, name) in [(&self.direct, "dir"), (&self.through, "thr")] {
            let mut body = body.to_string().replace("NAME", name);
            if body.contains("RV") {
                body = body.replace("RV", &rv(&self.direct.json(&path(name)).await).to_string());
            }
            let answer = client.request(method.clone(), &path(name), &[kind], &body).await;
            let mut said = answer.json();
            strip(&mut said);
            answers.push((answer, said.to_string().replace(name, "NAME")));
        }
        let (through, direct) = (answers.pop().unwrap(), answers.pop().unwrap());
        assert_eq!(through.1, direct.1, "{what}");
        assert_eq!(through.0.status, direct.0.status, "{what}");
        assert_eq!(through.0.headers["content-type"], direct.0.headers["content-type"], "{what}");
        through.0
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

/// Leaves what two objects with different names, made one after the other, have in common.
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
async fn objects() {
    let scene = &scene().await;
    let each = [(CONFIG_MAPS, "v1", "ConfigMap"), (CRON_TABS, "stable.example.com/v1", "CronTab")];
    join_all(each.map(|(collection, group_version, kind)| async move {
        let all = |_: &str| format!("{collection}?fieldManager=test");
        let one = |name: &str| format!("{collection}/{name}?fieldManager=test");
        let of = |metadata: Value| json!({"apiVersion": group_version, "kind": kind, "metadata": metadata});
        let labelled = |n: &str| of(json!({"name": "NAME", "labels": {"n": n}}));
        let object = format!("{collection}/thr");
        scene.twins(Method::POST, all, JSON, &labelled("created")).await;
        scene.agree("create", &object).await;
        scene.agree("create", collection).await;
        // Created twice: the apiserver's own conflict.
        assert_eq!(scene.twins(Method::POST, all, JSON, &labelled("created")).await.status, 409);
        assert_eq!(scene.twins(Method::POST, all, JSON, &of(json!({"name": "NAME_"}))).await.status, 422);
        let updated = of(json!({"name": "NAME", "labels": {"n": "updated"}, "resourceVersion": "RV"}));
        assert_eq!(scene.twins(Method::PUT, one, JSON, &updated).await.status, 200);
        scene.agree("update", &object).await;
        // Not every resource takes it.
        scene.twins(Method::PUT, one, JSON, &labelled("replaced")).await;
        scene.agree("update of any revision", &object).await;
        let operation = |op: &str, value: &str| json!([{"op": op, "path": "/metadata/labels/n", "value": value}]);
        for (kind, patch) in [
            (MERGE, json!({"metadata": {"labels": {"n": "merged"}}})),
            (STRATEGIC, json!({"metadata": {"labels": {"n": "strategic", "more": null}}})),
            (JSON_PATCH, operation("replace", "patched")),
            (JSON_PATCH, operation("test", "another")),
            (("content-type", "application/xml"), json!({})),
        ] {
            scene.twins(Method::PATCH, one, kind, &patch).await;
            scene.agree(kind.1, &object).await;
        }
        scene.agree("a selection", &format!("{collection}?labelSelector=n%3Dpatched")).await;
        for suffix in ["", "-applied"] {
            let apply = |name: &str| format!("{collection}/{name}{suffix}?fieldManager=other&force=true");
            let applied = of(json!({"name": format!("NAME{suffix}"), "labels": {"n": "applied"}}));
            assert!(scene.twins(Method::PATCH, apply, APPLY, &applied).await.status.is_success());
            scene.agree("apply", &format!("{collection}/thr{suffix}")).await;
        }
        let name = scene.through.write(Method::POST, collection, &of(json!({"generateName": "own-"}))).await;
        let name = name["metadata"]["name"].as_str().unwrap().to_owned();
        scene.agree("generateName", &format!("{collection}/{name}")).await;
        // The answer to a deletion is a Status, or a last state older than the deletion.
        for code in [200, 404] {
            assert_eq!(scene.twins(Method::DELETE, one, JSON, &json!({})).await.status, code);
            assert_eq!(scene.agree("delete", &object).await.status, 404);
        }
        let deleted = scene.through.write(Method::DELETE, collection, &json!({})).await;
        assert!(deleted["items"].as_array().unwrap().len() >= 3, "{deleted}");
        let left = scene.agree("deletecollection", collection).await.json();
        assert_eq!(left["items"], json!([]));
    }))
    .await;
    assert!(scene.served() > 20, "answered from the cache: {}", scene.served());
}

#[tokio::test(flavor = "multi_thread")]
async fn subresources_and_reviews() {
    let scene = scene().await;
    let object = format!("{DEPLOYMENTS}/thr");
    let containers = json!({"containers": [{"name": "main", "image": "image"}], "terminationGracePeriodSeconds": 0});
    let deployment = json!({"metadata": {"name": "NAME"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": "NAME"}},
        "template": {"metadata": {"labels": {"app": "NAME"}}, "spec": {"containers": containers["containers"]}}}});
    scene.twins(Method::POST, |_| format!("{DEPLOYMENTS}?fieldManager=test"), JSON, &deployment).await;
    scene.agree("create", &object).await;
    let status = |name: &str| format!("{DEPLOYMENTS}/{name}/status?fieldManager=test");
    scene.twins(Method::PATCH, status, MERGE, &json!({"status": {"replicas": 3, "observedGeneration": 1}})).await;
    assert_eq!(scene.agree("status", &object).await.json()["status"]["replicas"], 3);
    let scale = |name: &str| format!("{DEPLOYMENTS}/{name}/scale?fieldManager=test");
    let scaled = scene.twins(Method::PATCH, scale, MERGE, &json!({"spec": {"replicas": 7}})).await.json();
    assert_eq!((&scaled["kind"], &scaled["spec"]["replicas"]), (&json!("Scale"), &json!(7)));
    assert_eq!(scene.agree("scale", &object).await.json()["spec"]["replicas"], 7);
    let scaled =
        json!({"metadata": {"name": "NAME", "namespace": "a", "resourceVersion": "RV"}, "spec": {"replicas": 9}});
    scene.twins(Method::PUT, scale, JSON, &scaled).await;
    assert_eq!(scene.agree("scale", &object).await.json()["spec"]["replicas"], 9);
    scene.same_over_both(&format!("{object}/scale"), &[]).await;
    scene.same_over_both(&format!("{object}/status"), &[]).await;
    let review = json!({"spec": {"user": "nobody", "resourceAttributes": {"verb": "list", "resource": "pods"}}});
    let reviews = |_: &str| "/apis/authorization.k8s.io/v1/subjectaccessreviews".to_owned();
    let answer = scene.twins(Method::POST, reviews, JSON, &review).await.json();
    assert_eq!(answer["status"]["allowed"], false);

    // These answer with a Status, without a revision.
    for name in ["bound", "old", "evicted"] {
        let pod = json!({"metadata": {"name": format!("NAME-{name}")}, "spec": containers});
        scene.twins(Method::POST, |_| format!("{PODS}?fieldManager=test"), JSON, &pod).await;
    }
    for path in ["log", "log?follow=true", "ephemeralcontainers", "status", "proxy/", "nothing"] {
        scene.same_over_both(&format!("{PODS}/dir-evicted/{path}"), &[]).await;
    }
    let target = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"}})
    };
    let binding = |name: &str| format!("{PODS}/{name}-bound/binding");
    scene.twins(Method::POST, binding, JSON, &target("NAME-bound")).await;
    assert_eq!(scene.agree("binding", &format!("{PODS}/thr-bound")).await.json()["spec"]["nodeName"], "node-1");
    scene.twins(Method::POST, |_| "/api/v1/namespaces/a/bindings".to_owned(), JSON, &target("NAME-old")).await;
    assert_eq!(scene.agree("bindings", &format!("{PODS}/thr-old")).await.json()["spec"]["nodeName"], "node-1");
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "NAME-evicted"}});
    scene.twins(Method::POST, |name| format!("{PODS}/{name}-evicted/eviction"), JSON, &eviction).await;
    assert_eq!(scene.agree("eviction", &format!("{PODS}/thr-evicted")).await.status, 404);
    assert!(scene.served() > 8, "answered from the cache: {}", scene.served());
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_that_change_nothing() {
    let scene = scene().await;
    let object = format!("{CONFIG_MAPS}/own");
    scene.through.write(Method::POST, CONFIG_MAPS, &json!({"metadata": {"name": "own"}})).await;
    scene.agree("create", &object).await;
    let floor = || scene.daemon.daemon.reads.floors().of("", "configmaps").get().get();
    let before = floor();
    let patch = json!({"data": {"k": "dry"}});
    let exported = json!({"metadata": {"name": "dry", "resourceVersion": "9000000000000000000"}});
    for (method, path, body) in [
        (Method::PATCH, format!("{object}?dryRun=All"), &patch),
        (Method::POST, format!("{CONFIG_MAPS}?dryRun=All"), &json!({"metadata": {"name": "dry"}})),
        // The apiserver shows the revision that it was sent.
        (Method::POST, format!("{CONFIG_MAPS}?dryRun=All"), &exported),
        (Method::DELETE, object.clone(), &json!({"dryRun": ["All"]})),
    ] {
        scene.through.write(method, &path, body).await;
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
