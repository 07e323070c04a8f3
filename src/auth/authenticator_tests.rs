use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;

use super::*;
use crate::apiserver::metadata;
use crate::apiserver::testing::Certificates;
use crate::auth::config::ClientCaSource;
use crate::auth::rbac_generations::RbacGenerations;
use crate::auth::testing::{allowing, bearer, long};
use crate::auth::user::{POD_NAME, POD_UID};

#[tokio::test]
async fn a_token_is_of_the_audience_the_node_and_a_pod_that_is_there() {
    let ttl = long().token_ttl;
    let pod = |name: &str| {
        let extra = json!({POD_NAME: [name], POD_UID: ["1"], NODE_NAME: ["x"]});
        json!({"username": "system:serviceaccount:a:b", "extra": extra})
    };
    for (audiences, node, of, user, is_accepted) in [
        (&[] as &[&str], None, &[] as &[&str], json!({"username": "u"}), true),
        (&[], None, &["a"], json!({"username": "u"}), true),
        (&[], None, &[], json!({"username": ""}), false),
        (&["a", "b"], None, &["c", "b"], json!({"username": "u"}), true),
        (&["a"], None, &["b"], json!({"username": "u"}), false),
        (&["a"], None, &[], json!({"username": "u"}), false),
        (&[], Some("x"), &[], json!({"username": "u", "extra": {NODE_NAME: ["x"]}}), true),
        (&[], Some("x"), &[], json!({"username": "u", "extra": {NODE_NAME: ["y"]}}), false),
        (&[], Some("x"), &[], json!({"username": "u"}), false),
        (&[], None, &[], pod("there"), true),
        (&[], None, &[], pod("gone"), false),
        (&[], None, &[], pod("hidden"), true),
        (&[], Some("x"), &[], pod("gone"), true),
    ] {
        let audiences: Vec<_> = audiences.iter().copied().map(str::to_owned).collect();
        let case = format!("{audiences:?} {node:?} {of:?} {user}");
        let status = json!({"authenticated": true, "audiences": of, "user": user});
        let node = node.map(str::to_owned);
        let is_the_apiservers = audiences.is_empty() && node.is_none();
        let config = AuthConfig { audiences, node, ..long() };
        let (rights, access, _server) = allowing(&[], &config).await;
        rights.tokens.lock().insert("t", status);
        let authenticator = &access.delegated.as_ref().unwrap().authenticator;
        assert_eq!(authenticator.doubt(), is_the_apiservers.then_some(ttl), "{case}");
        let known = authenticator.token("t").await.unwrap();
        assert_eq!(known.user.is_some(), is_accepted, "{case}");
        let is_looked_for = is_the_apiservers && ["there", "gone"].iter().any(|pod| case.contains(pod));
        let (now, life) = (Instant::now(), if is_looked_for { ttl / 2 } else { ttl });
        assert!(now < known.until && known.until <= now + life, "{case}");
    }
}

#[tokio::test]
async fn a_certificate_goes_before_a_token_unless_it_is_refused() {
    let (ours, file) = (Certificates::new(), tempfile::NamedTempFile::new().unwrap());
    std::fs::write(file.path(), &ours.ca).unwrap();
    let client_ca = Some(ClientCaSource::File(file.path().to_owned()));
    let chain =
        |of: &Certificates| -> Arc<[_]> { [CertificateDer::from_pem_slice(of.client.0.as_bytes()).unwrap()].into() };
    let (ours, others, token) = (chain(&ours), chain(&Certificates::new()), bearer("jane"));
    for client_ca in [client_ca, None] {
        let is_known = client_ca.is_some();
        let (_, access, _server) = allowing(&[], &AuthConfig { client_ca, ..AuthConfig::default() }).await;
        let authenticator = &access.delegated.as_ref().unwrap().authenticator;
        for (certificates, headers, expected) in [
            (Some(&ours), &token, if is_known { "certificate" } else { "token" }),
            (Some(&others), &token, "token"),
            (None, &token, "token"),
            (Some(&others), &HeaderMap::new(), "invalid"),
            (None, &HeaderMap::new(), "nobody"),
        ] {
            let found = match authenticator.authenticate(certificates, headers).await.unwrap() {
                Who::User(_, Source::Certificate(_)) => "certificate",
                Who::User(_, Source::Token(_)) => "token",
                Who::Invalid => "invalid",
                Who::Nobody => "nobody",
                Who::TooLong => "too long",
            };
            assert_eq!(found, expected, "{is_known}");
        }
        for chain in [&ours, &others] {
            let asked = Instant::now();
            let known = authenticator.certificate(chain).await.unwrap();
            assert!(known.until > asked, "what is known of a certificate is used again");
        }
    }
}

