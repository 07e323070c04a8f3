//! The injector before a real kube-apiserver, which asks it about pods.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::injector_process::{Injector, asked, bundles, create, install, lead, mode, pod};
use crate::process;
use crate::support::binary::informerd;
use crate::support::client::Client;
use crate::support::metrics::only;
use crate::support::{file, read};

const ALL: &[&str] = &["sidecar", "node-agent", "tier", "pod", "unknown"];

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_changed_where_a_label_says_so() {
    let cluster = Cluster::start().await;
    let kubeconfig = install(&cluster).await;
    let injector = Injector::start(&kubeconfig, &[]);
    lead(&cluster, injector.port, ALL).await;
    for (namespace, label) in [
        ("sidecars", "sidecar"),
        ("tiers", "tier"),
        ("agents", "node-agent"),
        ("off", "disabled"),
        ("mistaken", "sidcar"),
        ("plain", ""),
        ("informerd-tier", "sidecar"),
    ] {
        let mut labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        if !label.is_empty() {
            labels["informerd.io/inject"] = label.into();
        }
        namespaced(&cluster, namespace, labels).await;
    }
    cluster.kubectl_ok(["label", "namespace", "kube-system", "informerd.io/inject=sidecar"]).await;
    let none = Value::Null;
    asked(&cluster, "sidecars", &pod("asked", &none, &none)).await;

    let plain = pod("a", &none, &none);
    let (sidecar, warnings) = create(&cluster, "sidecars", &plain, false).await;
    assert_eq!((mode(&sidecar), &*warnings), (Some("sidecar"), ""));
    let ours = &sidecar["spec"]["initContainers"][0];
    assert_eq!((&ours["name"], &ours["restartPolicy"]), (&json!("informerd"), &json!("Always")));
    let deployment = ["get", "deployment", "informerd", "--namespace=informerd-injector", "--output=json"];
    let deployment: Value = serde_json::from_str(&cluster.kubectl_ok(deployment).await).unwrap();
    assert_eq!(ours["image"], deployment["spec"]["template"]["spec"]["containers"][0]["image"]);
    assert_eq!(
        sidecar["spec"]["containers"][0]["env"][0],
        json!({"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"})
    );

    // What needs a ConfigMap gets none of it before it is there.
    for (namespace, map, wanted) in [("tiers", "informerd-ca", "tier"), ("agents", "informerd-node-ca", "node-agent")] {
        let (pod, warnings) = create(&cluster, namespace, &plain, true).await;
        let why = format!("there is no ConfigMap {map} with ca.crt in the namespace");
        assert!(mode(&pod).is_none() && warnings.contains(&why), "{warnings}");
        let made = ["create", "configmap", map, "--namespace", namespace, "--from-literal=ca.crt=x"];
        cluster.kubectl_ok(made).await;
        let (pod, warnings) = create(&cluster, namespace, &plain, false).await;
        assert_eq!((mode(&pod), &*warnings), (Some(wanted), ""));
        let sources = &pod["spec"]["volumes"][0]["projected"]["sources"];
        assert_eq!(sources[1]["configMap"]["name"], map, "{sources}");
    }

    // The label of a pod, an opt-out, a mistake, and namespaces that are never touched.
    for (namespace, label, wanted, words) in [
        ("plain", "", None, ""),
        ("plain", "sidecar", Some("sidecar"), ""),
        ("plain", "disabled", None, ""),
        ("plain", "yes", None, "the label informerd.io/inject is \"yes\""),
        ("sidecars", "disabled", None, ""),
        ("tiers", "sidecar", Some("sidecar"), ""),
        ("off", "", None, ""),
        ("off", "sidecar", None, ""),
        ("mistaken", "", None, "of the namespace mistaken is no mode"),
        ("mistaken", "sidecar", Some("sidecar"), ""),
        ("kube-system", "sidecar", None, ""),
        ("informerd-tier", "sidecar", None, ""),
    ] {
        let labels = if label.is_empty() { Value::Null } else { json!({"informerd.io/inject": label}) };
        let (pod, warnings) = create(&cluster, namespace, &pod("b", &labels, &none), true).await;
        assert_eq!(mode(&pod), wanted, "{namespace} {label}: {warnings}");
        let as_expected = if words.is_empty() { warnings.is_empty() } else { warnings.contains(words) };
        assert!(as_expected, "{namespace} {label}: {warnings}");
    }
    let wrong = json!({"informerd.io/sidecar-config": "probes: 0.0.0.0:8003\nresorces: []\n"});
    let (unchanged, warnings) = create(&cluster, "sidecars", &pod("c", &none, &wrong), true).await;
    assert!(mode(&unchanged).is_none() && warnings.contains("did you mean resources?"), "{warnings}");

    // Trying leaves nothing behind; a change of a pod is none of our business.
    let names = cluster.kubectl_ok(["get", "pods", "--namespace=plain", "--output=name"]).await;
    assert_eq!(names, "");
    cluster.kubectl_ok(["label", "pod", "a", "--namespace=sidecars", "x=y"]).await;
    is_closed(&injector, &cluster).await;
    counts(&injector).await;

    // Without it, pods are made as they are.
    injector.stop().await;
    let (open, warnings) = create(&cluster, "sidecars", &pod("open", &none, &none), false).await;
    assert!(mode(&open).is_none() && open["spec"]["initContainers"].is_null(), "{warnings}");
}

async fn namespaced(cluster: &Cluster, name: &str, labels: Value) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    cluster.apply(&namespace.to_string()).await;
}

