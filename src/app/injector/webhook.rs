//! Answers the apiserver's AdmissionReviews.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use informerd_injection::{
    Answer, Counted, InjectionMetrics, Injector, Meta, Mode, Origin, Review, Wanted, can_change, inject, wanted,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::room::Room;
use crate::apiserver::client::Upstream;
use crate::auth::ClientCa;
use crate::authority::{ObjectName, config_map_has_ca};
use crate::http::{BoxFuture, Connection, Handler, RequestBody, body};
use crate::telemetry::trace::cut;

/// The most bytes of a request. etcd takes objects of up to 1.5 MiB.
const MOST: usize = 2 << 20;
/// Shorter than `timeoutSeconds` of the manifest, so that the apiserver gets a reason.
const DEADLINE: Duration = Duration::from_secs(4);
/// The most lookups of ConfigMaps at once: anybody who reaches the webhook can cause them.
const MOST_LOOKUPS: usize = 8;
/// The longest wait for a ConfigMap.
const LOOKUP: Duration = Duration::from_secs(2);
const PREFIX: &str = "/inject";
/// The last part of the path for namespaces whose label is no mode.
const UNKNOWN: &str = "unknown";

pub(super) struct Webhook {
    shared: Arc<Shared>,
}

struct Shared {
    injector: ArcSwap<Injector>,
    upstream: Upstream,
    metrics: Arc<InjectionMetrics>,
    room: Room,
    /// Lookups at the apiserver that may be under way.
    lookups: Semaphore,
    /// The turn of the configuration that is checked, which takes some MiB.
    checks: Arc<Semaphore>,
    /// `None`: everybody may send reviews.
    clients: Option<Arc<ClientCa>>,
}

/// What the path of a request says about the label of the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    Missing,
    Mode(Mode),
    Unknown,
}

/// An answer that is no review.
struct Refusal {
    status: StatusCode,
    message: String,
    counted: Counted,
}

// === impl Webhook ===

impl Webhook {
    /// `clients`: who may send reviews. `None`: everybody.
    pub(super) fn new(
        injector: Injector,
        upstream: Upstream,
        metrics: Arc<InjectionMetrics>,
        clients: Option<Arc<ClientCa>>,
    ) -> Self {
        let (injector, room, lookups) = (ArcSwap::from_pointee(injector), Room::new(), Semaphore::new(MOST_LOOKUPS));
        let checks = Arc::new(Semaphore::new(1));
        Self { shared: Arc::new(Shared { injector, upstream, metrics, room, lookups, checks, clients }) }
    }

    pub(super) fn set_image(&self, image: String) {
        let mut injector = Injector::clone(&self.shared.injector.load());
        injector.config.image = image;
        self.shared.injector.store(Arc::new(injector));
    }
}

impl Handler for Webhook {
    fn handle(&self, request: Request<RequestBody>, connection: &Arc<Connection>) -> BoxFuture<Response<body::Body>> {
        let (shared, connection) = (Arc::clone(&self.shared), Arc::clone(connection));
        Box::pin(async move {
            let answered = async {
                shared.admit(&connection)?;
                shared.answer(request).await
            };
            let answered = timeout(DEADLINE, answered).await.unwrap_or_else(|_late| Err(Refusal::busy()));
            let (status, kind, text, held) = match answered {
                Ok((text, held)) => (StatusCode::OK, "application/json", text, Some(held)),
                Err(refusal) => {
                    let reason = refusal.message.as_str();
                    tracing::warn!(status = refusal.status.as_u16(), reason, "no answer to the apiserver");
                    shared.metrics.count(None, refusal.counted);
                    (refusal.status, "text/plain; charset=utf-8", refusal.message + "\n", None)
                }
            };
            // What is reserved is given back when the client has taken the answer.
            let mut response = Response::new(body::with(body::full(Bytes::from(text)), held));
            *response.status_mut() = status;
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            response
        })
    }
}

// === impl Shared ===

