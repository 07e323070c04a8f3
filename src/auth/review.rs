//! Questions to the apiserver: TokenReviews, SubjectAccessReviews and the objects that tokens are bound to. Few are in
//! flight at a time, and each has a timeout.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, DATE};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use jiff::civil::{DateTime, datetime};
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};
use tracing::Instrument as _;
use tracing::field::Empty;

use super::attributes::{Attributes, Requirement};
use super::config::AuthConfig;
use super::metrics::{AuthMetrics, Taken};
use super::outage::Outage;
use super::user::{Object, UserInfo};
use crate::apiserver::client::{CallOptions, Identity, ReqBody, empty, full};
use crate::apiserver::metadata::{ACCEPT_OBJECT, near_root};
use crate::apiserver::{RequestVerb, UpstreamError};
use crate::meta::{Status, errors};
use crate::telemetry::gauge::Raised;
use crate::telemetry::seldom::Seldom;
use crate::telemetry::trace::SPANS;

/// How often it is logged that a review has failed.
const WARN_AGAIN: Duration = Duration::from_secs(60);
const TOKENS: &str = "tokenreviews.authentication.k8s.io";
/// The most bytes of a TokenReview: it is as large as its question, plus a few words.
const MAX_ANSWER: usize = 4 << 20;
/// How deep the members of other answers are, and the most bytes of them. The answers have any size: they quote the names of
/// bindings, which may be as long as an object, and a pod's metadata may be as large.
const NEAR: (usize, usize) = (2, 64 << 10);

/// A question without an answer. It implies nothing about the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unavailable {
    #[error("too many reviews wait already")]
    Busy,
    /// A limit that the user has reached by itself. The request is refused and not forwarded.
    #[error("{0}")]
    Share(&'static str),
    #[error("no review in time")]
    Timeout,
    /// Nothing is where the apiserver should be, so it was not asked.
    #[error("informerd cannot reach the kube-apiserver, which would have to authorize the request")]
    Away,
    #[error("{0}")]
    Failed(String),
}

/// Sends reviews with the daemon's own identity, which needs the rights of `system:auth-delegator`.
pub(super) struct Reviews {
    pub(super) outage: Arc<Outage>,
    turns: Semaphore,
    /// Reviews of unknown tokens wait here first. So some of the turns always remain for known users, however many fake
    /// tokens clients send.
    strangers: Semaphore,
    waiting_strangers: Gauge,
    max_waiting: i64,
    limit: Duration,
    /// Every client can cause this line.
    failures: Seldom,
    /// The time of an answer by the apiserver's clock, in seconds since 1970, and when it was asked for.
    dated: Mutex<Option<(f64, Instant)>>,
    metrics: Arc<AuthMetrics>,
}

/// The answer, or the status of a refusal.
type Answered<T> = Result<Result<T, StatusCode>, Unavailable>;

#[derive(Deserialize)]
struct ReviewAnswer<S> {
    status: S,
}

#[derive(Deserialize)]
struct ObjectAnswer {
    metadata: ObjectMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectMetadata {
    uid: Box<str>,
    #[serde(default)]
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Question<S> {
    kind: &'static str,
    api_version: &'static str,
    spec: S,
}

#[derive(Serialize)]
struct TokenSpec<'a> {
    token: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    audiences: &'a [String],
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TokenStatus {
    pub authenticated: bool,
    pub user: UserInfo,
    pub audiences: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AccessSpec<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_attributes: Option<ResourceAttributes<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    non_resource_attributes: Option<PathAttributes<'a>>,
    user: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, Vec<String>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceAttributes<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    verb: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field_selector: Option<Requirements<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label_selector: Option<Requirements<'a>>,
}

#[derive(Serialize)]
struct Requirements<'a> {
    requirements: &'a [Requirement],
}

#[derive(Serialize)]
struct PathAttributes<'a> {
    path: &'a str,
    verb: &'a str,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AccessStatus {
    pub allowed: bool,
    pub denied: bool,
    pub reason: String,
    pub evaluation_error: String,
}

// === impl Reviews ===

impl Reviews {
    pub(super) fn new(outage: Arc<Outage>, config: &AuthConfig, metrics: Arc<AuthMetrics>) -> Self {
        Self {
            outage,
            turns: Semaphore::new(config.max_reviews),
            strangers: Semaphore::new(config.max_reviews - config.max_reviews / 4),
            waiting_strangers: Gauge::default(),
            max_waiting: i64::try_from(config.max_waiting).unwrap_or(i64::MAX),
            limit: config.review_timeout,
            failures: Seldom::new(WARN_AGAIN),
            dated: Mutex::default(),
            metrics,
        }
    }

