//! What the clients look at, and what happens there: the same changes to the same kinds of objects in every test.

#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot write is over")]

use std::time::Duration;

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::sleep;

use crate::cluster::Cluster;

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
        cluster.kubectl_ok(["create", "namespace", namespace]).await;
    }
    cluster.kubectl_ok(["wait", "--for=condition=Established", "--timeout=30s", "crd/widgets.example.com"]).await;
    cluster.kubectl_ok(["get", "widgets", "-A"]).await;
}

/// Changes pods, config maps and widgets at once, directly at the server: `ops` writes of each but widgets, of which
/// there are fewer. The same `seed` gives the same writes.
pub(crate) async fn churn(cluster: &Cluster, direct: &kube::Client, ops: usize, seed: usize, pause: Duration) {
    let (ops_text, seed_text) = (ops.to_string(), seed.to_string());
    let pause_text = format!("{}ms", pause.as_millis());
    let common = ["--ops", &ops_text, "--seed", &seed_text, "--pause", &pause_text];
    let with = |more: &[&'static str]| -> Vec<String> {
        common.iter().copied().chain(more.iter().copied()).map(str::to_owned).collect()
    };
    let pods = with(&["--resource", "pods", "--namespaces", "one,two", "--objects", "6"]);
    let maps = with(&["--resource", "configmaps", "--namespaces", "one,two", "--objects", "6", "--labels"]);
    let pods: Vec<_> = pods.iter().map(String::as_str).collect();
    let maps: Vec<_> = maps.iter().map(String::as_str).collect();
    tokio::join!(cluster.churn(&pods), cluster.churn(&maps), churn_widgets(direct, ops / 3, seed, pause));
}

async fn churn_widgets(direct: &kube::Client, ops: usize, seed: usize, pause: Duration) {
    let kind = GroupVersionKind::gvk("example.com", "v1", "Widget");
    let resource = ApiResource::from_gvk_with_plural(&kind, "widgets");
    for step in 0..ops {
        let namespace = ["one", "two"][step % 2];
        let api: Api<DynamicObject> = Api::namespaced_with(direct.clone(), namespace, &resource);
        let name = format!("widget-{}", (step * 7 + seed) % 5);
        // What separates lines in some readers, and what Go escapes in JSON, has to survive.
        let spec = json!({"size": step, "text": "<é&\u{2028}>\n"});
        let widget = json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec,
        });
        let widget: DynamicObject = serde_json::from_value(widget).expect("a widget");
        let exists = api.get_opt(&name).await.expect("the server answers").is_some();
        match (exists, step % 5) {
            (true, 0 | 1 | 3) => {
                let patch = Patch::Merge(json!({"spec": spec}));
                api.patch(&name, &PatchParams::default(), &patch).await.expect("a widget can be patched");
            }
            (true, 2) => drop(api.delete(&name, &DeleteParams::default()).await.expect("a widget can be deleted")),
            (true, _) => {
                drop(api.delete(&name, &DeleteParams::default()).await.expect("a widget can be deleted"));
                api.create(&PostParams::default(), &widget).await.expect("a widget can be made");
            }
            (false, _) => drop(api.create(&PostParams::default(), &widget).await.expect("a widget can be made")),
        }
        sleep(pause).await;
    }
}