impl Shared {
    /// # Errors
    /// The client has no certificate of the CA that is configured.
    fn admit(&self, connection: &Connection) -> Result<(), Refusal> {
        let Some(clients) = &self.clients else { return Ok(()) };
        let headers = HeaderMap::new();
        match clients.user(&connection.caller(&headers)) {
            Ok(_) => connection.confirmed(),
            Err(why) => {
                connection.close();
                return Err(Refusal::invalid(StatusCode::UNAUTHORIZED, &why));
            }
        }
        Ok(())
    }

    /// Also returns what is reserved for the answer.
    async fn answer(&self, request: Request<RequestBody>) -> Result<(String, OwnedSemaphorePermit), Refusal> {
        let label =
            label(request.uri().path()).ok_or_else(|| Refusal::invalid(StatusCode::NOT_FOUND, "no such page"))?;
        if request.method() != Method::POST {
            return Err(Refusal::invalid(StatusCode::METHOD_NOT_ALLOWED, "only POST is supported"));
        }
        let body = request.into_body();
        // Without a length, it may be as long as any.
        let len = body.size_hint().upper().map_or(MOST, |len| usize::try_from(len).unwrap_or(usize::MAX));
        let too_large = || Refusal::invalid(StatusCode::PAYLOAD_TOO_LARGE, "the review is too large");
        if len > MOST {
            discard(body).await;
            return Err(too_large());
        }
        let held = self.room.body(len).await.ok_or_else(too_large)?;
        let text = read(body, len).await?;
        let _decoded = self.room.decoded(&text).await.ok_or_else(too_large)?;
        let review =
            Review::parse(&text).map_err(|error| Refusal::invalid(StatusCode::BAD_REQUEST, &error.to_string()))?;
        Ok((self.decide(&review, label).await.render(&review.uid).to_string(), held))
    }

    async fn decide(&self, review: &Review<'_>, label: Label) -> Answer {
        let injector = self.injector.load_full();
        let default = if let Label::Mode(mode) = label { Some(mode) } else { None };
        let origin = Origin { namespace: &review.namespace, default, admitted: true };
        let Some((meta, object)) = &review.pod else {
            self.metrics.count(default, Counted::Unchanged);
            return Answer::default();
        };
        let asked = match wanted(meta, &origin) {
            Ok(None) if label == Label::Unknown => Err(format!(
                "the label {} of the namespace {} is no mode: want sidecar, node-agent, tier or disabled",
                informerd_injection::INJECT,
                review.namespace
            )),
            asked => asked,
        };
        let changed = match asked {
            Ok(None) => {
                self.metrics.count(default, Counted::Unchanged);
                return Answer::default();
            }
            Ok(Some(asked)) => {
                self.change(&injector, &asked, object.get(), &origin).await.map_err(|why| (Some(asked.mode), why))
            }
            Err(why) => Err((default, why)),
        };
        // Anybody may have sent it.
        let (pod, namespace) = (cut(name(meta)), cut(&review.namespace));
        match changed {
            Ok((mode, answer)) => {
                self.metrics.count(Some(mode), Counted::Injected);
                let (mode, dry_run, warnings) = (mode.as_str(), review.dry_run, answer.warnings.join("; "));
                tracing::info!(namespace, pod, mode, dry_run, warnings = cut(&warnings), "pod changed");
                answer
            }
            Err((mode, why)) => {
                self.metrics.count(mode, Counted::Refused);
                tracing::warn!(namespace, pod, reason = cut(&why), "pod stays as it is");
                Answer::warning(format!("this pod does not read through informerd: {why}"))
            }
        }
    }

    async fn change(
        &self,
        injector: &Arc<Injector>,
        asked: &Wanted,
        pod: &str,
        origin: &Origin<'_>,
    ) -> Result<(Mode, Answer), String> {
        let pod: serde_json::Value = serde_json::from_str(pod).map_err(|error| error.to_string())?;
        // Before others have to wait for it.
        can_change(&pod, asked, origin, injector)?;
        if let Some(name) = asked.mode.config_map() {
            self.has_ca(origin.namespace, name).await?;
        }
        if asked.has_config() {
            self.check(injector, asked).await?;
        }
        let change = inject(pod, asked, origin, injector)?;
        Ok((asked.mode, Answer { patch: change.patch, warnings: change.warnings }))
    }

