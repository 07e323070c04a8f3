//! Authorizers besides RBAC decide by what no role says: what they say is not taken for true for long.

use std::time::Duration;

use tokio::time::sleep;

use crate::access::certificates::Authority;
use crate::access::streams::error;
use crate::access::world::World;
use crate::support::{until, within};

const GOING: &str = "/api/v1/namespaces/a/configmaps/one?resourceVersion=0";
const COMING: &str = "/api/v1/namespaces/a/configmaps/two?resourceVersion=0";

fn pod(name: &str, uses: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: a}}\nspec: {{nodeName: node-n, containers: [{{name: main, image: image, envFrom: [{{configMapRef: {{name: {uses}}}}}]}}]}}\n"
    )
}

/// The Node authorizer lets a node read what its pods use, as long as they do.
pub(super) async fn a_nodes_rights_come_and_go_with_its_pods() {
    let authority = Authority::new("nodes");
    // Longer than this test waits for anything: what RBAC allows is not what ends here.
    let yaml = "authorization: {allowTtl: 1h}\nconsistentReads: cache\n";
    let yaml = format!("authentication: {{clientCa: {}}}\n{yaml}", authority.bundle.display());
    let world = World::warmed(&yaml, &["/api/v1/configmaps"]).await;
    let node = world.certified(&authority.issue("system:node:node-n", &["system:nodes"]), None);
    world.cluster.apply(&pod("going", "one")).await;
    world.allowed(&node, GOING).await;
    let watch = "/api/v1/namespaces/a/configmaps?watch=1&resourceVersion=0&fieldSelector=metadata.name%3Done";
    let mut watch = node.watch(watch).await;
    assert_eq!(watch.status, 200);
    // What is decided in the first seconds of a daemon is asked for again anyway.
    sleep(Duration::from_secs(5)).await;
    assert_eq!(node.get(GOING).await.status, 200);
    assert_eq!(node.get(COMING).await.status, 403);

    world.cluster.apply(&pod("coming", "two")).await;
    world.delete("/api/v1/namespaces/a/pods/going?gracePeriodSeconds=0").await;
    let until = async |target, status: u16| {
        until(target, async || node.get(target).await.status == status).await;
    };
    let ended = within("the watch ends", error(&mut watch));
    let ((), (), ended) = tokio::join!(until(GOING, 403), until(COMING, 200), ended);
    assert_eq!(ended["code"], 403);
}
