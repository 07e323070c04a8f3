//! `informerd injector` as a process, with the rights and the webhook of its manifests.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of a test")]

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::process::patience::{until, within};
use super::process::tied;
use super::support::binary::informerd;
use super::support::ports::Port;

const NAMESPACE: &str = "informerd-injector";

/// A process that answers the apiserver.
pub(crate) struct Injector {
    child: tokio::process::Child,
    pub port: u16,
    /// `http://ADDRESS:PORT` of its admin side.
    pub admin: String,
    _ports: [Port; 2],
}

/// Applies the overlay, and returns a kubeconfig with the identity of its ServiceAccount.
pub(crate) async fn install(cluster: &Cluster) -> PathBuf {
    let overlay = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/overlays/injector");
    cluster.kubectl_ok(["apply", "--server-side", "--kustomize", overlay]).await;
    let token = cluster.kubectl_ok(["create", "token", "informerd", "--namespace", NAMESPACE]).await;
    cluster.kubeconfig("injector", token.trim())
}

/// Leads the webhooks of these names to this process: there is no network of Services here.
pub(crate) async fn lead(cluster: &Cluster, injector: u16, names: &[&str]) {
    let get = ["get", "mutatingwebhookconfiguration", "informerd-injector", "--output=json"];
    let configuration: Value = serde_json::from_str(&cluster.kubectl_ok(get).await).expect("JSON");
    let mut patch = Vec::new();
    for (index, webhook) in configuration["webhooks"].as_array().expect("webhooks").iter().enumerate() {
        let name = webhook["name"].as_str().and_then(|name| name.strip_suffix(".inject.informerd.io")).expect("a name");
        if names.contains(&name) {
            let path = webhook["clientConfig"]["service"]["path"].as_str().expect("a path");
            let at = format!("/webhooks/{index}/clientConfig");
            patch.push(json!({"op": "remove", "path": format!("{at}/service")}));
            let url = format!("https://localhost:{injector}{path}");
            patch.push(json!({"op": "add", "path": format!("{at}/url"), "value": url}));
        }
    }
    assert_eq!(patch.len(), 2 * names.len(), "{names:?}");
    let patch = Value::Array(patch).to_string();
    let name = ["mutatingwebhookconfiguration", "informerd-injector"];
    cluster.kubectl_ok([&["patch"], &name[..], &["--type=json", "--patch", &patch]].concat()).await;
}

/// Until the apiserver has taken up the configuration, and the injector is ready: this pod is changed.
pub(crate) async fn asked(cluster: &Cluster, namespace: &str, pod: &Value) {
    until("pods are changed", async || mode(&create(cluster, namespace, pod, true).await.0).is_some()).await;
}

/// The certificates that the apiserver trusts in the injector, of each webhook.
pub(crate) async fn bundles(cluster: &Cluster) -> Vec<String> {
    let path = "--output=jsonpath={.webhooks[*].clientConfig.caBundle}";
    let text = cluster.kubectl_ok(["get", "mutatingwebhookconfiguration", "informerd-injector", path]).await;
    text.split(' ').map(str::to_owned).collect()
}

/// A pod as the plugin `ServiceAccount` of the apiserver makes it, which the judge does not run: nobody makes accounts there.
/// It is as restricted as can be.
pub(crate) fn pod(name: &str, labels: &Value, annotations: &Value) -> Value {
    let security = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true,
        "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}});
    let mount = json!({"name": "kube-api-access-x2v9k", "readOnly": true,
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels, "annotations": annotations}, "spec": {
        "serviceAccountName": "app",
        "containers": [{"name": "app", "image": "registry.k8s.io/kubectl:v1.36.3", "securityContext": security,
            "volumeMounts": [mount], "resources": {"limits": {"memory": "64Mi"}}}],
        "volumes": [{"name": "kube-api-access-x2v9k", "projected": {"sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        ]}}],
    }})
}

/// Creates a pod, or tries to. Returns what the apiserver has made of it, and its warnings.
pub(crate) async fn create(cluster: &Cluster, namespace: &str, pod: &Value, dry_run: bool) -> (Value, String) {
    let path = cluster.dir().join(format!("{namespace}-{}.json", pod["metadata"]["name"].as_str().expect("a name")));
    std::fs::write(&path, pod.to_string()).expect("written");
    let mut args = vec!["create", "--namespace", namespace, "--output=json", "--filename"];
    let path = path.display().to_string();
    args.push(&path);
    if dry_run {
        args.push("--dry-run=server");
    }
    let output = cluster.kubectl(cluster.admin(), args).await;
    let warnings = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{warnings}");
    (serde_json::from_slice(&output.stdout).expect("JSON"), warnings)
}

/// The mode of a pod that was changed.
pub(crate) fn mode(pod: &Value) -> Option<&str> {
    pod["metadata"]["annotations"]["informerd.io/injected"].as_str()
}

// === impl Injector ===

impl Injector {
    pub(crate) fn start(kubeconfig: &std::path::Path, flags: &[&str]) -> Self {
        let ports = [Port::free(), Port::free()];
        let [listen, admin] = ports.each_ref().map(|port| port.address);
        let child = informerd("injector --log-level warn --tls-names localhost --kubeconfig")
            .arg(kubeconfig)
            .args(["--tls-ca-secret", "informerd-injector/informerd-ca"])
            .args(["--inject-deployment", "informerd-injector/informerd"])
            .args(["--inject-listen", &listen.to_string(), "--admin", &admin.to_string()])
            .args(flags)
            .stdin(Stdio::null())
            .spawn()
            .expect("the binary runs");
        Self { child, port: listen.port(), admin: format!("http://{admin}"), _ports: ports }
    }

    /// Ends it in order, as the kubelet does.
    pub(crate) async fn stop(mut self) {
        tied::signal(self.child.id().expect("it runs"), "TERM");
        within("the injector has ended", self.child.wait()).await.expect("it is ours");
    }
}
