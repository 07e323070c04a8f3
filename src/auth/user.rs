//! The identity of a client.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Members of this group are allowed everything, before any other authorizer is consulted, as in the apiserver.
pub(super) const MASTERS: &str = "system:masters";
/// The apiserver adds all users whose credentials it accepts to this group.
const AUTHENTICATED: &str = "system:authenticated";
/// The group of requests without credentials.
pub(super) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The node of the pod that a token is bound to (KEP-4193).
pub(super) const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// The UID of the pod that a token is bound to.
pub(super) const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
/// The name of the pod that a token is bound to.
pub(super) const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
/// The ID of the credential itself: for a certificate, its digest.
pub(super) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// `authentication.k8s.io/v1` UserInfo.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    pub username: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What a token is bound to: a service account, or a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Object {
    /// As in `pods`.
    pub resource: &'static str,
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
}

// === impl UserInfo ===

impl UserInfo {
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// The value of an extra key that has exactly one value.
    pub fn extra(&self, key: &str) -> Option<&str> {
        match self.extra.get(key).map(Vec::as_slice) {
            Some([one]) => Some(one),
            _ => None,
        }
    }

    /// The pod that the token of a service account is bound to.
    pub(super) fn pod(&self) -> Option<Object> {
        let (namespace, _) = self.username.strip_prefix("system:serviceaccount:")?.split_once(':')?;
        let (name, uid) = (self.extra(POD_NAME)?, self.extra(POD_UID)?);
        Some(Object { resource: "pods", namespace: namespace.into(), name: name.into(), uid: uid.into() })
    }

    /// The approximate number of bytes on the heap.
    pub fn size(&self) -> usize {
        let extra = self.extra.iter().map(|(key, values)| key.len() + values.iter().map(String::len).sum::<usize>());
        self.username.len()
            + self.uid.len()
            + self.groups.iter().map(|group| group.len() + size_of::<String>()).sum::<usize>()
            + extra.sum::<usize>()
    }
}

/// Adds a user to the group of all users whose credentials were accepted.
pub(super) fn authenticated(mut user: UserInfo) -> UserInfo {
    if !user.is_in(AUTHENTICATED) && !user.is_in(UNAUTHENTICATED) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extra_key_counts_if_it_has_one_value() {
        let json = r#"{"username":"a","groups":["g"],"extra":{"one":["x"],"two":["x","y"],"none":[]}}"#;
        let user: UserInfo = serde_json::from_str(json).unwrap();
        assert_eq!(["one", "two", "none", "other"].map(|key| user.extra(key)), [Some("x"), None, None, None]);
        assert!(user.is_in("g") && !user.is_in("a") && user.size() > "onexg".len());
        assert_eq!(serde_json::to_string(&UserInfo::default()).unwrap(), r#"{"username":""}"#);
    }
}
