//! Pods of workloads that were read: manifests have the templates, but hardly any pods.

use serde_json::json;

use super::manifests::Manifest;
use super::random::Random;
use super::varied::{NODES, node_name, status};

/// Pods of one workload, at most. A workload without a number of replicas has as many.
const MOST: u64 = 3;

/// The pods that a controller would make, with the status that a kubelet would give them.
pub(crate) fn of_workload(manifest: &Manifest) -> Vec<Manifest> {
    let [version, kind] = manifest.kind();
    let (name, spec) = (manifest.metadata("name"), &manifest.object["spec"]);
    let is_workload = version == "apps/v1" && ["Deployment", "StatefulSet", "DaemonSet"].contains(&kind);
    if !is_workload || !spec["template"]["spec"]["containers"].is_array() {
        return Vec::new();
    }
    let most = if kind == "DaemonSet" { MOST } else { 1 };
    let seed = manifest.object.to_string().bytes().fold(0u64, |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
    let random = &mut Random::new(seed);
    let (hash, uid) = (random.suffix(9), random.uuid());
    let replicas = spec["replicas"].as_u64().unwrap_or(most).min(MOST);
    let pod = |number: u64| {
        let (name, owner) = match kind {
            "Deployment" => (format!("{name}-{hash}-{}", random.suffix(5)), format!("{name}-{hash}")),
            "StatefulSet" => (format!("{name}-{number}"), name.to_owned()),
            _ => (format!("{name}-{}", random.suffix(5)), name.to_owned()),
        };
        let mut object = spec["template"].clone();
        object["apiVersion"] = "v1".into();
        object["kind"] = "Pod".into();
        object["metadata"]["name"] = name.into();
        object["metadata"]["namespace"] = manifest.metadata("namespace").into();
        object["metadata"]["generateName"] = format!("{owner}-").into();
        let label = if kind == "Deployment" { "pod-template-hash" } else { "controller-revision-hash" };
        object["metadata"]["labels"][label] = hash.clone().into();
        let owner_kind = if kind == "Deployment" { "ReplicaSet" } else { kind };
        object["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": owner_kind, "name": owner, "uid": uid, "controller": true, "blockOwnerDeletion": true}]);
        object["spec"]["nodeName"] = node_name(random.within(0, NODES - 1)).into();
        let containers = object["spec"]["containers"].as_array().cloned().unwrap_or_default();
        let status = status(&containers, random);
        Manifest { object, status, managers: ["kube-controller-manager", "kubelet"] }
    };
    (0..replicas).map(pod).collect()
}
