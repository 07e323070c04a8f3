use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::header::{AUTHORIZATION, HOST, USER_AGENT};
use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use tokio::sync::Notify;

use super::*;
use crate::testing::{FakeServer, answer, endless, silence, until};

pub(super) fn get(path: &str) -> Request<ReqBody> {
    Request::get(path).body(empty()).unwrap()
}

fn upgrading(path: &str) -> Request<ReqBody> {
    Request::get(path).header("connection", "upgrade").header("upgrade", "echo").body(empty()).unwrap()
}

pub(super) async fn upstream(config: kube::Config, settings: UpstreamConfig) -> Upstream {
    Upstream::new(ConfigSource::Fixed(Box::new(config)), settings).await.unwrap()
}

pub(super) async fn text(response: Response<UpstreamBody>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn a_bare_request_shows_nothing_of_ours() {
    let server = FakeServer::tls(&["h2"], 100, |_, _| async { answer(200, "") }).await;
    let mut config = server.config();
    config.auth_info.token = Some("ours".to_owned().into());
    config.auth_info.impersonate = Some("boss".into());
    let client = Upstream::from_config(config).await.unwrap();
    for identity in [Identity::Bare, Identity::Own] {
        let request = Request::get("/api").header(AUTHORIZATION, "Bearer theirs").body(empty()).unwrap();
        client.send(identity, request).await.unwrap();
    }
    for identity in [Identity::Stranger, Identity::Proxied] {
        client.send(identity, get("/api")).await.unwrap();
    }
    let seen = server.requests();
    assert_eq!([0, 1, 2, 3].map(|n| seen[n].peer.client_certificate), [false, true, false, false]);
    let connections = std::collections::BTreeSet::from([0, 1, 2, 3].map(|n| seen[n].peer.connection));
    assert_eq!(connections.len(), 4, "the server may close those of strangers, and those to servers behind it");
    assert!(!seen[2].headers.contains_key(AUTHORIZATION));
    assert_eq!(seen[0].headers[AUTHORIZATION], "Bearer theirs");
    assert_eq!(seen[1].headers[AUTHORIZATION], "Bearer ours");
    assert!(!seen[0].headers.contains_key("impersonate-user"));
    assert_eq!(seen[1].headers["impersonate-user"], "boss");
    assert!(!seen[0].headers.contains_key(USER_AGENT), "a forwarded request keeps its client's agent");
}

#[tokio::test]
async fn opens_connections_as_the_servers_limit_asks_and_gives_them_back() {
    let server = FakeServer::tls(&["h2"], 10, |_, _| async { endless(Vec::new()) }).await;
    let client = Upstream::from_config(server.config()).await.unwrap();
    let mut open = Vec::new();
    for i in 0..30 {
        let options = CallOptions::new(RequestVerb::Watch, "pods");
        open.push(client.send_with(Identity::Own, get(&format!("/{i}")), &options).await.unwrap());
    }
    let mut by_connection = std::collections::HashMap::new();
    for seen in server.requests() {
        *by_connection.entry(seen.peer.connection).or_insert(0) += 1;
    }
    // The first connection learns the limit only from the server's SETTINGS.
    assert!((3..=5).contains(&by_connection.len()), "{by_connection:?}");
    assert_eq!(client.metrics().in_flight.get(), 30);
    assert_eq!(client.metrics().total(RequestVerb::Watch, Some("pods")), 30);
    open.clear();
    assert_eq!(client.metrics().in_flight.get(), 0);
    until(|| client.metrics().connections.get() == 1).await;
}

#[tokio::test]
async fn a_burst_makes_one_connection() {
    let server = FakeServer::tls(&["h2"], 100, |_, _| async { answer(200, "x") }).await;
    let client = Upstream::from_config(server.config()).await.unwrap();
    let all = (0..50).map(|_| client.send(Identity::Own, get("/")));
    for response in futures_util::future::join_all(all).await {
        assert_eq!(text(response.unwrap()).await, "x");
    }
    assert_eq!(client.metrics().connects.get(), 1);
}

/// The last bytes of a TLS handshake may be lost. Then the connection looks established, but never answers.
#[tokio::test]
async fn a_connection_that_never_speaks_takes_no_request() {
    let server = FakeServer::tls(&["h2"], 100, |_, _| async { answer(200, "hello") }).await;
    server.manners.lock().silent = 1;
    let client = Upstream::from_config(server.config()).await.unwrap();
    let asked = client.send(Identity::Own, get("/a"));
    let response =
        tokio::time::timeout(Duration::from_secs(60), asked).await.expect("does not wait for the silent one");
    assert_eq!(text(response.unwrap()).await, "hello");
    assert_eq!(server.uris(), ["/livez?exclude=etcd", "/a"], "the apiserver was looked for");
}

#[tokio::test]
async fn prefers_the_connection_it_is_told() {
    let server = FakeServer::tls(&["h2"], 10, |_, _| async { endless(Vec::new()) }).await;
    let client = Upstream::from_config(server.config()).await.unwrap();
    let mut open = Vec::new();
    for _ in 0..12 {
        open.push(client.send(Identity::Own, get("/")).await.unwrap());
    }
    let wanted = *open[0].extensions().get::<ConnectionId>().unwrap();
    open.remove(1);
    for _ in 0..2 {
        let options = CallOptions::default().on(Some(wanted));
        let response = client.send_with(Identity::Own, get("/"), &options).await.unwrap();
        assert_eq!(response.extensions().get::<ConnectionId>(), Some(&wanted));
    }
}

#[tokio::test]
async fn http1_uses_connections_again_and_http2_that_was_declined_is_tried_again() {
    let server = FakeServer::tls(&["http/1.1"], 1, |_, _| async { answer(200, "one") }).await;
    let client = Upstream::from_config(server.config()).await.unwrap();
    let connection = async || {
        let response = client.send(Identity::Own, get("/x")).await.unwrap();
        assert_eq!((response.version(), &*text(response).await), (http::Version::HTTP_11, "one"));
        tokio::time::sleep(Duration::from_millis(5)).await;
        let seen = server.requests().pop().unwrap();
        assert_eq!(seen.headers[HOST], *server.address.to_string());
        seen.peer.connection
    };
    assert_eq!((connection().await, connection().await), (1, 1));
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    assert_eq!((connection().await, connection().await), (2, 2), "once");
}

#[tokio::test]
async fn keeps_the_path_of_the_servers_url() {
    let server = FakeServer::plain(|_, _| async { answer(200, "") }).await;
    let config = kube::Config::new(format!("{}/k8s/c1/", server.url()).parse().unwrap());
    let client = Upstream::from_config(config).await.unwrap();
    client.send(Identity::Own, get("/api/v1/pods?limit=1")).await.unwrap();
    assert_eq!(server.uris(), ["/k8s/c1/api/v1/pods?limit=1"]);
}

#[tokio::test]
async fn a_get_survives_a_broken_connection() {
    let server = FakeServer::tls(&["h2"], 100, |_, _| async { answer(200, "again") }).await;
    let client = Upstream::from_config(server.config()).await.unwrap();
    text(client.send(Identity::Own, get("/")).await.unwrap()).await;
    server.reset();
    assert_eq!(text(client.send(Identity::Own, get("/")).await.unwrap()).await, "again");
}

#[tokio::test]
async fn a_write_is_never_sent_twice() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let reset = Arc::new(Notify::new());
    let arrived = Arc::clone(&reset);
    let server = FakeServer::plain(move |_, _| {
        counter.fetch_add(1, Ordering::Relaxed);
        arrived.notify_one();
        silence()
    })
    .await;
    let client = Upstream::from_config(server.config()).await.unwrap();
    let request = Request::post("/api/v1/pods").body(full("{}")).unwrap();
    let (result, ()) = tokio::join!(client.send(Identity::Own, request), async {
        reset.notified().await;
        server.reset();
    });
    assert!(matches!(result, Err(UpstreamError::Request(_))), "{:?}", result.map(|_| ()));
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert!(!client.is_reachable());
}

