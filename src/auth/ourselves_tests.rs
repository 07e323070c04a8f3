use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kube::config::{AuthInfo, AuthProviderConfig, ExecConfig, ExecInteractiveMode};
use serde_json::{Value, json};

use super::*;
use crate::apiserver::testing::{FakeServer, answer, head_with, padded, silence};
use crate::auth::Access;
use crate::auth::testing::{bearer, long};

/// What the apiserver says to each token: a code and a body.
type Says = Arc<Mutex<Vec<(String, u16, String)>>>;

const SUBJECT: &str = "system:serviceaccount:a:b";

fn jwt(subject: &str, id: &str, exp: f64) -> String {
    format!("h.{}.{id}", URL_SAFE_NO_PAD.encode(json!({"sub": subject, "exp": exp}).to_string()))
}

/// A token that does not expire.
fn token(id: &str) -> String {
    jwt(SUBJECT, id, 1e11)
}

/// The review of a token whose user differs from the daemon's in these members.
fn review(of: &Value) -> String {
    let mut user = json!({
        "username": SUBJECT,
        "uid": "1",
        "groups": ["system:serviceaccounts", "system:authenticated"],
        "extra": {"authentication.kubernetes.io/credential-id": ["JTI=own"]},
    });
    for (key, value) in of.as_object().unwrap() {
        user[key] = value.clone();
    }
    json!({"status": {"userInfo": user}}).to_string()
}

struct World {
    access: Access,
    server: FakeServer,
    says: Says,
}

/// A daemon with the token `own`.
async fn world(config: &AuthConfig, change: impl FnOnce(&mut kube::Config)) -> World {
    let config = &AuthConfig { review_timeout: Duration::from_secs(36_000), ..config.clone() };
    let says = Says::default();
    let said = Arc::clone(&says);
    let server = FakeServer::plain(move |request, _| {
        assert_eq!((request.method().as_str(), request.uri().path()), ("POST", PATH));
        let shown = request.headers()[AUTHORIZATION].to_str().unwrap().strip_prefix("Bearer ").unwrap().to_owned();
        let known = said.lock().iter().find(|(token, ..)| *token == shown).cloned();
        std::future::ready(known.map_or_else(|| answer(401, "{}"), |(_, code, body)| answer(code, body)))
    })
    .await;
    let mut kubeconfig = server.config();
    kubeconfig.auth_info.token = Some(token("own").into());
    change(&mut kubeconfig);
    let upstream = Upstream::from_config(kubeconfig).await.unwrap();
    let access = Access::trusting().knowing_ourselves(config, &upstream).unwrap();
    let world = World { access, server, says };
    world.say(&token("own"), 201, &review(&json!({})));
    world
}

impl World {
    fn say(&self, token: &str, code: u16, body: &str) {
        let mut says = self.says.lock();
        says.retain(|(other, ..)| other != token);
        says.push((token.to_owned(), code, body.to_owned()));
    }

    fn ourselves(&self) -> &Ourselves {
        &self.access.trusted.as_ref().unwrap().ourselves
    }

    /// Whether a token is ours, and how many requests it took to know.
    async fn shows(&self, token: &str) -> (bool, usize) {
        let before = self.server.requests().len();
        (self.access.is_ours(&bearer(token)).await, self.server.requests().len() - before)
    }
}

#[tokio::test]
async fn a_token_is_ours_if_the_apiserver_knows_its_user_as_ours() {
    let world = world(&long(), |_| {}).await;
    assert_eq!(world.shows(&token("own")).await, (true, 0));
    let other_pod = json!({"extra": {
        "authentication.kubernetes.io/credential-id": ["JTI=other"],
        "authentication.kubernetes.io/pod-name": ["p"],
        "authentication.kubernetes.io/pod-uid": ["2"],
        "authentication.kubernetes.io/node-name": ["n"],
        "authentication.kubernetes.io/node-uid": ["3"],
    }});
    let [one, two] = ["system:serviceaccounts", "system:authenticated"];
    // The first one has our own user asked for, too.
    for (id, user, is_ours, asked) in [
        ("other-pod", other_pod, true, 2),
        ("groups-in-another-order", json!({"groups": [two, one]}), true, 1),
        ("a-group-more", json!({"groups": [one, two, "admins"]}), false, 1),
        ("a-group-less", json!({"groups": [one]}), false, 1),
        ("account-created-again", json!({"uid": "2"}), false, 1),
        ("another-name", json!({"username": "system:serviceaccount:a:c"}), false, 1),
        ("nobody", json!({"username": ""}), false, 1),
        ("what-authorizers-may-ask-for", json!({"extra": {"scopes": ["x"]}}), false, 1),
    ] {
        world.say(&token(id), 201, &review(&user));
        assert_eq!(world.shows(&token(id)).await, (is_ours, asked), "{id}");
        assert_eq!(world.shows(&token(id)).await, (is_ours, 0), "{id}: it is remembered");
    }
    assert_eq!(world.shows(&token("forged")).await, (false, 1));
    assert_eq!(world.shows(&token("forged")).await, (false, 0), "that it is refused, too");
    // Nothing is remembered of no answer, but that none came.
    for (code, body) in [(500, "{}"), (403, "{}"), (404, "{}"), (201, "no")] {
        world.say(&token("late"), code, body);
        let asked = Instant::now();
        assert_eq!(world.shows(&token("late")).await, (false, 1), "{code}");
        assert!(*world.ourselves().refused.lock() >= asked + BURST + PAUSE, "{code}");
        later().await;
    }
    world.say(&token("late"), 201, &review(&json!({})));
    assert_eq!(world.shows(&token("late")).await, (true, 1));
}

