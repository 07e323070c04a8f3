//! What values do.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::helm::{Helm, ROOT};
use super::objects::by_name;

/// Files of values in tests/data/chart, and the chart that each is for. Together they set every value.
pub(super) const FILES: &[(&str, &str)] = &[
    ("tier", "informerd"),
    ("cert-manager", "informerd"),
    ("node-agent", "informerd"),
    ("injector", "informerd"),
    ("sidecar", "example-sidecar"),
];
/// Maps that are one value.
const WHOLE: &[&str] = &["config", "labels", "nodeSelector", "resources", "securityContext"];

pub(super) fn file(name: &str) -> String {
    Path::new(ROOT).join("tests/data/chart").join(name).with_extension("yaml").display().to_string()
}

fn yaml(path: impl AsRef<Path>) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).expect("YAML")
}

/// The paths of all values, as JSON pointers.
fn pointers(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    let whole = WHOLE.iter().any(|name| at.ends_with(&format!("/{name}")));
    match value.as_object() {
        Some(map) if !map.is_empty() && !whole => {
            map.iter().for_each(|(key, value)| pointers(value, &format!("{at}/{key}"), found));
        }
        _ => {
            found.insert(at.to_owned());
        }
    }
}

/// Each value of values.yaml is set by one of the files, and makes a difference there.
#[test]
fn every_value_has_an_effect() {
    let helm = Helm::new();
    let mut all = BTreeSet::new();
    pointers(&yaml(Path::new(ROOT).join("charts/informerd/values.yaml")), "", &mut all);
    assert!(all.len() > 40, "only {} values", all.len());
    let directory = tempfile::tempdir().unwrap();
    let file_of_less = directory.path().join("values.yaml").display().to_string();
    for (name, chart) in FILES {
        let (values, path) = (yaml(file(name)), file(name));
        let rendered = helm.text(chart, "informerd", &["--values", &path]);
        let prefix = if *chart == "informerd" { "" } else { "/informerd" };
        for pointer in all.clone() {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            let mut less = values.clone();
            let map = less.pointer_mut(&format!("{prefix}{parent}")).and_then(Value::as_object_mut);
            if map.and_then(|map| map.remove(key)).is_some() {
                std::fs::write(&file_of_less, less.to_string()).unwrap();
                let arguments =
                    ["template", super::helm::RELEASE, &helm.chart(chart), "--namespace", "informerd", "--values"];
                let output = helm.run(&[&arguments[..], &[&file_of_less]].concat());
                // If helm refuses the rest without this value, that is a difference as well.
                let same = output.status.success() && output.stdout == rendered.as_bytes();
                assert!(!same, "{pointer} of {path} makes no difference");
                all.remove(&pointer);
            }
        }
    }
    assert!(all.is_empty(), "tests/data/chart has nothing for {all:?}");
}

/// Names that YAML would take for numbers stay names.
fn names_are_texts(helm: &Helm) {
    let numbers =
        "sidecar.serviceAccountName=7,networkPolicy.prometheusNamespace=8,trust.configMap=9,trust.namespaces={5}";
    for mode in ["tier", "node-agent", "sidecar", "injector"] {
        let chart = helm.chart("informerd");
        let mode = format!("mode={mode}");
        let values = ["--set-string", numbers, "--set", &mode, "--set", "trust.create=true"];
        let rendered = helm.succeeds(&[&["template", "3", &chart, "--namespace", "4"], &values[..]].concat());
        let objects = super::objects::parsed(&rendered);
        assert!(objects.len() > 2, "{rendered}");
        objects.iter().for_each(has_no_numbers_for_names);
    }
}

fn has_no_numbers_for_names(value: &Value) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let named = key.ends_with("name") || key.ends_with("Name") || key.ends_with("namespace") || key.contains('/');
        assert!(!(named && value.is_number()), "{key}: {value}");
        if key == "resourceNames" {
            assert!(value.as_array().unwrap().iter().all(Value::is_string), "{key}: {value}");
        }
        has_no_numbers_for_names(value);
    }
    value.as_array().into_iter().flatten().for_each(has_no_numbers_for_names);
}

/// What is rendered for a configuration: its file, and the rules for reading by namespace.
fn configured(helm: &Helm, config: &Value) -> (Value, Vec<(String, Value)>) {
    let objects =
        helm.objects("informerd", "here", &["--set-json", &format!("config={config}"), "--set", "fullnameOverride=it"]);
    let objects = by_name(objects, "here");
    let read = objects.iter().filter_map(|(name, object)| {
        let ours = object["metadata"]["name"] == "it-tier" && object["kind"].as_str().unwrap().ends_with("Role");
        ours.then(|| (name.clone(), object["rules"].clone()))
    });
    (objects["ConfigMap here/\"it\""]["data"]["informerd.yaml"].clone(), read.collect())
}

#[test]
fn values_become_configuration_and_rights() {
    let helm = &Helm::new();
    names_are_texts(helm);
    let default = yaml(Path::new(ROOT).join("manifests/overlays/tier/informerd.yaml"));
    // Maps are merged, everything else is replaced, null takes away; numbers stay as they are.
    let over = json!({
        "window": {"maxBytes": 2_000_000},
        "log": {"format": null, "level": ""},
        "limits": {"maxConnections": 3_000_000},
        "snapshots": null,
        "lendIdentity": false,
        "resources": [
            {"resource": "secrets", "namespaces": ["a", "b"]},
            {"resource": "pods", "pin": true},
            {"resource": "pods", "labelSelector": "a=b"},
            {"resource": "configmaps", "namespaces": ["a"]},
            {"resource": "deployments.apps"},
            {"resource": "leases.coordination.k8s.io", "exclude": true},
            {"resource": "*", "exclude": true},
        ],
    });
    let mut expected = default.clone();
    expected["window"]["maxBytes"] = json!(2_000_000);
    expected["log"] = json!({"level": ""});
    expected.as_object_mut().unwrap().remove("snapshots");
    for key in ["limits", "lendIdentity", "resources"] {
        expected[key] = over[key].clone();
    }
    let (config, rights) = configured(helm, &over);
    assert_eq!(config, expected);
    let rule = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["get", "list", "watch"]});
    assert_eq!(
        rights,
        [
            ("ClusterRole /\"it-tier\"".to_owned(), json!([rule("", &["pods"]), rule("apps", &["deployments"])])),
            ("Role a/\"it-tier\"".to_owned(), json!([rule("", &["secrets", "configmaps"])])),
            ("Role b/\"it-tier\"".to_owned(), json!([rule("", &["secrets"])])),
        ]
    );
    // Snapshots need the cluster's identity.
    let (_, rights) = configured(helm, &json!({"resources": [{"resource": "pods"}]}));
    let identity =
        json!({"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["kube-system"], "verbs": ["get"]});
    assert_eq!(rights, [("ClusterRole /\"it-tier\"".to_owned(), json!([rule("", &["pods"]), identity]))]);
    for (values, image) in [
        (&["image.repository=a.example/b"][..], "a.example/b:v0.1.0"),
        (&["image.tag=v2"], "informerd:v2"),
        (
            &["image.digest=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"],
            "informerd@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        ),
    ] {
        let values: Vec<_> = values.iter().flat_map(|value| ["--set", value]).collect();
        let objects = by_name(helm.objects("informerd", "here", &values), "here");
        let pod = &objects["Deployment here/\"informerd\""]["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["image"], *image);
    }
}
