//! A scripted apiserver that takes a token for its user's name, unless told otherwise, and allows what it is told to.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::access::Access;
use super::attributes::{Attributes, Selectors};
use super::authorizer::BY_RBAC;
use super::caller::{Caller, Mode};
use super::config::AuthConfig;
use super::metrics::AuthMetrics;
use super::outage::Outage;
use super::review::Reviews;
use crate::apiserver::client::Upstream;
use crate::apiserver::testing::{FakeServer, answer};
use crate::lifecycle::Fatal;
use crate::meta::{Gvr, Verb};

/// A user and a namespace.
type Right = (String, String);

/// What is allowed, what reviews say, and what was asked.
#[derive(Default)]
pub(crate) struct Rights {
    pub(crate) given: Mutex<BTreeSet<Right>>,
    pub(crate) asked: Mutex<Vec<Right>>,
    /// The status of the TokenReview of a token.
    pub(crate) tokens: Mutex<HashMap<&'static str, Value>>,
    /// No review is answered.
    pub(crate) is_down: AtomicBool,
}

pub(crate) fn right(user: &str, namespace: &str) -> Right {
    (user.to_owned(), namespace.to_owned())
}

/// Reviews whose apiserver is never away, unless the test says so.
pub(super) fn reviews_by(upstream: Upstream, config: &AuthConfig, metrics: &Arc<AuthMetrics>) -> Reviews {
    let others = tokio::sync::watch::channel(false).1;
    let outage = Outage::new(upstream, config, others, Arc::clone(metrics));
    Reviews::new(Arc::new(outage), config, Arc::clone(metrics))
}

pub(crate) async fn judged_by(rights: &Arc<Rights>, config: &AuthConfig) -> (Access, FakeServer) {
    let rights = Arc::clone(rights);
    let server = FakeServer::plain(move |request, _| {
        let rights = Arc::clone(&rights);
        async move {
            let is_json = request.headers().get("content-type").is_some_and(|kind| kind == "application/json");
            let is_review = request.method() == "POST" && is_json;
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let spec = serde_json::from_slice::<Value>(&body).unwrap_or_default()["spec"].take();
            let status = if rights.is_down.load(Ordering::Relaxed) {
                return answer(500, "{}");
            } else if is_review && path.ends_with("/tokenreviews") {
                let scripted = rights.tokens.lock().get(spec["token"].as_str().unwrap_or_default()).cloned();
                scripted.unwrap_or_else(|| json!({"authenticated": true, "user": {"username": spec["token"]}}))
            } else if is_review && path.ends_with("/subjectaccessreviews") {
                let of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let right = (of(&spec["user"]), of(&spec["resourceAttributes"]["namespace"]));
                let allowed = rights.given.lock().contains(&right);
                let error = if right.1 == "unsure" { "no authorizer knows" } else { "" };
                rights.asked.lock().push(right);
                let reason = if allowed { BY_RBAC } else { "so it is written" };
                json!({"allowed": allowed, "reason": reason, "evaluationError": error})
            } else {
                let pod = path.rsplit_once("/pods/").map_or("", |(_, name)| name);
                let (code, body) = match pod {
                    "there" => (200, r#"{"metadata":{"uid":"1"}}"#),
                    "hidden" => (403, "{}"),
                    _ => (404, "{}"),
                };
                return answer(code, body);
            };
            answer(201, json!({ "status": status }).to_string())
        }
    })
    .await;
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    let others = tokio::sync::watch::channel(false).1;
    (Access::delegated(config, &upstream, others, &Fatal::new()).unwrap(), server)
}

/// An apiserver that allows these users these namespaces.
pub(crate) async fn allowing(given: &[(&str, &str)], config: &AuthConfig) -> (Arc<Rights>, Access, FakeServer) {
    let rights = Arc::<Rights>::default();
    rights.given.lock().extend(given.iter().map(|(user, namespace)| right(user, namespace)));
    let (access, server) = judged_by(&rights, config).await;
    (rights, access, server)
}

/// What is known of a token stays known, however long the test takes.
pub(crate) fn long() -> AuthConfig {
    AuthConfig { token_ttl: Duration::from_secs(3600), ..AuthConfig::default() }
}

pub(crate) fn bearer(token: &str) -> HeaderMap {
    HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {token}").parse().unwrap())])
}

pub(crate) fn caller(headers: &HeaderMap) -> Caller<'_> {
    Caller { mode: Mode::Delegated, certificates: None, headers, may_impersonate: true }
}

/// Records a change of rights, as the watches of roles and bindings do.
pub(crate) fn change(access: &Access, namespace: &str) {
    access.delegated.as_ref().unwrap().generations.change(namespace);
}

pub(crate) fn watch_of(namespace: &str) -> Arc<Attributes> {
    Arc::new(Attributes::read(Verb::Watch, &Gvr::new("", "v1", "pods"), namespace, "", &Selectors::default()))
}
