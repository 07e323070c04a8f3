//! A pod that the apiserver has changed because the injector said so: what came out is run, and programs in three languages read
//! through it.

use std::time::Duration;

use serde_json::{Value, json};

use super::pod::{Pod, Process};
use super::sidecar::{stands_alone, until};
use super::{image, objects, programs};
use crate::cluster::Cluster;
use crate::injector_process::{create, lead, mode, pod};
use crate::support::client::Client;

const NAMESPACE: &str = "informerd-example";
const PROBES: &str = "http://127.0.0.1:8003";

pub(super) async fn serves_unmodified_programs() {
    let cluster = Cluster::start().await;
    objects::apply(&cluster, "injector").await;
    let injector = injector(&cluster).await;
    // The example without its workload: what a namespace has before it gets the label.
    objects::apply(&cluster, "sidecar").await;
    cluster.kubectl_ok(["delete", "deployment", "app", "--namespace", NAMESPACE]).await;
    let ca = format!("--from-file=ca.crt={}", cluster.info.ca.display());
    cluster.kubectl_ok(["create", "configmap", "kube-root-ca.crt", "--namespace", NAMESPACE, &ca]).await;
    cluster.kubectl_ok(["label", "namespace", NAMESPACE, "informerd.io/inject=sidecar"]).await;
    let plain = pod("app-0", &json!({"app": "app"}), &Value::Null);
    let bound = tokio::time::Instant::now() + Duration::from_secs(60);
    while mode(&create(&cluster, NAMESPACE, &plain, true).await.0).is_none() {
        assert!(tokio::time::Instant::now() < bound, "no pod is changed\n{}", injector.1.log());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    create(&cluster, NAMESPACE, &plain, false).await;

    let pod = Pod::created(&cluster, NAMESPACE, "app-0").await;
    assert_eq!(pod.names(), ["informerd", "app"], "it is started first");
    let mut sidecar = pod.container("informerd").start_in(&image::binary().await).await;
    until(&mut sidecar, &Client::new(PROBES), "/readyz", 200).await;
    stands_alone(&sidecar);
    programs::see_pods_come(&cluster, &pod, "app", NAMESPACE, PROBES, true).await;
    assert!(sidecar.signal("TERM").await.success(), "{}", sidecar.log());
}

/// By its manifest, but for the ports, which the sidecar has here, and the name by which the apiserver finds it.
async fn injector(cluster: &Cluster) -> (Pod, Process) {
    let pod = Pod::of(cluster, "deployment", "informerd-injector", "informerd").await;
    let mut container = pod.container("informerd");
    let names = format!("{},localhost", container.env["INFORMERD_TLS_NAMES"]);
    for (name, value) in [
        ("INFORMERD_TLS_NAMES", &*names),
        ("INFORMERD_INJECT_LISTEN", "127.0.0.1:9443"),
        ("INFORMERD_PROBES", "127.0.0.1:9003"),
        ("INFORMERD_ADMIN", "127.0.0.1:9002"),
    ] {
        container.env.insert(name.to_owned(), value.to_owned());
    }
    let mut injector = container.start_in(&image::binary().await).await;
    until(&mut injector, &Client::new("http://127.0.0.1:9003"), "/readyz", 200).await;
    stands_alone(&injector);
    lead(cluster, 9443, &["sidecar"]).await;
    (pod, injector)
}
