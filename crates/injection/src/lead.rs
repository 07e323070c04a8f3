//! Leads containers to informerd: two variables, and the CA among the files of the ServiceAccount.

use serde_json::{Value, json};

use super::containers::containers;
use super::edit::Edit;
use super::sidecar::SHARED_ACCOUNT;
use super::{ACCOUNT, Injector, Mode, Origin, Wanted};

pub(super) const HOST: &str = "KUBERNETES_SERVICE_HOST";
pub(super) const PORT: &str = "KUBERNETES_SERVICE_PORT";
/// The ConfigMap with the cluster's CA that the controller manager keeps in every namespace.
pub(super) const CLUSTER_CA: &str = "kube-root-ca.crt";

/// The files of the ServiceAccount in one container.
enum Account {
    /// As the kubelet has them: the index of the mount, the volume, and the index of its source with the CA.
    Kubelet {
        mount: usize,
        volume: usize,
        source: usize,
    },
    None,
    /// Something else is mounted there.
    Other,
}

/// Leads every container that can be. Adds a warning for each that cannot. Returns the name of a volume with the files of
/// the ServiceAccount, if the pod has one.
///
/// # Errors
/// There is no container to lead.
pub(super) fn lead(
    edit: &mut Edit,
    wanted: &Wanted,
    origin: &Origin<'_>,
    injector: &Injector,
    warnings: &mut Vec<String>,
) -> Result<Option<String>, String> {
    let target = wanted.mode.config_map();
    let mut volume_of_account = None;
    let mut count = 0;
    let mut needs_volume = false;
    let automount = !origin.admitted && edit.at("/spec/automountServiceAccountToken") != false;
    let all: Vec<_> = containers(&edit.value).map(|(list, index, _)| (list, index)).collect();
    for (list, index) in all {
        let container = &edit.value["spec"][list][index];
        let name = container["name"].as_str().unwrap_or_default().to_owned();
        if wanted.containers.as_ref().is_some_and(|chosen| !chosen.contains(&name)) {
            continue;
        }
        let mut env = container["env"].as_array().into_iter().flatten();
        if let Some(own) = env.find(|variable| variable["name"] == HOST || variable["name"] == PORT) {
            let variable = own["name"].as_str().unwrap_or_default();
            warnings.push(format!("the container {name} stays as it is: it sets {variable} itself"));
            continue;
        }
        let path = format!("/spec/{list}/{index}");
        match account(&edit.value, container, target) {
            Account::Other => {
                warnings.push(format!("the container {name} stays as it is: it has files of its own in {ACCOUNT}"));
                continue;
            }
            Account::None if !automount => continue,
            Account::None => {
                needs_volume = true;
                let mount = json!({"name": SHARED_ACCOUNT, "mountPath": ACCOUNT, "readOnly": true});
                edit.append(&format!("{path}/volumeMounts"), mount);
            }
            Account::Kubelet { mount, volume, source } => {
                volume_of_account = edit.at(&format!("/spec/volumes/{volume}/name")).as_str().map(str::to_owned);
                match target {
                    None => edit.replace(&format!("{path}/volumeMounts/{mount}/name"), SHARED_ACCOUNT.into()),
                    Some(map) => {
                        let name = format!("/spec/volumes/{volume}/projected/sources/{source}/configMap/name");
                        // The volume of another container that was led before.
                        if edit.at(&name) != map {
                            edit.replace(&name, map.into());
                        }
                    }
                }
            }
        }
        count += 1;
        for variable in variables(wanted.mode, injector).into_iter().rev() {
            // In front, so that later variables that refer to these are led, too.
            edit.insert(&format!("{path}/env"), 0, variable);
        }
    }
    if count == 0 {
        let mut why = "no container has a token of the ServiceAccount".to_owned();
        if !warnings.is_empty() {
            why = warnings.join("; ");
        }
        return Err(format!("there is no container to lead to informerd: {why}"));
    }
    if let Some(map) = target.filter(|_| needs_volume) {
        let taken =
            edit.at("/spec/volumes").as_array().into_iter().flatten().any(|volume| volume["name"] == SHARED_ACCOUNT);
        if taken {
            return Err(format!("there is a volume {SHARED_ACCOUNT} already"));
        }
        edit.append("/spec/volumes", account_volume(map));
    }
    Ok(volume_of_account)
}

/// `target`: the ConfigMap that the source has if another container was led before.
fn account(pod: &Value, container: &Value, target: Option<&str>) -> Account {
    let mounts = container["volumeMounts"].as_array().into_iter().flatten();
    let at_path = |mount: &Value| mount["mountPath"].as_str().is_some_and(|path| path.trim_end_matches('/') == ACCOUNT);
    let Some((mount, found)) = mounts.enumerate().find(|(_, mount)| at_path(mount)) else { return Account::None };
    let is_ca = |source: &Value| {
        let name = source["configMap"]["name"].as_str();
        name.is_some_and(|name| name == CLUSTER_CA || target == Some(name))
    };
    let mut volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let source = volumes.position(|volume| volume["name"] == found["name"]).and_then(|volume| {
        let mut sources = pod["spec"]["volumes"][volume]["projected"]["sources"].as_array()?.iter();
        Some((volume, sources.position(is_ca)?))
    });
    match source {
        Some((volume, source)) if found["subPath"].is_null() && found["subPathExpr"].is_null() => {
            Account::Kubelet { mount, volume, source }
        }
        _ => Account::Other,
    }
}

/// The variables by which programs find the apiserver.
fn variables(mode: Mode, injector: &Injector) -> Vec<Value> {
    let config = &injector.config;
    match mode {
        Mode::Sidecar => injector.sidecar.client_env.clone(),
        Mode::Tier => vec![
            json!({"name": HOST, "value": config.tier.0}),
            json!({"name": PORT, "value": config.tier.1.to_string()}),
        ],
        Mode::NodeAgent => vec![
            json!({"name": HOST, "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}),
            json!({"name": PORT, "value": config.node_port.to_string()}),
        ],
    }
}

/// What the kubelet mounts by itself, but for the ConfigMap with the CAs.
fn account_volume(config_map: &str) -> Value {
    json!({"name": SHARED_ACCOUNT, "projected": {"sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {"configMap": {"name": config_map, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]}})
}
