//! What one user costs the apiserver is bounded, and nobody takes of the share of another.

use std::time::Duration;

use http_body_util::BodyExt;
use informerd::grpc::pb::v1;
use tokio::time::sleep;

use crate::access::faulty::Faulty;
use crate::access::rights::{account, binding, role, rule};
use crate::access::typed::{PERMISSION_DENIED, begun, named, selection, send, watch};
use crate::access::world::World;
use crate::support::{eventually, until, within};

const RESOURCE_EXHAUSTED: &str = "8";

fn many(letter: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{letter}{n}")).collect()
}

/// 64 namespaces, and 16 names in each.
fn large() -> v1::WatchRequest {
    let filter = |namespace| v1::Filter { namespace, names: many("x", 16), ..Default::default() };
    let filters = many("n", 64).into_iter().map(filter).collect();
    let selection = v1::Selection { filters, ..selection(&[]).unwrap() };
    v1::WatchRequest { selection: Some(selection), ..Default::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_user_costs() {
    let (world, faulty) = World::faulty("", |config| config.auth.max_user_rights = 4).await;
    world.warm(&["/api/v1/configmaps", "/api/v1/pods"]).await;
    let held = || world.daemon.daemon.access.metrics().rights_held.get();
    few_questions_for_many_names(&world, &faulty).await;
    eventually("no stream is open", || held() == 0).await;
    open_streams_of_one_user(&world).await;
}

async fn few_questions_for_many_names(world: &World, faulty: &Faulty) {
    let listed = many("x", 16);
    let names: Vec<_> = listed.iter().map(String::as_str).collect();
    let rules = [rule(&["configmaps"], &names, &["list", "watch"])];
    let given = binding("", "listed", ("ClusterRole", "listed"), &[account("a", "nothing")]);
    world.cluster.apply(&(role("", "listed", &rules) + &given)).await;
    let by = async |account: &str| world.through(Some(&world.token(account, &[]).await));
    let (wide, nothing, space) = (by("wide").await, by("nothing").await, by("space").await);

    // Whoever may watch all of them is asked about once, also when rights change.
    let before = faulty.seen().1;
    let mut stream = send(&wide, "Watch", &large()).await.into_body();
    assert!(within("the call begins", stream.frame()).await.unwrap().unwrap().is_data(), "it began");
    let opened = faulty.seen().1 - before;
    world.cluster.apply(&role("", "other", &rules)).await;
    sleep(Duration::from_secs(2)).await;
    let asked = faulty.seen().1 - before;
    assert!(asked < 64, "{opened}, then {asked}");

    // Whoever may watch only the names would have to be asked about for each of them.
    let named_one = v1::WatchRequest { selection: named(&["n1", "n2"], &["x1", "x2"]), ..Default::default() };
    until("the names are allowed", async || begun(&nothing, "Watch", &named_one).await == "0").await;
    let before = faulty.seen().1;
    assert_eq!(begun(&nothing, "Watch", &large()).await, RESOURCE_EXHAUSTED);
    let asked = faulty.seen().1 - before;
    assert!(asked <= 300, "{asked}");
    // The refusal names what was asked for, and whoever is refused costs little.
    let before = faulty.seen().1;
    let refused = send(&space, "Watch", &large()).await;
    assert_eq!(refused.headers()["grpc-status"], PERMISSION_DENIED);
    let told = refused.headers()["grpc-message"].to_str().unwrap();
    assert!(told.contains("n0") && told.contains("x0"), "{told}");
    assert!(faulty.seen().1 - before < 10);
    assert_eq!(begun(&space, "Watch", &watch(&["a"])).await, "0", "its share is its own");
}

async fn open_streams_of_one_user(world: &World) {
    let token = world.token("wide", &[]).await;
    let (wide, other) = (world.through(Some(&token)), world.through(Some("reader-token")));
    let target = |namespace: &str| format!("/api/v1/namespaces/{namespace}/configmaps?watch=1&resourceVersion=0");
    // Refused, and so not counted.
    let nobody = world.through(Some("nobody-token"));
    for namespace in ["a", "b", "c", "d", "e"] {
        assert_eq!(nobody.get(&target(namespace)).await.status, 403);
    }
    let overflows = || world.daemon.daemon.access.metrics().user_overflows.get();
    let before = overflows();
    let mut open = Vec::new();
    for namespace in ["a", "b", "c", "d", "a"] {
        let watch = wide.watch(&target(namespace)).await;
        assert_eq!(watch.status, 200, "{namespace}: the same right twice is one");
        open.push(watch);
    }
    let beyond = wide.get(&target("e")).await;
    assert_eq!(beyond.status, 429, "{}", beyond.text());
    assert_eq!(beyond.json()["reason"], "TooManyRequests");
    assert!(beyond.headers.contains_key("retry-after"));
    assert_eq!(begun(&wide, "Watch", &watch(&["e"])).await, RESOURCE_EXHAUSTED);
    assert_eq!(overflows() - before, 2);
    // What is no stream goes on, and so do others.
    assert_eq!(wide.get("/api/v1/namespaces/e/configmaps?resourceVersion=0").await.status, 200);
    assert_eq!(other.watch(&target("e")).await.status, 200);
    // A stream that ends makes room.
    open.remove(1);
    until("there is room", async || wide.watch(&target("e")).await.status == 200).await;
}
