//! Reviews fail in some of these tests: the apiserver answers nothing but errors.

use http::header::HeaderMap;
use rustls::pki_types::CertificateDer;

use super::*;
use crate::apiserver::metadata::{Metadata, Seen};
use crate::apiserver::testing::{Certificates, FakeServer, answer, head_with, until};
use crate::auth::authenticator::MAX_TOKEN;
use crate::auth::config::ClientCaSource;
use crate::auth::cover::MAX_QUESTIONS;
use crate::auth::shares::Payer;
use crate::auth::testing::{Rights, allowing, bearer, caller, judged_by, long, right, watch_of};

async fn access(config: AuthConfig) -> (Access, FakeServer) {
    let server = FakeServer::plain(|_, _| std::future::ready(answer(500, "{}"))).await;
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    let others = tokio::sync::watch::channel(false).1;
    (Access::delegated(&config, &upstream, others, &Fatal::new()).unwrap(), server)
}

#[tokio::test]
async fn a_token_that_is_too_long_is_left_to_the_apiserver_and_is_no_outage() {
    let (long, short) = (bearer(&"t".repeat(40_000)), bearer(&"t".repeat(4000)));
    let (open, _server) = access(AuthConfig::default()).await;
    // Its client does not count as one that cannot be judged now.
    assert_eq!(open.recognize(&caller(&long)).await.unwrap_err().code, 401);
    assert_eq!(open.recognize(&caller(&short)).await.unwrap_err().code, 503);
    for headers in [&long, &short] {
        let verdict = open.check(&caller(headers), &Arc::default()).await;
        assert!(matches!(verdict, Verdict::Forward(_)), "{verdict:?}");
        assert!(open.pass(&caller(headers), true).await.is_ok());
    }
    let unknown: Arc<[_]> = [CertificateDer::from(vec![0])].into();
    assert!(open.pass(&Caller { certificates: Some(&unknown), ..caller(&long) }, true).await.is_ok());
    // The apiserver could not say of which node it is.
    let (bound, _server) = access(AuthConfig { node: Some("node-x".into()), ..AuthConfig::default() }).await;
    assert_eq!(bound.pass(&caller(&long), true).await.unwrap_err().code, 401);
    assert_eq!(bound.pass(&caller(&short), true).await.unwrap_err().code, 503);
}

#[tokio::test]
async fn what_passes_with_a_token_has_one_that_the_apiserver_sees() {
    let (access, _server) = access(AuthConfig::default()).await;
    let token = ("sec-websocket-protocol", "v4, base64url.bearer.authorization.k8s.io.eA");
    for (upgrade, passes) in [
        (&[("connection", "upgrade"), ("upgrade", "websocket")][..], true),
        (&[("connection", "upgrade, sec-websocket-protocol"), ("upgrade", "websocket")], true),
        (&[("upgrade", "websocket")], false),
        (&[("connection", "upgrade"), ("upgrade", "x")], false),
        (&[("upgrade", "x")], false),
        (&[], false),
    ] {
        let headers = head_with(&[upgrade, &[token]].concat());
        assert_eq!(access.pass(&caller(&headers), false).await.is_ok(), passes, "{upgrade:?}");
    }
}

/// Nothing on a trusted listener checks the right to impersonate, so no protocol may ignore that it is asked for.
#[tokio::test]
async fn a_trusted_listener_leaves_impersonation_to_the_apiserver() {
    let (access, token) = (Access::trusting(), ("authorization", "Bearer t"));
    for (lines, are_allowed) in [
        (&[][..], [true; 2]),
        (&[token], [true; 2]),
        (&[token, ("x-remote-user", "x")], [true; 2]),
        (&[token, ("impersonate-user", "x")], [false; 2]),
        (&[token, ("impersonate-extra-x", "x")], [false; 2]),
        // A request over HTTP is forwarded elsewhere, if at all.
        (&[token, token], [false, true]),
    ] {
        for (may_impersonate, is_allowed) in [false, true].into_iter().zip(are_allowed) {
            let headers = head_with(lines);
            let caller = Caller { mode: Mode::Trust, may_impersonate, ..caller(&headers) };
            let verdict = access.check(&caller, &Arc::default()).await;
            let is_forwarded = matches!(&verdict, Verdict::Forward(status) if status.code == 503);
            let found = (matches!(verdict, Verdict::Allowed(_)), is_forwarded);
            assert_eq!(found, (is_allowed, !is_allowed), "{may_impersonate} {lines:?}: {verdict:?}");
        }
    }
}

