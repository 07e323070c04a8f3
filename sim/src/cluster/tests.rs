//! Tests that the cluster is live: it repairs itself, follows a user's changes and keeps its write rate.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::types::ObjectKey;

fn config() -> DemoConfig {
    DemoConfig { nodes: 3, pods: 40, namespaces: 2, churn: 0.0, ..Default::default() }
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "not within 60 s: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn ready_endpoints(store: &Store, deployment: &ObjectKey) -> usize {
    let slice = ObjectKey::new(deployment.namespace(), &format!("{}-slice", deployment.name()));
    let slice = store.objects("endpointslices").get(&slice).map(|slice| slice.value()).unwrap_or_default();
    let endpoints = slice["endpoints"].as_array().map_or(&[][..], Vec::as_slice);
    endpoints.iter().filter(|endpoint| endpoint["conditions"]["ready"] == true).count()
}

#[tokio::test]
async fn the_same_seed_gives_the_same_cluster() {
    let (one, two) = (Cluster::start(config()).await.unwrap(), Cluster::start(config()).await.unwrap());
    for resource in ["pods", "nodes", "deployments", "endpointslices", "widgets"] {
        let keys = one.server().state(resource);
        assert!(!keys.is_empty(), "{resource}");
        assert_eq!(keys.keys().collect::<Vec<_>>(), two.server().state(resource).keys().collect::<Vec<_>>());
    }
    assert_eq!(one.server().state("pods").len(), 40);
    let other = Cluster::start(DemoConfig { seed: 2, ..config() }).await.unwrap();
    assert_ne!(one.server().state("pods"), other.server().state("pods"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_pods_are_replaced_and_endpoints_follow() {
    let cluster = Cluster::start(config()).await.unwrap();
    let store = cluster.server().store().clone();
    let (key, deployment) =
        store.objects("deployments").iter().next().map(|(key, of)| (key.clone(), of.value())).unwrap();
    let replicas = deployment["spec"]["replicas"].as_u64().unwrap() as usize;
    assert_eq!(ready_endpoints(&store, &key), replicas);
    store
        .modify("deployments", &key, |deployment| {
            deployment["spec"]["replicas"] = json!(replicas + 2);
            Ok(())
        })
        .unwrap();
    until("scaled up", || ready_endpoints(&store, &key) == replicas + 2).await;
    let prefix = format!("{}-", key.as_str());
    let mine = || store.state("pods").into_keys().filter(|pod| pod.starts_with(&prefix)).collect::<Vec<_>>();
    let before = mine();
    let (namespace, name) = before[0].split_once('/').unwrap();
    let pods = store.find("", "v1", "pods").unwrap();
    store.request_delete(&pods, &ObjectKey::new(namespace, name), None).unwrap();
    assert!(mine().contains(&before[0]), "a graceful deletion only marks the pod");
    until("replaced", || {
        let now = mine();
        now.len() == replicas + 2 && !now.contains(&before[0]) && ready_endpoints(&store, &key) == replicas + 2
    })
    .await;
    store
        .modify("deployments", &key, |deployment| {
            deployment["spec"]["template"]["spec"]["containers"][0]["image"] = json!("registry.demo/new:9");
            Ok(())
        })
        .unwrap();
    let before = mine();
    until("rolled", || {
        let now = mine();
        now.len() == replicas + 2
            && now.iter().all(|pod| !before.contains(pod))
            && ready_endpoints(&store, &key) == replicas + 2
    })
    .await;
    store.delete("deployments", &key).unwrap();
    until("collected", || mine().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn survives_a_storm() {
    let cluster = Cluster::start(DemoConfig { pods: 20, churn: 10_000.0, ..config() }).await.unwrap();
    let store = cluster.server().store();
    let odd = |version: &str, kind: &str, spec: serde_json::Value| {
        store.create(json!({"apiVersion": version, "kind": kind, "metadata": {"name": "odd"}, "spec": spec}))
    };
    odd("apps/v1", "Deployment", json!({"template": "x"})).unwrap();
    assert_eq!(odd("v1", "Pod", json!(1)).unwrap_err().code, 400);
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(cluster.is_alive());
    }
    let keys = store.objects("deployments").keys().cloned().collect::<Vec<_>>();
    assert!(keys.len() > 1 && store.revision() > 2_000);
}
