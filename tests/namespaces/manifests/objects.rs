//! The rendered manifests, held to the apiserver and to each other.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::cluster::Cluster;
use crate::support::tied::copy;

pub(super) const NAMESPACES: &[(&str, &str)] = &[
    ("sidecar", "informerd-example"),
    ("node-agent", "informerd-node-agent"),
    ("tier", "informerd-tier"),
    ("injector", "informerd-injector"),
];
/// Definitions of other projects' objects, as loose as can be.
const FOREIGN: &str = include_str!("../../data/foreign-definitions.yaml");
/// What an operator chooses: an overlay, and components with it.
const CHOICES: &[(&str, &[&str])] = &[
    ("tier", &["dashboard"]),
    ("tier", &["pod-monitor", "prometheus-rule"]),
    ("tier", &["cert-manager"]),
    ("tier", &["cert-manager", "pod-monitor", "prometheus-rule", "dashboard"]),
    ("node-agent", &["all-pods"]),
    ("node-agent", &["snapshots-on-node"]),
    ("node-agent", &["audience"]),
    ("tier", &["audience"]),
    ("node-agent", &["all-pods", "audience", "pod-monitor", "prometheus-rule", "dashboard"]),
    ("injector", &["pod-monitor"]),
    ("sidecar", &["pod-monitor", "prometheus-rule", "dashboard"]),
];

pub(super) fn manifests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests")
}

/// Applies an overlay as docs/tasks say; panics unless everything is accepted without a warning.
pub(super) async fn apply(cluster: &Cluster, name: &str) -> String {
    apply_directory(cluster, &manifests().join("overlays").join(name)).await
}

pub(super) async fn apply_example(cluster: &Cluster, name: &str) -> String {
    apply_directory(cluster, &manifests().join("examples").join(name)).await
}

pub(super) async fn apply_directory(cluster: &Cluster, directory: &Path) -> String {
    let directory = directory.display().to_string();
    let output = cluster.kubectl(cluster.admin(), ["apply", "--server-side", "--kustomize", &directory]).await;
    accepted(&directory, &output)
}

/// A line of documentation, by a shell in which `kubectl` is the cluster's.
pub(super) async fn shell(cluster: &Cluster, line: &str) -> String {
    let script = format!("kubectl() {{ \"$JUDGE\" kubectl --kubeconfig \"$ADMIN\" \"$@\"; }}\n{line}");
    let output = crate::support::tied::command("sh")
        .args(["-c", &script])
        .env("JUDGE", crate::process::judge().await)
        .env("ADMIN", cluster.admin())
        .env("KUBECACHEDIR", cluster.dir().join("kubectl-cache"))
        .output()
        .await
        .expect("sh runs");
    accepted(line, &output)
}

