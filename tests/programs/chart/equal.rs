//! The chart and the kustomize overlays are held equal. They differ in this, and in nothing else:
//!
//! - The overlays have their Namespace; with Helm, whoever installs the chart makes it.
//! - A ConfigMap of an overlay has a hash in its name; the chart's pods have one in an annotation.
//! - The chart's objects have Helm's labels, and its selectors the release's name.
//! - The order of variables, of volumes and of mounts; comments and the order of keys within informerd's configuration.
//! - The overlay's workload with a sidecar has a label for kustomize, and flow control is named after its namespace.

use serde_json::Value;

use super::helm::{Helm, RELEASE, ROOT};
use super::objects::{Objects, by_name, defined_before_use, differences, parsed, sort, texts, without};
use crate::process;
use crate::support::{file, tied};

/// The values that stand for a component.
pub(super) const COMPONENTS: &[(&str, &str)] = &[
    ("all-pods", "nodeAgent.allPods=true"),
    ("audience", "audiences={informerd.io}"),
    ("cert-manager", "tier.certManager.enabled=true"),
    ("dashboard", "dashboard.enabled=true"),
    ("pod-monitor", "podMonitor.enabled=true"),
    ("prometheus-rule", "prometheusRule.enabled=true"),
    ("snapshots-on-node", "snapshots.type=hostPath"),
];
pub(super) const CHOICES: &[(&str, &[&str])] = &[
    ("tier", &[]),
    ("tier", &["audience"]),
    ("tier", &["cert-manager"]),
    ("tier", &["dashboard"]),
    ("tier", &["pod-monitor"]),
    ("tier", &["prometheus-rule"]),
    ("tier", &["cert-manager", "audience", "pod-monitor", "prometheus-rule", "dashboard"]),
    ("injector", &[]),
    ("node-agent", &[]),
    ("node-agent", &["all-pods"]),
    ("node-agent", &["audience"]),
    ("node-agent", &["snapshots-on-node"]),
    ("node-agent", &["all-pods", "snapshots-on-node", "audience", "pod-monitor", "prometheus-rule", "dashboard"]),
];
/// What Helm, its conventions and the chart's own hash add.
const HELMS: &[&str] = &[
    "helm.sh/chart",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "checksum/config",
    "checksum/informerd",
];

