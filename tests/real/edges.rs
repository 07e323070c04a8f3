//! Odd requests to a real kube-apiserver and through informerd: who looks at the answers cannot tell the two apart.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::cluster::Cluster;
use crate::support::client::Client;
use crate::world::{World, assert_alike};
use http::Method;
use tokio::time::Instant;

const OBJECTS: &str = r#"
{apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: a}}
---
{apiVersion: v1, kind: Pod, metadata: {name: one, namespace: a}, spec: {containers: [{name: main, image: image}]}}
"#;

async fn world() -> World {
    let cluster = Cluster::start().await;
    cluster.namespace("a").await;
    cluster.apply(OBJECTS).await;
    let world = World::before(cluster, "").await;
    for collection in ["/api/v1/pods", "/api/v1/configmaps"] {
        world.settle(collection).await;
    }
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_of_the_future_is_waited_for_and_refused() {
    let world = world().await;
    let future = world.settle("/api/v1/configmaps").await + 100_000;
    // How much longer it takes is the machine's mood.
    for (path, least) in [
        (format!("/api/v1/configmaps?resourceVersion={future}"), 2.5),
        (format!("/api/v1/configmaps?resourceVersion={future}&resourceVersionMatch=Exact"), 2.5),
        (format!("/api/v1/configmaps?resourceVersion={future}&limit=1"), 2.5),
        (format!("/api/v1/namespaces/a/configmaps/one?resourceVersion={future}"), 2.5),
        (format!("/api/v1/events?resourceVersion={future}"), 0.0),
        (
            format!(
                "/api/v1/configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={future}"
            ),
            2.5,
        ),
    ] {
        let started = Instant::now();
        let answer = world.through.get(&path).await;
        let took = started.elapsed().as_secs_f64();
        assert!(answer.text().contains("Too large resource version"), "{path}: {} {}", answer.status, answer.text());
        assert!(took >= least, "{path}: {took} s");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_may_ask_for_more_time_than_there_is() {
    let world = world().await;
    for seconds in [i64::MAX, i64::MAX / 1_000_000_000 + 1, i64::MIN] {
        let path = format!("/api/v1/pods?watch=1&resourceVersion=0&timeoutSeconds={seconds}");
        for client in [&world.direct, &world.through] {
            // How much of it comes before the time, which has overflowed, is over is a race of the apiserver's own.
            assert_eq!(client.watch(&path).await.status, 200, "{path}");
        }
    }
    let longest = i64::MAX / 1_000_000_000;
    let mut watch =
        world.through.watch(&format!("/api/v1/pods?watch=1&resourceVersion=0&timeoutSeconds={longest}")).await;
    assert!(watch.next_line().await.unwrap().unwrap().contains("ADDED"));
}

#[tokio::test(flavor = "multi_thread")]
async fn large_heads_are_taken_and_too_large_ones_refused() {
    let world = world().await;
    let path = "/api/v1/namespaces/a/configmaps/one?resourceVersion=0";
    let many: Vec<(&str, &str)> = (0..1500).map(|_| ("x-group", "some-group")).collect();
    // Whoever impersonates is asked about by the apiserver itself.
    let mut groups: Vec<(&str, &str)> = (0..1500).map(|_| ("impersonate-group", "some-group")).collect();
    groups.push(("impersonate-user", "nobody"));
    let long = "x".repeat(900 << 10);
    let direct = Client::tls_http1(&world.cluster.info.server, &world.cluster.info.ca);
    for (headers, status) in [(many, 200), (groups, 403), (vec![("x-long", long.as_str())], 200)] {
        let mut known = headers.clone();
        known.push(("authorization", "Bearer admin-token"));
        let direct = direct.request(Method::GET, path, &known, "").await;
        assert_eq!(direct.status, status, "{}", direct.text());
        let through = world.through.request(Method::GET, path, &headers, "").await;
        assert_alike("a large head", &direct, &through);
    }
    let long = "x".repeat(3 << 20);
    let headers = [("x-long", long.as_str()), ("authorization", "Bearer admin-token")];
    for client in [&direct, &world.through] {
        assert_eq!(client.request(Method::GET, path, &headers, "").await.status, 431);
    }
}