#[tokio::test]
async fn what_is_known_of_a_token_ends() {
    let config = AuthConfig { token_ttl: Duration::from_millis(50), ..AuthConfig::default() };
    let (rights, access, _server) = allowing(&[], &config).await;
    let delegated = access.delegated.as_ref().unwrap();
    let authenticator = &delegated.authenticator;
    assert_eq!(authenticator.remembered.policy().max_capacity(), Some(MAX_REMEMBERED));
    assert_eq!(authenticator.kept.policy().max_capacity(), Some(MAX_REMEMBERED));
    assert_eq!(authenticator.surprising.policy().max_capacity(), Some(MAX_REMEMBERED));
    assert!(authenticator.token("jane").await.unwrap().user.is_some());
    rights.tokens.lock().insert("jane", json!({}));
    let end = async || {
        while authenticator.token("jane").await.is_ok_and(|known| known.user.is_some()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), end()).await.expect("it is reviewed again");
    // What may have been missed concerns tokens alone.
    let known = Known { user: None, until: Instant::now(), missed: 0, on: None, kept: false };
    let [token, certificate] = [Source::Token(Secret::new("t")), Source::Certificate([].into())];
    let outdated = || [&token, &certificate].map(|source| authenticator.is_outdated(source, &known));
    assert_eq!(outdated(), [false, false]);
    delegated.revoked.tell(&metadata::Seen::Restarted(Vec::new()), &RbacGenerations::default());
    assert_eq!(outdated(), [true, false]);
    let hashes = [("a", ["bc", ""]), ("b", ["bc", ""]), ("a", ["b", "c"]), ("a", ["", "bc"])]
        .map(|(kind, parts)| authenticator.hash(kind.as_bytes(), parts.map(str::as_bytes)));
    assert_eq!(std::collections::HashSet::from(hashes).len(), hashes.len(), "no two are mixed up");
}

/// By the apiserver itself, or by a server behind it that refuses it between other answers.
#[tokio::test]
async fn only_a_token_that_stands_without_a_review_is_reviewed_at_once_when_it_is_refused() {
    let (rights, access, _server) = allowing(&[], &long()).await;
    let authenticator = &access.delegated.as_ref().unwrap().authenticator;
    let known = authenticator.token("jane").await.unwrap();
    rights.tokens.lock().insert("jane", json!({}));
    for (on, is_accepted) in [(None, true), (Some([].into()), false)] {
        let hash = authenticator.hash_of_token("jane", authenticator.revoked.missed());
        authenticator.remembered.insert(hash, Known { on, ..known.clone() }).await;
        let recalled = authenticator.recall(&bearer("jane")).await.unwrap();
        authenticator.said(&recalled, false).await;
        assert_eq!(authenticator.token("jane").await.unwrap().user.is_some(), is_accepted);
    }
}

fn jwt(claims: &str) -> String {
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
}