/// A token for our audiences may be one that the apiserver refuses, with the connection of all who share it.
#[tokio::test]
async fn what_the_apiserver_says_to_a_token_is_remembered() {
    let rights = Arc::<Rights>::default();
    let jane = serde_json::json!({"authenticated": true, "user": {"username": "jane"}, "audiences": ["informerd"]});
    rights.tokens.lock().extend(["ours", "others"].map(|token| (token, jane.clone())));
    for audiences in [vec![], vec!["informerd".to_owned()]] {
        let is_for_the_apiserver = audiences.is_empty();
        let (access, _server) = judged_by(&rights, &AuthConfig { audiences, ..long() }).await;
        let (ours, others) = (bearer("ours"), bearer("others"));
        let is_accepted = async |headers| Some(access.recall(&caller(headers)).await?.is_accepted);
        assert_eq!(is_accepted(&ours).await, None, "it was never reviewed");
        for headers in [&ours, &others] {
            access.recognize(&caller(headers)).await.unwrap();
        }
        assert_eq!(is_accepted(&ours).await, Some(is_for_the_apiserver));
        for said in [false, true, true, false, false, true] {
            access.said(&access.recall(&caller(&ours)).await.unwrap(), said).await;
            access.recognize(&caller(&ours)).await.unwrap();
            assert_eq!(is_accepted(&ours).await, Some(said));
            assert_eq!(is_accepted(&others).await, Some(is_for_the_apiserver), "another token");
        }
        assert_eq!(access.metrics().token_reviews.get(), 2, "what was just reviewed is not reviewed again");
    }
}

/// Unless the apiserver might know it. A review is as old here as for a read.
#[tokio::test]
async fn a_token_that_a_review_has_refused_goes_no_further() {
    let rights = Arc::<Rights>::default();
    rights.tokens.lock().insert("bad", serde_json::json!({}));
    let [bad, good] = ["bad", "good"].map(bearer);
    let [bad_first, other] = [["Bearer bad", "Bearer good"], ["Bearer bad", "Basic eA=="]]
        .map(|lines| head_with(&lines.map(|line| ("authorization", line))));
    for audiences in [vec!["informerd".to_owned()], vec![]] {
        let passes = !audiences.is_empty();
        let (access, _server) = judged_by(&rights, &AuthConfig { audiences, ..long() }).await;
        let code = async |headers: &HeaderMap, is_judged| {
            access.pass(&caller(headers), is_judged).await.map_err(|status| status.code)
        };
        assert_eq!(code(&bad, true).await, if passes { Ok(()) } else { Err(401) }, "{passes}");
        for (headers, is_judged) in [(&bad, false), (&good, true), (&bad_first, true), (&other, true)] {
            assert_eq!(code(headers, is_judged).await, Ok(()), "{passes} {headers:?}");
        }
        if passes {
            continue;
        }
        assert!(access.recognize(&caller(&bad)).await.is_err());
        assert_eq!(access.metrics().token_reviews.get(), 2, "one of each");
        // It is reviewed again, for all.
        rights.tokens.lock().clear();
        let delegated = access.delegated.as_ref().unwrap();
        delegated.revoked.tell(&Seen::Restarted(Vec::new()), &delegated.generations);
        assert_eq!(code(&bad, true).await, Ok(()));
    }
}

