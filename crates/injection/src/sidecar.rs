//! The sidecar that is added to a pod. Its container is the one of the manifests, word for word: they are part of the
//! program.

use serde_json::{Value, json};

use super::{SIDECAR_CONFIG, Wanted};

const COMPONENT: &str = include_str!("../../../manifests/components/sidecar/patch.yaml");
const CONFIG: &str = include_str!("../../../manifests/components/sidecar/informerd.yaml");
const DROP_IN: &str = include_str!("../../../manifests/examples/drop-in-sidecar/patch.yaml");
/// The grace period, in seconds, of a pod that has the default of the apiserver: its programs have 30 s, as before, and then
/// informerd drains for up to 25 s. The component of the manifests does not set it, because kustomize cannot tell the default
/// from a choice.
pub(super) const GRACE: u64 = 60;

/// The volume with the files for programs.
pub(super) const SHARED_ACCOUNT: &str = "informerd-account";
/// Where the sidecar finds its configuration.
pub const CONFIG_FILE: &str = "/etc/informerd/informerd.yaml";
/// The port of the admin side, besides those that the container names.
const ADMIN_PORT: u64 = 8002;

/// What the manifests say about the sidecar.
#[derive(Clone, Debug)]
pub(crate) struct Sidecar {
    container: Value,
    pub(super) volumes: Vec<Value>,
    pub(super) labels: Vec<(String, Value)>,
    /// The variables that lead programs to it.
    pub(super) client_env: Vec<Value>,
}

// === impl Sidecar ===

impl Sidecar {
    /// The sidecar of the manifests that this program was built with.
    ///
    /// # Errors
    /// They are no sidecar.
    pub(crate) fn built_in() -> Result<Self, String> {
        let parse = |text| serde_saphyr::from_str::<Value>(text).map_err(|error| error.to_string());
        let (mut component, mut drop_in) = (parse(COMPONENT)?, parse(DROP_IN)?);
        let mut container = component["spec"]["template"]["spec"]["initContainers"][0].take();
        let added = drop_in["spec"]["template"]["spec"]["initContainers"][0].take();
        for list in ["env", "volumeMounts"] {
            let more = added[list].as_array().cloned().unwrap_or_default();
            container[list].as_array_mut().ok_or_else(|| format!("the sidecar has no {list}"))?.extend(more);
        }
        // A pod has volumes of its own, so ours have unmistakable names.
        for mount in container["volumeMounts"].as_array_mut().into_iter().flatten() {
            mount["name"] = unmistakable(&mount["name"]);
        }
        let mut volumes = vec![json!({"name": "informerd", "downwardAPI": {"items": [
            {"path": "informerd.yaml", "fieldRef": {"fieldPath": format!("metadata.annotations['{SIDECAR_CONFIG}']")}},
        ]}})];
        for volume in drop_in["spec"]["template"]["spec"]["volumes"].as_array_mut().into_iter().flatten() {
            volume["name"] = unmistakable(&volume["name"]);
            volumes.push(volume.take());
        }
        let labels = component["spec"]["template"]["metadata"]["labels"].as_object().cloned().unwrap_or_default();
        let client_env = drop_in["spec"]["template"]["spec"]["containers"][0]["env"].as_array().cloned();
        Ok(Self {
            container,
            volumes,
            labels: labels.into_iter().collect(),
            client_env: client_env.ok_or("no variables point programs at the sidecar")?,
        })
    }

    /// Its container in a pod.
    pub(super) fn container(&self, wanted: &Wanted, image: &str) -> Value {
        let mut container = self.container.clone();
        container["image"] = image.into();
        if let Some(memory) = &wanted.memory {
            for kind in ["requests", "limits"] {
                container["resources"][kind]["memory"] = memory.as_str().into();
            }
        }
        container
    }

    /// The built-in configuration.
    pub(super) fn config() -> String {
        CONFIG.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect()
    }

    /// Its variables with fixed values.
    pub(super) fn variables(&self) -> Vec<(String, String)> {
        let all = self.container["env"].as_array().into_iter().flatten();
        let fixed = all.filter_map(|variable| Some((variable["name"].as_str()?, variable["value"].as_str()?)));
        fixed.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// The ports that it listens on.
    pub(super) fn ports(&self) -> Vec<u64> {
        let variables = self.variables();
        let listen =
            variables.iter().filter(|(name, _)| name == "INFORMERD_LISTEN").flat_map(|(_, value)| value.split(','));
        let listen = listen.filter_map(|address| address.rsplit_once(':')?.1.parse().ok());
        let named = self.container["ports"].as_array().into_iter().flatten();
        let named = named.filter_map(|port| port["containerPort"].as_u64());
        listen.chain(named).chain([ADMIN_PORT]).collect()
    }
}

fn unmistakable(name: &Value) -> Value {
    match name.as_str() {
        Some(name) if !name.starts_with("informerd") => format!("informerd-{name}").into(),
        _ => name.clone(),
    }
}
