//! What the clients look at, and what happens there: the same changes to the same kinds of objects in every test.

#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot write is over")]

use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::cluster::Cluster;
use crate::support::client::Client;

/// One resource under one selector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub name: &'static str,
    /// GROUP/VERSION/RESOURCE, as the clients are told.
    pub resource: &'static str,
    pub namespace: &'static str,
    pub labels: &'static str,
    /// What a raw request asks for, with the beginning of its query.
    pub path: &'static str,
}

/// Every pod.
pub(crate) const PODS: Target =
    Target { name: "pods", resource: "v1/pods", namespace: "", labels: "", path: "/api/v1/pods?" };

/// Config maps of one namespace that come, go and change colour: most leave the selection while they still exist.
pub(crate) const RED: Target = Target {
    name: "red configmaps",
    resource: "v1/configmaps",
    namespace: "one",
    labels: "color in (red,green),picked",
    path: "/api/v1/namespaces/one/configmaps?labelSelector=color%20in%20%28red%2Cgreen%29%2Cpicked&",
};

/// Custom resources.
pub(crate) const WIDGETS: Target = Target {
    name: "widgets",
    resource: "example.com/v1/widgets",
    namespace: "",
    labels: "",
    path: "/apis/example.com/v1/widgets?",
};

pub(crate) const TARGETS: [Target; 3] = [PODS, RED, WIDGETS];

const WIDGET_CRD: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {kind: Widget, plural: widgets, singular: widget, shortNames: [wd]}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {size: {type: integer, description: "how big it is"}, text: {type: string}}
"#;

/// Makes the namespaces and the custom resource, and waits until it is served.
pub(crate) async fn set_up(cluster: &Cluster) {
    cluster.apply(WIDGET_CRD).await;
    for namespace in ["one", "two"] {
        cluster.namespace(namespace).await;
    }
    cluster.kubectl_ok(["wait", "--for=condition=Established", "--timeout=30s", "crd/widgets.example.com"]).await;
    cluster.kubectl_ok(["get", "widgets", "-A"]).await;
}

/// A kind of objects that change.
struct Kind {
    /// Where its API is.
    api: &'static str,
    kind: &'static str,
    plural: &'static str,
    /// What an object has besides its metadata.
    content: fn(usize) -> Value,
    /// Whether a patch may change that.
    changes: bool,
}

const KINDS: [Kind; 3] = [
    Kind {
        api: "/api/v1",
        kind: "Pod",
        plural: "pods",
        content: |_| json!({"spec": {"containers": [{"name": "main", "image": "none"}]}}),
        changes: false,
    },
    Kind {
        api: "/api/v1",
        kind: "ConfigMap",
        plural: "configmaps",
        content: |step| json!({"data": {"key": step.to_string()}}),
        changes: true,
    },
    // What separates lines in some readers, and what Go escapes in JSON, has to survive.
    Kind {
        api: "/apis/example.com/v1",
        kind: "Widget",
        plural: "widgets",
        content: |step| json!({"spec": {"size": step, "text": "<é&\u{2028}>\n"}}),
        changes: true,
    },
];

/// Changes pods, config maps and widgets at once, directly at the server: `ops` writes of each. The same `seed` gives the same writes.
pub(crate) async fn churn(direct: &Client, ops: usize, seed: usize, pause: Duration) {
    join_all(KINDS.map(|kind| churn_of(direct, kind, ops, seed, pause))).await;
}

async fn churn_of(direct: &Client, of: Kind, ops: usize, seed: usize, pause: Duration) {
    let version = of.api.splitn(3, '/').last();
    for step in 0..ops {
        let collection = format!("{}/namespaces/{}/{}", of.api, ["one", "two"][step % 2], of.plural);
        let name = format!("{}-{}", of.plural, (step * 7 + seed) % 5);
        let path = format!("{collection}/{name}");
        let color = ["red", "green", "blue"][step / 2 % 3];
        let picked = if step / 5 % 3 == 0 { Value::Null } else { "yes".into() };
        let labels = json!({"color": color, "picked": picked});
        let mut object = (of.content)(step);
        object["metadata"] = json!({"name": name, "labels": labels, "annotations": {"step": step.to_string()}});
        let create = async || {
            let mut object = object.clone();
            (object["apiVersion"], object["kind"]) = (version.into(), of.kind.into());
            if picked.is_null() {
                object["metadata"]["labels"] = json!({"color": color});
            }
            direct.write(Method::POST, &collection, &object).await;
        };
        let delete = async || {
            direct.write(Method::DELETE, &format!("{path}?gracePeriodSeconds=0"), &Value::Null).await;
        };
        match (exists(direct, &path).await, (step + step / 10) % 5) {
            (true, 0 | 1 | 3) => {
                let patch = if of.changes { object.clone() } else { json!({"metadata": object["metadata"]}) };
                direct.write(Method::PATCH, &path, &patch).await;
            }
            (true, 2) => delete().await,
            (true, _) => {
                delete().await;
                create().await;
            }
            (false, _) => create().await,
        }
        sleep(pause).await;
    }
}

/// Whether there is an object.
pub(crate) async fn exists(direct: &Client, path: &str) -> bool {
    let answer = direct.get(path).await;
    assert!([200, 404].contains(&answer.status.as_u16()), "{path}: {} {}", answer.status, answer.text());
    answer.status == 200
}
