//! The CA of the injector is rotated, and the apiserver goes on asking its replicas.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use serde_json::Value;

use crate::cluster::Cluster;
use crate::injector_process::{Injector, asked, bundles, create, install, lead, mode, pod};
use crate::support::until;

/// A CA signs for 48 s, the next is known for 8 s before, and a certificate lasts for 8 s.
const LIFETIMES: &[&str] = &["--tls-ca-lifetime", "48s"];
/// Of bundles: with the first CA, with the next one, and after that has begun to sign.
const STEPS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_trusted_while_the_ca_is_rotated() {
    let cluster = Cluster::start().await;
    let kubeconfig = install(&cluster).await;
    // At the same moment: both find the Secret empty.
    let replicas = [Injector::start(&kubeconfig, LIFETIMES), Injector::start(&kubeconfig, LIFETIMES)];
    lead(&cluster, replicas[0].port, &["sidecar"]).await;
    lead(&cluster, replicas[1].port, &["pod"]).await;
    for (namespace, label) in [("one", "informerd.io/inject=sidecar"), ("two", "a=b")] {
        cluster.kubectl_ok(["create", "namespace", namespace]).await;
        cluster.kubectl_ok(["label", "namespace", namespace, label]).await;
    }
    let by_label = pod("b", &serde_json::json!({"informerd.io/inject": "sidecar"}), &Value::Null);
    let plain = pod("a", &Value::Null, &Value::Null);
    for (namespace, pod) in [("one", &plain), ("two", &by_label)] {
        asked(&cluster, namespace, pod).await;
    }
    let mut bundles = Vec::new();
    until("the CA is rotated", async || {
        let bundle = bundle(&cluster).await;
        if bundles.last() != Some(&bundle) {
            bundles.push(bundle);
        }
        for (namespace, pod) in [("one", &plain), ("two", &by_label)] {
            let (changed, _) = create(&cluster, namespace, pod, true).await;
            assert_eq!(mode(&changed), Some("sidecar"), "{namespace} after {} bundles", bundles.len());
        }
        bundles.len() > STEPS
    })
    .await;
}

/// All webhooks have the same.
async fn bundle(cluster: &Cluster) -> String {
    let mut all = bundles(cluster).await;
    assert!(all.len() == 5 && all.iter().all(|bundle| *bundle == all[0] && !bundle.is_empty()), "{all:?}");
    all.remove(0)
}
