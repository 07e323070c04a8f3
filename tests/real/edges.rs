//! Odd requests to a real kube-apiserver and through informerd: who looks at the answers cannot tell the two apart.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use crate::cluster::Cluster;
use crate::crontabs::{crontab, definition};
use crate::support::Through;
use crate::support::client::{Answer, Client, rv};
use http::Method;
use informerd::upstream::client::ConfigSource;
use tokio::time::{Instant, timeout};

const FIXTURES: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: a}
"#;

const OBJECTS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: one, namespace: a}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: two, namespace: a}
---
apiVersion: v1
kind: Pod
metadata: {name: one, namespace: a}
spec: {containers: [{name: main, image: image}]}
"#;

const CRON_TABS: &str = "/apis/stable.example.com/v1";

const ACCEPTS: &[&str] = &[
    "",
    "*/*",
    "application/*",
    "application/json",
    "APPLICATION/JSON",
    "application/json, */*",
    "application/xml",
    "application/json;q=0.5,application/yaml;q=0.4",
    "application/json;q=0.4,application/yaml;q=0.5",
    "application/json;q=0",
    "application/yaml;q=0.1,*/*",
    "text/html,application/xhtml+xml,*/*;q=0.8",
    "application/json;charset=utf-8",
    "application/json;pretty=1",
    "application/json;pretty=0",
    "application/json; stream=watch",
    "application/json;stream=watch",
    "application/json;stream=foo",
    "application/json;as=Foo;g=meta.k8s.io;v=v1,application/json",
    "application/json;as=Table;v=v9;g=meta.k8s.io,application/json",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1",
    "application/json;v=v1;g=meta.k8s.io;as=PartialObjectMetadataList;q=0.9,application/json;q=0.8",
    "application/json;v=v1;g=meta.k8s.io;as=PartialObjectMetadata;q=0.7,application/json;q=0.8",
    "application/json;as=PartialObjectMetadataList",
    "application/json;g=meta.k8s.io",
    "application/json;;",
    ",",
    ";",
    "application/json,",
    "json",
    "application/json;as=;g=;v=",
    "application/json;profile=x",
    "application/json;sv=x",
    "application/json;export=1",
    "application/json;foo=bar",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1;foo=bar",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
    "application/json,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
];

struct World {
    cluster: Cluster,
    direct: Client,
    through: Client,
    _daemon: Through,
}

async fn world() -> World {
    let cluster = Cluster::start().await;
    cluster.apply(FIXTURES).await;
    cluster.apply(&definition("{color: {type: string}}")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.apply(OBJECTS).await;
    cluster.apply(&crontab("a", "one", "{color: red}")).await;
    let daemon = Through::start(ConfigSource::kubeconfig(cluster.admin()), "").await;
    daemon.ready().await;
    let direct = Client::tls(&cluster.info.server, &cluster.info.ca, "admin-token");
    let through = Client::new(&daemon.url);
    let world = World { cluster, direct, through, _daemon: daemon };
    for collection in
        ["/api/v1/pods", "/api/v1/configmaps", "/api/v1/namespaces", "/apis/stable.example.com/v1/crontabs"]
    {
        world.settle(collection).await;
    }
    world
}

impl World {
    /// Has the informer of a collection synced at the server's revision; what is read at it is the same on both sides.
    async fn settle(&self, collection: &str) -> u64 {
        let now = rv(&self.direct.json(collection).await);
        let list = self.through.json(&format!("{collection}?resourceVersion={now}")).await;
        assert!(rv(&list) >= now);
        now
    }

    async fn difference(&self, path: &str, headers: &[(&str, &str)]) -> Option<String> {
        let ask = |client: &Client| {
            let (client, path) = (client.clone(), path.to_owned());
            let headers: Vec<(String, String)> =
                headers.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
            async move {
                let headers: Vec<(&str, &str)> = headers.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
                let answer = timeout(Duration::from_secs(9), client.request(Method::GET, &path, &headers, "")).await;
                answer.map_or_else(|_| "still open after 9 s".to_owned(), |answer| said(&answer))
            }
        };
        let (direct, through) = tokio::join!(ask(&self.direct), ask(&self.through));
        (direct != through).then(|| format!("{path} {headers:?}\n  direct:  {direct}\n  through: {through}\n"))
    }
}

fn said(answer: &Answer) -> String {
    let kind = answer.headers.get("content-type").map_or("", |value| value.to_str().unwrap());
    format!("{} {kind} {}", answer.status.as_u16(), answer.text())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_ask_for_a_form_is_understood_alike() {
    let world = world().await;
    let pods = world.settle("/api/v1/pods").await;
    let tabs = world.settle("/apis/stable.example.com/v1/crontabs").await;
    let mut differences = Vec::new();
    for accept in ACCEPTS {
        for path in [
            format!("/api/v1/pods?resourceVersion={pods}&resourceVersionMatch=Exact"),
            format!("/api/v1/namespaces/none/pods?resourceVersion={pods}&resourceVersionMatch=Exact"),
            "/api/v1/namespaces/a/pods/one?resourceVersion=0".to_owned(),
            "/api/v1/namespaces/a/pods/missing?resourceVersion=0".to_owned(),
            "/api/v1/pods?watch=1&resourceVersion=0&timeoutSeconds=1".to_owned(),
            format!("{CRON_TABS}/crontabs?resourceVersion={tabs}&resourceVersionMatch=Exact"),
            format!("{CRON_TABS}/namespaces/a/crontabs/one?resourceVersion=0"),
            format!("{CRON_TABS}/namespaces/a/crontabs/missing?resourceVersion=0"),
        ] {
            differences.extend(world.difference(&path, &[("accept", accept)]).await);
        }
    }
    let two = [("accept", "application/yaml"), ("accept", "application/json")];
    differences.extend(world.difference("/api/v1/namespaces/a/pods/one?resourceVersion=0", &two).await);
    for agent in ["curl/8", "Wget/1", "Mozilla/5.0 x", "Mozilla/4.0", "kubectl/v1"] {
        for query in ["", "&pretty=0", "&pretty=true", "&pretty=", "&pretty=x"] {
            for path in ["/api/v1/namespaces/a/pods/one", "/api/v1/namespaces/a/pods/missing"] {
                let path = format!("{path}?resourceVersion=0{query}");
                differences.extend(world.difference(&path, &[("user-agent", agent)]).await);
            }
        }
    }
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.concat());
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
        assert_eq!(said(&through), said(&direct));
    }
    let long = "x".repeat(3 << 20);
    let headers = [("x-long", long.as_str()), ("authorization", "Bearer admin-token")];
    for client in [&direct, &world.through] {
        assert_eq!(client.request(Method::GET, path, &headers, "").await.status, 431);
    }
}
