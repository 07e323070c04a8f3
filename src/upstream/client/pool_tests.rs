use std::time::Duration;

use super::*;
use crate::lifecycle::spawn;
use crate::upstream::client::{Identity, Upstream, empty};
use crate::upstream::testing::FakeServer;

#[tokio::test]
async fn requests_are_in_flight_from_when_they_are_sent() {
    for alpn in ["h2", "http/1.1"] {
        let server = FakeServer::tls(&[alpn], 10, |_, _| std::future::pending()).await;
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
