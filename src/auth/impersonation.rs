//! Impersonation: the user that the headers of a request name, and the accesses that must be allowed for it.
//!
//! The rules are those of the kube-apiserver for the verb `impersonate`. Since 1.35 the apiserver also knows narrower
//! ways to allow an impersonation. Callers that have only those are left to the apiserver. If the wide access is
//! allowed, both ways give the same impersonated user, except for nodes. So these cases are left to the apiserver:
//! nodes, headers that two servers could read differently, and more headers than a decision here is worth.

use std::borrow::Cow;
use std::sync::Arc;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

use super::attributes::Attributes;
use super::user::{UNAUTHENTICATED, UserInfo, authenticated};

/// Every value needs an access of its own, and each may cost a review.
const MAX_ACCESSES: usize = 16;
/// The most bytes of all values. Each is a part of a review, and is kept for as long as a stream is open.
const MAX_TEXT: usize = 16 << 10;
pub(super) const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const ANONYMOUS: &str = "system:anonymous";
const NODE: &str = "system:node:";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The user that a request wants to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Impersonation {
    pub user: Arc<UserInfo>,
    /// The accesses that the caller needs. All of them must be allowed.
    pub accesses: Vec<Arc<Attributes>>,
}

/// Whether the request has any impersonation header.
pub fn impersonates(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str().starts_with("impersonate-"))
}

// === impl Impersonation ===

impl Impersonation {
    /// `None` if the apiserver has to decide.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut user = UserInfo::default();
        let text_of = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len();
        if headers.iter().filter(|(name, _)| impersonating(name)).map(text_of).sum::<usize>() > MAX_TEXT {
            return None;
        }
        for (name, value) in headers {
            let Some(value) = impersonating(name).then(|| text(value)) else { continue };
            let value = value?.to_owned();
            match name.as_str() {
                USER if user.username.is_empty() => user.username = value,
                UID if user.uid.is_empty() => user.uid = value,
                GROUP => user.groups.push(value),
                other => {
                    let key = extra_key(other.strip_prefix(EXTRA)?)?.into_owned();
                    user.extra.entry(key).or_default().push(value);
                }
            }
        }
        // If two header names decode to the same key, the order of their values is not defined.
        let names = headers.keys().filter(|name| name.as_str().starts_with(EXTRA)).count();
        if user.username.is_empty() || user.username.starts_with(NODE) || names != user.extra.len() {
            return None;
        }
        let accesses: Vec<_> = accesses(&user)?.into_iter().map(Arc::new).collect();
        if accesses.len() > MAX_ACCESSES {
            return None;
        }
        Some(Self { user: Arc::new(completed(user)), accesses })
    }
}

pub(super) fn impersonating(name: &HeaderName) -> bool {
    name.as_str().starts_with("impersonate-")
}

/// The value, if every server would read it in the same way.
fn text(value: &HeaderValue) -> Option<&str> {
    let text = value.to_str().ok()?;
    (!text.is_empty() && text.trim() == text && !text.contains('\t')).then_some(text)
}

/// The key of an extra value. It is percent-encoded in the header name.
fn extra_key(encoded: &str) -> Option<Cow<'_, str>> {
    let key = percent_decode_str(encoded).decode_utf8().ok()?;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._/".contains(&byte);
    (!key.is_empty() && key.bytes().all(plain)).then_some(key)
}

fn accesses(user: &UserInfo) -> Option<Vec<Attributes>> {
    let access = |group: &str, resource: &str, name: &str| Attributes {
        verb: "impersonate".to_owned(),
        group: group.to_owned(),
        version: "v1".to_owned(),
        resource: resource.to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    };
    const AUTHENTICATION: &str = "authentication.k8s.io";
    let mut accesses = vec![match user.username.strip_prefix(SERVICE_ACCOUNT) {
        Some(account) => {
            let (namespace, name) = account.split_once(':').filter(|(namespace, name)| {
                is_label(namespace) && name.len() <= 253 && name.split('.').all(is_label)
            })?;
            Attributes { namespace: namespace.to_owned(), ..access("", "serviceaccounts", name) }
        }
        None => access("", "users", &user.username),
    }];
    if !user.uid.is_empty() {
        accesses.push(access(AUTHENTICATION, "uids", &user.uid));
    }
    accesses.extend(user.groups.iter().map(|group| access("", "groups", group)));
    for (key, values) in &user.extra {
        accesses.extend(
            values
                .iter()
                .map(|value| Attributes { subresource: key.clone(), ..access(AUTHENTICATION, "userextras", value) }),
        );
    }
    Some(accesses)
}

/// Adds the groups that are implied and never named.
fn completed(mut user: UserInfo) -> UserInfo {
    let account = user.username.strip_prefix(SERVICE_ACCOUNT).and_then(|account| account.split_once(':'));
    if let Some((namespace, _)) = account.filter(|_| user.groups.is_empty()) {
        user.groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
    }
    if user.username != ANONYMOUS {
        return authenticated(user);
    }
    if !user.is_in(UNAUTHENTICATED) {
        user.groups.push(UNAUTHENTICATED.to_owned());
    }
    user
}

