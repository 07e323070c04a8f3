//! What is forwarded from a delegated listener goes with the client's own credentials, and no trick makes it otherwise.

use std::time::Duration;

use http::Method;
use tokio::io::AsyncWriteExt;

use crate::access::wire::{Socket, codes, connect, raw};
use crate::access::world::World;
use crate::support::client::Client;
use crate::world::assert_alike;

#[tokio::test(flavor = "multi_thread")]
async fn with_the_clients_own_credentials_only() {
    let yaml = "authentication: {anonymous: forward}\nconsistentReads: cache\n";
    let world = World::warmed(yaml, &["/api/v1/configmaps"]).await;
    let target = "/api/v1/configmaps?resourceVersion=0";
    let json = [("content-type", "application/json")];
    let body = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"no"}}"#;
    for token in [None, Some("nobody-token"), Some("reader-token"), Some("wrong-token")] {
        let (direct, through) = (world.direct(token), world.through(token));
        // Who may not write may not write through us, though the daemon itself may everything.
        let path = "/api/v1/namespaces/a/configmaps";
        let ours = through.request(Method::POST, path, &json, body).await;
        assert!(matches!(ours.status.as_u16(), 401 | 403), "{token:?}: {}", ours.status);
        assert_alike("a write", &direct.request(Method::POST, path, &json, body).await, &ours);
        for path in ["/api/v1/namespaces/a/pods/one/log", "/api/v1/secrets", "/logs/x"] {
            assert_alike(path, &direct.get(path).await, &through.get(path).await);
        }
        // Headers by which a proxy in front of an apiserver vouches for others say nothing.
        let vouched = [("x-remote-user", "admin"), ("x-remote-group", "system:masters"), ("x-remote-extra-a", "b")];
        for path in [target, "/api/v1/secrets"] {
            let ours = through.request(Method::GET, path, &vouched, "").await;
            assert_alike(path, &direct.get(path).await, &ours);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_the_request_looks_like() {
    let world = World::warmed("consistentReads: cache\n", &["/api/v1/configmaps"]).await;
    let (path, host) = ("/api/v1/configmaps?resourceVersion=0", "Host: localhost");
    let [admin, nobody] = ["admin-token", "nobody-token"].map(|token| format!("Authorization: Bearer {token}"));
    let absolute = format!("https://localhost{path}");
    for (what, target, lines, wanted) in [
        ("plain", path, &[host, &admin][..], "200"),
        ("lower case", path, &[host, "authorization: bearer admin-token"], "200"),
        ("nobody", path, &[host, &nobody], "403"),
        ("two lines, nobody first", path, &[host, &nobody, &admin], "403"),
        ("no scheme", path, &[host, "Authorization: admin-token"], "401"),
        ("basic", path, &[host, "Authorization: Basic YWRtaW46YWRtaW4="], "401"),
        ("two blanks", path, &[host, "Authorization: Bearer  admin-token"], "401"),
        ("a foreign host", path, &["Host: other.example.com", &admin], "200"),
        ("a foreign host, nobody", path, &["Host: kubernetes", &nobody], "403"),
        ("a foreign origin", path, &[host, "Origin: https://evil.example.com", &admin], "403"),
        ("two hosts", path, &[host, "Host: other", &admin], "400"),
        ("an absolute target", &absolute, &[host, &nobody], "403"),
        ("a dropped header", path, &[host, &admin, "Connection: close, authorization"], "200"),
    ] {
        let close = if what == "a dropped header" { "" } else { "Connection: close\r\n" };
        let request = format!("GET {target} HTTP/1.1\r\n{}\r\n{close}\r\n", lines.join("\r\n"));
        let answers = raw(&world, &request).await;
        assert_eq!(codes(&answers), [wanted], "{what}: {answers}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_over_a_websocket_asks_who_may() {
    let world = World::start("").await;
    world.warm(&["/api/v1/configmaps"]).await;
    let target = "/api/v1/configmaps?watch=1&timeoutSeconds=1";
    let protocols =
        |token: &str| format!("Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.{token}, v4\r\n");
    for (token, more, status) in [
        (Some("reader-token"), String::new(), 101),
        (Some("nobody-token"), String::new(), 403),
        (None, protocols("cmVhZGVyLXRva2Vu"), 101),
        (None, protocols("bm9ib2R5LXRva2Vu"), 403),
        (None, String::new(), 401),
    ] {
        assert_eq!(Socket::open(&world, token, &more, target).await.status, status, "{token:?} {more}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_for_others_are_refused() {
    let world = World::start("authentication: {audiences: [informerd]}\nconsistentReads: cache\n").await;
    world.warm(&["/api/v1/configmaps"]).await;
    let target = "/api/v1/configmaps?resourceVersion=0";
    let ours = world.token("wide", &["--audience", "informerd"]).await;
    let apiservers = world.token("wide", &[]).await;
    assert_eq!(world.through(Some(&ours)).get(target).await.status, 200);
    assert_eq!(world.through(Some(&apiservers)).get(target).await.status, 401);
    assert_eq!(world.through(Some(&ours)).get("/version").await.status, 401, "the apiserver's own word");
}

/// The kube-apiserver closes a connection over HTTP/2 after a request that it does not authenticate, and with a head that is
/// too large for it.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_ends_the_connections_of_others() {
    let world = World::start(
        "authentication: {audiences: [informerd, https://kubernetes.default.svc]}\n\
         resources: [{resource: configmaps, exclude: true}]\n",
    )
    .await;
    world.settled().await;
    let reader = world.through(Some("reader-token"));
    let target = "/api/v1/namespaces/a/configmaps";
    // Its token is reviewed, is accepted by the apiserver, and is used for what the apiserver answers.
    for path in ["/api/v1/pods", target, target] {
        assert_eq!(reader.get(path).await.status, 200);
    }
    let mut watch = reader.watch(&format!("{target}?watch=1")).await;
    let connects = &world.daemon.daemon.upstream.metrics().connects;
    let ours = world.through(Some(&world.token("nothing", &["--audience", "informerd"]).await));
    let nothing = world.token("nothing", &["--audience", "https://kubernetes.default.svc"]).await;
    let nothing = Client::tls_http1(&world.daemon.url, &world.ca).with_token(&nothing);
    let (large, json) = ("x".repeat(680), [("content-type", "application/json")]);
    let review = r#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}"#;
    for _ in 0..3 {
        assert_eq!(ours.get("/api/v1/pods").await.status, 403, "it is reviewed");
        assert_eq!(ours.get("/version").await.status, 401, "the apiserver's own word");
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let accepted = nothing.request(Method::POST, path, &json, review).await;
        assert_eq!(accepted.status, 201, "{}", accepted.text());
        let answer = nothing.request(Method::GET, "/version", &vec![("x", &*large); 1500], "").await;
        assert_eq!(answer.status, 431, "{}", answer.text());
        let before = connects.get();
        assert_eq!(reader.get(target).await.status, 200);
        assert_eq!(connects.get(), before, "its connection is there");
    }
    world.create("a", "told").await;
    while watch.next_event().await["object"]["metadata"]["name"] != "told" {}
}

/// A token that nobody knows costs a review. Its requests cost the apiserver no connections, or no more than they cost the client:
/// those that the apiserver may judge in another way are forwarded.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_refused_is_not_forwarded() {
    let world = World::start("").await;
    world.settled().await;
    let nobody = Client::tls_http1(&world.daemon.url, &world.ca).with_token("x");
    let upgrade = [("connection", "upgrade"), ("upgrade", "a")];
    let ask = async || nobody.request(Method::GET, "/x", &upgrade, "").await;
    assert_alike("a refusal", &world.direct(Some("x")).get("/x").await, &ask().await);
    let connects = || world.daemon.daemon.upstream.metrics().connects.get();
    let before = connects();
    for _ in 0..100 {
        assert_eq!(ask().await.status, 401);
    }
    assert!(connects() <= before + 3, "{} after {before}", connects());
    let token = ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.eA, v4");
    for (target, more) in [
        ("/x", &[("accept", "application/yaml")][..]),
        ("/x", &[("accept", "application/json"), ("accept", "application/json")]),
        ("/x?timeout=1s", &[]),
        ("/x", &[("authorization", "Bearer y")]),
        ("/x", &[token]),
    ] {
        let answer = nobody.request(Method::GET, target, &[&upgrade[..], more].concat(), "").await;
        assert_eq!(answer.status, 401, "{target} {more:?}");
        assert!(
            answer.headers.get("connection").is_some_and(|it| it == "close"),
            "{target} {more:?}: {:?}",
            answer.headers
        );
    }
}

/// Writes whose clients break off before they are complete.
async fn broken_off(world: &World, token: &str) {
    for _ in 0..3 {
        let mut stream = connect(&world.daemon.url, &world.ca).await;
        let head = format!(
            "POST /api/v1/namespaces/a/configmaps HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let open = || world.daemon.daemon.http.connections_open.get();
    let trusted = 1;
    crate::support::eventually("they are gone", || open() <= trusted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_of_somebody_unknown_that_breaks_off_changes_nothing_for_readers() {
    let world = World::warmed("explainHeader: true\n", &["/api/v1/configmaps"]).await;
    let reader = world.trusting();
    let plan = async || {
        let answer = reader.get("/api/v1/namespaces/a/configmaps?resourceVersion=0").await;
        answer.headers["x-informerd-plan"].to_str().unwrap().split(';').next().unwrap().to_owned()
    };
    assert_eq!(plan().await, "served");
    for _ in 0..3 {
        broken_off(&world, "x").await;
        assert_eq!(plan().await, "served");
    }
    // That of a client whose token is accepted may have happened: readers wait for the proof that they have it.
    let mut plans = Vec::new();
    while !plans.contains(&"waited".to_owned()) {
        assert!(plans.len() < 10, "{plans:?}");
        broken_off(&world, "admin-token").await;
        plans.push(plan().await);
    }
}