/// The head of a request is as long as its client likes, and a forwarded watch lasts as long as it likes.
#[tokio::test]
async fn the_term_of_a_forwarded_watch_keeps_no_head() {
    let (access, _server) = access(AuthConfig::default()).await;
    let head = bytes::Bytes::from([&b"Bearer t"[..], &[b'x'; 700_000]].concat());
    // Somebody, and one whom only the apiserver knows.
    for whom in [8..20, 8..head.len()] {
        let mut headers = HeaderMap::new();
        for (name, part) in [("authorization", 0..8), ("impersonate-user", whom), ("cookie", 8..9)] {
            headers.insert(name, http::HeaderValue::from_maybe_shared(head.slice(part)).unwrap());
        }
        let term = access.term(&caller(&headers), Attributes::default());
        drop(headers);
        assert!(term.is_some() && head.is_unique(), "nothing else holds the head");
    }
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
        let (access, _server) =
            access(AuthConfig { client_ca: client_ca.clone(), node, ..AuthConfig::default() }).await;
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
                let headers = head_with(lines);
                let caller = Caller { certificates, may_impersonate: false, ..caller(&headers) };
                let verdict = access.check(&caller, &Arc::default()).await;
                let (is_refused, code) = match &verdict {
                    Verdict::Refused { status, .. } => (true, status.code),
                    Verdict::Forward(status) => (false, status.code),
                    Verdict::Allowed(_) => panic!("{lines:?}: {verdict:?}"),
                };
                // Who has a certificate counts as its user, and can never be forwarded.
                let by_certificate = certificates.is_some() && *lines == [token];
                assert_eq!((is_refused, code), (by_certificate, 503), "{lines:?}: {verdict:?}");
            }
        }
        let empty = HeaderMap::new();
        let alone = Caller { certificates: Some(&chain), may_impersonate: false, ..caller(&empty) };
        assert!(access.enter(&alone).await.is_ok(), "the certificate is accepted");
        for may_impersonate in [false, true] {
            let verdict = access.check(&Caller { may_impersonate, ..alone }, &Arc::default()).await;
            assert!(
                matches!(&verdict, Verdict::Refused { status, .. } if status.code == 503),
                "no review: {verdict:?}"
            );
        }
    }
}

/// The watch of what tokens are bound to starts anew. What was deleted in between is never told.
#[tokio::test]
async fn a_token_is_reviewed_again_when_its_end_may_have_been_missed() {
    let (rights, access, _server) = allowing(&[("jane", "a")], &long()).await;
    let (headers, reviews) = (bearer("jane"), &access.metrics().token_reviews);
    let verdict = access.check(&caller(&headers), &watch_of("a")).await;
    let Verdict::Allowed(grant) = verdict else { panic!("{verdict:?}") };
    let lease = grant.lease();
    assert!(access.recognize(&caller(&headers)).await.is_ok());
    assert_eq!(reviews.get(), 1);
    rights.tokens.lock().insert("jane", serde_json::json!({}));
    let delegated = access.delegated.as_ref().unwrap();
    delegated.revoked.tell(&Seen::Restarted(Vec::new()), &delegated.generations);
    assert_eq!(access.recognize(&caller(&headers)).await.unwrap_err().code, 401);
    let gone = tokio::time::timeout(std::time::Duration::from_secs(60), lease.gone()).await;
    assert_eq!(gone.expect("the open stream is told").map(|status| status.code), Some(401));
    assert_eq!(reviews.get(), 2, "once for all of its requests and streams");
}