/// Only what the apiserver asks is answered, and the code refuses what the configuration would let through.
async fn is_closed(injector: &Injector, cluster: &Cluster) {
    let bundle = STANDARD.decode(&bundles(cluster).await[0]).unwrap();
    let ca = file(cluster.dir(), "injector.crt", bundle);
    let client = Client::tls_anonymous(&format!("https://localhost:{}", injector.port), &ca);
    for (method, path, status) in [
        (Method::GET, "/inject/tier", 405),
        (Method::POST, "/inject/tier", 400),
        (Method::POST, "/inject/disabled", 404),
        (Method::POST, "/inject/", 404),
        (Method::POST, "/api/v1/pods", 404),
        (Method::GET, "/metrics", 404),
    ] {
        assert_eq!(client.request(method.clone(), path, &[], "{}").await.status, status, "{method} {path}");
    }
    let large = " ".repeat((2 << 20) + 1);
    assert_eq!(client.request(Method::POST, "/inject", &[], &large).await.status, 413);
    let review = |namespace: &str, mode: &str| {
        let object = pod("a", &json!({"informerd.io/inject": mode}), &Value::Null);
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "one", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE",
            "namespace": namespace, "object": object}})
        .to_string()
    };
    for (namespace, mode, words) in [
        ("kube-system", "sidecar", "never changed"),
        ("informerd-injector", "tier", "never changed"),
        ("../../../version?", "tier", "no valid name"),
    ] {
        let answer = client.request(Method::POST, "/inject", &[], &review(namespace, mode)).await.json();
        let response = &answer["response"];
        assert_eq!((&response["uid"], &response["allowed"]), (&json!("one"), &json!(true)));
        assert!(response["patch"].is_null(), "{response}");
        assert!(response["warnings"][0].as_str().unwrap().contains(words), "{response}");
    }
}

async fn counts(injector: &Injector) {
    let text = Client::new(&injector.admin).metrics().await;
    assert!(text.contains("# TYPE informerd_injector_reviews counter"), "{text}");
    let help = text.lines().find_map(|line| line.strip_prefix("# HELP informerd_injector_reviews ")).unwrap();
    let page = read("docs/metrics.md");
    let row =
        format!("| `informerd_injector_reviews_total` | counter | mode, result | {} |", help.trim_end_matches('.'));
    assert!(page.lines().any(|line| line == row), "{row}");
    for (labels, least) in [
        (r#"{mode="sidecar",result="injected"}"#, 3.0),
        (r#"{mode="tier",result="injected"}"#, 1.0),
        (r#"{mode="tier",result="refused"}"#, 2.0),
        (r#"{mode="none",result="refused"}"#, 2.0),
        (r#"{mode="none",result="invalid"}"#, 7.0),
    ] {
        let count = only(&text, "informerd_injector_reviews_total", &[labels]);
        assert!(count >= least, "{labels}: {count} of {least}\n{text}");
    }
}

/// `kubectl informerd inject`, and the apiserver takes what it prints.
#[tokio::test(flavor = "multi_thread")]
async fn manifests_are_changed_and_accepted() {
    let cluster = Cluster::start().await;
    namespaced(&cluster, "apps", json!({"pod-security.kubernetes.io/enforce": "restricted"})).await;
    let template = pod("x", &json!({"app": "a"}), &Value::Null);
    let mut template = json!({"metadata": {"labels": {"app": "a"}}, "spec": template["spec"]});
    // As people write it: without what the apiserver adds.
    template["spec"]["volumes"] = Value::Null;
    template["spec"]["containers"][0]["volumeMounts"] = Value::Null;
    let selector = json!({"matchLabels": {"app": "a"}});
    let job = {
        let mut job = template.clone();
        job["spec"]["restartPolicy"] = "Never".into();
        job
    };
    let object = |kind: &str, version: &str, spec: Value| {
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": kind.to_lowercase(), "namespace": "apps"}, "spec": spec}).to_string()
    };
    let all = [
        object("Pod", "v1", template["spec"].clone()),
        object("Deployment", "apps/v1", json!({"selector": selector, "template": template})),
        object("StatefulSet", "apps/v1", json!({"selector": selector, "serviceName": "a", "template": template})),
        object("DaemonSet", "apps/v1", json!({"selector": selector, "template": template})),
        object("ReplicaSet", "apps/v1", json!({"selector": selector, "template": template})),
        object("Job", "batch/v1", json!({"template": job})),
        object("CronJob", "batch/v1", json!({"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": job}}})),
    ];
    for mode in ["sidecar", "node-agent", "tier"] {
        // Block style, of kubectl's own.
        let mut text = String::new();
        for object in &all {
            text.push_str("---\n");
            text.push_str(&serde_saphyr::to_string(&serde_json::from_str::<Value>(object).unwrap()).unwrap());
        }
        let changed = injected(mode, &text).await;
        assert_eq!(changed.matches(&format!("informerd.io/injected: {mode}")).count(), all.len(), "{changed}");
        assert_eq!(injected(mode, &changed).await, changed);
        let path = file(cluster.dir(), &format!("{mode}.yaml"), &changed).display().to_string();
        let apply = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename", &path];
        let output = cluster.kubectl(cluster.admin(), apply).await;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{mode}: {errors}\n{changed}");
    }
}

async fn injected(mode: &str, text: &str) -> String {
    let mut command = informerd(&format!("inject --mode {mode}"));
    command.env_clear();
    process::stdout("informerd inject", process::run(command, text).await)
}
