//! An etcd that is restored from a backup under a kube-apiserver that goes on. Its own cache does not notice: it lists and
//! watches what its store does not hold any more, until it is restarted. So do we, and say so.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::backup::Backup;
use crate::cluster::Cluster;
use crate::daemon::fixtures::config_map;
use crate::support::client::{Client, names};
use crate::support::{eventually, until};
use crate::world::{JSON, World, admin};
use http::Method;
use informerd::apiserver::RequestVerb;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_set_back_under_its_apiserver() {
    let cluster = Cluster::start().await;
    let direct = admin(&cluster);
    let create = async |name: &str| {
        direct.request(Method::POST, CONFIG_MAPS, &[JSON], config_map("default", name).to_string()).await.status
    };
    assert_eq!(create("kept").await, 201);
    let backup = Backup::of(&cluster);
    for n in 0..5 {
        assert_eq!(create(&format!("undone-{n}")).await, 201);
    }
    let World { cluster, daemon, through, .. } = World::before(cluster, "storeCheck: 1s\n").await;
    let got = |client: &Client| {
        let client = client.clone();
        async move { client.get(&format!("{CONFIG_MAPS}/undone-1")).await.status.as_u16() }
    };
    assert!(names(&through.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await).contains(&"undone-1"));
    // The second comparison reads an object of the time before by itself.
    let compared = || daemon.daemon.upstream.metrics().total(RequestVerb::Get, Some("configmaps")) > 0;
    eventually("an object is compared", compared).await;
    assert_eq!(got(&through).await, 200);

    let mut etcd = backup.restore().await;
    until("the apiserver reads the restored store", async || got(&direct).await == 404).await;
    until("a get says what the store does", async || got(&through).await == 404).await;
    // More writes than were undone: the store's revision is past ours, too.
    for n in 0..40 {
        until("the apiserver writes", async || matches!(create(&format!("new-{n}")).await.as_u16(), 201 | 409)).await;
    }
    cluster.restart_apiserver().await;
    let direct = admin(&cluster);
    until("lists are the store's", async || {
        let theirs = direct.get(CONFIG_MAPS).await;
        let ours = through.get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
        let whole = theirs.status == 200 && ours.status == 200;
        whole && theirs.json()["items"] == ours.json()["items"] && !names(&ours.json()).contains(&"undone-1")
    })
    .await;
    etcd.kill().await.unwrap();
}
