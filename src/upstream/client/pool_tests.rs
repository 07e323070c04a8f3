use std::time::Duration;

use super::*;
use crate::lifecycle::spawn;
use crate::upstream::client::{ConfigSource, Identity, Upstream, empty};
use crate::upstream::testing::{FakeServer, answer, silence};

#[tokio::test]
async fn requests_are_in_flight_from_when_they_are_sent() {
    for alpn in ["h2", "http/1.1"] {
        let server = FakeServer::tls(&[alpn], 10, |_, _| silence()).await;
        let client = Upstream::from_config(server.config()).await.unwrap();
        let sent: Vec<_> = (0..3)
            .map(|_| {
                let client = client.clone();
                let request = Request::get("/api").body(empty()).unwrap();
                spawn("request", async move { client.send(Identity::Own, request).await.map(drop) })
            })
            .collect();
        let begun = async {
            while server.requests().len() < 3 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(60), begun).await.expect("the server sees three requests");
        assert_eq!(client.metrics().in_flight.get(), 3, "{alpn}: none is answered");
        for request in sent {
            request.abort();
            request.await.unwrap_err();
        }
        assert_eq!(client.metrics().in_flight.get(), 0, "{alpn}: given up");
    }
}

#[tokio::test]
async fn a_connection_is_avoided_if_there_can_be_another() {
    let server = FakeServer::tls(&["h2"], 10, |_, _| std::future::ready(answer(200, "it"))).await;
    for most in [1, 2] {
        let config = UpstreamConfig { max_connections: most, ..UpstreamConfig::default() };
        let client = Upstream::new(ConfigSource::Fixed(Box::new(server.config())), config).await.unwrap();
        let used = async |avoided| {
            let request = Request::get("/api").body(empty()).unwrap();
            let options = CallOptions::default().off(avoided);
            let response = client.send_with(Identity::Own, request, &options).await.unwrap();
            (*response.extensions().get::<ConnectionId>().unwrap(), response)
        };
        let (first, _open) = used(None).await;
        let (other, _open) = used(Some(first)).await;
        assert_eq!(other != first, most > 1);
        assert_eq!(used(Some(first)).await.0, other, "no third one is made");
    }
}
