//! A pod that the apiserver has changed because the injector said so, which it has found by its Service: what came out is run, and
//! programs in three languages read through it.

use serde_json::{Value, json};

use super::pod::{Pod, Process};
use super::sidecar::{stands_alone, until};
use super::{EXAMPLE as NAMESPACE, PROBES, image, objects, programs};
use crate::cluster::Cluster;
use crate::injector_process::{asked, create, pod};
use crate::support::client::Client;
use crate::support::relay::Relay;

/// Of the injector. All addresses of the network 10.0.0.0/8 are this machine's own here.
const POD_IP: &str = "10.0.2.9";

pub(super) async fn serves_unmodified_programs() {
    let cluster = Cluster::start().await;
    objects::apply(&cluster, "injector").await;
    let _injector = injector(&cluster).await;
    // The example without its workload: what a namespace has before it gets the label.
    objects::apply(&cluster, "sidecar").await;
    cluster.kubectl_ok(["delete", "deployment", "app", "--namespace", NAMESPACE]).await;
    let ca = format!("--from-file=ca.crt={}", cluster.info.ca.display());
    cluster.kubectl_ok(["create", "configmap", "kube-root-ca.crt", "--namespace", NAMESPACE, &ca]).await;
    cluster.kubectl_ok(["label", "namespace", NAMESPACE, "informerd.io/inject=sidecar"]).await;
    let plain = pod("app-0", &json!({"app": "app"}), &Value::Null);
    asked(&cluster, NAMESPACE, &plain).await;
    create(&cluster, NAMESPACE, &plain, false).await;

    let pod = Pod::created(&cluster, NAMESPACE, "app-0").await;
    assert_eq!(pod.names(), ["informerd", "app"], "it is started first");
    let mut sidecar = pod.container("informerd").start_in(&image::binary().await).await;
    until(&mut sidecar, &Client::new(PROBES), "/readyz", 200).await;
    stands_alone(&sidecar);
    programs::see_pods_come(&cluster, &pod, "app", NAMESPACE, PROBES, true).await;
    assert!(sidecar.signal("TERM").await.success(), "{}", sidecar.log());
}

/// By its manifest, but for the address on which it listens, and the ports beside it: the sidecar has the same.
async fn injector(cluster: &Cluster) -> (Pod, Process, Relay) {
    let pod = Pod::of(cluster, "deployment", "informerd-injector", "informerd").await;
    let mut container = pod.container("informerd");
    for (name, value) in [
        ("INFORMERD_INJECT_LISTEN", format!("{POD_IP}:8443")),
        ("INFORMERD_PROBES", format!("{POD_IP}:9003")),
        ("INFORMERD_ADMIN", "127.0.0.1:9002".to_owned()),
    ] {
        container.env.insert(name.to_owned(), value);
    }
    let mut injector = container.start_in(&image::binary().await).await;
    until(&mut injector, &Client::new(&format!("http://{POD_IP}:9003")), "/readyz", 200).await;
    stands_alone(&injector);
    (pod, injector, service(cluster).await)
}

/// What kube-proxy makes of the injector's Service for the apiserver: whoever connects to the address that the cluster has given
/// it, on the port that the webhook names, reaches the port of the container that the Service names.
async fn service(cluster: &Cluster) -> Relay {
    let of = |kind, name| async move { objects::get(cluster, &[kind, name, "--namespace=informerd-injector"]).await };
    let webhook = of("mutatingwebhookconfiguration", "informerd-injector").await;
    let service = of("service", "informerd").await;
    let template = of("deployment", "informerd").await["spec"]["template"].clone();
    for webhook in webhook["webhooks"].as_array().unwrap() {
        let named = &webhook["clientConfig"]["service"];
        assert_eq!((&named["name"], &named["namespace"]), (&json!("informerd"), &json!("informerd-injector")));
    }
    for (label, value) in service["spec"]["selector"].as_object().unwrap() {
        assert_eq!(&template["metadata"]["labels"][label], value, "the Service selects other pods");
    }
    let wanted = &webhook["webhooks"][0]["clientConfig"]["service"]["port"];
    let named = |ports: &Value, key: &str, value: &Value| {
        let found = ports.as_array().unwrap().iter().find(|port| port[key] == *value).cloned();
        found.unwrap_or_else(|| panic!("no port whose {key} is {value}: {ports}"))
    };
    let port = named(&service["spec"]["ports"], "port", wanted);
    let target = match &port["targetPort"] {
        number @ Value::Number(_) => number.clone(),
        name => named(&template["spec"]["containers"][0]["ports"], "name", name)["containerPort"].clone(),
    };
    let address = service["spec"]["clusterIP"].as_str().unwrap();
    let pod = format!("{POD_IP}:{target}").parse().unwrap();
    Relay::at(&format!("{address}:{wanted}"), pod).await
}
