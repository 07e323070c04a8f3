//! Who may ask, and in whose name it is asked further.

use http::Method;
use informerd::apiserver::client::ConfigSource;
use informerd_sim::{RequestRecord, Server};

use super::fixtures::{CONFIG_MAPS, JSON, RawConnection, config_map, informers};
use crate::support::client::{Answer, Client};
use crate::support::{Through, file, until};

#[tokio::test(flavor = "multi_thread")]
async fn web_pages_are_refused() {
    let (server, through, _) = Through::simulated([config_map("a", "one")], "allowedHosts: [cache.internal]\n").await;
    let address = through.url.strip_prefix("http://").unwrap().to_owned();
    let port = address.rsplit_once(':').unwrap().1;
    let path = format!("{CONFIG_MAPS}?resourceVersion=0");
    let origin = |origin: &str| format!("Host: {address}\r\nOrigin: {origin}\r\n");
    for (headers, code) in [
        (format!("Host: {address}\r\n"), 200),
        (format!("Host: localhost:{port}\r\n"), 200),
        ("Host: cache.internal\r\n".to_owned(), 200),
        (origin(&format!("http://{address}")), 200),
        ("Host: rebound.example.com\r\n".to_owned(), 403),
        (format!("Host: rebound.example.com:{port}\r\n"), 403),
        (format!("Host: {address}\r\nHost: localhost\r\n"), 400),
        (String::new(), 400),
        (origin("http://evil.example.com"), 403),
        (origin("null"), 403),
        (format!("Host: {address}\r\nSec-Fetch-Site: cross-site\r\n"), 403),
        // An upgrade is a request like any other.
        (origin("http://evil.example.com") + "Connection: Upgrade\r\nUpgrade: websocket\r\n", 403),
    ] {
        let mut raw = RawConnection::open(&through.url).await;
        raw.say(&format!("GET {path} HTTP/1.1\r\n{headers}\r\n")).await;
        let answer = raw.until("}\n").await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{headers:?}: {answer}");
        let status = answer.contains(r#""kind":"Status""#);
        assert_eq!(status, code != 200, "{headers:?}: {answer}");
        if code != 200 {
            assert!(!answer.contains("\"one\""), "{headers:?}: {answer}");
        }
    }
    assert!(!server.requests().iter().any(|request| request.target.contains("configmaps") && request.method != "GET"));
}

struct World {
    server: Server,
    through: Through,
    client: Client,
    _directory: tempfile::TempDir,
}

async fn lending(lend: &str) -> World {
    showing_ours(&format!("consistentReads: upstream\nlendIdentity: {lend}\n")).await
}

/// informerd has the token `ours`.
async fn showing_ours(yaml: &str) -> World {
    let server = Server::builder().object(config_map("a", "one")).start().await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let token = file(directory.path(), "token", "ours");
    // A kubeconfig's credentials are not sent without TLS.
    let mut config = kube::Config::new(server.url().parse().unwrap());
    config.auth_info.token_file = Some(token.display().to_string());
    let through = Through::start(ConfigSource::Fixed(Box::new(config)), yaml).await;
    through.ready().await;
    let client = Client::new(&through.url);
    World { server, through, client, _directory: directory }
}

impl World {
    /// Sends a request; returns its answer and what arrived upstream of it, found by its path.
    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (Answer, Vec<RequestRecord>) {
        let before = self.server.requests().len();
        let answer = self.client.request(method.clone(), path, headers, body).await;
        let requests = self.server.requests().into_iter().skip(before);
        // The informer has its own requests.
        let ours = |request: &RequestRecord| request.method == method.as_str() && request.target == path;
        (answer, requests.filter(ours).collect())
    }
}

const MINE: (&str, &str) = ("authorization", "Bearer mine");

/// Identity headers of a front proxy must not be believed because they came by us.
#[tokio::test(flavor = "multi_thread")]
async fn ours_are_lent_as_configured_to_those_without_their_own() {
    let create = config_map("a", "created").to_string();
    for (lend, read, write) in [("all", 200, 201), ("reads", 200, 403), ("none", 401, 401)] {
        let world = lending(lend).await;
        // A client's own credentials go with its request, and ours do not.
        for (method, path, body, code) in [
            (Method::GET, CONFIG_MAPS, "", 200),
            (Method::POST, "/api/v1/namespaces/a/configmaps", &create, 201),
            (Method::DELETE, "/api/v1/namespaces/a/configmaps/created", "", 200),
            (Method::GET, "/version", "", 200),
        ] {
            let (answer, arrived) = world.send(method, path, &[MINE, JSON], body).await;
            assert_eq!((answer.status.as_u16(), arrived.len()), (code, 1), "{lend} {path}: {}", answer.text());
            assert_eq!(arrived[0].authorization.as_deref(), Some("Bearer mine"), "{lend} {path}");
        }
        let reads = [(Method::GET, CONFIG_MAPS), (Method::GET, "/version")];
        for (method, path) in reads {
            let (answer, arrived) = world.send(method, path, &[("x-remote-user", "root")], "").await;
            assert_eq!(answer.status.as_u16(), read, "{lend} {path}: {}", answer.text());
            assert_eq!(arrived.len(), usize::from(read == 200), "{lend} {path}");
            assert!(
                arrived.iter().all(|request| request.authorization.as_deref() == Some("Bearer ours")),
                "{arrived:?}"
            );
        }
        let (answer, arrived) = world.send(Method::POST, "/api/v1/namespaces/a/configmaps", &[JSON], &create).await;
        assert_eq!(answer.status.as_u16(), write, "{lend}: {}", answer.text());
        assert_eq!(arrived.len(), usize::from(write == 201), "{lend}");
        if write != 201 {
            assert_eq!(answer.json()["kind"], "Status", "{}", answer.text());
            assert!(answer.text().contains("informerd"), "it says who refuses: {}", answer.text());
        }
        for path in [
            "/api/v1/namespaces/a/pods/p/exec?command=sh",
            "/api/v1/namespaces/a/pods/p/portforward",
            "/api/v1/namespaces/a/services/s/proxy/",
        ] {
            let (answer, arrived) = world.send(Method::GET, path, &[], "").await;
            // Sessions in pods are not lent over TCP, whatever is.
            let passes = lend == "all" && path.contains("/services/");
            assert_eq!(arrived.len(), usize::from(passes), "{lend} {path}");
            if !passes {
                assert!([401, 403].contains(&answer.status.as_u16()), "{lend} {path}: {}", answer.text());
            }
        }
        let (_, arrived) = world.send(Method::GET, "/api/v1/pods", &[("impersonate-user", "root")], "").await;
        assert_eq!(arrived.len(), usize::from(lend == "all"), "{lend}: impersonation");
        // What is cached is for whoever reaches the listener; our own informer fetches it.
        let cached = world.client.get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
        assert_eq!(cached.status, 200, "{lend}: {}", cached.text());
        assert!(world.through.daemon.reads.metrics().local() >= 1);
    }
}

/// A sidecar's programs often have its own token. What others list is forwarded, so nothing is started for them.
#[tokio::test(flavor = "multi_thread")]
async fn our_own_token_is_no_strangers_and_a_strangers_starts_nothing() {
    const OURS: (&str, &str) = ("authorization", "Bearer ours");
    let world = showing_ours("consistentReads: auto\n").await;
    let served = || world.through.daemon.http.requests_served.get();
    for token in ["Bearer a", "Bearer b", "Bearer c"] {
        let (answer, arrived) = world.send(Method::GET, CONFIG_MAPS, &[("authorization", token)], "").await;
        assert_eq!((answer.status.as_u16(), arrived.len(), served()), (200, 1, 0));
    }
    assert_eq!(informers(&world.through), [""; 0]);
    until("it is served", async || {
        assert_eq!(world.send(Method::GET, CONFIG_MAPS, &[OURS], "").await.0.status, 200);
        served() > 0
    })
    .await;
    assert_eq!(informers(&world.through), ["v1/configmaps"]);
    let before = served();
    for headers in [&[MINE][..], &[OURS, ("impersonate-user", "root")]] {
        assert_eq!(world.send(Method::GET, CONFIG_MAPS, headers, "").await.1.len(), 1, "{headers:?}");
    }
    assert_eq!(served(), before);
}

/// The apiserver's answer to a forwarded read is the review of its token, for that read alone.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_stranger_was_just_allowed_to_read_is_answered_here() {
    let world = showing_ours("consistentReads: auto\n").await;
    let served = || world.through.daemon.http.requests_served.get();
    let theirs = |arrived: &[RequestRecord]| {
        arrived.iter().filter(|request| request.authorization.as_deref() != Some("Bearer ours")).count()
    };
    let (forwarded, arrived) = world.send(Method::GET, CONFIG_MAPS, &[MINE], "").await;
    assert_eq!((forwarded.status.as_u16(), theirs(&arrived), served()), (200, 1, 0));
    until("it is served", async || {
        let (answer, arrived) = world.send(Method::GET, CONFIG_MAPS, &[MINE], "").await;
        assert_eq!(answer.text(), forwarded.text());
        theirs(&arrived) == 0
    })
    .await;
    let before = served();
    for (path, headers) in [
        (CONFIG_MAPS, &[("authorization", "Bearer others")][..]),
        ("/api/v1/namespaces/a/configmaps", &[MINE]),
        (CONFIG_MAPS, &[MINE, ("cookie", "user=root")]),
        (CONFIG_MAPS, &[MINE, ("impersonate-user", "root")]),
    ] {
        assert_eq!(theirs(&world.send(Method::GET, path, headers, "").await.1), 1, "{path} {headers:?}");
    }
    assert_eq!(served(), before);
}