/// Goes on when everything may be asked again.
async fn later() {
    tokio::time::pause();
    tokio::time::advance(BURST * 2).await;
    tokio::time::resume();
}

#[tokio::test]
async fn who_makes_up_tokens_has_few_of_them_asked_about() {
    let world = world(&long(), |_| {}).await;
    let (begun, mut asked) = (Instant::now(), 0);
    for n in 0..2 * MOST_REFUSED {
        let (is_ours, requests) = world.shows(&token(&n.to_string())).await;
        assert!(!is_ours);
        asked += requests;
    }
    let most = u64::from(MOST_REFUSED) + begun.elapsed().as_secs() / EACH.as_secs();
    assert!((MOST_REFUSED.into()..=most).contains(&(asked as u64)), "{asked} of {most}");
    later().await;
    world.say(&token("other"), 201, &review(&json!({})));
    assert_eq!(world.shows(&token("other")).await, (true, 2));
}

#[tokio::test]
async fn no_read_waits_long_for_an_apiserver_that_does_not_answer() {
    let server = FakeServer::plain(|_, _| silence()).await;
    for (mut config, is_away) in
        [(server.config(), false), (kube::Config::new("http://127.0.0.1:1".parse().unwrap()), true)]
    {
        config.auth_info.token = Some(token("own").into());
        let upstream = Upstream::from_config(config).await.unwrap();
        if is_away {
            let request = Request::get("/").body(full("")).unwrap();
            upstream.send_with(Identity::Stranger, request, &CallOptions::default()).await.err().unwrap();
        }
        let access = Access::trusting().knowing_ourselves(&AuthConfig::default(), &upstream).unwrap();
        tokio::time::pause();
        let asked = Instant::now();
        assert!(!access.is_ours(&bearer(&token("other"))).await);
        assert!(asked.elapsed() <= AuthConfig::default().review_timeout / 5, "{:?}", asked.elapsed());
        let refused = *access.trusted.as_ref().unwrap().ourselves.refused.lock();
        assert_eq!(refused > asked, !is_away, "nothing is asked of one that is known to be away");
        tokio::time::resume();
    }
}

#[tokio::test]
async fn no_read_waits_long_for_a_provider_that_renews_our_token() {
    let server = FakeServer::plain(|_, _| silence()).await;
    let (mut config, url) = (server.config(), server.url());
    let fields = [("idp-issuer-url", &*url), ("client-id", "x"), ("refresh-token", "x")];
    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let provider = AuthProviderConfig { name: "oidc".into(), config: fields, ..AuthProviderConfig::default() };
    config.auth_info.auth_provider = Some(provider);
    let upstream = Upstream::from_config(config).await.unwrap();
    let access = Access::trusting().knowing_ourselves(&AuthConfig::default(), &upstream).unwrap();
    tokio::time::pause();
    let asked = Instant::now();
    assert!(!access.is_ours(&bearer(&token("other"))).await);
    assert!(asked.elapsed() <= AuthConfig::default().review_timeout / 5, "{:?}", asked.elapsed());
}