    /// Asks the apiserver which user a token belongs to.
    ///
    /// # Errors
    /// The apiserver gave no answer.
    pub(super) async fn token(&self, token: &str, audiences: &[String]) -> Result<TokenStatus, Unavailable> {
        let spec = TokenSpec { token, audiences };
        let question = Question { kind: "TokenReview", api_version: "authentication.k8s.io/v1", spec };
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        self.ask(path, TOKENS, &question, &self.metrics.token_reviews).await
    }

    /// Asks the apiserver whether a user may do this.
    ///
    /// # Errors
    /// The apiserver gave no answer.
    pub(super) async fn access(&self, user: &UserInfo, attributes: &Attributes) -> Result<AccessStatus, Unavailable> {
        let resource_attributes = attributes.path.is_none().then(|| ResourceAttributes::of(attributes));
        let non_resource_attributes =
            attributes.path.as_deref().map(|path| PathAttributes { path, verb: &attributes.verb });
        let UserInfo { username, uid, groups, extra } = user;
        let spec = AccessSpec { resource_attributes, non_resource_attributes, user: username, groups, extra, uid };
        let question = Question { kind: "SubjectAccessReview", api_version: "authorization.k8s.io/v1", spec };
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let resource = "subjectaccessreviews.authorization.k8s.io";
        self.ask(path, resource, &question, &self.metrics.access_reviews).await
    }

    /// Whether a pod exists and has this UID; `None` if that cannot be known because the daemon may not read pods.
    ///
    /// # Errors
    /// The apiserver gave no answer.
    pub(super) async fn pod(&self, pod: &Object) -> Result<Option<bool>, Unavailable> {
        // Served from the apiserver's cache: many clients need it, and the cache is some milliseconds behind at most.
        match self.object(pod, "?resourceVersion=0").await? {
            Ok(metadata) => Ok(Some(metadata.uid == pod.uid)),
            Err(StatusCode::NOT_FOUND) => Ok(Some(false)),
            Err(StatusCode::FORBIDDEN) => Ok(None),
            Err(status) => Err(refused(status)),
        }
    }

    /// Whether the store has an object with this UID that is not being deleted. `false` also if the daemon may not read it.
    ///
    /// # Errors
    /// The apiserver gave no answer.
    pub(super) async fn is_there(&self, object: &Object) -> Result<bool, Unavailable> {
        // From the store and not from a cache of the apiserver, which may be older than a watch that begins now.
        match self.object(object, "").await? {
            Ok(metadata) => Ok(metadata.uid == object.uid && metadata.deletion_timestamp.is_none()),
            Err(StatusCode::NOT_FOUND | StatusCode::FORBIDDEN) => Ok(false),
            Err(status) => Err(refused(status)),
        }
    }

    /// The present time by the apiserver's clock, in seconds since 1970.
    pub(super) fn time(&self) -> Option<f64> {
        (*self.dated.lock()).map(|(time, asked)| time + asked.elapsed().as_secs_f64())
    }

    async fn object(&self, object: &Object, query: &str) -> Answered<ObjectMetadata> {
        let Object { resource, namespace, name, .. } = object;
        let escaped = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
        let target = format!("/api/v1/namespaces/{}/{resource}/{}{query}", escaped(namespace), escaped(name));
        let request = Request::get(target).header(ACCEPT, ACCEPT_OBJECT).body(empty());
        let request = request.map_err(|error| failed(&error))?;
        let sent = &self.metrics.pod_checks;
        Ok(self.in_time::<ObjectAnswer>(object.resource, request, sent).await?.map(|answer| answer.metadata))
    }

    async fn ask<Q: Serialize, S: DeserializeOwned>(
        &self,
        path: &'static str,
        resource: &'static str,
        question: &Q,
        sent: &Counter,
    ) -> Result<S, Unavailable> {
        let body = serde_json::to_vec(question).map_err(|error| failed(&error))?;
        let request = Request::post(path).header(CONTENT_TYPE, "application/json").body(full(body));
        let request = request.map_err(|error| failed(&error))?;
        let answer = self.in_time::<ReviewAnswer<S>>(resource, request, sent).await;
        let answer = answer.and_then(|answer| answer.map(|answer| answer.status).map_err(refused));
        if let Err(error) = &answer
            && *error != Unavailable::Away
        {
            self.metrics.review_failures.inc();
            if let Some(left_out) = self.failures.turn() {
                tracing::warn!(%error, review = resource, left_out, "no answer to an access review");
            }
        }
        answer
    }

