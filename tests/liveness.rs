//! A connection that is open at our end only: nothing comes, nothing says so, and it is noticed all the same.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use informerd::lifecycle;
use informerd::sim::Server;
use informerd::upstream::client::{ConfigSource, Identity, Upstream, UpstreamConfig, empty};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use support::Through;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Passes bytes on until it is frozen; from then on it swallows them, with its connections open.
async fn relay(to: SocketAddr) -> (SocketAddr, Arc<watch::Sender<bool>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let frozen = Arc::new(watch::Sender::new(false));
    let state = frozen.clone();
    lifecycle::spawn("relay", async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(to).await.unwrap();
            let (client, server) = (client.into_split(), server.into_split());
            lifecycle::spawn("relay-up", pump(client.0, server.1, state.subscribe()));
            lifecycle::spawn("relay-down", pump(server.0, client.1, state.subscribe()));
        }
    });
    (address, frozen)
}

async fn pump(mut from: impl AsyncReadExt + Unpin, mut to: impl AsyncWriteExt + Unpin, frozen: watch::Receiver<bool>) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if !*frozen.borrow() && to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
    // Not even an end is passed on.
    if *frozen.borrow() {
        std::future::pending::<()>().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_open_connection_is_noticed_by_its_unanswered_pings() {
    // Any server with HTTP/2 over TLS will do; a daemon is one.
    let server = Server::builder().start().await.unwrap();
    let tls = Through::before(&server, "listen: [\"https://127.0.0.1:0\"]\n").await;
    let (address, frozen) = relay(tls.url.trim_start_matches("https://").parse().unwrap()).await;

    let mut config = kube::Config::new(format!("https://{address}").parse().unwrap());
    let ca = CertificateDer::from_pem_file(tls.daemon.ca_file.as_ref().unwrap()).unwrap();
    config.root_cert = Some(vec![ca.to_vec()]);
    let ping = Duration::from_millis(300);
    let settings = UpstreamConfig { ping_interval: ping, ping_timeout: ping, ..UpstreamConfig::default() };
    let upstream = Upstream::new(ConfigSource::Fixed(Box::new(config)), settings).await.unwrap();

    let path = "/api/v1/namespaces?watch=1&resourceVersion=0&allowWatchBookmarks=true";
    let request = || Request::get(path).body(empty()).unwrap();
    let response = upstream.send(Identity::Own, request()).await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (200, http::Version::HTTP_2));
    let mut body = response.into_body();
    body.frame().await.expect("the initial events").unwrap();

    // Alive and quiet is no reason to give up, however long it lasts.
    let quiet = tokio::time::timeout(Duration::from_secs(3), async {
        while let Some(frame) = body.frame().await {
            frame.expect("the connection answers its pings");
        }
    });
    assert!(quiet.await.is_err(), "the watch has ended");

    frozen.send_replace(true);
    let noticed = tokio::time::timeout(Duration::from_secs(30), async {
        loop {
            match body.frame().await {
                Some(Ok(_)) => {}
                end => break end,
            }
        }
    });
    let end = noticed.await.expect("a half-open connection was not noticed");
    assert!(matches!(end, Some(Err(_))), "it must not look like a clean end");

    // And it is not used again.
    frozen.send_replace(false);
    assert_eq!(upstream.send(Identity::Own, request()).await.unwrap().status().as_u16(), 200);
}
