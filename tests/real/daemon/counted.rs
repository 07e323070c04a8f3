//! What metrics say is so: for sharing, for how far caches and watches are behind, and for the window.

use std::time::Duration;

use http::Method;
use informerd_sim::Server;

use super::fixtures::{CONFIG_MAPS, config_map, pod};
use crate::grpc::fixtures::{all, client as client_of, list, list_of};
use crate::support::client::Client;
use crate::support::metrics::{only, sum};
use crate::support::{Through, eventually, until};

/// The number of the one series that has all these labels.
async fn number(through: &Through, name: &str, labels: &[&str]) -> f64 {
    only(&through.admin().metrics().await, name, labels)
}

/// Upstream's requests with the verbs that reads from caches are paid with.
async fn own(through: &Through, resource: &str) -> f64 {
    let text = through.admin().metrics().await;
    let resource = format!("resource=\"{resource}\"");
    let verbs = ["verb=\"list\"", "verb=\"watch\"", "verb=\"watchlist\"", "verb=\"probe\""];
    verbs.iter().map(|verb| sum(&text, "informerd_upstream_requests_total", &[&resource, verb])).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_saved_are_told_by_resource() {
    let deployment =
        serde_json::json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "a", "name": "d"}});
    let objects = [config_map("a", "one"), pod("a", "p", "n"), deployment];
    let (server, through, client) = Through::simulated(objects, "idleTimeout: 1s\n").await;
    for _ in 0..5 {
        assert_eq!(client.get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await.status, 200);
        assert_eq!(client.get("/api/v1/namespaces/a/configmaps/one?resourceVersion=0").await.status, 200);
    }
    for path in [
        "/apis/apps/v1/deployments?resourceVersion=0",
        "/apis/apps/v1/deployments?watch=1&resourceVersion=0&timeoutSeconds=1",
    ] {
        assert_eq!(client.get(path).await.status, 200);
    }
    // A cache answers for a missing object, too. What is forwarded saves nothing, nor does a write.
    assert_eq!(client.get("/api/v1/namespaces/a/configmaps/none?resourceVersion=0").await.status, 404);
    assert_eq!(client.get("/api/v1/namespaces/a/configmaps/one?export=1").await.status, 200);
    assert_eq!(client.request(Method::DELETE, "/api/v1/namespaces/a/pods/p", &[], "").await.status, 200);
    // Typed reads count as well.
    list(&mut client_of(&through).await, list_of(all("configmaps"))).await;

    let name = "informerd_reads_served_total";
    assert_eq!(number(&through, name, &["resource=\"configmaps\""]).await, 12.0);
    assert_eq!(number(&through, name, &["resource=\"deployments.apps\""]).await, 2.0);
    // The same names on the other side, so that one can be taken from the other: a list and a watch.
    assert_eq!((own(&through, "configmaps").await, own(&through, "deployments.apps").await), (2.0, 2.0));
    let sent =
        |resource: &str| server.requests().iter().filter(|r| r.target.contains(&format!("/{resource}?"))).count();
    assert_eq!((sent("configmaps"), sent("deployments")), (2, 2), "what the apiserver saw");
    let spared = "informerd_spared_requests";
    assert_eq!(number(&through, spared, &["resource=\"configmaps\""]).await, 10.0);
    assert_eq!(number(&through, spared, &["resource=\"deployments.apps\""]).await, 0.0);
    // Eleven bodies with the object for one of the informer's.
    assert!(number(&through, "informerd_spared_bytes", &["resource=\"configmaps\""]).await > 0.0);
    // Informers end; what was counted stays.
    eventually("informers end", || through.daemon.factory.informers().is_empty()).await;
    assert_eq!(number(&through, name, &["resource=\"configmaps\""]).await, 12.0);
    assert_eq!(number(&through, spared, &["resource=\"configmaps\""]).await, 10.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn lag_window_and_watchers_are_told_by_informer() {
    let builder = Server::builder().object(config_map("a", "one")).object(pod("a", "p", "n"));
    let server = builder.bookmark_every(Duration::from_secs(3600)).start().await.unwrap();
    let through = Through::before(&server, "").await;
    let client = Client::new(&through.url);
    let begun = tokio::time::Instant::now();
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=0")).await;
    watch.next_event().await;
    let mut pods = client.watch("/api/v1/pods?watch=1&resourceVersion=0").await;
    pods.next_event().await;
    let (of_maps, of_pods) = (&["resource=\"configmaps\""], &["resource=\"pods\""]);
    for name in ["informerd_cache_watchers", "informerd_cache_watch_groups", "informerd_cache_ready"] {
        assert_eq!(number(&through, name, of_maps).await, 1.0, "{name}");
    }
    assert_eq!(number(&through, "informerd_cache_window_events", of_maps).await, 0.0);
    assert_eq!(number(&through, "informerd_cache_window_seconds", of_maps).await, 0.0);

    // Changes elsewhere: the one that has heard nothing of them is behind by as many.
    let before = number(&through, "informerd_cache_revisions_behind", of_maps).await;
    for round in 0..4 {
        server.create(pod("a", &format!("p{round}"), "n")).unwrap();
        pods.next_event().await;
    }
    assert_eq!(number(&through, "informerd_cache_revisions_behind", of_pods).await, 0.0);
    assert_eq!(number(&through, "informerd_cache_revisions_behind", of_maps).await, before + 4.0);
    let last = server.revision() as f64;
    assert_eq!(number(&through, "apiserver_watch_cache_resource_version", of_pods).await, last);
    assert_eq!(number(&through, "apiserver_watch_cache_events_received_total", of_pods).await, 4.0);
    assert_eq!(number(&through, "apiserver_watch_cache_initializations_total", of_pods).await, 1.0);
    assert_eq!(number(&through, "informerd_cache_window_events", of_pods).await, 4.0);

    // Nothing is heard of config maps from here on, and the window of pods grows old: both are real time.
    let silent = "informerd_cache_silent_seconds";
    while number(&through, silent, of_maps).await < 2.0
        || number(&through, "informerd_cache_window_seconds", of_pods).await < 2.0
    {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(begun.elapsed() > Duration::from_secs(1), "a silence of 2 s takes 2 s");
    let mut large = config_map("a", "one");
    large["data"]["k"] = "small".into();
    let heard = tokio::time::Instant::now();
    server.update(large.clone()).unwrap();
    watch.next_event().await;
    assert!(number(&through, silent, of_maps).await <= heard.elapsed().as_secs_f64());
    assert_eq!(number(&through, "informerd_cache_revisions_behind", of_maps).await, 0.0);
    assert_eq!(number(&through, "informerd_cache_revisions_behind", of_pods).await, 1.0);

    // A client that reads nothing any more is behind; once it has read, it is not.
    assert_eq!(number(&through, "informerd_cache_watchers_behind", of_maps).await, 0.0);
    large["data"]["k"] = "x".repeat(1 << 20).into();
    let mut written = 0;
    while number(&through, "informerd_cache_watchers_behind", of_maps).await < 1.0 {
        assert!(written < 60, "one MiB each");
        large["data"]["round"] = written.to_string().into();
        server.update(large.clone()).unwrap();
        written += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for _ in 0..written {
        watch.next_event().await;
    }
    let behind = async || number(&through, "informerd_cache_watchers_behind", of_maps).await;
    until("nobody is behind", async || behind().await == 0.0).await;
    drop((watch, pods));
    eventually("nobody watches", || {
        through.daemon.factory.informers().iter().all(|informer| informer.cache().stats().watchers == 0)
    })
    .await;
    assert_eq!(number(&through, "informerd_cache_watchers", of_maps).await, 0.0);
}
