//! Reviews fail in most of these tests: nothing listens at the address of the apiserver.

use http::header::{AUTHORIZATION, HeaderName};

use super::*;
use crate::auth::config::ClientCaSource;
use crate::upstream::testing::{Certificates, FakeServer, answer};

async fn access(config: AuthConfig) -> Access {
    let upstream = Upstream::from_config(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).await.unwrap();
    Access::delegated(&config, &upstream, &Fatal::new()).unwrap()
}

fn caller(headers: &HeaderMap) -> Caller<'_> {
    Caller { mode: Mode::Delegated, certificates: None, headers, may_impersonate: true }
}

fn bearer(length: usize) -> HeaderMap {
    HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {}", "t".repeat(length)).parse().unwrap())])
}

#[tokio::test]
async fn a_token_that_is_too_long_is_left_to_the_apiserver_and_is_no_outage() {
    let (long, short) = (bearer(40_000), bearer(4000));
    let open = access(AuthConfig::default()).await;
    // Its client does not count as one that cannot be judged now.
    assert_eq!(open.recognize(&caller(&long)).await.unwrap_err().code, 401);
    assert_eq!(open.recognize(&caller(&short)).await.unwrap_err().code, 503);
    for headers in [&long, &short] {
        let verdict = open.check(&caller(headers), &Arc::default()).await;
        assert!(matches!(verdict, Verdict::Forward(_)), "{verdict:?}");
        assert!(open.pass(&caller(headers)).await.is_ok());
    }
    // The apiserver could not say of which node it is.
    let bound = access(AuthConfig { node: Some("node-x".into()), ..AuthConfig::default() }).await;
    assert_eq!(bound.pass(&caller(&long)).await.unwrap_err().code, 401);
    assert_eq!(bound.pass(&caller(&short)).await.unwrap_err().code, 503);
}

#[tokio::test]
async fn what_passes_with_a_token_has_one_that_the_apiserver_sees() {
    let access = access(AuthConfig::default()).await;
    let token = ("sec-websocket-protocol", "v4, base64url.bearer.authorization.k8s.io.eA");
    for (upgrade, passes) in [
        (&[("connection", "upgrade"), ("upgrade", "websocket")][..], true),
        (&[("connection", "upgrade, sec-websocket-protocol"), ("upgrade", "websocket")], true),
        (&[("upgrade", "websocket")], false),
        (&[("connection", "upgrade"), ("upgrade", "x")], false),
        (&[("upgrade", "x")], false),
        (&[], false),
    ] {
        let lines = upgrade.iter().chain([&token]);
        let headers = lines.map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect();
        assert_eq!(access.pass(&caller(&headers)).await.is_ok(), passes, "{upgrade:?}");
    }
}

/// Nothing on a trusted listener checks the right to impersonate, so no protocol may ignore that it is asked for.
#[tokio::test]
async fn a_trusted_listener_leaves_impersonation_to_the_apiserver() {
    let access = Access::trusting();
    let attributes = Arc::default();
    let asks = |lines: &[(&'static str, &'static str)], may_impersonate| {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        let (access, attributes) = (access.clone(), Arc::clone(&attributes));
        async move {
            let caller = Caller { mode: Mode::Trust, certificates: None, headers: &headers, may_impersonate };
            access.check(&caller, &attributes).await
        }
    };
    let token = ("authorization", "Bearer t");
    for may_impersonate in [false, true] {
        for name in ["impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-x", "impersonate-"]
        {
            let verdict = asks(&[token, (name, "x")], may_impersonate).await;
            assert!(matches!(&verdict, Verdict::Forward(status) if status.code == 503), "{name}: {verdict:?}");
        }
        for lines in [&[][..], &[token], &[("x-remote-user", "x")]] {
            assert!(matches!(asks(lines, may_impersonate).await, Verdict::Allowed(_)), "{lines:?}");
        }
        // A request over HTTP is forwarded elsewhere, if at all.
        let verdict = asks(&[token, token], may_impersonate).await;
        assert_eq!(matches!(verdict, Verdict::Allowed(_)), may_impersonate, "{verdict:?}");
    }
}

