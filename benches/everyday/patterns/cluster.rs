//! The cluster of the patterns: 170 pods with about 3 kB of managedFields each, 20 of them with a token and on one node.

use anyhow::Context;
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::client::{Connection, Protocol, Target};
use crate::cluster::Cluster;
use crate::padding::padding;
use crate::world::{self, CONFIG_MAPS, DEPLOYMENTS, post};

const PODS: usize = 170;
/// Pods that read by themselves, through the agent of their node.
const READERS: usize = 20;
const NODES: usize = 10;
/// So that a namespace has 45 resources.
const DEFINITIONS: usize = 14;

/// The namespace that is emptied.
pub(super) const DOOMED: &str = "doomed";
/// Where helm installs.
pub(super) const RELEASE: &str = "informerd-tier";

/// The tokens of the pods that read.
pub(super) async fn make(cluster: &Cluster, apiserver: &Target) -> anyhow::Result<Vec<String>> {
    cluster.apply(&(0..DEFINITIONS).map(definition).collect::<Vec<_>>().join("---\n")).await;
    let mut writer = apiserver.connect(Protocol::Http2).await?;
    for name in ["shop", "readers", DOOMED, RELEASE] {
        post(&mut writer, "/api/v1/namespaces", json!({ "metadata": { "name": name } }).to_string()).await?;
    }
    for node in 0..NODES {
        post(&mut writer, "/api/v1/nodes", json!({ "metadata": { "name": format!("node-{node}") } }).to_string())
            .await?;
    }
    let account = json!({ "metadata": { "name": "reader" } }).to_string();
    post(&mut writer, "/api/v1/namespaces/readers/serviceaccounts", account).await?;
    let binding = json!({
        "metadata": { "name": "everyday" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [
            { "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader" },
            { "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts:readers" },
        ],
    });
    post(&mut writer, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding.to_string()).await?;
    fill(&mut writer, "shop").await?;
    let mut tokens = Vec::new();
    for i in 0..PODS {
        let (namespace, node) = if i < READERS { ("readers", 0) } else { ("shop", i % NODES) };
        post(&mut writer, &format!("/api/v1/namespaces/{namespace}/pods"), pod(i, node)).await?;
        if i < READERS {
            tokens.push(token(&mut writer, i).await?);
        }
    }
    Ok(tokens)
}

/// Some objects of three kinds.
pub(super) async fn fill(writer: &mut Connection, namespace: &str) -> anyhow::Result<()> {
    let core = format!("/api/v1/namespaces/{namespace}");
    for i in 0..CONFIG_MAPS {
        post(writer, &format!("{core}/configmaps"), world::config_map(&format!("conf-{i}"), "0")).await?;
    }
    for i in 0..DEPLOYMENTS {
        let name = format!("web-{i}");
        post(writer, &format!("{core}/services"), world::service(&name)).await?;
        let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
        post(writer, &path, world::deployment(&name)).await?;
    }
    Ok(())
}

/// Its environment makes most of its managedFields.
fn pod(i: usize, node: usize) -> String {
    let variables = (0..40).map(|k| json!({ "name": format!("SETTING_{k}"), "value": padding(i * 40 + k, 24) }));
    let container = json!({ "name": "main", "image": "registry.example/app:1", "env": variables.collect::<Vec<_>>() });
    json!({
        "metadata": { "name": format!("pod-{i:05}"), "labels": { "app": format!("web-{}", i % 5) } },
        "spec": { "serviceAccountName": "reader", "nodeName": format!("node-{node}"), "containers": [container] },
    })
    .to_string()
}

/// Bound to its pod, as the kubelet asks for it.
async fn token(writer: &mut Connection, i: usize) -> anyhow::Result<String> {
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "name": format!("pod-{i:05}") });
    let spec = json!({ "boundObjectRef": pod, "expirationSeconds": 3600 });
    let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec });
    let path = "/api/v1/namespaces/readers/serviceaccounts/reader/token";
    let answer = writer.send(Method::POST, path, &[], request.to_string()).await?.into_body().collect().await?;
    let answer: Value = serde_json::from_slice(&answer.to_bytes())?;
    Ok(answer["status"]["token"].as_str().context("no token")?.to_owned())
}

fn definition(kind: usize) -> String {
    let schema = "{openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}";
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: things{kind}.example.com}}\n\
         spec:\n  group: example.com\n  scope: Namespaced\n  names: {{plural: things{kind}, singular: thing{kind}, kind: Thing{kind}}}\n  \
         versions: [{{name: v1, served: true, storage: true, schema: {schema}}}]\n"
    )
}