/// The arguments of helm that choose a mode and components.
pub(super) fn values(mode: &str, components: &[&str]) -> Vec<String> {
    let value = |name| COMPONENTS.iter().find(|(component, _)| *component == name).expect("a component").1;
    // The default is left out.
    let mode = (mode != "tier").then(|| format!("mode={mode}"));
    let values = mode.into_iter().chain(components.iter().map(|name| value(*name).to_owned()));
    values.flat_map(|value| ["--set".to_owned(), value]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_renders_what_the_overlays_render() {
    let helm = Helm::new();
    let directories = std::fs::read_dir(std::path::Path::new(ROOT).join("manifests/components")).unwrap();
    let mut components: Vec<_> = directories.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    components.sort();
    let mut known: Vec<_> = COMPONENTS.iter().map(|(name, _)| *name).chain(["sidecar"]).collect();
    known.sort_unstable();
    assert_eq!(components, known, "a component that the chart does not know");
    for (mode, components) in CHOICES {
        let namespace = format!("informerd-{mode}");
        let values = values(mode, components);
        let values: Vec<_> = values.iter().map(String::as_str).collect();
        let chart = helm.objects("informerd", &namespace, &values);
        labelled(&chart);
        let manifests = kustomized(&format!("overlays/{mode}"), components).await;
        equal(&format!("{mode} with {components:?}"), manifests, chart, &namespace);
    }
    for (directory, values) in
        [("overlays/sidecar", &[][..]), ("examples/drop-in-sidecar", &["--set", "informerd.sidecar.dropIn=true"])]
    {
        let namespace = "informerd-example";
        let mut manifests = kustomized(directory, &[]).await;
        for object in &mut manifests {
            without(object, &["informerd.io/sidecar"]);
            if ["FlowSchema", "PriorityLevelConfiguration"].contains(&object["kind"].as_str().unwrap()) {
                let renamed = format!("informerd-sidecar-{namespace}");
                object["metadata"]["name"] = renamed.clone().into();
                if let Some(level) = object["spec"].get_mut("priorityLevelConfiguration") {
                    level["name"] = renamed.into();
                }
            }
        }
        equal(directory, manifests, helm.objects("example-sidecar", namespace, values), namespace);
    }
    // What the drop-in's namespace needs, which the chart can make.
    for (mode, example) in [("tier", "drop-in"), ("node-agent", "drop-in-node")] {
        let namespace = format!("informerd-{mode}");
        let there = |object: &Value| object["metadata"]["namespace"] == "informerd-client";
        let mut manifests = kustomized(&format!("examples/{example}"), &[]).await;
        manifests.retain(|object| there(object) && object["metadata"]["name"].as_str().unwrap().starts_with(RELEASE));
        assert_eq!(manifests.len(), 3, "{example}");
        let mut chart =
            helm.objects("informerd", &namespace, &["--set", &format!("mode={mode}"), "--set", "trust.create=true"]);
        chart.retain(there);
        equal(example, manifests, chart, &namespace);
    }
}

/// What an overlay or an example of kustomize renders, with components.
async fn kustomized(directory: &str, components: &[&str]) -> Vec<Value> {
    let copy = tempfile::tempdir().unwrap();
    // kustomize wants relative paths below one root.
    tied::copy(&std::path::Path::new(ROOT).join("manifests"), &copy.path().join("manifests"));
    let components: Vec<_> = components.iter().map(|name| format!("manifests/components/{name}")).collect();
    let text = format!("resources: [manifests/{directory}]\ncomponents: [{}]\n", components.join(", "));
    file(copy.path(), "kustomization.yaml", text);
    let mut kubectl = tied::command(process::judge().await);
    kubectl.args(["kubectl", "kustomize"]).arg(copy.path());
    parsed(&process::stdout("kubectl kustomize", process::run(kubectl, "").await))
}

/// Every object of a chart says whose it is.
fn labelled(objects: &[Value]) {
    for object in objects {
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels["app.kubernetes.io/instance"], RELEASE, "{object}");
        assert_eq!(labels["app.kubernetes.io/managed-by"], "Helm", "{object}");
        assert!(labels["helm.sh/chart"].is_string() && labels["app.kubernetes.io/name"].is_string(), "{object}");
    }
}

fn equal(what: &str, manifests: Vec<Value>, chart: Vec<Value>, namespace: &str) {
    let manifests = of_manifests(manifests, namespace);
    let chart = of_chart(chart, namespace);
    assert!(manifests.len() > 2, "{what}: only {} objects", manifests.len());
    let mut found = Vec::new();
    for name in manifests.keys().filter(|name| !chart.contains_key(*name)) {
        found.push(format!("{name} is not in the chart"));
    }
    for (name, chart) in &chart {
        match manifests.get(name) {
            Some(manifests) => differences(name, manifests, chart, &mut found),
            None => found.push(format!("{name} is in the chart alone")),
        }
    }
    assert!(found.is_empty(), "{what}: the chart differs from the manifests:\n{}", found.join("\n"));
}

fn of_manifests(mut objects: Vec<Value>, namespace: &str) -> Objects {
    objects.retain(|object| object["kind"] != "Namespace");
    let generated: Vec<_> = objects.iter().filter_map(generated).collect();
    for object in &mut objects {
        texts(object, &|text| {
            let original = generated.iter().find(|(hashed, _)| hashed == text);
            original.map_or_else(|| text.to_owned(), |(_, original)| original.clone())
        });
        nameless(object);
        sort(object);
    }
    by_name(objects, namespace)
}

/// The name of a generated ConfigMap, and what it is without its hash.
fn generated(object: &Value) -> Option<(String, String)> {
    let name = object["metadata"]["name"].as_str()?;
    let (original, hash) = name.rsplit_once('-')?;
    let hashed = hash.len() == 10 && hash.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (object["kind"] == "ConfigMap" && hashed).then(|| (name.to_owned(), original.to_owned()))
}

fn of_chart(mut objects: Vec<Value>, namespace: &str) -> Objects {
    for object in &mut objects {
        defined_before_use(object);
        without(object, HELMS);
        nameless(object);
        sort(object);
    }
    by_name(objects, namespace)
}

/// The label with the name of the program is Helm's on all objects, and the manifests' on workloads, which select by it.
fn nameless(object: &mut Value) {
    if let Some(labels) = object["metadata"].get_mut("labels").and_then(Value::as_object_mut) {
        labels.remove("app.kubernetes.io/name");
        if labels.is_empty() {
            object["metadata"].as_object_mut().unwrap().remove("labels");
        }
    }
}