/// The error is caused by the client, not by the apiserver.
#[tokio::test]
async fn a_body_that_its_client_gives_up_says_nothing_of_the_apiserver() {
    let drained = |request: Request<hyper::body::Incoming>, _| async move {
        request.into_body().collect().await.ok();
        answer(200, "")
    };
    for server in [FakeServer::plain(drained).await, FakeServer::tls(&["h2"], 100, drained).await] {
        let client = Upstream::from_config(server.config()).await.unwrap();
        client.send(Identity::Bare, get("/")).await.unwrap();
        let gone = || Err::<http_body::Frame<bytes::Bytes>, crate::error::BoxError>("the client is gone".into());
        let parts = [Ok(http_body::Frame::data(bytes::Bytes::from_static(b"{"))), gone()];
        let body = http_body_util::StreamBody::new(futures_util::stream::iter(parts)).boxed_unsync();
        let error = client.send(Identity::Bare, Request::post("/").body(body).unwrap()).await.err().unwrap();
        assert!(matches!(error, UpstreamError::Request(_)), "{error:?}");
        assert!(client.is_reachable(), "{error:?}");
    }
}

#[tokio::test]
async fn waits_for_the_head_no_longer_than_asked() {
    let server = FakeServer::plain(|_, _| silence()).await;
    let client = Upstream::from_config(server.config()).await.unwrap();
    let options = CallOptions::new(RequestVerb::Probe, "pods").header_timeout(Duration::from_millis(50));
    let error = client.send_with(Identity::Own, get("/"), &options).await.err().unwrap();
    assert!(matches!(error, UpstreamError::Timeout { .. }), "{error}");
    let agent = server.requests()[0].headers[USER_AGENT].clone();
    assert_eq!(agent, concat!("informerd/", env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn a_certificate_of_a_stranger_is_a_tls_error() {
    let server = FakeServer::tls(&["h2"], 100, |_, _| async { answer(200, "") }).await;
    let other = FakeServer::tls(&["h2"], 100, |_, _| async { answer(200, "") }).await;
    let mut config = server.config();
    config.root_cert = other.config().root_cert;
    let client = Upstream::from_config(config).await.unwrap();
    let error = client.send(Identity::Own, get("/")).await.err().unwrap();
    assert!(matches!(error, UpstreamError::Tls { .. }), "{error}");
    assert!(error.is_about_certificates());
    assert!(client.has_heard(), "somebody answers");
}

/// Something between us and an apiserver that is away may take connections and close them.
#[tokio::test]
async fn a_connection_that_is_closed_is_no_answer() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = FakeServer::tls(&["h2"], 100, |_, _| async { answer(200, "") }).await.config();
    config.cluster_url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
    informerd_lifecycle::spawn("closing", async move { while listener.accept().await.is_ok() {} });
    let client = Upstream::from_config(config).await.unwrap();
    let error = client.send(Identity::Own, get("/")).await.err().unwrap();
    assert!(matches!(error, UpstreamError::Tls { .. }), "{error}");
    assert!(error.is_unreachable() && !client.has_heard());
}

/// As in a pod, where the kubelet replaces the file.
#[tokio::test]
async fn a_rotated_ca_file_is_followed_at_once() {
    let old = FakeServer::tls(&["h2"], 100, |_, _| async { answer(200, "") }).await;
    let new = FakeServer::tls(&["h2"], 100, |_, _| async { answer(200, "") }).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.crt");
    std::fs::write(&file, &old.certificates.as_ref().unwrap().ca).unwrap();
    let mut config = new.config();
    (config.root_cert, config.root_cert_file) = (old.config().root_cert, Some(file.clone()));
    let settings = UpstreamConfig { check_interval: Duration::ZERO, ..UpstreamConfig::default() };
    let client = Upstream::new(ConfigSource::Fixed(Box::new(config)), settings).await.unwrap();
    let error = client.send(Identity::Own, get("/")).await.err().unwrap();
    assert!(error.is_about_certificates(), "{error}");
    std::fs::write(&file, &new.certificates.as_ref().unwrap().ca).unwrap();
    assert_eq!(client.send(Identity::Own, get("/")).await.unwrap().status(), 200);
    assert_eq!(client.send(Identity::Bare, get("/")).await.unwrap().status(), 200);
}

/// A server that accepts one token.
async fn guarded(token: &'static str) -> FakeServer {
    // Without TLS, no token of a kubeconfig is sent.
    FakeServer::tls(&["h2"], 100, move |request, _| async move {
        let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        if given == Some(&format!("Bearer {token}")) { answer(200, "welcome") } else { answer(401, "no") }
    })
    .await
}

pub(super) fn kubeconfig(file: &std::path::Path, server: &str, token: &str) {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: k, cluster: {{server: '{server}', insecure-skip-tls-verify: true}}}}]\n\
         users: [{{name: u, user: {{token: '{token}'}}}}]\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n"
    );
    std::fs::File::create(file).unwrap().write_all(text.as_bytes()).unwrap();
}

