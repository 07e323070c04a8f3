//! Tokens that are bound to a pod of one node.

use http::Method;

use crate::access::streams::{WATCH, error};
use crate::access::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pod_ends_the_tokens_bound_to_it() {
    let world = World::start("authentication: {node: node-x}\n").await;
    world.settled().await;
    let pod = |name: &str, node: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: a}}\nspec: {{serviceAccountName: wide, nodeName: {node}, containers: [{{name: main, image: image}}]}}\n"
        )
    };
    world.cluster.apply(&(pod("here", "node-x") + &pod("there", "node-y"))).await;
    let here = world.token("wide", &["--bound-object-kind", "Pod", "--bound-object-name", "here"]).await;
    let there = world.token("wide", &["--bound-object-kind", "Pod", "--bound-object-name", "there"]).await;
    let free = world.token("wide", &[]).await;
    let collection = "/api/v1/configmaps";
    // A token of another node, or of none, is worth nothing here, neither for what is served nor for what is forwarded.
    for foreign in [there.as_str(), free.as_str(), "admin-token"] {
        let client = world.through(Some(foreign));
        for target in ["/api/v1/configmaps?resourceVersion=0", "/api/v1/configmaps", "/version", "/apis"] {
            assert_eq!(client.get(target).await.status, 401, "{target}");
        }
        assert_eq!(client.request(Method::POST, collection, &[], "{}").await.status, 401);
    }
    let through = world.through(Some(&here));
    assert_eq!(through.get("/version").await.status, 200);
    let mut watch = through.watch(&format!("{collection}?{WATCH}")).await;
    while watch.next().await.unwrap().unwrap()["type"] != "BOOKMARK" {}
    world.delete("/api/v1/namespaces/a/pods/here?gracePeriodSeconds=0").await;
    let status = error(&mut watch).await;
    assert_eq!(status["code"], 401, "{status}");
    assert_eq!(through.get(&format!("{collection}?resourceVersion=0")).await.status, 401);
}