/// A token for our audiences may be one that the apiserver refuses, with the connection of all who share it.
#[tokio::test]
async fn what_the_apiserver_says_to_a_token_is_remembered() {
    let server = FakeServer::plain(|_, _| async {
        answer(201, r#"{"status":{"authenticated":true,"user":{"username":"jane"},"audiences":["informerd"]}}"#)
    })
    .await;
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    for audiences in [vec![], vec!["informerd".to_owned()]] {
        let is_for_the_apiserver = audiences.is_empty();
        let token_ttl = std::time::Duration::from_secs(3600);
        let config = AuthConfig { audiences, token_ttl, ..AuthConfig::default() };
        let access = Access::delegated(&config, &upstream, &Fatal::new()).unwrap();
        let (ours, others) = (bearer(10), bearer(11));
        let is_accepted = async |headers| Some(access.recall(&caller(headers)).await?.is_accepted);
        assert_eq!(is_accepted(&ours).await, None, "it was never reviewed");
        for headers in [&ours, &others] {
            access.recognize(&caller(headers)).await.unwrap();
        }
        assert_eq!(is_accepted(&ours).await, Some(is_for_the_apiserver));
        for said in [false, true, true, false, false, true] {
            access.said(&access.recall(&caller(&ours)).await.unwrap(), said).await;
            assert_eq!(is_accepted(&ours).await, Some(said));
            assert_eq!(is_accepted(&others).await, Some(is_for_the_apiserver), "another token");
        }
    }
}

#[tokio::test]
async fn a_selector_that_is_not_read_here_is_for_the_apiserver() {
    let access = access(AuthConfig::default()).await;
    let unread = Arc::new(Attributes { unread: true, ..Attributes::default() });
    let verdict = access.check(&caller(&bearer(10)), &unread).await;
    assert!(
        matches!(&verdict, Verdict::Forward(status) if status.message.contains("only the apiserver")),
        "{verdict:?}"
    );
}

/// The head of a request is as long as its client likes, and a forwarded watch lasts as long as it likes.
#[tokio::test]
async fn the_term_of_a_forwarded_watch_keeps_no_head() {
    let access = access(AuthConfig::default()).await;
    let head = bytes::Bytes::from(vec![b'x'; 700_000]);
    let mut headers = bearer(10);
    for name in ["cookie", "user-agent", "impersonate-user"] {
        headers.insert(name, http::HeaderValue::from_maybe_shared(head.clone()).unwrap());
    }
    let term = access.term(&caller(&headers), Attributes::default());
    drop(headers);
    assert!(term.is_some() && head.is_unique(), "nothing else holds the head");
}

/// As a call over gRPC is. How it could be forwarded, if it were, is nothing to its client.
#[tokio::test]
async fn a_caller_that_is_never_forwarded_is_told_to_try_again() {
    use rustls::pki_types::pem::PemObject as _;
    let certificates = Certificates::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &certificates.ca).unwrap();
    let client_ca = Some(ClientCaSource::File(file.path().to_owned()));
    let chain: Arc<[_]> = [CertificateDer::from_pem_slice(certificates.client.0.as_bytes()).unwrap()].into();
    let (token, basic, jane) =
        (("authorization", "Bearer t"), ("authorization", "Basic eA=="), ("impersonate-user", "jane"));
    for node in [None, Some("node-x".to_owned())] {
        let access = access(AuthConfig { client_ca: client_ca.clone(), node, ..AuthConfig::default() }).await;
        for certificates in [None, Some(&chain)] {
            for lines in [
                &[token, token][..],
                &[token, basic],
                &[basic, token],
                &[token, jane],
                &[jane],
                &[basic, jane],
                &[token],
            ] {
                let mut headers = HeaderMap::new();
                for (name, value) in lines {
                    headers.append(HeaderName::from_static(name), value.parse().unwrap());
                }
                let caller = Caller { mode: Mode::Delegated, certificates, headers: &headers, may_impersonate: false };
                let verdict = access.check(&caller, &Arc::default()).await;
                assert!(matches!(&verdict, Verdict::Forward(status) if status.code == 503), "{lines:?}: {verdict:?}");
            }
        }
        let empty = HeaderMap::new();
        let alone =
            Caller { mode: Mode::Delegated, certificates: Some(&chain), headers: &empty, may_impersonate: false };
        assert!(access.enter(&alone).await.is_ok(), "the certificate is accepted");
        let verdict = access.check(&alone, &Arc::default()).await;
        assert!(matches!(&verdict, Verdict::Forward(status) if status.code == 503), "no review: {verdict:?}");
        let verdict = access.check(&Caller { may_impersonate: true, ..alone }, &Arc::default()).await;
        assert!(matches!(&verdict, Verdict::Refused { status, .. } if status.code == 403), "over HTTP: {verdict:?}");
    }
}

/// The watch of what tokens are bound to starts anew. What was deleted in between is never told.
#[tokio::test]
async fn a_token_is_reviewed_again_when_its_end_may_have_been_missed() {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    let (is_there, reviews) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let (there, asked) = (Arc::clone(&is_there), Arc::clone(&reviews));
    let server = FakeServer::plain(move |request, _| {
        let answer = match request.uri().path() {
            path if path.ends_with("/tokenreviews") => {
                asked.fetch_add(1, Ordering::Relaxed);
                let (there, user) = (there.load(Ordering::Relaxed), r#"{"username":"jane","uid":"1"}"#);
                answer(201, format!(r#"{{"status":{{"authenticated":{there},"user":{user}}}}}"#))
            }
            path if path.ends_with("/subjectaccessreviews") => answer(201, r#"{"status":{"allowed":true}}"#),
            _ => answer(404, "{}"),
        };
        std::future::ready(answer)
    })
    .await;
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    let config = AuthConfig { token_ttl: std::time::Duration::from_secs(3600), ..AuthConfig::default() };
    let access = Access::delegated(&config, &upstream, &Fatal::new()).unwrap();
    let headers = bearer(10);
    let watch = Arc::new(Attributes { verb: "watch".into(), ..Attributes::default() });
    let verdict = access.check(&caller(&headers), &watch).await;
    let Verdict::Allowed(grant) = verdict else { panic!("{verdict:?}") };
    let lease = grant.lease();
    assert!(access.recognize(&caller(&headers)).await.is_ok());
    assert_eq!(reviews.load(Ordering::Relaxed), 1);
    is_there.store(false, Ordering::Relaxed);
    let delegated = access.delegated.as_ref().unwrap();
    delegated.revoked.tell(&crate::upstream::metadata::Seen::Restarted(Vec::new()), &delegated.generations);
    assert_eq!(access.recognize(&caller(&headers)).await.unwrap_err().code, 401);
    let gone = tokio::time::timeout(std::time::Duration::from_secs(60), lease.gone()).await;
    assert_eq!(gone.expect("the open stream is told").code, 401);
    assert_eq!(reviews.load(Ordering::Relaxed), 2, "once for all of its requests and streams");
}