/// A client by a kubeconfig of this server and token.
async fn of_file(server: &str, token: &str, settings: UpstreamConfig) -> (tempfile::NamedTempFile, Upstream) {
    let file = tempfile::NamedTempFile::new().unwrap();
    kubeconfig(file.path(), server, token);
    let client = Upstream::new(ConfigSource::kubeconfig(file.path()), settings).await.unwrap();
    (file, client)
}

#[tokio::test]
async fn a_kubeconfig_that_is_no_text_is_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for bytes in [&b"\xfe\xff{"[..], b"\xff\xfe{", b"\xff", b"\0"] {
        std::fs::write(file.path(), bytes).unwrap();
        let read = ConfigSource::kubeconfig(file.path()).read().await;
        assert!(matches!(read, Err(UpstreamError::Config(_))), "{bytes:?}");
    }
}

#[tokio::test]
async fn refused_credentials_are_read_anew() {
    let server = guarded("new").await;
    let settings = UpstreamConfig { reload_interval: Duration::ZERO, ..UpstreamConfig::default() };
    let (file, client) = of_file(&server.url(), "old", settings).await;
    assert_eq!(client.send(Identity::Own, get("/")).await.unwrap().status(), 401);
    kubeconfig(file.path(), &server.url(), "new");
    let response = client.send(Identity::Own, get("/")).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(server.requests().len(), 4, "each refusal is tried once more");
    // The 401 of a bare request concerns only its client.
    assert_eq!(client.send(Identity::Bare, get("/")).await.unwrap().status(), 401);
    assert_eq!(client.metrics().credential_reloads.get(), 2);
}

