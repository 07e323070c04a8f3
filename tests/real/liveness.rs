//! Connections to the apiserver that go away because it says so. `recovery` has those that go away silently.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::cluster::Cluster;
use crate::support::client::rv;
use crate::world::World;
use http::Method;
use serde_json::json;

/// A kube-apiserver told to (`--goaway-chance`) sends its clients away now and then, so that they spread over all
/// apiservers: nothing that is under way may fail of it, writes included, and no watch may lose an event.
#[tokio::test(flavor = "multi_thread")]
async fn an_apiserver_that_sends_its_clients_away_is_not_noticed() {
    let cluster = Cluster::start_with(&["--apiserver-flag=goaway-chance=0.02"]).await;
    let World { cluster: _cluster, daemon, through: client, .. } = World::before(cluster, "").await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let now = rv(&client.json(maps).await);
    let mut watch = client.watch(&format!("{maps}?watch=1&resourceVersion={now}&timeoutSeconds=300")).await;
    let connects = &daemon.daemon.upstream.metrics().connects;
    let before = connects.get();
    let mut written = Vec::new();
    let mut round = 0;
    // Until it has happened often enough; a chance of one in fifty, and of sixteen requests each.
    while round < 20 || connects.get() < before + 5 {
        assert!(round < 500, "{} connections in {round} rounds", connects.get());
        let names: Vec<_> = (0..8).map(|n| format!("m-{round}-{n}")).collect();
        let writes = names.iter().map(|name| {
            let client = &client;
            async move {
                let created = client.write(Method::POST, maps, &json!({"metadata": {"name": name}})).await;
                let read = client.get(&format!("{maps}/{name}")).await;
                assert_eq!(read.status, 200, "{}", read.text());
                rv(&created)
            }
        });
        written.extend(futures_util::future::join_all(writes).await);
        round += 1;
    }
    written.sort_unstable();
    for want in written {
        let event = watch.next().await.unwrap().expect("the watch goes on");
        assert_eq!((event["type"].as_str(), rv(&event["object"])), (Some("ADDED"), want));
    }
}
