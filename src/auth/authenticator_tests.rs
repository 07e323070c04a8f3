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
    let known = Known { user: None, until: Instant::now(), missed: 0, on: None };
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