#[tokio::test]
async fn refused_credentials_are_not_read_too_often() {
    let server = guarded("new").await;
    let (_file, client) = of_file(&server.url(), "old", UpstreamConfig::default()).await;
    for _ in 0..5 {
        assert_eq!(client.send(Identity::Own, get("/")).await.unwrap().status(), 401);
    }
    assert_eq!(client.metrics().credential_reloads.get(), 1);
    assert_eq!(server.requests().len(), 6);
}

#[tokio::test]
async fn changed_files_are_noticed_when_connecting() {
    let server = guarded("t").await;
    let settings = UpstreamConfig { check_interval: Duration::ZERO, ..UpstreamConfig::default() };
    let (file, client) = of_file("http://127.0.0.1:1", "t", settings).await;
    assert!(client.send(Identity::Own, get("/")).await.is_err());
    kubeconfig(file.path(), &server.url(), "t");
    assert_eq!(client.send(Identity::Own, get("/")).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_failing_exec_plugin_is_an_auth_error() {
    let mut config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    config.auth_info.exec = Some(kube::config::ExecConfig {
        api_version: Some("client.authentication.k8s.io/v1".into()),
        command: Some("false".into()),
        interactive_mode: Some(kube::config::ExecInteractiveMode::Never),
        ..kube::config::ExecConfig::default()
    });
    let error = Upstream::from_config(config).await.err().unwrap();
    assert!(matches!(error, UpstreamError::Auth(_)), "{error}");
}

#[tokio::test]
async fn upgrades_have_a_connection_of_their_own() {
    let server = FakeServer::tls(&["h2", "http/1.1"], 100, |mut request, _| async move {
        let upgrade = hyper::upgrade::on(&mut request);
        informerd_lifecycle::spawn("echo", async move {
            let mut io = hyper_util::rt::TokioIo::new(upgrade.await.unwrap());
            let (mut read, mut write) = tokio::io::split(&mut io);
            tokio::io::copy(&mut read, &mut write).await.ok();
        });
        let mut response = answer(101, "");
        response.headers_mut().insert("connection", HeaderValue::from_static("upgrade"));
        response.headers_mut().insert("upgrade", HeaderValue::from_static("echo"));
        response
    })
    .await;
    let client = Upstream::from_config(server.config()).await.unwrap();
    let response = client.upgrade(Identity::Own, upgrading("/exec"), Duration::from_secs(60)).await.unwrap();
    assert_eq!(response.status(), 101);
    let mut io = hyper_util::rt::TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    io.write_all(b"ping").await.unwrap();
    let mut back = [0; 4];
    io.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"ping");
}

#[tokio::test]
async fn upgrades_take_places_of_forwarded_requests_until_they_are_answered() {
    let server = FakeServer::tls(&["h2", "http/1.1"], 100, |request, _| async move {
        if request.uri().path() == "/silent" {
            std::future::pending::<()>().await;
        }
        answer(101, "")
    })
    .await;
    let settings = UpstreamConfig {
        max_connections: 1,
        streams_per_connection: 1,
        connect_timeout: Duration::from_millis(300),
        ..UpstreamConfig::default()
    };
    let client = upstream(server.config(), settings).await;
    let upgrade = async |path: &str, limit| client.upgrade(Identity::Own, upgrading(path), limit).await;
    let minute = Duration::from_secs(60);
    let open = upgrade("/exec", minute).await.unwrap();
    assert_eq!(open.status(), 101);
    let (silent, refused) = tokio::join!(upgrade("/silent", Duration::from_secs(1)), upgrade("/exec", minute));
    assert!(matches!(silent, Err(UpstreamError::Timeout { .. })), "{silent:?}");
    assert!(matches!(refused, Err(UpstreamError::Busy)), "{refused:?}");
    assert_eq!(upgrade("/exec", minute).await.unwrap().status(), 101);
}

#[tokio::test]
async fn what_is_forwarded_leaves_room_for_our_own() {
    let server = FakeServer::tls(&["h2"], 100, |_, _| async { endless(Vec::new()) }).await;
    let settings = UpstreamConfig {
        max_connections: 1,
        streams_per_connection: 8,
        connect_timeout: Duration::from_millis(300),
        ..UpstreamConfig::default()
    };
    let client = upstream(server.config(), settings).await;
    let mut open = Vec::new();
    for _ in 0..7 {
        open.push(client.send(Identity::Own, get("/")).await.unwrap());
    }
    let refused = client.send(Identity::Own, get("/")).await;
    assert!(matches!(refused, Err(UpstreamError::Busy)));
    let options = CallOptions::new(RequestVerb::Watch, "pods");
    client.send_with(Identity::Own, get("/"), &options).await.unwrap();
    open.pop();
    client.send(Identity::Own, get("/")).await.unwrap();
}
