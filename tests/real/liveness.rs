//! Connections to the apiserver that stay although nothing comes, and those that go away because it says so. `recovery` has
//! those that go away silently.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use crate::cluster::Cluster;
use crate::daemon::fixtures::config_map;
use crate::support::client::rv;
use crate::support::{Through, within};
use crate::world::World;
use http::{Method, Request, Version};
use http_body_util::BodyExt;
use informerd::apiserver::client::{ConfigSource, Identity, Upstream, UpstreamConfig, empty};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;

/// Whose other end answers its pings.
#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_connection_is_not_given_up() {
    // Any server with HTTP/2 over TLS will do; a daemon is one.
    let yaml = "listen: [\"https://127.0.0.1:0\"]\n";
    let (_server, tls, _) = Through::simulated([config_map("a", "one")], yaml).await;
    let mut config = kube::Config::new(tls.url.parse().unwrap());
    let ca = CertificateDer::from_pem_file(tls.ca()).unwrap();
    config.root_cert = Some(vec![ca.to_vec()]);
    let second = Duration::from_secs(1);
    let settings = UpstreamConfig { ping_interval: second, ping_timeout: 12 * second, ..UpstreamConfig::default() };
    let upstream = Upstream::new(ConfigSource::Fixed(Box::new(config)), settings).await.unwrap();
    let watch = Request::get("/api/v1/configmaps?watch=1&resourceVersion=0").body(empty()).unwrap();
    let response = upstream.send(Identity::Own, watch).await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (200, Version::HTTP_2));
    let mut body = response.into_body();
    within("the initial events", body.frame()).await.expect("the initial events").unwrap();
    // Longer than pings without an answer would be waited for.
    let quiet = tokio::time::timeout(16 * second, async {
        while let Some(frame) = body.frame().await {
            frame.expect("the connection answers its pings");
        }
    });
    assert!(quiet.await.is_err(), "the watch has ended");
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
