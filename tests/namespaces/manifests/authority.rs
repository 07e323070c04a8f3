//! The CA that the replicas of the tier share, with the rights of their manifest and nothing more.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use informerd::apiserver::client::ConfigSource;
use informerd::config::Config;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::objects;
use crate::cluster::Cluster;
use crate::support::client::Client;
use crate::support::{Through, read};

const NAMESPACE: &str = "informerd-tier";
const CLIENTS: &str = "informerd-client";

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_a_ca_and_rotate_it_under_their_clients() {
    let (cluster, account) = tier().await;
    // At the same moment: both find the Secret empty.
    let (one, two) = tokio::join!(replica(&account, shorten), replica(&account, shorten));
    let replicas = [one, two];
    for replica in &replicas {
        replica.ready().await;
    }
    let first = published(&cluster, CLIENTS).await;
    assert_eq!(first, published(&cluster, NAMESPACE).await);
    assert_eq!(
        certificates(&first).len(),
        1 + certificates(&cluster_ca(&cluster)).len(),
        "the cluster's and ours, once"
    );
    assert!(certificates(&first).is_superset(&certificates(&cluster_ca(&cluster))));

    // A program that reads the bundle anew only now and then, as the kubelet brings it: always late, never locked out.
    let token = cluster.token(CLIENTS, "client").await;
    let file = cluster.dir().join("trusted.crt");
    let mut bundles = vec![first.clone()];
    let mut read = first.clone();
    let mut requests = 0;
    let ours = |bundle: &str| &certificates(bundle) - &certificates(&cluster_ca(&cluster));
    while ours(&read).intersection(&ours(&first)).next().is_some() {
        std::fs::write(&file, &read).unwrap();
        for replica in &replicas {
            // A connection of its own, so a handshake of its own.
            let client = Client::tls(&replica.url, &file, &token);
            let answer = client.get(&format!("/api/v1/namespaces/{CLIENTS}/pods?resourceVersion=0")).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            requests += 1;
        }
        read = published(&cluster, CLIENTS).await;
        if bundles.last() != Some(&read) {
            bundles.push(read.clone());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(requests > 10 && bundles.len() >= 3, "{requests} requests, {} bundles", bundles.len());
    // Each came before it was needed: no two that follow each other have nothing in common.
    for pair in bundles.windows(2) {
        assert!(!ours(&pair[0]).is_disjoint(&ours(&pair[1])), "{pair:#?}");
    }
    // The Secret is one CA for both, and what is not theirs they may not touch.
    let secret = objects::get(&cluster, &["secret", "informerd-ca", "--namespace", NAMESPACE]).await;
    assert_eq!(secret["data"].as_object().unwrap().keys().collect::<Vec<_>>(), ["authority.json"]);
    let who = format!("system:serviceaccount:{NAMESPACE}:informerd");
    for what in [
        ["get", "secrets/other", "--namespace", NAMESPACE],
        ["list", "secrets", "--namespace", NAMESPACE],
        ["delete", "secrets/informerd-ca", "--namespace", NAMESPACE],
        ["create", "secrets", "--namespace", NAMESPACE],
        ["get", "secrets/informerd-ca", "--namespace", CLIENTS],
        ["update", "configmaps/other", "--namespace", CLIENTS],
    ] {
        let answer = cluster.kubectl(cluster.admin(), [&["auth", "can-i", "--as", &who], &what[..]].concat()).await;
        assert_eq!(String::from_utf8_lossy(&answer.stdout).trim(), "no", "{what:?}");
    }
}

/// The recipe of docs/operations.md, done as it stands there; what a rollout does to pods is done by hand.
#[tokio::test(flavor = "multi_thread")]
async fn a_ca_that_is_given_up_is_replaced_at_once() {
    let page = read("docs/operations.md");
    let recipe = page.split_once("<!-- rotation: done by tests/manifests -->\n```sh\n").expect("a recipe").1;
    let recipe: Vec<_> = recipe.split_once("\n```").unwrap().0.lines().collect();
    assert_eq!(recipe.len(), 2, "{recipe:?}");
    let (cluster, account) = tier().await;
    let replicas = [replica(&account, |_| {}).await, replica(&account, |_| {}).await];
    for replica in &replicas {
        replica.ready().await;
    }
    let token = cluster.token(CLIENTS, "client").await;
    let (old, new) = (cluster.dir().join("old.crt"), cluster.dir().join("new.crt"));
    let path = format!("/api/v1/namespaces/{CLIENTS}/pods?resourceVersion=0");
    let before = published(&cluster, CLIENTS).await;
    std::fs::write(&old, &before).unwrap();
    assert_eq!(Client::tls(&replicas[0].url, &old, &token).get(&path).await.status, 200);

    let generation = |deployment: serde_json::Value| deployment["metadata"]["generation"].as_u64().unwrap();
    let deployment = ["deployment", "informerd", "--namespace", NAMESPACE];
    let first = generation(objects::get(&cluster, &deployment).await);
    for line in recipe {
        objects::shell(&cluster, line).await;
    }
    assert!(generation(objects::get(&cluster, &deployment).await) > first, "the pods are replaced");
    let ours = |bundle: &str| &certificates(bundle) - &certificates(&cluster_ca(&cluster));
    // One comes before one goes.
    for gone in replicas {
        let next = replica(&account, |_| {}).await;
        next.ready().await;
        gone.stop(Duration::from_secs(1)).await;
        let after = published(&cluster, CLIENTS).await;
        assert!(ours(&after).len() == 1 && ours(&after).is_disjoint(&ours(&before)), "the old CA is trusted no more");
        std::fs::write(&new, &after).unwrap();
        assert_eq!(Client::tls(&next.url, &new, &token).get(&path).await.status, 200);
        let refused = Client::tls(&next.url, &old, &token).try_get(&path).await;
        assert!(refused.is_err(), "whoever has the old bundle does not trust the new CA");
    }
}

/// The tier and clients of it, and the kubeconfig of its ServiceAccount.
async fn tier() -> (Cluster, PathBuf) {
    let cluster = Cluster::start().await;
    objects::apply(&cluster, "tier").await;
    objects::apply_example(&cluster, "drop-in").await;
    let account = cluster.kubeconfig("informerd", &cluster.token(NAMESPACE, "informerd").await);
    (cluster, account)
}

/// Short enough for several rotations in a test: a CA signs for 36 s, and the next is known for 12 s before.
fn shorten(config: &mut Config) {
    let lifetimes = &mut config.authority.as_mut().unwrap().lifetimes;
    (lifetimes.ca, lifetimes.overlap, lifetimes.leaf) =
        (Duration::from_secs(36), Duration::from_secs(12), Duration::from_secs(24));
}

/// With the settings of the manifest's environment, but for the port.
async fn replica(kubeconfig: &Path, change: fn(&mut Config)) -> Through {
    let yaml = format!(
        "listen: ['delegated+https://127.0.0.1:0']\n\
         resources: [{{resource: pods, pin: true}}, {{resource: '*', exclude: true}}]\n\
         tls: {{caSecret: {NAMESPACE}/informerd-ca, \
         caConfigMaps: ['{NAMESPACE}/informerd-ca', '{CLIENTS}/informerd-ca', 'nowhere/informerd-ca'], \
         names: [informerd.{NAMESPACE}.svc]}}\n"
    );
    Through::changed(ConfigSource::kubeconfig(kubeconfig), &yaml, change).await
}

fn cluster_ca(cluster: &Cluster) -> String {
    std::fs::read_to_string(&cluster.info.ca).unwrap()
}

async fn published(cluster: &Cluster, namespace: &str) -> String {
    let path = "--output=jsonpath={.data.ca\\.crt}";
    cluster.kubectl_ok(["get", "configmap", "informerd-ca", "--namespace", namespace, path]).await
}

fn certificates(bundle: &str) -> BTreeSet<Vec<u8>> {
    CertificateDer::pem_slice_iter(bundle.as_bytes()).map(|certificate| certificate.unwrap().to_vec()).collect()
}