/// Each read would run it, for as long as that takes.
#[tokio::test]
async fn no_plugin_runs_to_know_who_we_are() {
    let directory = tempfile::tempdir().unwrap();
    let [runs, expires] = ["runs", "expires"].map(|name| directory.path().join(name));
    std::fs::write(&expires, "2020-01-01T00:00:00Z").unwrap();
    let own = token("own");
    let script = format!(
        "echo >> {}; printf '{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":\
         {{\"token\":\"%s\",\"expirationTimestamp\":\"%s\"}}}}' {own} $(cat {})",
        runs.display(),
        expires.display()
    );
    let plugin = ExecConfig {
        api_version: Some("client.authentication.k8s.io/v1".into()),
        command: Some("sh".into()),
        args: Some(vec!["-c".into(), script]),
        interactive_mode: Some(ExecInteractiveMode::Never),
        ..ExecConfig::default()
    };
    let of_plugin = AuthInfo { exec: Some(plugin), ..AuthInfo::default() };
    let world = world(&long(), |config| config.auth_info = of_plugin).await;
    let ran = || std::fs::read_to_string(&runs).unwrap().lines().count();
    let before = ran();
    for shown in [&own, &token("other")] {
        assert_eq!(world.shows(shown).await, (false, 0), "the last token has expired");
    }
    assert_eq!(ran(), before);
    std::fs::write(&expires, "2999-01-01T00:00:00Z").unwrap();
    let request = Request::post(PATH).body(full("")).unwrap();
    world.ourselves().upstream.send(Identity::Own, request).await.unwrap();
    assert!(ran() > before, "for a request of our own");
    assert_eq!(world.shows(&own).await, (true, 0));
}

#[tokio::test]
async fn nothing_is_asked_about_a_token_that_cannot_be_ours() {
    let world = world(&long(), |_| {}).await;
    let (others, expired) = (jwt("system:serviceaccount:a:c", "x", 1e11), jwt(SUBJECT, "x", 1e9));
    let long = token(&"x".repeat(MAX_TOKEN));
    for other in [&*others, &expired, &long, "opaque", "a.b.c", &format!("{}.more", token("x")), ""] {
        assert_eq!(world.shows(other).await, (false, 0), "{other}");
    }
    let own = format!("Bearer {}", token("own"));
    let (own, other) = (("authorization", &*own), ("authorization", "Bearer x"));
    for lines in [&[][..], &[own, other], &[other, own], &[own, own], &[("authorization", "Basic eDp5")]] {
        assert!(!world.access.is_ours(&head_with(lines)).await, "{lines:?}");
    }
    assert!(world.server.requests().is_empty());
    assert!(!Access::trusting().is_ours(&bearer(&token("own"))).await);
}

/// The apiserver prefers a certificate to a token, and knows the daemon as the one that it impersonates.
#[tokio::test]
async fn a_token_beside_other_credentials_is_not_who_we_are() {
    let world = world(&long(), |config| config.auth_info.impersonate = Some("boss".into())).await;
    assert_eq!(world.shows(&token("own")).await, (false, 0));
    let server = FakeServer::tls(&["h2"], 100, |_, _| async { answer(200, "") }).await;
    let mut config = server.config();
    config.auth_info.token = Some(token("own").into());
    let upstream = Upstream::from_config(config).await.unwrap();
    assert!(!upstream.certificates().client.unwrap().is_empty());
    let access = Access::trusting().knowing_ourselves(&long(), &upstream).unwrap();
    assert!(!access.is_ours(&bearer(&token("own"))).await);
}

#[tokio::test]
async fn a_token_that_is_not_accepted_any_more_is_ours_until_it_is_asked_about_again() {
    for (token_ttl, still) in [(long().token_ttl, true), (Duration::from_nanos(1), false)] {
        let world = world(&AuthConfig { token_ttl, ..long() }, |_| {}).await;
        world.say(&token("old"), 201, &review(&json!({})));
        assert!(world.shows(&token("old")).await.0);
        world.say(&token("old"), 401, "{}");
        assert_eq!(world.shows(&token("old")).await.0, still);
    }
}

#[tokio::test]
async fn what_is_remembered_of_tokens_and_read_of_reviews_is_bounded() {
    let world = world(&long(), |_| {}).await;
    let remembered = &world.ourselves().users;
    for numbers in [0..MAX_REMEMBERED, MAX_REMEMBERED..MAX_REMEMBERED + 9] {
        for n in numbers {
            let mut hash = [0; 32];
            hash[..8].copy_from_slice(&n.to_be_bytes());
            remembered.insert(hash, None).await;
        }
        remembered.run_pending_tasks().await;
        assert_eq!(remembered.entry_count(), MAX_REMEMBERED);
    }
    for (bytes, is_ours) in [(MAX_ANSWER, true), (MAX_ANSWER + 1, false)] {
        let id = bytes.to_string();
        world.say(&token(&id), 201, &padded(&review(&json!({})), bytes));
        assert_eq!(world.shows(&token(&id)).await.0, is_ours, "{bytes}");
    }
}
