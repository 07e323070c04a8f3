//! Tokens that are bound to a pod of one node. What was reviewed is remembered for an hour: only watches tell of their end.

use std::time::Duration;

use http::Method;
use informerd::config::Config;

use crate::access::streams::{WATCH, error};
use crate::access::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pod_or_account_ends_the_tokens_bound_to_it() {
    // Longer than a configuration may say.
    let change = |config: &mut Config| config.auth.token_ttl = Duration::from_secs(3600);
    let world = World::start_changed("authentication: {node: node-x}\n", change).await;
    world.settled().await;
    let pod = |name: &str, account: &str, node: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: a}}\nspec: {{serviceAccountName: {account}, nodeName: {node}, containers: [{{name: main, image: image}}]}}\n"
        )
    };
    let here = pod("here", "wide", "node-x") + &pod("also-here", "space", "node-x");
    world.cluster.apply(&(here + &pod("there", "wide", "node-y"))).await;
    let bound = async |account: &str, pod: &str| {
        world.token(account, &["--bound-object-kind", "Pod", "--bound-object-name", pod]).await
    };
    let there = bound("wide", "there").await;
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
    for (account, pod, collection, goes) in [
        ("wide", "here", collection, "pods/here?gracePeriodSeconds=0"),
        ("space", "also-here", "/api/v1/namespaces/a/configmaps", "serviceaccounts/space"),
    ] {
        let through = world.through(Some(&bound(account, pod).await));
        assert_eq!(through.get("/version").await.status, 200);
        let mut watch = through.watch(&format!("{collection}?{WATCH}")).await;
        while watch.next().await.unwrap().unwrap()["type"] != "BOOKMARK" {}
        world.delete(&format!("/api/v1/namespaces/a/{goes}")).await;
        let status = error(&mut watch).await;
        assert_eq!(status["code"], 401, "{status}");
        assert_eq!(through.get(&format!("{collection}?resourceVersion=0")).await.status, 401);
    }
}