#[tokio::test]
async fn a_verdict_says_who_asked_and_is_counted_once() {
    let (rights, access, server) = allowing(&[("jane", "a"), ("admin", "")], &long()).await;
    let root = serde_json::json!({"authenticated": true, "user": {"username": "root", "groups": ["system:masters"]}});
    rights.tokens.lock().extend([("bad", serde_json::json!({})), ("root", root)]);
    let [jane, bad, root, mut admin] = ["jane", "bad", "root", "admin"].map(bearer);
    admin.insert("impersonate-user", "jane".parse().unwrap());
    let list = |namespace| Arc::new(Attributes { verb: "list".into(), ..Attributes::clone(&watch_of(namespace)) });
    let unread = Arc::new(Attributes { unread: true, ..Attributes::default() });
    let metrics = access.metrics();
    let counted = || {
        let of = [metrics.allowed.get(), metrics.denied.get(), metrics.unauthenticated.get(), metrics.undecided.get()];
        (of, metrics.rights_held.get())
    };
    let who = |subject: Option<Subject>| {
        let subject = subject.unwrap();
        (subject.user.username.clone(), subject.impersonated.map(|user| user.username.clone()))
    };
    for (headers, attributes, user, impersonated, rights_held) in [
        (&jane, list("a"), "jane", None, 0),
        (&jane, watch_of("a"), "jane", None, 1),
        (&admin, watch_of("a"), "admin", Some("jane"), 2),
        (&root, list("z"), "root", None, 0),
    ] {
        let before = counted().0;
        let verdict = access.check(&caller(headers), &attributes).await;
        let Verdict::Allowed(grant) = verdict else { panic!("{user}: {verdict:?}") };
        assert_eq!(who(grant.subject()), (user.to_owned(), impersonated.map(str::to_owned)));
        assert!(grant.may_forward() && grant.user().is_some_and(|known| known.username == user));
        assert_eq!(counted(), ([before[0] + 1, before[1], before[2], before[3]], rights_held), "{user}");
    }
    let verdict = access.check(&caller(&jane), &list("b")).await;
    let Verdict::Refused { status, subject } = verdict else { panic!("{verdict:?}") };
    assert!(status.code == 403 && status.message.ends_with(r#"in the namespace "b": so it is written"#), "{status:?}");
    assert_eq!((who(subject), counted()), (("jane".into(), None), ([4, 1, 0, 0], 0)));
    let verdict = access.check(&caller(&bad), &list("a")).await;
    assert!(matches!(&verdict, Verdict::Refused { status, subject: None } if status.code == 401), "{verdict:?}");
    // A selector that is not read here, and a review that says nothing.
    for (headers, attributes, is_unread) in [(&admin, unread, true), (&jane, list("unsure"), false)] {
        let Verdict::Forward(status) = access.check(&caller(headers), &attributes).await else { panic!("{is_unread}") };
        assert_eq!(status.message.contains("only the apiserver"), is_unread, "{status:?}");
    }
    assert_eq!(counted().0, [4, 1, 1, 2]);
    assert_eq!((access.enter(&caller(&bad)).await.unwrap_err().code, counted().0), (401, [4, 1, 2, 2]));
    rights.is_down.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(access.enter(&caller(&bearer("new"))).await.unwrap_err().code, 503);
    assert!(access.enter(&caller(&jane)).await.is_ok() && access.recognize(&caller(&bad)).await.is_err());
    assert_eq!(counted().0, [4, 1, 2, 3]);
    let sent = (metrics.token_reviews.get(), metrics.access_reviews.get(), metrics.review_failures.get());
    assert_eq!(sent, (5, rights.asked.lock().len() as u64, 1));
    assert!(metrics.review_seconds.get() > 0.0 && metrics.reviews_peak.get() == 1);
    assert_eq!((metrics.reviews_abandoned.get(), metrics.reviews_running.get()), (0, 0));
    rights.is_down.store(false, std::sync::atomic::Ordering::Relaxed);

    // A forwarded watch holds its right as well.
    let term = access.term(&caller(&jane), Attributes::clone(&watch_of("a")));
    let is_there = || metrics.rights_held.get() == 1 && server.seen.lock().iter().any(|s| s.uri.contains("/roles"));
    // Changes of rights are followed.
    until(is_there).await;
    drop(term);
    until(|| metrics.rights_held.get() == 0).await;
}

#[tokio::test]
async fn the_payer_is_the_user_of_a_token_that_was_accepted() {
    let (rights, access, _server) = allowing(&[], &long()).await;
    let jane = serde_json::json!({"authenticated": true, "user": {"username": "jane", "uid": "1"}});
    rights.tokens.lock().insert("jane", jane);
    let headers = bearer("jane");
    let payer_of = async |caller: Caller<'_>| access.recall(&caller).await.map(|recalled| recalled.payer);
    assert_eq!(payer_of(caller(&headers)).await, None, "nobody knows it yet");
    access.recognize(&caller(&headers)).await.unwrap();
    let payer = Some(Payer::of(&UserInfo { username: "jane".into(), ..UserInfo::default() }));
    assert_eq!(payer_of(caller(&headers)).await, payer);
    assert_eq!(payer_of(Caller { mode: Mode::Trust, ..caller(&headers) }).await, None);
    let delegated = access.delegated.as_ref().unwrap();
    let object = &Metadata { uid: "1".into(), ..Metadata::default() };
    delegated.revoked.tell(&Seen::Change { deleted: true, object }, &delegated.generations);
    assert_eq!(payer_of(caller(&headers)).await, None, "the account is gone");
    assert_eq!(access.recognize(&caller(&headers)).await.unwrap_err().code, 401);
    // The longest token that is reviewed, and a longer one.
    for (length, is_known) in [(MAX_TOKEN, true), (MAX_TOKEN + 1, false)] {
        let headers = bearer(&"t".repeat(length));
        assert_eq!(access.recognize(&caller(&headers)).await.is_ok(), is_known, "{length}");
        assert_eq!(payer_of(caller(&headers)).await.is_some(), is_known, "{length}");
    }
}

/// Nothing is forwarded for a user of another node, or for one that a server behind informerd could take for another.
#[tokio::test]
async fn what_passes_a_listener_of_a_node_is_of_this_node() {
    let here = |node: &str| {
        let extra = serde_json::json!({"authentication.kubernetes.io/node-name": [node]});
        serde_json::json!({"authenticated": true, "user": {"username": "pod", "extra": extra}})
    };
    let rights = Arc::<Rights>::default();
    rights.tokens.lock().extend([("here", here("x")), ("there", here("y")), ("bad", serde_json::json!({}))]);
    for anonymous in [Anonymous::Refuse, Anonymous::Forward] {
        let config = AuthConfig { node: Some("x".into()), anonymous, ..AuthConfig::default() };
        let (access, _server) = judged_by(&rights, &config).await;
        for (lines, passes) in [
            (&["Bearer here"][..], true),
            (&["Bearer there"], false),
            (&["Bearer nowhere"], false),
            (&["Bearer bad"], false),
            (&["Bearer here", "Bearer here"], false),
            (&["Bearer here", "Basic eA=="], false),
            (&["Basic eA=="], false),
            (&[], anonymous == Anonymous::Forward),
        ] {
            let headers = head_with(&lines.iter().map(|line| ("authorization", *line)).collect::<Vec<_>>());
            assert_eq!(access.pass(&caller(&headers), false).await.is_ok(), passes, "{anonymous:?} {lines:?}");
        }
        // If the apiserver does not accept the first token, such as for its audience, it tries the other one.
        let another = "base64url.bearer.authorization.k8s.io.dGhlcmU, v4";
        let lines = [("authorization", "Bearer here"), ("sec-websocket-protocol", another)];
        let headers = head_with(&[&lines[..], &[("connection", "upgrade"), ("upgrade", "websocket")]].concat());
        assert!(access.pass(&caller(&headers), false).await.is_err(), "{anonymous:?}");
        assert!(!bearer::shows_token(&headers));
    }
}

#[tokio::test]
async fn a_read_asks_so_many_questions_and_no_more() {
    let (rights, access, _server) = allowing(&[], &long()).await;
    let get = |at| Arc::new(Attributes { verb: "get".into(), ..Attributes::clone(&watch_of(&format!("n{at}"))) });
    let wanted: Vec<_> = (0..=MAX_QUESTIONS).map(get).collect();
    rights.given.lock().extend(wanted.iter().map(|access| right("jane", &access.namespace)));
    let headers = bearer("jane");
    for (asks, code) in [(MAX_QUESTIONS, None), (MAX_QUESTIONS + 1, Some(429))] {
        let (verdict, _) = access.check_all(&caller(&headers), &wanted[..asks], false).await;
        let refused = match &verdict {
            Verdict::Refused { status, .. } => Some(status.code),
            Verdict::Allowed(_) | Verdict::Forward(_) => None,
        };
        assert_eq!((refused, matches!(verdict, Verdict::Allowed(_))), (code, code.is_none()), "{asks}");
    }
    assert_eq!((access.metrics().unauthenticated.get(), access.metrics().undecided.get()), (0, 1));
}