    async fn in_time<T: DeserializeOwned>(
        &self,
        resource: &'static str,
        request: Request<ReqBody>,
        sent: &Counter,
    ) -> Answered<T> {
        if self.outage.is_on() {
            self.metrics.reviews_held.inc();
            return Err(Unavailable::Away);
        }
        sent.inc();
        let span = tracing::info_span!(target: SPANS, "review", otel.name = resource, otel.status_code = Empty);
        // Boxed: every request of a client waits for its decision with it, and seldom needs it.
        let asked = timeout(self.limit, Box::pin(self.in_turn(resource, request))).instrument(span.clone());
        let answer = tokio::select! {
            biased;
            asked = asked => asked.unwrap_or(Err(Unavailable::Timeout)),
            () = self.outage.begins() => {
                self.metrics.reviews_held.inc();
                Err(Unavailable::Away)
            }
        };
        if answer.is_err() {
            span.record("otel.status_code", "ERROR");
        }
        answer
    }

    async fn as_stranger(&self) -> Result<SemaphorePermit<'_>, Unavailable> {
        let waiting = Raised::new(&self.waiting_strangers);
        if waiting.level() > self.max_waiting {
            self.metrics.review_overflows.inc();
            return Err(Unavailable::Busy);
        }
        let _shown = Raised::new(&self.metrics.reviews_waiting);
        self.strangers.acquire().await.map_err(|_| Unavailable::Busy)
    }

    async fn in_turn<T: DeserializeOwned>(&self, resource: &'static str, request: Request<ReqBody>) -> Answered<T> {
        let _stranger = if resource == TOKENS { Some(self.as_stranger().await?) } else { None };
        let _turn = match self.turns.try_acquire() {
            Ok(turn) => turn,
            Err(_) => {
                let waiting = Raised::new(&self.metrics.reviews_waiting);
                if waiting.level() - self.waiting_strangers.get() > self.max_waiting {
                    self.metrics.review_overflows.inc();
                    return Err(Unavailable::Busy);
                }
                self.turns.acquire().await.map_err(|_| Unavailable::Busy)?
            }
        };
        let mut taken = Taken { since: Instant::now(), metrics: &self.metrics, answered: false };
        let running = Raised::new(&self.metrics.reviews_running);
        self.metrics.reviews_peak.inner().fetch_max(running.level(), Ordering::Relaxed);
        let answer = self.exchange(resource, request).await;
        taken.answered = true;
        answer
    }

    async fn exchange<T: DeserializeOwned>(&self, resource: &'static str, request: Request<ReqBody>) -> Answered<T> {
        let options = CallOptions::new(RequestVerb::Review, resource);
        let asked = Instant::now();
        let response = self.outage.upstream().send_with(Identity::Own, request, &options).await;
        let response = response.map_err(|error: UpstreamError| failed(&error))?;
        let date = response.headers().get(DATE).and_then(|date| date.to_str().ok()).and_then(seconds);
        if let Some(date) = date {
            *self.dated.lock() = Some((date, asked));
        }
        let status = response.status();
        let (depth, most) = NEAR;
        if !status.is_success() {
            // It is read, so that the connection is used again.
            near_root::<IgnoredAny>(response, depth, most).await.ok();
            return Ok(Err(status));
        }
        if resource != TOKENS {
            return near_root(response, depth, most).await.map(Ok).map_err(|error| failed(&error));
        }
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(|error| failed(&error))?;
        serde_json::from_slice(&body.to_bytes()).map(Ok).map_err(|error| failed(&error))
    }
}

// === impl ResourceAttributes ===

impl<'a> ResourceAttributes<'a> {
    fn of(attributes: &'a Attributes) -> Self {
        let some =
            |requirements: &'a [Requirement]| (!requirements.is_empty()).then_some(Requirements { requirements });
        Self {
            namespace: &attributes.namespace,
            verb: &attributes.verb,
            group: &attributes.group,
            version: &attributes.version,
            resource: &attributes.resource,
            subresource: &attributes.subresource,
            name: &attributes.name,
            field_selector: some(&attributes.fields),
            label_selector: some(&attributes.labels),
        }
    }
}

fn failed(error: &dyn std::fmt::Display) -> Unavailable {
    Unavailable::Failed(error.to_string())
}

fn refused(status: StatusCode) -> Unavailable {
    Unavailable::Failed(format!("the apiserver answers {status}"))
}

/// The seconds since 1970 of a date as headers have it.
fn seconds(date: &str) -> Option<f64> {
    let date = DateTime::strptime("%a, %d %b %Y %H:%M:%S GMT", date).ok()?;
    Some(date.duration_since(datetime(1970, 1, 1, 0, 0, 0, 0)).as_secs_f64())
}

