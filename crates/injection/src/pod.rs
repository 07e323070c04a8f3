//! The change of one pod.

use serde_json::{Value, json};

use super::containers::{LISTS, containers};
use super::edit::Edit;
use super::lead::lead;
use super::sidecar::GRACE;
use super::{ACCOUNT, INJECTED, Injector, Mode, Origin, Sidecar, Wanted};

/// Each takes several operations of the patch, and is looked for by its name.
const MOST_CONTAINERS: usize = 256;

/// A pod that was changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub pod: Value,
    /// The same as a JSON patch of the pod.
    pub patch: Vec<Value>,
    /// Containers that stay as they are, with the reason.
    pub warnings: Vec<String>,
}

/// Changes a pod, or the template of one: an object with `metadata` and `spec`. What it has for its sidecar was checked before
/// ([`Injector::check`]).
///
/// # Errors
/// The reason why the pod must stay as it is.
pub fn inject(pod: Value, wanted: &Wanted, origin: &Origin<'_>, injector: &Injector) -> Result<Change, String> {
    can_change(&pod, wanted, origin, injector)?;
    let mut edit = Edit::new(pod);
    let mut warnings = Vec::new();
    let volume_of_account = lead(&mut edit, wanted, origin, injector, &mut warnings)?;
    if wanted.mode == Mode::Sidecar {
        add_sidecar(&mut edit, wanted, volume_of_account, injector)?;
    }
    edit.set("/metadata/annotations", INJECTED, wanted.mode.as_str().into());
    Ok(Change { pod: edit.value, patch: edit.patch, warnings })
}

/// Whether a pod is one that can be changed at all. This takes little time.
///
/// # Errors
/// Why it must stay as it is.
pub fn can_change(pod: &Value, wanted: &Wanted, origin: &Origin<'_>, injector: &Injector) -> Result<(), String> {
    has_shape(pod)?;
    if injector.config.excludes(origin.namespace) {
        return Err(format!("pods of the namespace {} are never changed", origin.namespace));
    }
    fits(&pod["spec"], wanted.mode)?;
    let count = containers(pod).count();
    if count > MOST_CONTAINERS {
        return Err(format!("the pod has {count} containers, more than {MOST_CONTAINERS}"));
    }
    if let Some(unknown) =
        wanted.containers.iter().flatten().find(|name| !containers(pod).any(|(_, _, c)| c["name"] == **name))
    {
        return Err(format!("the annotation {} names {unknown:?}, and there is no such container", super::CONTAINERS));
    }
    Ok(())
}

/// Whether the pod is what a later step takes for granted.
fn has_shape(pod: &Value) -> Result<(), String> {
    let list = |what: String, value: &Value| match value {
        Value::Null => Ok(()),
        Value::Array(elements) if elements.iter().all(Value::is_object) => Ok(()),
        _ => Err(format!("{what} is no list of mappings")),
    };
    let mapping = |what: &str, value: &Value| match value {
        Value::Null | Value::Object(_) => Ok(()),
        _ => Err(format!("{what} is no mapping")),
    };
    mapping("metadata", &pod["metadata"])?;
    mapping("metadata.labels", &pod["metadata"]["labels"])?;
    mapping("metadata.annotations", &pod["metadata"]["annotations"])?;
    if !pod["spec"].is_object() {
        return Err("there is no spec".to_owned());
    }
    for name in [LISTS[0], LISTS[1], "volumes"] {
        list(format!("spec.{name}"), &pod["spec"][name])?;
    }
    for (kind, index, container) in containers(pod) {
        for name in ["env", "volumeMounts", "ports"] {
            list(format!("spec.{kind}[{index}].{name}"), &container[name])?;
        }
    }
    Ok(())
}

/// Whether such a pod can be led to this informerd at all.
fn fits(spec: &Value, mode: Mode) -> Result<(), String> {
    if spec["os"]["name"] == "windows" {
        return Err("the pod runs on Windows".to_owned());
    }
    let host_network = spec["hostNetwork"] == true;
    if mode == Mode::Sidecar && host_network {
        return Err("the pod is in the network of its node, where every program could reach the sidecar".to_owned());
    }
    if mode == Mode::Tier {
        let resolves = match spec["dnsPolicy"].as_str().unwrap_or("ClusterFirst") {
            "ClusterFirstWithHostNet" => true,
            "ClusterFirst" => !host_network,
            _ => false,
        };
        if !resolves {
            return Err("the names of Services do not resolve in this pod (see dnsPolicy)".to_owned());
        }
    }
    Ok(())
}

fn add_sidecar(edit: &mut Edit, wanted: &Wanted, account: Option<String>, injector: &Injector) -> Result<(), String> {
    let sidecar = &injector.sidecar;
    let (mut added, its_ports) = (sidecar.container(wanted, &injector.config.image), sidecar.ports());
    for (_, _, container) in containers(&edit.value) {
        let name = container["name"].as_str().unwrap_or_default();
        if container["name"] == added["name"] {
            return Err(format!("there is a container {name} already"));
        }
        let ports = container["ports"].as_array().into_iter().flatten();
        let mut ports = ports.filter_map(|port| port["containerPort"].as_u64());
        if let Some(port) = ports.find(|port| its_ports.contains(port)) {
            return Err(format!("the container {name} has the port {port}, which the sidecar needs"));
        }
    }
    let volumes = edit.at("/spec/volumes").as_array().into_iter().flatten();
    if let Some(taken) =
        volumes.map(|volume| &volume["name"]).find(|name| sidecar.volumes.iter().any(|ours| ours["name"] == **name))
    {
        return Err(format!("there is a volume {} already", taken.as_str().unwrap_or_default()));
    }
    for volume in &sidecar.volumes {
        edit.append("/spec/volumes", volume.clone());
    }
    // The apiserver mounts these files into containers that it sees; the sidecar comes after that.
    if let (Some(volume), Some(mounts)) = (account, added["volumeMounts"].as_array_mut()) {
        mounts.push(json!({"name": volume, "mountPath": ACCOUNT, "readOnly": true}));
    }
    edit.insert("/spec/initContainers", 0, added);
    // The default of the apiserver. Another number was chosen by somebody.
    if matches!(edit.at("/spec/terminationGracePeriodSeconds"), Value::Null)
        || edit.at("/spec/terminationGracePeriodSeconds") == 30
    {
        edit.set("/spec", "terminationGracePeriodSeconds", GRACE.into());
    }
    for (name, value) in &sidecar.labels {
        if edit.at("/metadata/labels")[name].is_null() {
            edit.set("/metadata/labels", name, value.clone());
        }
    }
    if wanted.config.is_none() {
        edit.set("/metadata/annotations", super::SIDECAR_CONFIG, Sidecar::config().into());
    }
    Ok(())
}
