//! A real kube-apiserver takes what the chart renders, and helm installs, upgrades and uninstalls it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::helm::{Helm, RELEASE};
use super::values;
use crate::cluster::Cluster;
use crate::support::{file, read};

/// Definitions of other projects' objects, as loose as can be.
const FOREIGN: &str = include_str!("../../data/foreign-definitions.yaml");

#[tokio::test(flavor = "multi_thread")]
async fn the_apiserver_takes_every_value() {
    let (helm, cluster) = (Helm::new(), Cluster::start().await);
    cluster.apply(FOREIGN).await;
    // With the pod security that the manifests say, and its warnings.
    for directory in
        ["overlays/tier", "overlays/node-agent", "overlays/sidecar", "overlays/injector", "examples/drop-in"]
    {
        let path = format!("{}/manifests/{directory}/namespace.yaml", super::helm::ROOT);
        cluster.kubectl_ok(["apply", "--filename", &path]).await;
    }
    // Components are equal to those of the overlays, which tests/namespaces/manifests applies.
    for (file, chart) in values::FILES {
        let namespace = match *file {
            "cert-manager" => "informerd-tier",
            "sidecar" => "informerd-example",
            mode => &format!("informerd-{mode}"),
        };
        let text = helm.text(chart, namespace, &["--values", &values::file(file)]);
        accepted(&cluster, file, namespace, &text).await;
    }
    comes_and_goes(&helm, &cluster).await;
}

/// Strictly, and without a warning.
async fn accepted(cluster: &Cluster, what: &str, namespace: &str, text: &str) {
    let path = file(cluster.dir(), "rendered.yaml", text).display().to_string();
    let apply = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename", &path];
    // A chart with a dependency leaves it to helm in which namespace its own objects are.
    let namespace: &[_] = if what == "sidecar" { &["--namespace", namespace] } else { &[] };
    let output = cluster.kubectl(cluster.admin(), [&apply[..], namespace].concat()).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{what}: {errors}");
    let objects = super::objects::parsed(text).len();
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), objects, "{what}");
}

/// Nothing that informerd has written is lost by an upgrade, and nothing stays behind.
async fn comes_and_goes(helm: &Helm, cluster: &Cluster) {
    let (chart, namespace) = (helm.chart("informerd"), "informerd-tier");
    let kubeconfig = cluster.admin().display().to_string();
    let of_release = ["--namespace", namespace, "--kubeconfig", &kubeconfig];
    // As the documentation says it.
    let page = read("docs/tasks/tier.md");
    let install = page.lines().find_map(|line| line.strip_prefix("helm ")).expect("the page installs the chart");
    let install: Vec<_> = install.split(' ').chain(["--kubeconfig", &kubeconfig]).collect();
    let notes = helm.succeeds(&install);
    assert!(notes.contains("kubectl -n informerd-tier rollout status deployment/informerd"), "{notes}");
    let rendered = helm.objects("informerd", namespace, &[]);
    let kinds: BTreeSet<_> = rendered.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    let kinds = kinds.into_iter().collect::<Vec<_>>().join(",");
    let there = ["get", &kinds, "--all-namespaces", "--selector=app.kubernetes.io/managed-by=Helm", "--output=name"];
    assert_eq!(cluster.kubectl_ok(there).await.lines().count(), rendered.len());
    for (object, key) in [("secret", "ca.key"), ("configmap", "ca.crt")] {
        let patch = format!("{{\"data\": {{\"{key}\": \"YQ==\"}}}}");
        let patched = ["patch", object, "informerd-ca", "--namespace", namespace, "--type=merge", "--patch", &patch];
        cluster.kubectl_ok(patched).await;
    }
    let before = pod(cluster, namespace).await;
    let changed = ["--set", "config.window.maxBytes=64Mi"];
    helm.succeeds(&[&["upgrade", RELEASE, &chart], &of_release[..], &changed[..]].concat());
    for (object, key) in [("secret", "ca.key"), ("configmap", "ca.crt")] {
        let data = ["get", object, "informerd-ca", "--namespace", namespace, "--output=jsonpath={.data}"];
        let data: Value = serde_json::from_str(&cluster.kubectl_ok(data).await).unwrap();
        assert_eq!(data[key], "YQ==", "{object}");
    }
    let after = pod(cluster, namespace).await;
    assert_ne!(before["metadata"]["annotations"], after["metadata"]["annotations"], "pods keep the old configuration");
    assert_eq!(before["spec"], after["spec"]);
    helm.succeeds(&[&["uninstall", RELEASE], &of_release[..]].concat());
    assert_eq!(cluster.kubectl_ok(there).await, "");
}

async fn pod(cluster: &Cluster, namespace: &str) -> Value {
    let template = ["get", "deployment", RELEASE, "--namespace", namespace, "--output=jsonpath={.spec.template}"];
    serde_json::from_str(&cluster.kubectl_ok(template).await).unwrap()
}
