//! Objects of Kubernetes, made comparable.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// By kind, namespace and name.
pub(super) type Objects = BTreeMap<String, Value>;

const OF_THE_CLUSTER: &[&str] =
    &["ClusterRole", "ClusterRoleBinding", "FlowSchema", "MutatingWebhookConfiguration", "PriorityLevelConfiguration"];

/// The objects of a stream of YAML documents.
pub(super) fn parsed(text: &str) -> Vec<Value> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options).expect("YAML");
    documents.into_iter().filter(|object| !object.is_null()).collect()
}

/// Objects without a namespace are in `namespace`, if objects of their kind have one. What a ConfigMap holds is compared as
/// what it means.
pub(super) fn by_name(objects: Vec<Value>, namespace: &str) -> Objects {
    let mut named = Objects::new();
    for mut object in objects {
        let kind = object["kind"].as_str().unwrap().to_owned();
        if OF_THE_CLUSTER.contains(&kind.as_str()) {
            // kustomize gives one to kinds that it does not know, and the apiserver ignores it.
            object["metadata"].as_object_mut().unwrap().remove("namespace");
        } else if object["metadata"]["namespace"].is_null() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        if kind == "ConfigMap"
            && let Some(data) = object.get_mut("data")
        {
            data.as_object_mut().unwrap().values_mut().for_each(|text| {
                *text = serde_saphyr::from_str(text.as_str().unwrap()).expect("YAML");
            });
        }
        let metadata = &object["metadata"];
        let name = format!("{kind} {}/{}", metadata["namespace"].as_str().unwrap_or_default(), metadata["name"]);
        assert!(named.insert(name.clone(), object).is_none(), "{name} is there twice");
    }
    named
}

/// Takes keys away wherever they are, and then labels and annotations of which nothing is left.
pub(super) fn without(value: &mut Value, keys: &[&str]) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !keys.contains(&key.as_str()));
            map.values_mut().for_each(|value| without(value, keys));
            map.retain(|key, value| !(["labels", "annotations"].contains(&key.as_str()) && *value == json!({})));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| without(value, keys)),
        _ => {}
    }
}

/// Sorts the lists of a pod of which the order means nothing. Of `env` it means something, which [`defined_before_use`] holds.
pub(super) fn sort(value: &mut Value) {
    for (key, value) in value.as_object_mut().into_iter().flatten() {
        sort(value);
        let by = match key.as_str() {
            "env" | "volumes" => "name",
            "volumeMounts" => "mountPath",
            _ => continue,
        };
        if let Some(items) = value.as_array_mut() {
            items.sort_by_key(|item| item[by].to_string());
        }
    }
    value.as_array_mut().into_iter().flatten().for_each(sort);
}

/// Panics if a variable refers to one that comes later in its list, which the kubelet would not resolve.
pub(super) fn defined_before_use(value: &Value) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let mut defined = BTreeSet::new();
        for variable in value.as_array().filter(|_| key == "env").into_iter().flatten() {
            let text = variable["value"].as_str().unwrap_or_default();
            for used in text.split("$(").skip(1).filter_map(|rest| rest.split_once(')')) {
                assert!(defined.contains(used.0), "{} comes after its use in {variable}", used.0);
            }
            defined.insert(variable["name"].as_str().unwrap());
        }
        defined_before_use(value);
    }
    value.as_array().into_iter().flatten().for_each(defined_before_use);
}

/// Every text anywhere in `value`, changed by `change`.
pub(super) fn texts(value: &mut Value, change: &impl Fn(&str) -> String) {
    match value {
        Value::Object(map) => map.values_mut().for_each(|value| texts(value, change)),
        Value::Array(items) => items.iter_mut().for_each(|value| texts(value, change)),
        Value::String(text) => *text = change(text),
        _ => {}
    }
}

/// Where two values differ, a line for each place.
pub(super) fn differences(at: &str, manifests: &Value, chart: &Value, found: &mut Vec<String>) {
    let none = Map::new();
    match (manifests, chart) {
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                differences(&format!("{at}[{index}]"), left, right, found);
            }
        }
        (Value::Object(_), Value::Object(_)) => {
            let (left, right) = (manifests.as_object().unwrap_or(&none), chart.as_object().unwrap_or(&none));
            for key in left.keys().chain(right.keys()).collect::<BTreeSet<_>>() {
                differences(&format!("{at}.{key}"), &manifests[key], &chart[key], found);
            }
        }
        (left, right) if left != right => found.push(format!("{at}\n    manifests: {left}\n    chart:     {right}")),
        _ => {}
    }
}
