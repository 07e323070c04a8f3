use super::*;
use crate::apiserver::testing::head_with;
use crate::auth::Access;
use crate::auth::attributes::Selectors;
use crate::meta::{Gvr, Verb};

const MINE: (&str, &str) = ("authorization", "Bearer mine");

fn strangers(config: &AuthConfig) -> Strangers {
    Strangers::new(config).unwrap()
}

fn read(verb: Verb, resource: &str, namespace: &str, labels: &str) -> Attributes {
    Attributes::read(verb, &Gvr::new("", "v1", resource), namespace, "", &Selectors::parse(labels, ""))
}

fn list(namespace: &str) -> Attributes {
    read(Verb::List, "pods", namespace, "")
}

#[tokio::test(start_paused = true)]
async fn a_stranger_may_read_what_the_apiserver_has_just_allowed_it() {
    let strangers = strangers(&AuthConfig::default());
    let of = |token, attributes| strangers.read(&head_with(&[token]), attributes).unwrap();
    let mine = || of(MINE, list("a"));
    for (code, is_allowed) in
        [(404, false), (500, false), (200, true), (404, true), (429, true), (504, true), (403, false), (200, true)]
    {
        mine().answered(StatusCode::from_u16(code).unwrap()).await;
        assert_eq!(mine().is_allowed().await, is_allowed, "{code}");
    }
    for (token, attributes) in [
        (("authorization", "Bearer others"), list("a")),
        (MINE, list("b")),
        (MINE, list("")),
        (MINE, read(Verb::List, "pods", "a", "x=y")),
        (MINE, read(Verb::List, "secrets", "a", "")),
        (MINE, read(Verb::Get, "pods", "a", "")),
    ] {
        assert!(!of(token, attributes.clone()).is_allowed().await, "{token:?} {attributes:?}");
    }
    mine().answered(StatusCode::UNAUTHORIZED).await;
    assert!(!mine().is_allowed().await);

    mine().answered(StatusCode::OK).await;
    let late = mine();
    tokio::time::advance(UNTOLD_TTL / 2).await;
    assert!(mine().is_allowed().await);
    tokio::time::advance(UNTOLD_TTL / 2).await;
    assert!(!mine().is_allowed().await, "the apiserver is asked again");
    late.answered(StatusCode::OK).await;
    assert!(!mine().is_allowed().await, "its answer is as old as its question");
}

#[tokio::test(start_paused = true)]
async fn no_longer_than_other_decisions() {
    let (short, others) = (UNTOLD_TTL / 10, AuthConfig::default());
    for config in [AuthConfig { token_ttl: short, ..others.clone() }, AuthConfig { allow_ttl: short, ..others }] {
        let strangers = strangers(&config);
        let mine = || strangers.read(&head_with(&[MINE]), list("a")).unwrap();
        mine().answered(StatusCode::OK).await;
        tokio::time::advance(short).await;
        assert!(!mine().is_allowed().await, "{config:?}");
    }
}

#[test]
fn what_the_apiserver_could_see_otherwise_is_not_remembered() {
    let strangers = strangers(&AuthConfig::default());
    let protocol = ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.dG9r");
    let cookie = ("cookie", "user=root");
    for lines in [
        &[][..],
        &[("authorization", "Basic eDp5")],
        &[("authorization", "Bearer")],
        &[protocol],
        &[MINE, protocol],
        &[MINE, MINE],
        &[MINE, cookie],
        &[cookie],
    ] {
        assert!(strangers.read(&head_with(lines), list("a")).is_none(), "{lines:?}");
    }
    let unread = Attributes { unread: true, ..list("a") };
    assert!(strangers.read(&head_with(&[MINE]), unread).is_none());
    assert!(Access::trusting().strangers_read(&head_with(&[MINE]), list("a")).is_none());
}

#[tokio::test]
async fn what_is_remembered_of_strangers_is_bounded() {
    let strangers = strangers(&AuthConfig::default());
    let of = |attributes| strangers.read(&head_with(&[MINE]), attributes);
    for numbers in [0..MAX_REMEMBERED, MAX_REMEMBERED..MAX_REMEMBERED + 9] {
        for n in numbers {
            of(list(&n.to_string())).unwrap().answered(StatusCode::OK).await;
        }
        strangers.allowed.run_pending_tasks().await;
        assert_eq!(strangers.allowed.entry_count(), MAX_REMEMBERED);
    }
    let room = MAX_SIZE - list("").size();
    assert!(of(list(&"x".repeat(room))).is_some() && of(list(&"x".repeat(room + 1))).is_none());
}