/// Whether this is one label of a DNS name, as namespace names are.
fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::testing::head_with;

    fn of(headers: &[(&str, &str)]) -> Option<Impersonation> {
        Impersonation::of(&head_with(headers))
    }

    fn asked(impersonation: &Impersonation) -> Vec<String> {
        let line = |access: &Arc<Attributes>| {
            let Attributes { verb, group, version, resource, subresource, namespace, name, .. } = &**access;
            format!("{verb} {group}/{version} {namespace}/{resource}/{subresource} {name}")
        };
        impersonation.accesses.iter().map(line).collect()
    }

    #[test]
    fn whom_and_by_which_rights() {
        let plain = of(&[("Impersonate-User", "jane"), ("x", "y")]).unwrap();
        assert_eq!(plain.user.username, "jane");
        assert_eq!(plain.user.groups, ["system:authenticated"]);
        assert_eq!(asked(&plain), ["impersonate /v1 /users/ jane"]);
        let all = of(&[
            ("impersonate-group", "b"),
            ("impersonate-user", "jane"),
            ("impersonate-group", "a, c"),
            ("impersonate-uid", "7"),
            ("impersonate-extra-acme.com%2Fscope", "x"),
            ("impersonate-extra-acme.com%2fscope", "y"),
        ])
        .unwrap();
        assert_eq!(all.user.groups, ["b", "a, c", "system:authenticated"]);
        assert_eq!(all.user.uid, "7");
        assert_eq!(all.user.extra["acme.com/scope"], ["x", "y"]);
        assert_eq!(
            asked(&all),
            [
                "impersonate /v1 /users/ jane",
                "impersonate authentication.k8s.io/v1 /uids/ 7",
                "impersonate /v1 /groups/ b",
                "impersonate /v1 /groups/ a, c",
                "impersonate authentication.k8s.io/v1 /userextras/acme.com/scope x",
                "impersonate authentication.k8s.io/v1 /userextras/acme.com/scope y",
            ]
        );
    }

    #[test]
    fn groups_that_nobody_names() {
        let groups = |headers: &[(&str, &str)]| of(headers).unwrap().user.groups.clone();
        let robot = (USER, "system:serviceaccount:a:robot");
        assert_eq!(groups(&[robot]), ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"]);
        assert_eq!(groups(&[robot, (GROUP, "g")]), ["g", "system:authenticated"]);
        assert_eq!(groups(&[(USER, "x"), (GROUP, "system:unauthenticated")]), ["system:unauthenticated"]);
        assert_eq!(groups(&[(USER, "x"), (GROUP, "system:authenticated")]), ["system:authenticated"]);
        assert_eq!(groups(&[(USER, "system:anonymous")]), ["system:unauthenticated"]);
        assert_eq!(groups(&[(USER, "system:anonymous"), (GROUP, "g")]), ["g", "system:unauthenticated"]);
        assert_eq!(asked(&of(&[robot]).unwrap()), ["impersonate /v1 a/serviceaccounts/ robot"]);
    }

    #[test]
    fn what_is_left_to_the_apiserver() {
        let jane = (USER, "jane");
        let many = [vec![jane], vec![(GROUP, "g"); MAX_ACCESSES]].concat();
        for headers in [
            &[][..],
            &[(GROUP, "g")],
            &[(USER, "")],
            &[jane, jane],
            &[jane, (USER, "")],
            &[jane, (GROUP, "")],
            &[jane, (UID, "1"), (UID, "1")],
            &[jane, (GROUP, "\u{e9}")],
            &[(USER, " jane")],
            &[(USER, "jane\t")],
            &[(USER, "system:node:n")],
            &[(USER, "system:serviceaccount:a")],
            &[(USER, "system:serviceaccount:a:b:c")],
            &[(USER, "system:serviceaccount::b")],
            &[(USER, "system:serviceaccount:A:b")],
            &[(USER, "system:serviceaccount:a:b..c")],
            &[jane, ("impersonate-extra-", "x")],
            &[jane, ("impersonate-extra-%41", "x")],
            &[jane, ("impersonate-extra-%zz", "x")],
            &[jane, ("impersonate-extra-%ff", "x")],
            &[jane, ("impersonate-extra-a.b", "x"), ("impersonate-extra-a%2eb", "y")],
            &[jane, ("impersonate-users", "x")],
            &many,
        ] {
            assert_eq!(of(headers), None, "{headers:?}");
        }
        assert!(of(&many[1..]).is_none() && of(&many[..MAX_ACCESSES]).is_some());
        let most = MAX_TEXT - [USER, "jane", GROUP].map(str::len).iter().sum::<usize>();
        assert!([most, most + 1].map(|len| of(&[jane, (GROUP, &"g".repeat(len))]).is_some()) == [true, false]);
    }
}
