//! Snapshots of a past that the apiserver does not have: it is compacted, undone, or of another cluster.

use super::life::{JSON, Kept, Life, PINNED, direct, sent};
use crate::backup::Backup;
use crate::cluster::Cluster;
use crate::support::client::{Client, names, rv};
use crate::support::tied::copy;
use crate::support::until;
use http::Method;
use serde_json::json;

const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";

async fn create(direct: &Client, name: &str) {
    let object = json!({"metadata": {"name": name, "namespace": "default"}, "data": {"text": "new"}});
    direct.write(Method::POST, COLLECTION, &object).await;
}

async fn create_many(direct: &Client, name: &str, count: usize) {
    let names: Vec<_> = (0..count).map(|n| format!("{name}-{n}")).collect();
    futures_util::future::join_all(names.iter().map(|name| create(direct, name))).await;
}

/// Whether a daemon serves an object to a client that takes any state.
async fn serves(life: &Life, name: &str) -> bool {
    let list = life.own(&format!("{COLLECTION}?resourceVersion=0"), JSON).await.json();
    names(&list).contains(&name)
}

/// A daemon that keeps its snapshots here, once it is ready.
async fn begun(cluster: &Cluster, kept: &Kept, more: &str) -> Life {
    Life::ready(cluster, &format!("{}{more}", kept.yaml(PINNED))).await
}

async fn delete(direct: &Client, name: &str) {
    direct.write(Method::DELETE, &format!("{COLLECTION}/{name}"), &json!({})).await;
}

async fn assert_equal(life: &Life, direct: &Client) {
    assert_eq!(life.sent(COLLECTION).await, sent(&direct.get(COLLECTION).await));
}

/// The apiserver no longer has the revision of the snapshot.
async fn compacted(cluster: &Cluster, kept: &Kept, old: u64) -> Life {
    let before = direct(cluster);
    create(&before, "late").await;
    delete(&before, "early").await;
    cluster.compact().await;
    cluster.restart_apiserver().await;
    let direct = direct(cluster);
    let life = begun(cluster, kept, "").await;
    assert!(!serves(&life, "early").await);
    assert_equal(&life, &direct).await;
    assert_eq!((life.snapshots().await, life.listed("configmaps").await), ((1, 0), true));
    // Neither can tell what has happened since.
    for client in [&direct, &life.client] {
        let mut watch = client.watch(&format!("{COLLECTION}?watch=1&resourceVersion={old}")).await;
        let event = watch.next().await.unwrap().unwrap();
        assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    }
    life
}

/// etcd is restored from a backup that is older than the snapshot. First its revisions are behind the snapshot's, and then
/// they have passed them.
async fn set_back(cluster: &Cluster, kept: &Kept, life: Life) {
    let before = direct(cluster);
    kept.written(1).await;
    let backup = Backup::of(cluster);
    // More writes than a kube-apiserver does when it starts.
    create_many(&before, "undone", 60).await;
    let files = kept.files();
    delete(&before, "late").await;
    let list = life.own(COLLECTION, JSON).await;
    assert!(sent(&list).contains("undone-1") && !sent(&list).contains("\"late\""));
    let seen = rv(&list.json());
    kept.appended(&files).await;
    life.kill().await;
    let again = Kept::new();
    copy(&kept.path(), &again.path());

    cluster.stop_apiserver().await;
    let mut etcd = backup.restore().await;
    cluster.start_apiserver().await;
    let direct = direct(cluster);
    let life = begun(cluster, kept, "").await;
    assert!(serves(&life, "late").await && !serves(&life, "undone-1").await);
    assert_equal(&life, &direct).await;
    assert_eq!(life.snapshots().await, (1, 0));
    assert!(cluster.revision().await < i64::try_from(seen).unwrap(), "the store is behind the snapshot");
    life.kill().await;

    create_many(&direct, "new", 120).await;
    assert!(cluster.revision().await > i64::try_from(seen).unwrap(), "the store has passed the snapshot");
    let life = begun(cluster, &again, "storeCheck: 1s\n").await;
    until("the restored state is served", async || {
        let ours = life.client.get(&format!("{COLLECTION}?resourceVersion=0")).await;
        ours.status == 200 && sent(&ours) == sent(&direct.get(COLLECTION).await)
    })
    .await;
    assert_equal(&life, &direct).await;
    life.kill().await;
    etcd.kill().await.unwrap();
}

/// The directory has snapshots of one cluster, and the daemon is of another.
async fn of_another(cluster: &Cluster, kept: &Kept) {
    let direct = direct(cluster);
    create(&direct, "of-this-cluster").await;
    let theirs = kept.files();
    let life = begun(cluster, kept, "").await;
    assert!(!serves(&life, "kept").await);
    assert_equal(&life, &direct).await;
    assert_eq!((life.snapshots().await, life.listed("configmaps").await), ((0, 0), true));
    kept.written(2).await;
    life.kill().await;

    // Not even under the name of this cluster's own snapshot.
    let ours = kept.files().into_keys().find(|name| !theirs.contains_key(name)).unwrap();
    let theirs = theirs.into_keys().next().unwrap();
    std::fs::copy(kept.path().join(theirs), kept.path().join(ours)).unwrap();
    let life = begun(cluster, kept, "").await;
    assert!(!serves(&life, "kept").await);
    assert_equal(&life, &direct).await;
    assert_eq!((life.snapshots().await, life.listed("configmaps").await), ((0, 1), true));
    life.kill().await;
}

pub(super) async fn is_compacted_then_set_back_then_of_another_cluster() {
    let (one, other) = tokio::join!(Cluster::start(), Cluster::start());
    let direct = direct(&one);
    create(&direct, "early").await;
    create(&direct, "kept").await;
    let kept = Kept::new();
    let first = begun(&one, &kept, "").await;
    let old = rv(&first.own(COLLECTION, JSON).await.json());
    kept.written(1).await;
    first.kill().await;
    let copied = Kept::new();
    copy(&kept.path(), &copied.path());
    let same = async {
        let life = compacted(&one, &kept, old).await;
        set_back(&one, &kept, life).await;
    };
    tokio::join!(same, of_another(&other, &copied));
}
