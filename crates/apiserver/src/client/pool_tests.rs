use std::time::Duration;

use super::*;
use crate::client::handshake::MAX_HEADER_LIST;
use crate::client::lease::MAX_IDLE;
use crate::client::tests::{get, upstream};
use crate::client::{Identity, Upstream, UpstreamConfig};
use crate::testing::{FakeServer, answer, silence, until};
use informerd_lifecycle::spawn;

#[tokio::test]
async fn requests_are_in_flight_from_when_they_are_sent() {
    for alpn in ["h2", "http/1.1"] {
        let server = FakeServer::tls(&[alpn], 10, |_, _| silence()).await;
        let client = Upstream::from_config(server.config()).await.unwrap();
        let sent: Vec<_> = (0..3)
            .map(|_| {
                let client = client.clone();
                spawn("request", async move { client.send(Identity::Own, get("/api")).await.map(drop) })
            })
            .collect();
        until(|| server.requests().len() == 3).await;
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
        let client = upstream(server.config(), config).await;
        let used = async |avoided| {
            let options = CallOptions::default().off(avoided);
            let response = client.send_with(Identity::Own, get("/api"), &options).await.unwrap();
            (*response.extensions().get::<ConnectionId>().unwrap(), response)
        };
        let (first, _open) = used(None).await;
        let (other, _open) = used(Some(first)).await;
        assert_eq!(other != first, most > 1);
        assert_eq!(used(Some(first)).await.0, other, "no third one is made");
    }
}

/// The apiserver answers on other connections meanwhile, again and again.
#[tokio::test]
async fn a_slow_connection_comes_about() {
    let server = FakeServer::tls(&["h2", "http/1.1"], 10, |_, _| std::future::ready(answer(200, "it"))).await;
    let client = Upstream::from_config(server.config()).await.unwrap();
    client.send(Identity::Bare, get("/api")).await.unwrap();
    server.manners.lock().delay = Duration::from_millis(1500);
    let current = client.inner.current.load_full();
    for (pool, is_http1) in [(current.pool(Identity::Bare), true), (current.pool(Identity::Stranger), false)] {
        let dialed = async { if is_http1 { pool.http1().await.map(drop) } else { pool.add().await } };
        let dials = async {
            tokio::select! { dialed = dialed => dialed, () = found_again(&pool.connections.keeper) => Ok(()) }
        };
        let dialed = timeout(Duration::from_secs(60), dials).await;
        dialed.unwrap_or_else(|_| panic!("it is begun anew each time: {is_http1}")).unwrap();
    }
}

async fn found_again(keeper: &Keeper) {
    loop {
        keeper.doubt();
        keeper.learn(&Ok(()), "a");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_new_connection_replaces_those_of_either_protocol() {
    for alpn in ["h2", "http/1.1"] {
        let server = FakeServer::tls(&["h2", "http/1.1"], 10, |_, _| std::future::ready(answer(200, "it"))).await;
        let other = FakeServer::tls(&[alpn], 10, |_, _| std::future::ready(answer(200, "it"))).await;
        let [client, new] = [&server, &other].map(|server| Upstream::from_config(server.config()));
        let [pool, new] = [client.await.unwrap(), new.await.unwrap()]
            .map(|of| Arc::clone(of.inner.current.load().pool(Identity::Own)));
        pool.add().await.unwrap();
        assert_eq!(pool.connections.numbers(), (1, 0, false), "HTTP/2 is preferred");
        pool.connections.add(Connected::Http1(pool.http1().await.unwrap()));
        pool.replace(new.connections.establish(Wanted::Any).await.unwrap());
        assert_eq!(pool.connections.numbers(), if alpn == "h2" { (1, 0, false) } else { (0, 1, true) });
    }
}

#[tokio::test]
async fn few_connections_stay_idle() {
    let server = FakeServer::tls(&["http/1.1"], 10, |_, _| std::future::ready(answer(200, "it"))).await;
    let client = Upstream::from_config(server.config()).await.unwrap();
    let pool = Arc::clone(client.inner.current.load().pool(Identity::Own));
    let mut leases = Vec::new();
    for _ in 0..=MAX_IDLE {
        leases.push(pool.connections.lease(Held::Http1(Some(Box::new(pool.http1().await.unwrap()))), None));
    }
    for (number, lease) in leases.into_iter().enumerate() {
        lease.finished();
        assert_eq!(pool.connections.numbers().1, MAX_IDLE.min(number + 1));
    }
}

/// A pod behind the apiserver may answer with a head of any size, and the apiserver repeats long headers of a request.
#[tokio::test]
async fn a_head_that_is_too_large_says_nothing_about_the_apiserver() {
    let server = FakeServer::tls(&["h2", "http/1.1"], 10, |request, _| {
        let mut response = answer(200, "it");
        let length = request.uri().path()[1..].parse().unwrap();
        response.headers_mut().insert("x", "x".repeat(length).parse().unwrap());
        std::future::ready(response)
    })
    .await;
    let client = Upstream::from_config(server.config()).await.unwrap();
    let request = |length: usize| get(&format!("/{length}"));
    let most = MAX_HEADER_LIST as usize;
    for (identity, length, fits) in [
        (Identity::Own, 0, true),
        (Identity::Bare, most - 1000, true),
        (Identity::Bare, most, false),
        (Identity::Stranger, 2 * most, false),
    ] {
        assert_eq!(client.send(identity, request(length)).await.is_ok(), fits, "{length}");
    }
    let session = client.upgrade(Identity::Bare, request(2 * most), Duration::from_secs(60)).await;
    assert!(matches!(session, Err(UpstreamError::Request(_))));
    let upstream = client.metrics();
    assert_eq!((client.is_reachable(), upstream.seeks.get()), (true, 0), "it is not looked for");
    assert!(upstream.connects.get() >= 4, "some have ended");
}
