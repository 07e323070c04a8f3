//! What is not kept: the objects of a cluster that cannot be named, and Secrets without a key.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::life::{Kept, Life, PINNED, contains, direct, sent};
use crate::cluster::Cluster;
use crate::support::client::Client;
use crate::support::{file, until};
use base64::Engine as _;
use http::Method;
use informerd::apiserver::client::ConfigSource;
use serde_json::json;

const CONFIG_MAPS: &str = "/api/v1/namespaces/read/configmaps";

const CONFIG_MAPS_ONLY: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: read}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: one, namespace: read}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: config-maps}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: config-maps}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: config-maps}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: reader}
"#;

/// The uid of `kube-system` names the cluster. Who may not get it cannot tell one cluster from another.
pub(super) async fn without_the_namespace_kube_system_nothing_is_kept(cluster: &Cluster) {
    cluster.apply(CONFIG_MAPS_ONLY).await;
    let reader = Client::tls(&cluster.info.server, &cluster.info.ca, "reader-token");
    until("the role counts", async || reader.get(CONFIG_MAPS).await.status == 200).await;
    assert_eq!(reader.get("/api/v1/namespaces/kube-system").await.status, 403);
    let (kept, neighbour) = (Kept::new(), Kept::new());
    for _ in 0..2 {
        let source = ConfigSource::kubeconfig(&cluster.info.kubeconfigs.reader);
        let life = Life::of(source, &kept.yaml(PINNED)).await;
        life.through.ready().await;
        assert_eq!(life.sent(CONFIG_MAPS).await, sent(&reader.get(CONFIG_MAPS).await));
        assert_eq!((life.snapshots().await, life.listed("configmaps").await), ((0, 0), true));
        if neighbour.files().is_empty() {
            // One who may get it, and began later, has a snapshot by now.
            let other = Life::ready(cluster, &neighbour.yaml(PINNED)).await;
            neighbour.written(1).await;
            other.kill().await;
        }
        assert_eq!(life.count("informerd_snapshots_written_bytes_total", &[]).await, 0);
        assert_eq!(life.count("informerd_snapshots_failed_total", &[]).await, 0);
        let files = fs::read_dir(kept.path()).into_iter().flatten().count();
        assert_eq!(files, 0);
        life.kill().await;
    }
}

const KEPT: &str = "[{resource: secrets, pin: true}, {resource: configmaps, pin: true}]";
const SECRET: &str = "the-name-of-a-secret";
const CONFIG_MAP: &str = "the-name-of-a-config-map";
const SHOWN: &str = "a value that anybody may read";

/// A configuration that encrypts the snapshots.
fn sealed_with(kept: &Kept, key: &Path) -> String {
    kept.yaml(KEPT).replace("snapshots: {", &format!("snapshots: {{key: {}, ", key.display()))
}

fn assert_hidden(kept: &Kept, texts: &[&str]) {
    let readable = kept.readable();
    for text in texts {
        assert!(!contains(&readable, text), "{text}");
    }
}

fn assert_only_for_this_user(kept: &Kept) {
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&kept.path()), 0o700);
    for name in kept.files().keys() {
        assert_eq!(mode(&kept.path().join(name)), 0o600, "{name}");
    }
}

pub(super) async fn secrets_are_kept_only_with_a_key(cluster: &Cluster) {
    cluster.namespace("sealed").await;
    let (secrets, config_maps) = ("/api/v1/namespaces/sealed/secrets", "/api/v1/namespaces/sealed/configmaps");
    let direct = direct(cluster);
    let value = base64::engine::general_purpose::STANDARD.encode("of this, nothing may be read on the disk");
    let secret = json!({"metadata": {"name": SECRET}, "data": {"password": value}});
    direct.write(Method::POST, secrets, &secret).await;
    let shown = json!({"metadata": {"name": CONFIG_MAP}, "data": {"text": SHOWN}});
    direct.write(Method::POST, config_maps, &shown).await;
    let keys = tempfile::tempdir().unwrap();
    let key = |name: &str, digits: &str| file(keys.path(), name, digits.repeat(4));
    let (first, second) = (key("first", "0123456789abcdef"), key("second", "fedcba9876543210"));

    let (plain, sealed) = (Kept::new(), Kept::new());
    let open = Life::ready(cluster, &plain.yaml(KEPT)).await;
    let closed = Life::ready(cluster, &sealed_with(&sealed, &first)).await;
    assert_eq!(open.sent(secrets).await, sent(&direct.get(secrets).await));
    let before = plain.written(1).await;
    sealed.written(2).await;
    // An event is written later than the states of what was synced before.
    let another = json!({"metadata": {"name": "another"}, "data": {"text": SHOWN}});
    direct.write(Method::POST, config_maps, &another).await;
    plain.appended(&before).await;
    assert_only_for_this_user(&plain);
    assert_only_for_this_user(&sealed);
    open.kill().await;
    closed.kill().await;
    let names: Vec<_> = plain.files().into_keys().collect();
    assert!(names.len() == 1 && names[0].contains("configmaps"), "{names:?}");
    let readable = plain.readable();
    assert!(contains(&readable, CONFIG_MAP) && contains(&readable, SHOWN));
    assert_hidden(&plain, &[SECRET, &value]);
    assert_hidden(&sealed, &[SECRET, &value, CONFIG_MAP, SHOWN]);

    // The right key, a wrong one, and none.
    for (key, snapshots, listed) in [(Some(&first), (2, 0), false), (Some(&second), (0, 2), true), (None, (0, 1), true)]
    {
        let yaml = key.map_or_else(|| sealed.yaml(KEPT), |key| sealed_with(&sealed, key));
        let life = Life::ready(cluster, &yaml).await;
        assert_eq!(life.snapshots().await, snapshots, "{key:?}");
        for (resource, path) in [("secrets", secrets), ("configmaps", config_maps)] {
            assert_eq!(life.sent(path).await, sent(&direct.get(path).await), "{key:?}");
            assert_eq!(life.listed(resource).await, listed, "{key:?} {resource}");
        }
        life.kill().await;
    }
    assert_hidden(&sealed, &[SECRET, &value]);
}
