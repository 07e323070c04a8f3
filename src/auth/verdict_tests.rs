use std::time::Duration;

use super::*;
use crate::auth::access::Access;
use crate::auth::caller::Caller;
use crate::auth::config::AuthConfig;
use crate::auth::testing::{allowing, bearer, caller, change, long, right, watch_of};

async fn grant(access: &Access, caller: &Caller<'_>) -> Grant {
    let verdict = access.check(caller, &watch_of("a")).await;
    let Verdict::Allowed(grant) = verdict else { panic!("{verdict:?}") };
    grant
}

/// Without any, the client is trusted.
#[tokio::test]
async fn a_grant_is_of_its_first_right_and_can_be_forwarded_if_each_rests_on_a_token() {
    let (_, access, _server) = allowing(&[("jane", "a")], &AuthConfig::default()).await;
    let one = grant(&access, &caller(&bearer("jane"))).await.held.remove(0);
    let user = |username: String| Arc::new(UserInfo { username, ..UserInfo::default() });
    let held = |(at, source): (usize, char)| Held {
        access: Arc::clone(&one.access),
        source: if source == 't' { one.source.clone() } else { Source::Certificate([].into()) },
        known: one.known.clone(),
        user: user(format!("user {at}")),
        impersonated: Some(user(format!("other {at}"))),
        proof: one.proof.clone(),
        share: None,
    };
    for sources in ["", "t", "c", "tt", "tc", "ct", "cc"] {
        let grant = Grant { held: sources.chars().enumerate().map(&held).collect() };
        assert_eq!(grant.may_forward(), !sources.contains('c'), "{sources}");
        let subject = grant.subject().map(|subject| [Some(subject.user), subject.impersonated]);
        let names = subject.map(|users| users.map(|user| user.map(|user| user.username.clone())));
        let first = (!sources.is_empty()).then(|| ["user 0", "other 0"].map(|name| Some(name.to_owned())));
        assert_eq!(names, first, "{sources}");
        assert_eq!(grant.user().map(|user| user.username.as_str()), first.map(|_| "user 0"), "{sources}");
    }
}

/// Somebody who is impersonated needs the right to the read, and the user needs the right to impersonate.
#[tokio::test]
async fn the_lease_of_an_impersonated_user_ends_with_the_right_of_either() {
    for (gone, says) in [
        (right("jane", "a"), r#"User "jane" cannot watch resource "pods""#),
        (right("admin", ""), r#"User "admin" cannot impersonate resource "users""#),
    ] {
        let (rights, access, _server) = allowing(&[("jane", "a"), ("admin", "")], &long()).await;
        access.delegated.as_ref().unwrap().generations.set_watched(true);
        let mut headers = bearer("admin");
        headers.insert("impersonate-user", "jane".parse().unwrap());
        let lease = grant(&access, &caller(&headers)).await.lease();
        rights.given.lock().remove(&gone);
        change(&access, "");
        let gone = tokio::time::timeout(Duration::from_secs(60), lease.gone()).await.expect("it ends");
        let status = gone.expect("somebody says so");
        assert_eq!(status.code, 403);
        assert!(status.message.contains(says), "{says}: {}", status.message);
    }
}