    /// Checks what a pod has for its sidecar, and does not keep others waiting meanwhile: whoever may create pods has written it.
    async fn check(&self, injector: &Arc<Injector>, asked: &Wanted) -> Result<(), String> {
        let turn = Arc::clone(&self.checks).acquire_owned().await;
        let (injector, asked) = (Arc::clone(injector), asked.clone());
        let check = move || {
            let _turn = turn;
            // The mistakes may be many.
            injector.check(&asked).map_err(|why| cut(&why).to_owned())
        };
        tokio::task::spawn_blocking(check).await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Without this ConfigMap, the kubelet would not start the pod.
    async fn has_ca(&self, namespace: &str, name: &str) -> Result<(), String> {
        // Nobody says that it was the apiserver who sent this name, and it becomes part of a path.
        let is_label = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if namespace.is_empty() || !namespace.bytes().all(is_label) {
            return Err("the namespace has no valid name".to_owned());
        }
        let object = ObjectName { namespace: namespace.to_owned(), name: name.to_owned() };
        let lookup = async {
            let _turn = self.lookups.acquire().await;
            config_map_has_ca(&self.upstream, &object).await
        };
        match timeout(LOOKUP, lookup).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(format!("there is no ConfigMap {name} with ca.crt in the namespace")),
            Ok(Err(error)) => Err(format!("the ConfigMap {name} cannot be read: {error}")),
            Err(_) => Err(format!("the ConfigMap {name} cannot be read in time")),
        }
    }
}

/// Reads the beginning of a body and keeps none of it: over HTTP/1.1, a client that still sends would not see the answer.
async fn discard(mut body: RequestBody) {
    let mut len = 0;
    while let Some(Ok(frame)) = body.frame().await
        && len <= 2 * MOST
    {
        len += frame.data_ref().map_or(0, Bytes::len);
    }
}

/// Reads a body of at most `len` bytes.
async fn read(mut body: RequestBody, len: usize) -> Result<Bytes, Refusal> {
    let mut text = BytesMut::with_capacity(len);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Refusal::invalid(StatusCode::BAD_REQUEST, &error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        if text.len() + data.len() > len {
            return Err(Refusal::invalid(StatusCode::PAYLOAD_TOO_LARGE, "the review is too large"));
        }
        text.extend_from_slice(&data);
    }
    Ok(text.freeze())
}

/// What the path says about the label of the namespace. The apiserver sends no labels of the namespace, so the
/// configuration of the webhook has a path for each value.
fn label(path: &str) -> Option<Label> {
    match path.strip_prefix(PREFIX)?.strip_prefix('/') {
        None if path == PREFIX => Some(Label::Missing),
        Some(UNKNOWN) => Some(Label::Unknown),
        Some(mode) => Mode::find(mode).map(Label::Mode),
        None => None,
    }
}

/// As in the apiserver's own messages: a pod of a ReplicaSet has no name yet.
fn name(meta: &Meta) -> &str {
    if meta.name.is_empty() { &meta.generate_name } else { &meta.name }
}

// === impl Refusal ===

impl Refusal {
    fn busy() -> Self {
        let message = "too many requests at once, or this one came too slowly".to_owned();
        Self { status: StatusCode::SERVICE_UNAVAILABLE, message, counted: Counted::Busy }
    }

    /// The message may quote all that was sent, and stays in memory until the client takes it.
    fn invalid(status: StatusCode, message: &str) -> Self {
        Self { status, message: cut(message).to_owned(), counted: Counted::Invalid }
    }
}

#[cfg(test)]
#[path = "webhook_tests.rs"]
mod tests;
