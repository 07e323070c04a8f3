//! A scripted apiserver that takes each token for its user's name, and allows what it is told to.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::access::{Access, Caller, Mode};
use super::attributes::{Attributes, Selectors};
use super::config::AuthConfig;
use crate::lifecycle::Fatal;
use crate::meta::{Gvr, Verb};
use crate::upstream::client::Upstream;
use crate::upstream::testing::{FakeServer, answer};

/// A user and a namespace.
type Right = (String, String);

/// What is allowed, and what was asked.
#[derive(Default)]
pub(super) struct Rights {
    pub(super) given: Mutex<BTreeSet<Right>>,
    pub(super) asked: Mutex<Vec<Right>>,
}

pub(super) fn right(user: &str, namespace: &str) -> Right {
    (user.to_owned(), namespace.to_owned())
}

pub(super) async fn judged_by(rights: &Arc<Rights>) -> (Access, FakeServer) {
    let rights = Arc::clone(rights);
    let server = FakeServer::plain(move |request, _| {
        let rights = Arc::clone(&rights);
        async move {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let spec = serde_json::from_slice::<Value>(&body).unwrap_or_default()["spec"].take();
            let status = if path.ends_with("/tokenreviews") {
                json!({"authenticated": true, "user": {"username": spec["token"]}})
            } else if path.ends_with("/subjectaccessreviews") {
                let of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let right = (of(&spec["user"]), of(&spec["resourceAttributes"]["namespace"]));
                let allowed = rights.given.lock().contains(&right);
                rights.asked.lock().push(right);
                json!({ "allowed": allowed })
            } else {
                return answer(404, "{}");
            };
            answer(201, json!({ "status": status }).to_string())
        }
    })
    .await;
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    (Access::delegated(&AuthConfig::default(), &upstream, &Fatal::new()).unwrap(), server)
}

pub(super) fn bearer(token: &str) -> HeaderMap {
    HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {token}").parse().unwrap())])
}

pub(super) fn caller(headers: &HeaderMap) -> Caller<'_> {
    Caller { mode: Mode::Delegated, certificates: None, headers, may_impersonate: true }
}

pub(super) fn watch_of(namespace: &str) -> Arc<Attributes> {
    Arc::new(Attributes::read(Verb::Watch, &Gvr::new("", "v1", "pods"), namespace, "", &Selectors::default()))
}
