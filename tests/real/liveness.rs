//! Connections to the apiserver that go away: silently, open at our end only, or because it says so.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use crate::cluster::Cluster;
use crate::support::Through;
use crate::support::client::rv;
use crate::support::relay::{Loss, Relay};
use crate::support::within;
use crate::world::World;
use http::{Method, Request};
use http_body_util::BodyExt;
use informerd::upstream::client::{ConfigSource, Identity, Upstream, UpstreamConfig, empty};
use informerd_sim::Server;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_half_open_connection_is_noticed_by_its_unanswered_pings() {
    // Any server with HTTP/2 over TLS will do; a daemon is one.
    let server = Server::builder().start().await.unwrap();
    let tls = Through::before(&server, "listen: [\"https://127.0.0.1:0\"]\n").await;
    let relay = Relay::before(tls.url.trim_start_matches("https://").parse().unwrap()).await;

    let mut config = kube::Config::new(format!("https://{}", relay.address).parse().unwrap());
    let ca = CertificateDer::from_pem_file(tls.daemon.ca_file.as_ref().unwrap()).unwrap();
    config.root_cert = Some(vec![ca.to_vec()]);
    let ping = Duration::from_secs(1);
    let settings = UpstreamConfig { ping_interval: ping, ping_timeout: ping, ..UpstreamConfig::default() };
    let upstream = Upstream::new(ConfigSource::Fixed(Box::new(config)), settings).await.unwrap();

    let path = "/api/v1/namespaces?watch=1&resourceVersion=0&allowWatchBookmarks=true";
    let request = || Request::get(path).body(empty()).unwrap();
    let response = upstream.send(Identity::Own, request()).await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (200, http::Version::HTTP_2));
    let mut body = response.into_body();
    within("the next frame of the watch", body.frame()).await.expect("the initial events").unwrap();

    // Alive and quiet is no reason to give up, however long it lasts.
    let quiet = tokio::time::timeout(Duration::from_secs(4), async {
        while let Some(frame) = body.frame().await {
            frame.expect("the connection answers its pings");
        }
    });
    assert!(quiet.await.is_err(), "the watch has ended");

    relay.lose(Loss::Both);
    let noticed = tokio::time::timeout(Duration::from_secs(30), async {
        loop {
            match within("the next frame of the watch", body.frame()).await {
                Some(Ok(_)) => {}
                end => break end,
            }
        }
    });
    let end = noticed.await.expect("a half-open connection was not noticed");
    assert!(matches!(end, Some(Err(_))), "it must not look like a clean end");

    // And it is not used again.
    relay.lose(Loss::None);
    assert_eq!(upstream.send(Identity::Own, request()).await.unwrap().status().as_u16(), 200);
}

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
