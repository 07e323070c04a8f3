//! What is wrong: values, and what there must not be in the chart.

use std::path::Path;

use serde_json::Value;

use super::equal;
use super::helm::{Helm, RELEASE, ROOT};
use super::values;

/// Values, and what helm has to say of them.
const WRONG: &[(&str, &str)] = &[
    ("replicas=3", "additional properties 'replicas' not allowed"),
    ("image.name=x", "at '/image': additional properties 'name' not allowed"),
    ("nodeAgent.signer.image=x", "at '/nodeAgent/signer': additional properties 'image' not allowed"),
    ("mode=daemonset", "at '/mode': value must be one of 'tier', 'node-agent', 'sidecar', 'injector'"),
    ("tier.replicas=many", "at '/tier/replicas': got string, want integer"),
    ("tier.replicas=0", "at '/tier/replicas': minimum: got 0, want 1"),
    ("config=listen", "at '/config': got string, want object"),
    ("image.digest=latest", "at '/image/digest': 'latest' does not match pattern"),
    ("image.pullPolicy=Sometimes", "at '/image/pullPolicy': value must be one of"),
    ("snapshots.type=pvc", "at '/snapshots/type': value must be one of 'emptyDir', 'hostPath', 'none'"),
    ("nodeAgent.hostPort=70000", "at '/nodeAgent/hostPort': maximum: got 70,000, want 65,535"),
    ("commonLabels.a=1", "at '/commonLabels/a': got number, want string"),
    ("trust.namespaces={A_B}", "at '/trust/namespaces/0': 'A_B' does not match pattern"),
    ("nodeAgent.allPods=true", "nodeAgent.allPods is for mode node-agent; the mode is tier"),
    ("snapshots.type=hostPath", "snapshots.type hostPath is for mode node-agent"),
    ("sidecar.dropIn=true", "sidecar.dropIn is for mode sidecar; the mode is tier"),
    ("mode=sidecar", "sidecar.serviceAccountName is required"),
    ("config.resources=null", "config.resources names nothing"),
    ("config.resources[0].resource=*.apps", "config.resources has a rule for \"*.apps\": say in rbac.rules"),
    ("config.resources[0].pin=true", "config.resources has a rule for \"no resource\""),
];

/// Maps of which the schema says what may be in them, and takes other things as well.
fn loose(schema: &Value, at: &str, found: &mut Vec<String>) {
    let known = schema["type"] == "object" && schema["properties"].is_object();
    if known && schema["additionalProperties"] != Value::Bool(false) {
        found.push(at.to_owned());
    }
    for (key, value) in schema.as_object().into_iter().flatten() {
        loose(value, &format!("{at}/{key}"), found);
    }
}

#[test]
fn wrong_values_are_refused() {
    let helm = Helm::new();
    let chart = helm.chart("informerd");
    let schema = std::fs::read_to_string(Path::new(&chart).join("values.schema.json")).unwrap();
    let mut found = Vec::new();
    loose(&serde_json::from_str(&schema).unwrap(), "", &mut found);
    assert!(found.is_empty(), "values.schema.json takes unknown keys in {found:?}");
    for (value, message) in WRONG {
        let said = helm.refuses(&["template", RELEASE, &chart, "--set", value]);
        assert!(said.contains(message), "{value}: {said}");
    }
    // All mistakes at once, of both kinds.
    let said = helm.refuses(&["template", RELEASE, &chart, "--set", "mode=x,tier.replicas=x,foo=1"]);
    for message in ["'/mode'", "'/tier/replicas'", "'foo'"] {
        assert!(said.contains(message), "{said}");
    }
    let several = "mode=sidecar,nodeAgent.allPods=true,tier.certManager.enabled=true,audiences={a}";
    let said = helm.refuses(&["template", RELEASE, &chart, "--set", several]);
    for message in ["nodeAgent.allPods is", "tier.certManager.enabled is", "audiences are", "serviceAccountName is"] {
        assert!(said.contains(message), "{said}");
    }
}

/// Copies that the chart has of files of the manifests, because a chart cannot reach out of its directory.
const COPIES: &[(&str, &str)] = &[
    ("overlays/injector/informerd.yaml", "injector.yaml"),
    ("overlays/tier/informerd.yaml", "tier.yaml"),
    ("overlays/node-agent/informerd.yaml", "node-agent.yaml"),
    ("overlays/node-agent/signer-informerd.yaml", "signer.yaml"),
    ("components/all-pods/informerd.yaml", "all-pods.yaml"),
    ("components/sidecar/informerd.yaml", "sidecar.yaml"),
    ("components/prometheus-rule/rules.yaml", "rules.yaml"),
    ("components/dashboard/informerd.json", "dashboard.json"),
];

#[test]
fn the_chart_is_clean_and_names_no_registry() {
    let helm = Helm::new();
    for (manifest, copy) in COPIES {
        let (manifest, copy) = (format!("manifests/{manifest}"), format!("charts/informerd/files/{copy}"));
        let read = |path: &str| std::fs::read(Path::new(ROOT).join(path)).unwrap();
        assert!(read(&manifest) == read(&copy), "they differ: cp {manifest} {copy}");
    }
    let files = std::fs::read_dir(Path::new(ROOT).join("charts/informerd/files")).unwrap().count();
    assert_eq!(files, COPIES.len(), "files of the chart that are no copies");
    for (file, chart) in values::FILES {
        helm.succeeds(&["lint", "--strict", "--quiet", &helm.chart(chart), "--values", &values::file(file)]);
    }
    helm.succeeds(&["lint", "--strict", "--quiet", &helm.chart("informerd")]);
    let chart: Value = serde_saphyr::from_str(&helm.succeeds(&["show", "chart", &helm.chart("informerd")])).unwrap();
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"), "charts/informerd/Chart.yaml: version");
    assert_eq!(chart["appVersion"], concat!("v", env!("CARGO_PKG_VERSION")), "charts/informerd/Chart.yaml: appVersion");
    for (mode, components) in equal::CHOICES {
        let values = equal::values(mode, components);
        let rendered = helm.text("informerd", "here", &values.iter().map(String::as_str).collect::<Vec<_>>());
        let images: Vec<_> = rendered.lines().filter_map(|line| line.trim().strip_prefix("image: ")).collect();
        assert!(!images.is_empty(), "{mode} has no image");
        // A name with a slash would begin with the name of a host, or of somebody who has an account there.
        assert!(images.iter().all(|image| !image.contains('/')), "{mode}: {images:?}");
    }
}