#[test]
fn a_token_is_not_remembered_beyond_its_end() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(expiry(&jwt(&format!(r#"{{"exp":{}}}"#, now + 5))).unwrap() <= Duration::from_secs(5));
    assert_eq!(expiry(&jwt(&format!(r#"{{"exp":{}}}"#, now - 5))), Some(Duration::ZERO));
    assert!(expiry(&jwt(r#"{"exp":1e300}"#)).is_some());
    // Expired tokens are not reviewed again all the time, and a shorter `ttl` applies.
    let (ended, ttl) = (jwt(r#"{"exp":1}"#), Duration::from_secs(10));
    assert_eq!((life(&ended, ttl), life("opaque", ttl), life(&ended, ttl / 20)), (LEAST_LIFE, ttl, ttl / 20));
    assert!((LEAST_LIFE..ttl).contains(&life(&jwt(&format!(r#"{{"exp":{}}}"#, now + 5)), ttl)));
    for other in ["opaque", "a.b", "a.b.c.d", &jwt("{}"), &jwt("[]"), "a.!.c"] {
        assert_eq!(expiry(other), None, "{other}");
    }
}

#[tokio::test]
async fn while_the_apiserver_is_away_a_token_counts_that_was_accepted_last() {
    let ttl = Duration::from_millis(1);
    let (rights, access, _server) = allowing(&[], &AuthConfig { token_ttl: ttl, ..AuthConfig::default() }).await;
    let delegated = access.delegated.as_ref().unwrap();
    let (authenticator, metrics) = (&delegated.authenticator, access.metrics());
    let (ended, lasts) = (jwt(r#"{"exp":1}"#), jwt(&format!(r#"{{"exp":{}}}"#, now().unwrap() + 3600.0)));
    rights.tokens.lock().insert("account", json!({"authenticated": true, "user": {"username": "a", "uid": "1"}}));
    for token in ["jane", "joe", "amy", "account", "there", &ended, &lasts] {
        assert!(authenticator.token(token).await.unwrap().user.is_some(), "{token}");
    }
    tokio::time::sleep(20 * ttl).await;
    // Refused since then: by a review, or with a forwarded request.
    rights.tokens.lock().insert("joe", json!({}));
    assert!(authenticator.token("joe").await.unwrap().user.is_none());
    let said = |token: &str| authenticator.hash(b"said", [token.as_bytes()]);
    let payer = Payer::of(&UserInfo::default());
    let amy = Recalled { payer, is_accepted: true, token: said("amy"), known: authenticator.hash_of_token("amy", 0) };
    authenticator.said(&amy, false).await;

    let (begun, reviews) = (Instant::now(), metrics.token_reviews.get());
    delegated.outage.begin(begun);
    for token in ["jane", "account", "there", &lasts] {
        let known = authenticator.token(token).await.unwrap();
        assert!(known.user.is_some() && known.kept, "{token}");
        assert!(begun + Duration::from_secs(5) <= known.until, "{token}");
        assert!(known.until <= Instant::now() + Duration::from_secs(10), "{token}");
    }
    let refused = authenticator.token(&ended).await.unwrap();
    assert!(refused.user.is_none() && refused.kept, "its time is over");
    for n in 0..1000 {
        assert_eq!(authenticator.token(&n.to_string()).await.err(), Some(Unavailable::Away));
    }
    for token in ["joe", "amy", "new"] {
        assert_eq!(authenticator.token(token).await.err(), Some(Unavailable::Away), "{token}");
    }
    assert_eq!(metrics.token_reviews.get(), reviews, "nobody is asked");
    assert!(metrics.reviews_held.get() >= 1007 && metrics.review_failures.get() == 0);
    authenticator.kept.run_pending_tasks().await;
    assert_eq!(authenticator.kept.entry_count(), 5, "whoever makes up tokens displaces nobody's");

    // What has ended since is seen.
    let object = metadata::Metadata { uid: "1".into(), ..metadata::Metadata::default() };
    delegated.revoked.tell(&metadata::Seen::Change { deleted: true, object: &object }, &delegated.generations);
    assert!(authenticator.token("account").await.unwrap().user.is_none());
    let kept = authenticator.kept.get(&said("there")).await.unwrap();
    let anew = async |kept| {
        authenticator.kept.insert(said("there"), kept).await;
        authenticator.kept("there", 0).await.map(|known| known.user.is_some())
    };
    assert_eq!(anew(kept.clone()).await, Ok(true));
    assert_eq!(anew(Kept { on: Some([There::default()].into()), ..kept.clone() }).await, Err(Unavailable::Away));
    assert_eq!(anew(Kept { until: begun - Duration::from_secs(601), ..kept }).await, Err(Unavailable::Away));
    delegated.revoked.tell(&metadata::Seen::Restarted(Vec::new()), &delegated.generations);
    assert_eq!(authenticator.token("jane").await.err(), Some(Unavailable::Away), "its end may have been missed");
}
