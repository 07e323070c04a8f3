//! Events expire, many at one revision of the store: the apiserver attaches them to one lease.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::support::Through;
use crate::support::client::{Client, Watch, rv};
use http::Method;
use informerd::upstream::client::ConfigSource;
use tokio::time::timeout;

const EVENTS: &str = "/api/v1/namespaces/default/events";
const COUNT: usize = 12;

/// `DELETED e-1 5` of everything up to the deletion of the last event.
async fn told(mut watch: Watch) -> Vec<String> {
    let (mut told, mut gone) = (Vec::new(), 0);
    while gone < COUNT {
        let event = timeout(Duration::from_secs(120), watch.next()).await.expect("they expire").unwrap();
        let event = event.unwrap_or_else(|| panic!("the watch has ended after {told:#?}"));
        let kind = event["type"].as_str().unwrap();
        gone += usize::from(kind == "DELETED");
        if kind != "BOOKMARK" {
            told.push(format!("{kind} {} {}", event["object"]["metadata"]["name"], rv(&event["object"])));
        }
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_go_on_when_events_expire_together() {
    // A lease is used for another twentieth of the time to live, in whole seconds.
    let cluster = Cluster::start_with(&["--apiserver-flag=event-ttl=25s"]).await;
    let daemon = Through::start(ConfigSource::kubeconfig(cluster.admin()), "").await;
    daemon.ready().await;
    let direct = Client::tls(&cluster.info.server, &cluster.info.ca, "admin-token");
    let through = Client::new(&daemon.url);
    through.json("/api/v1/events?resourceVersion=0").await;
    let now = rv(&through.json("/api/v1/events?resourceVersion=0").await);
    let path = format!("{EVENTS}?watch=1&resourceVersion={now}&timeoutSeconds=200&allowWatchBookmarks=true");
    let watches = (direct.watch(&path).await, through.watch(&path).await);
    for n in 0..COUNT {
        let event = format!(
            r#"{{"metadata":{{"name":"e-{n}"}},"involvedObject":{{"kind":"Pod","name":"x","namespace":"default"}},"type":"Normal","reason":"r"}}"#
        );
        let headers = [("content-type", "application/json")];
        let created = direct.request(Method::POST, EVENTS, &headers, &event).await;
        assert_eq!(created.status, 201, "{}", created.text());
    }
    let (direct_told, through_told) = tokio::join!(told(watches.0), told(watches.1));
    assert_eq!(direct_told, through_told);
    let deleted = || direct_told.iter().filter(|event| event.starts_with("DELETED"));
    let revisions: BTreeSet<_> = deleted().map(|event| event.rsplit(' ').next().unwrap()).collect();
    assert!(revisions.len() < COUNT, "none expired at the same revision: {direct_told:#?}");
    let informers = daemon.daemon.factory.informers();
    let events = informers.iter().find(|informer| &*informer.key().gvr.resource == "events").unwrap();
    assert_eq!(events.status().relists, 0, "nothing had to be listed anew");
    let left = through.json(&format!("{EVENTS}?resourceVersion=0")).await;
    assert_eq!(left["items"].as_array().unwrap().len(), 0, "{left}");
}