/// 503: the access cannot be decided now. 429: the client has asked for too much.
pub(super) fn unavailable(error: &Unavailable) -> Status {
    if let Unavailable::Share(why) = error {
        return errors::too_many_requests(format!("informerd does not have the request authorized: {why}"), 1);
    }
    if *error == Unavailable::Away {
        return errors::service_unavailable(error.to_string(), Some(1));
    }
    errors::service_unavailable(format!("informerd cannot have the request authorized: {error}"), Some(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::client::Upstream;
    use crate::apiserver::testing::{FakeServer, answer, padded, until};
    use crate::auth::attributes::Selectors;
    use crate::auth::testing::reviews_by;
    use crate::lifecycle::spawn;
    use crate::meta::{Gvr, Verb};

    #[tokio::test]
    async fn reviews_of_unknown_tokens_leave_a_turn_and_wait_in_bounded_number() {
        let server = FakeServer::plain(|_, _| std::future::pending::<http::Response<ReqBody>>()).await;
        let upstream = Upstream::from_config(server.config()).await.unwrap();
        let config = AuthConfig { max_reviews: 4, max_waiting: 2, ..AuthConfig::default() };
        let config = AuthConfig { review_timeout: std::time::Duration::from_secs(3600), ..config };
        let metrics = Arc::<AuthMetrics>::default();
        let reviews = Arc::new(reviews_by(upstream, &config, &metrics));
        let ask = || {
            let reviews = Arc::clone(&reviews);
            spawn("token", async move { reviews.token("t", &[]).await.map(drop) })
        };
        let waiting: Vec<_> = (0..5).map(|_| ask()).collect();
        // An apiserver that answers nothing is looked for.
        let sent = || server.uris().iter().filter(|uri| uri.ends_with("reviews")).count();
        until(|| sent() == 3 && metrics.reviews_waiting.get() == 2).await;
        assert_eq!((ask().await.unwrap(), metrics.review_overflows.get()), (Err(Unavailable::Busy), 1));
        let known = Arc::clone(&reviews);
        let known =
            spawn("access", async move { known.access(&UserInfo::default(), &Attributes::default()).await.map(drop) });
        until(|| sent() == 4).await;
        waiting.into_iter().chain([known]).for_each(|task| task.abort());
    }

    #[test]
    fn the_question_has_the_selectors() {
        for (labels, fields, asked) in [
            ("", "", ""),
            ("", "a=b", r#","fieldSelector":{"requirements":[{"key":"a","operator":"In","values":["b"]}]}"#),
            ("a", "", r#","labelSelector":{"requirements":[{"key":"a","operator":"Exists"}]}"#),
        ] {
            let (gvr, selectors) = (Gvr::new("", "v1", "pods"), Selectors::parse(labels, fields));
            let asks = Attributes::read(Verb::List, &gvr, "", "", &selectors);
            let asks = serde_json::to_string(&ResourceAttributes::of(&asks)).unwrap();
            assert_eq!(asks, format!(r#"{{"verb":"list","version":"v1","resource":"pods"{asked}}}"#));
        }
    }

    /// Who may write bindings and pods in one namespace chooses the names that answers quote. A TokenReview quotes none.
    #[tokio::test]
    async fn answers_may_quote_names_of_any_length() {
        let long = "\\u003c".repeat(1_400_000);
        let bodies = [
            format!(r#"{{"status":{{"allowed":true,"reason":"RBAC: allowed by RoleBinding {long}"}}}}"#),
            format!(r#"{{"status":{{"allowed":false,"evaluationError":"{long}"}}}}"#),
            format!(r#"{{"metadata":{{"ownerReferences":[{{"name":"{long}"}}],"name":"{long}","uid":"u"}}}}"#),
            padded(r#"{"status":{"authenticated":true}}"#, MAX_ANSWER),
            padded(r#"{"status":{"authenticated":true}}"#, MAX_ANSWER + 1),
        ];
        let bodies = parking_lot::Mutex::new(bodies.into_iter());
        let server =
            FakeServer::plain(move |_, _| std::future::ready(answer(200, bodies.lock().next().unwrap()))).await;
        let upstream = Upstream::from_config(server.config()).await.unwrap();
        let reviews = reviews_by(upstream, &AuthConfig::default(), &Arc::default());
        let access = async || reviews.access(&UserInfo::default(), &Attributes::default()).await.unwrap();
        let (allowed, not) = (access().await, access().await);
        assert_eq!((allowed.allowed, not.allowed), (true, false));
        assert_ne!(not.evaluation_error, "", "that is an error and no denial");
        assert!(allowed.reason.len() + not.evaluation_error.len() < 100);
        let pod = Object { resource: "pods", namespace: "a".into(), name: "p".into(), uid: "u".into() };
        assert_eq!(reviews.pod(&pod).await, Ok(Some(true)));
        assert!(reviews.token("t", &[]).await.unwrap().authenticated);
        assert!(matches!(reviews.token("t", &[]).await, Err(Unavailable::Failed(_))), "it authenticates nobody");
    }
}