fn accepted(what: &str, output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{what}: {}\n{errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(super) async fn get(cluster: &Cluster, what: &[&str]) -> Value {
    let text = cluster.kubectl_ok([&["get", "--output=json"], what].concat()).await;
    serde_json::from_str(&text).expect("JSON")
}

/// As a kubelet registers it.
pub(super) async fn create_node(cluster: &Cluster, name: &str, address: &str) {
    cluster.apply(&format!(r#"{{"apiVersion": "v1", "kind": "Node", "metadata": {{"name": "{name}"}}}}"#)).await;
    let patch = format!(r#"{{"status": {{"addresses": [{{"type": "InternalIP", "address": "{address}"}}]}}}}"#);
    cluster.kubectl_ok(["patch", "node", name, "--subresource=status", "--type=merge", "--patch", &patch]).await;
}

/// What a workload's identity is allowed is what its configuration pins, and nothing else.
pub(super) fn reads_exactly(rules: &Value, pinned: &[(&str, &str)]) {
    let mut allowed = Vec::new();
    for rule in rules.as_array().expect("rules") {
        assert_eq!(rule["verbs"], serde_json::json!(["get", "list", "watch"]), "{rule}");
        for group in rule["apiGroups"].as_array().expect("groups") {
            for resource in rule["resources"].as_array().expect("resources") {
                allowed.push((group.as_str().expect("a text"), resource.as_str().expect("a text")));
            }
        }
    }
    allowed.sort_unstable();
    let mut pinned = pinned.to_vec();
    pinned.sort_unstable();
    assert_eq!(allowed, pinned);
}

pub(super) async fn are_accepted() {
    let cluster = Cluster::start().await;
    for (name, namespace) in NAMESPACES {
        let first = apply(&cluster, name).await;
        assert!(first.lines().count() > 5 && first.lines().all(|line| line.ends_with("serverside-applied")), "{first}");
        // What the server made of it is what was asked for: nothing was dropped, nothing changes when it is applied again.
        let overlay = manifests().join("overlays").join(name).display().to_string();
        let diff = cluster.kubectl(cluster.admin(), ["diff", "--server-side", "--kustomize", &overlay]).await;
        assert_eq!(accepted(name, &diff), "", "{name} differs from what the apiserver has");
        let pods = get(&cluster, &["deployments,daemonsets", "--namespace", namespace]).await;
        for workload in pods["items"].as_array().expect("items") {
            hardened(workload);
        }
    }
}

/// A kustomization of an operator's own: an overlay with components, and an image from elsewhere.
pub(super) fn combination(overlay: &str, components: &[&str]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    // kustomize wants relative paths below one root.
    copy(&manifests(), &directory.path().join("manifests"));
    let components: Vec<_> = components.iter().map(|name| format!("manifests/components/{name}")).collect();
    let text = format!(
        "resources: [manifests/overlays/{overlay}]\ncomponents: [{}]\n\
         images: [{{name: informerd, newName: registry.example.com/informerd, newTag: v9}}]\n",
        components.join(", ")
    );
    std::fs::write(directory.path().join("kustomization.yaml"), text).expect("written");
    directory
}

/// Each choice is accepted as a whole; the objects of others need others' definitions and are in components alone.
pub(super) async fn choices_are_accepted() {
    let cluster = Cluster::start().await;
    cluster.apply(FOREIGN).await;
    for (overlay, components) in CHOICES {
        let directory = combination(overlay, components);
        let rendered = cluster.kubectl_ok(["kustomize", &directory.path().display().to_string()]).await;
        let what = format!("{overlay} with {components:?}");
        assert!(rendered.contains("image: registry.example.com/informerd:v9"), "{what}");
        for (component, mark) in [
            ("pod-monitor", "kind: PodMonitor"),
            ("prometheus-rule", "kind: PrometheusRule"),
            ("dashboard", "grafana_dashboard: \"1\""),
            ("cert-manager", "kind: Certificate\n"),
        ] {
            assert_eq!(rendered.contains(mark), components.contains(&component), "{what}: {mark}");
        }
        if components.contains(&"cert-manager") {
            let names =
                format!("- informerd.informerd-{overlay}.svc\n  - informerd.informerd-{overlay}.svc.cluster.local");
            assert!(rendered.contains(&names), "{what}");
            let theirs = rendered.split("\n---\n").filter(|object| object.contains("apiVersion: cert-manager.io/v1\n"));
            let namespace = format!("\n  namespace: informerd-{overlay}\n");
            assert_eq!(theirs.map(|object| assert!(object.contains(&namespace), "{object}")).count(), 4, "{what}");
            assert!(!rendered.contains("informerd-authority"), "{what}: rights to a CA that it does not have");
            assert!(!rendered.contains("INFORMERD_TLS_CA"), "{what}");
        }
        apply_directory(&cluster, directory.path()).await;
        let path = directory.path().display().to_string();
        let diff = cluster.kubectl(cluster.admin(), ["diff", "--server-side", "--kustomize", &path]).await;
        assert_eq!(accepted(&what, &diff), "", "{what} differs from what the apiserver has");
    }
    // They are alike but for the selector.
    let configuration = |path: &str| std::fs::read_to_string(manifests().join(path)).expect("readable");
    let of_node = configuration("overlays/node-agent/informerd.yaml");
    let of_all = configuration("components/all-pods/informerd.yaml");
    let settings = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        lines.map(|line| line.replace(", fieldSelector: spec.nodeName=$(NODE_NAME)", "")).collect()
    };
    assert_eq!(settings(&of_node), settings(&of_all));
    assert!(of_node.contains("fieldSelector") && !of_all.contains("fieldSelector"));
}

/// What every workload of ours has, whatever it is for.
fn hardened(workload: &Value) {
    let spec = &workload["spec"]["template"]["spec"];
    let all = ["initContainers", "containers"].iter().filter_map(|list| spec[list].as_array()).flatten();
    let ours: Vec<_> = all.filter(|container| container["name"] == "informerd").collect();
    assert_eq!(ours.len(), 1, "{workload}");
    for container in ours {
        assert!(container["resources"]["limits"]["memory"].is_string(), "{container}");
        assert!(container["resources"]["requests"]["memory"].is_string(), "{container}");
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true, "{container}");
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            assert!(container[probe]["httpGet"].is_object(), "{probe} of {container}");
        }
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/livez");
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
    }
}
