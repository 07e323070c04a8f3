//! The rendered manifests, held to the apiserver and to each other.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use super::cluster::Cluster;

const NAMESPACES: &[(&str, &str)] =
    &[("sidecar", "informerd-example"), ("node-agent", "informerd-node-agent"), ("tier", "informerd-tier")];
/// Components with objects that a cluster only knows with somebody else's definitions.
const FOREIGN: &[&str] = &["cert-manager", "pod-monitor", "prometheus-rule", "dashboard"];

pub fn manifests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests")
}

/// Applies an overlay as README says; panics unless everything is accepted without a warning.
pub async fn apply(cluster: &Cluster, name: &str) -> String {
    apply_directory(cluster, &manifests().join("overlays").join(name)).await
}

pub async fn apply_example(cluster: &Cluster, name: &str) -> String {
    apply_directory(cluster, &manifests().join("examples").join(name)).await
}

async fn apply_directory(cluster: &Cluster, directory: &Path) -> String {
    let directory = directory.display().to_string();
    let output = cluster.kubectl(cluster.admin(), ["apply", "--server-side", "--kustomize", &directory]).await;
    accepted(&directory, &output)
}

fn accepted(what: &str, output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{what}: {}\n{errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub async fn get(cluster: &Cluster, what: &[&str]) -> Value {
    let text = cluster.kubectl_ok([&["get", "--output=json"], what].concat()).await;
    serde_json::from_str(&text).expect("JSON")
}

/// What a workload's identity is allowed is what its configuration pins, and nothing else.
pub fn reads_exactly(rules: &Value, pinned: &[(&str, &str)]) {
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

pub async fn are_accepted() {
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

/// Components are taken into a kustomization of one's own, with an overlay.
pub async fn components_render() {
    let cluster = Cluster::start().await;
    let mut foreign = Vec::new();
    for component in FOREIGN {
        let directory = tempfile::tempdir().expect("a directory");
        // kustomize wants relative paths below one root.
        std::process::Command::new("cp").arg("-r").arg(manifests()).arg(directory.path()).status().expect("cp runs");
        let text = format!(
            "resources: [manifests/overlays/tier]\ncomponents: [manifests/components/{component}]\n\
             images: [{{name: informerd, newName: registry.example.com/informerd, newTag: v9}}]\n"
        );
        std::fs::write(directory.path().join("kustomization.yaml"), text).expect("written");
        let rendered = cluster.kubectl_ok(["kustomize", &directory.path().display().to_string()]).await;
        assert!(rendered.contains("image: registry.example.com/informerd:v9"), "{component}: {rendered}");
        foreign.push(rendered);
    }
    assert!(foreign[0].contains("- informerd.informerd-tier.svc\n  - informerd.informerd-tier.svc.cluster.local"));
    assert!(foreign[1].contains("kind: PodMonitor") && foreign[2].contains("kind: PrometheusRule"));
    assert!(foreign[3].contains("grafana_dashboard: \"1\""));
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
