//! Handles one request: routes and counts it, applies faults, and responds.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::body::{self, Body};
use super::counts::{OpenWatch, RequestRecord, Verb};
use super::encode::{self, RowObject, Shape};
use super::fault::{Effect, Faults};
use super::net::{Connection, Order};
use super::options::{self, Options};
use super::registry::Kind;
use super::select::Selection;
use super::server::Shared;
use super::store::View;
use super::stored::Stored;
use super::write::{bad_request, details, no_such_resource, not_found};
use super::{discovery, list, patch, proto, subresource, table, watch};
use crate::types::{ObjectKey, Scope, Status, StatusDetails};

/// The apiserver's own limit for a request body, in bytes.
const BODY: usize = 3 * 1024 * 1024;

/// A routed request for a resource.
pub(super) struct Request<'a> {
    pub kind: &'a Arc<Kind>,
    pub verb: Verb,
    pub shape: Shape,
    pub accepts_gzip: bool,
    pub connection: Arc<Connection>,
    /// Different for each request.
    pub serial: u64,
    dry_run: bool,
    shared: &'a Shared,
}

/// A path that names a resource.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Path<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub namespace: Option<&'a str>,
    pub name: Option<&'a str>,
    pub subresource: Option<&'a str>,
}

pub(super) async fn handle(
    shared: &Arc<Shared>,
    connection: &Arc<Connection>,
    request: http::Request<Incoming>,
) -> Response<Body> {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).map(ToOwned::to_owned);
    let record = RequestRecord {
        method: request.method().to_string(),
        target: request.uri().path_and_query().map_or_else(String::new, ToString::to_string),
        authorization: header("authorization"),
        headers: request.headers().clone(),
    };
    shared.counters.record(record);
    let path = request.uri().path().to_owned();
    let routed = Path::parse(&path);
    let kind = routed.as_ref().and_then(|path| shared.view.store.find(path.group, path.version, path.resource));
    let query = request.uri().query().unwrap_or_default().to_owned();
    let (options, none) = (Options::decode(&query), Options::default());
    let wanted = options.as_ref().unwrap_or(&none);
    let verb = routed.as_ref().map_or(Verb::Other, |path| verb(request.method(), path, wanted));
    shared.counters.request(verb, kind.as_ref().map_or("", |kind| &kind.id));
    if let Some(response) = harm(&shared.faults, connection, verb, kind.as_deref()).await {
        return response;
    }
    if *request.method() == Method::POST && discovery::is_access_review(&path) {
        return discovery::access_review();
    }
    let reviews = shared.reviews.read().clone();
    if let (Some(reviews), &Method::POST, None) = (reviews, request.method(), &kind) {
        let answer = read(request).await.and_then(|body| decode(&body)).map(|question| reviews(&path, &question));
        return match answer {
            Ok(Some(status)) => body::json(StatusCode::CREATED, body::full(json!({"status": status}).to_string())),
            Ok(None) => body::status(&no_such_resource()),
            Err(status) => body::status(&status),
        };
    }
    let (Some(path), Some(kind)) = (&routed, &kind) else {
        return discovery::answer(&shared.view.store, &path, request.headers(), routed.as_ref());
    };
    if path.namespace.is_some() && !kind.namespaced {
        return discovery::not_found(&shared.view.store, routed.as_ref());
    }
    let protobuf = shared.settings.protobuf && !kind.custom && proto::encodes(&kind.kind);
    let shape = match negotiate(request.headers(), verb, &wanted.include_object, protobuf) {
        Ok(shape) => shape,
        Err(status) => return body::status(&status),
    };
    let gzip = header("accept-encoding").is_some_and(|value| value.split(',').any(|token| token.trim() == "gzip"));
    let routed = Request {
        kind,
        verb,
        shape,
        accepts_gzip: gzip,
        connection: connection.clone(),
        serial: shared.serial(),
        dry_run: options::pairs(&query).iter().any(|(name, _)| name == "dryRun"),
        shared,
    };
    let result = match options {
        Ok(options) => routed.answer(path, options, request).await,
        Err(status) => Err(status),
    };
    result.unwrap_or_else(|status| body::status(&status))
}

/// Applies the faults that occur before the response.
async fn harm(faults: &Faults, connection: &Connection, verb: Verb, kind: Option<&Kind>) -> Option<Response<Body>> {
    if let Some(Effect::Delay(delay)) = faults.take(verb, kind, |effect| matches!(effect, Effect::Delay(_))) {
        tokio::time::sleep(delay).await;
    }
    match faults.take(verb, kind, |effect| matches!(effect, Effect::Answer { .. } | Effect::Reset))? {
        Effect::Answer { code, retry_after } => Some(body::status(&fault_status(code, retry_after))),
        _ => {
            connection.order(Order::Rst);
            std::future::pending().await
        }
    }
}

/// The Status that an apiserver sends with a code.
pub(super) fn fault_status(code: u16, retry_after: Option<u32>) -> Status {
    let (reason, message) = match code {
        403 => ("Forbidden", "forbidden by an injected fault"),
        404 => ("NotFound", "the server could not find the requested resource"),
        410 => ("Expired", "The resourceVersion for the provided list is too old."),
        429 => ("TooManyRequests", "storage is (re)initializing"),
        503 => ("ServiceUnavailable", "apiserver is shutting down"),
        504 => ("Timeout", "Timeout: request did not complete within the allotted timeout"),
        _ => ("InternalError", "Internal error occurred: an injected fault"),
    };
    let mut status = Status::failure(code, reason, message);
    if retry_after.is_some() {
        status.details = Some(StatusDetails { retry_after_seconds: retry_after, ..Default::default() });
    }
    status
}

fn verb(method: &Method, path: &Path<'_>, options: &Options) -> Verb {
    match (method.as_str(), path.name) {
        ("GET", Some(_)) => Verb::Get,
        ("GET", None) if options.watch => Verb::Watch,
        ("GET", None) if options.limit == 1 && options.continue_token.is_empty() => Verb::Probe,
        ("GET", None) => Verb::List,
        ("POST", _) => Verb::Create,
        ("PUT", _) => Verb::Update,
        ("PATCH", _) => Verb::Patch,
        ("DELETE", _) => Verb::Delete,
        _ => Verb::Other,
    }
}

/// Chooses the first clause of Accept that can be served. In protobuf there are only whole objects, if at all.
fn negotiate(headers: &HeaderMap, verb: Verb, include_object: &str, protobuf: bool) -> Result<Shape, Box<Status>> {
    let accept: Vec<&str> =
        headers.get_all(http::header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let accept = accept.join(",");
    if accept.trim().is_empty() {
        return Ok(Shape::Full);
    }
    let single =
        if matches!(verb, Verb::List | Verb::Probe) { "PartialObjectMetadataList" } else { "PartialObjectMetadata" };
    for clause in accept.split(',') {
        let mut parts = clause.split(';').map(str::trim);
        if protobuf && clause.trim() == Shape::Protobuf.media_type(false) {
            return Ok(Shape::Protobuf);
        }
        if !matches!(parts.next(), Some("application/json" | "*/*" | "application/*")) {
            continue;
        }
        let parameters: Vec<&str> = parts.collect();
        let value = |name: &str| parameters.iter().find_map(|p| p.strip_prefix(name)?.strip_prefix('='));
        let meta = value("g") == Some("meta.k8s.io") && matches!(value("v"), Some("v1" | "v1beta1"));
        match value("as") {
            None => return Ok(Shape::Full),
            Some(name) if meta && name == single => return Ok(Shape::Partial),
            Some("Table") if meta => {
                let objects = match include_object {
                    "None" => RowObject::None,
                    "Object" => RowObject::Object,
                    _ => RowObject::Metadata,
                };
                return Ok(Shape::Table { objects });
            }
            Some(_) => {}
        }
    }
    let message = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";
    Err(Box::new(Status::failure(406, "NotAcceptable", message)))
}

// === impl Request ===

impl Request<'_> {
    pub(super) fn view(&self) -> &View {
        &self.shared.view
    }

    pub(super) fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    pub(super) fn bookmark_every(&self) -> Duration {
        self.shared.settings.bookmark_every
    }

    pub(super) fn open_watch(&self) -> OpenWatch {
        self.shared.counters.watch(&self.kind.id)
    }

    async fn answer(
        &self,
        path: &Path<'_>,
        options: Options,
        request: http::Request<Incoming>,
    ) -> Result<Response<Body>, Box<Status>> {
        match (self.verb, path.name) {
            (Verb::List | Verb::Probe | Verb::Watch, name) => self.read(path, name, options).await,
            (Verb::Get | Verb::Update | Verb::Patch, Some(name))
                if matches!(path.subresource, Some("scale" | "log")) =>
            {
                self.subresource(path, name, request).await
            }
            (Verb::Get, Some(name)) => self.get(&self.key(path, name)?, &options).await,
            (Verb::Create, None) => {
                let object = decode(&read(request).await?)?;
                let stored = self.view().store.create_in(self.kind, path.namespace, object, self.dry_run)?;
                Ok(self.object(StatusCode::CREATED, &stored))
            }
            (Verb::Update, Some(name)) => {
                let key = self.key(path, name)?;
                let object = decode(&read(request).await?)?;
                let stored = self.modify(&key, |current| {
                    *current = object;
                    Ok(())
                })?;
                Ok(self.object(StatusCode::OK, &stored))
            }
            (Verb::Patch, Some(name)) => self.patch(path, &self.key(path, name)?, request).await,
            (Verb::Delete, Some(name)) => {
                let body = read(request).await?;
                let grace = serde_json::from_slice::<Value>(&body).ok().and_then(|v| v["gracePeriodSeconds"].as_i64());
                let key = self.key(path, name)?;
                if self.dry_run {
                    return Ok(self.object(StatusCode::OK, &*self.modify(&key, |_| Ok(()))?));
                }
                let stored = self.view().store.request_delete(self.kind, &key, grace)?;
                let exists = self.view().store.objects(&self.kind.id).contains_key(&key);
                if exists || &*self.kind.id == "pods" {
                    return Ok(self.object(StatusCode::OK, &stored));
                }
                let details = StatusDetails { uid: stored.attributes.uid.clone(), ..details(self.kind, name) };
                let mut status = Status::failure(200, "", "").with_details(details);
                status.status = "Success";
                Ok(body::status(&status))
            }
            _ => {
                let message = "the server does not allow this method on the requested resource";
                let status = Status::failure(405, "MethodNotAllowed", message).with_details(StatusDetails::default());
                Err(Box::new(status))
            }
        }
    }

    async fn read(&self, path: &Path<'_>, name: Option<&str>, options: Options) -> Result<Response<Body>, Box<Status>> {
        let scope = Scope { namespace: path.namespace.map(Into::into), name: name.map(Into::into) };
        let selection = Selection::parse(self.kind, scope, &options.label_selector, &options.field_selector)
            .map_err(|message| bad_request(&message))?;
        if self.verb == Verb::Watch {
            return watch::watch(self, selection, options).await;
        }
        list::list(self, &selection, &options).await
    }

    async fn get(&self, key: &ObjectKey, options: &Options) -> Result<Response<Body>, Box<Status>> {
        let rv = options.revision().map_err(|text| Box::new(Status::failure(500, "", text)))?;
        self.view().wait_for((!options.rv.is_empty()).then_some(rv)).await?;
        let (objects, _) = self.view().snapshot(&self.kind.id, false).map_err(|_| not_found(self.kind, key.name()))?;
        let stored = objects.get(key).ok_or_else(|| not_found(self.kind, key.name()))?;
        let cut = self.faults().take(self.verb, Some(self.kind), |effect| matches!(effect, Effect::Cut(_)));
        let body = match cut {
            Some(Effect::Cut(how)) => body::cut(&self.bytes(stored), how, self.connection.clone()),
            _ => body::full(self.bytes(stored)),
        };
        Ok(body::typed(StatusCode::OK, self.shape.media_type(false), body))
    }

    fn modify(
        &self,
        key: &ObjectKey,
        change: impl FnOnce(&mut Value) -> Result<(), Box<Status>>,
    ) -> Result<Arc<Stored>, Box<Status>> {
        self.view().store.inner.write().modify(&self.kind.id, key, self.dry_run, change)
    }

    async fn patch(
        &self,
        path: &Path<'_>,
        key: &ObjectKey,
        request: http::Request<Incoming>,
    ) -> Result<Response<Body>, Box<Status>> {
        let content_type = request.headers().get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_owned();
        let changes = decode(&read(request).await?)?;
        let store = &self.view().store;
        if content_type == "application/apply-patch+yaml" && !store.objects(&self.kind.id).contains_key(key) {
            let stored = store.create_in(self.kind, path.namespace, changes, self.dry_run)?;
            return Ok(self.object(StatusCode::CREATED, &stored));
        }
        let stored = self.modify(key, |object| {
            if content_type == "application/json-patch+json" {
                let patched = patch::json_patch(object, &changes);
                return patched.map_err(|message| Box::new(Status::failure(422, "Invalid", message)));
            }
            // Server-side apply is treated like a strategic merge patch here: fields have no owners.
            patch::merge(object, &changes, content_type != "application/merge-patch+json");
            Ok(())
        })?;
        Ok(self.object(StatusCode::OK, &stored))
    }

    async fn subresource(
        &self,
        path: &Path<'_>,
        name: &str,
        request: http::Request<Incoming>,
    ) -> Result<Response<Body>, Box<Status>> {
        let key = ObjectKey::new(path.namespace.unwrap_or_default(), name);
        let store = &self.view().store;
        let found = store.objects(&self.kind.id).get(&key).cloned();
        let mut stored = found.ok_or_else(|| not_found(self.kind, name))?;
        match path.subresource {
            Some("log") if &*self.kind.id == "pods" && self.verb == Verb::Get => {
                Ok(subresource::log(&stored, request.uri().query().unwrap_or_default()))
            }
            Some("scale") if subresource::can_scale(self.kind) => {
                if self.verb != Verb::Get {
                    let scale = decode(&read(request).await?)?;
                    stored = self.modify(&key, |object| {
                        object["spec"]["replicas"] = scale["spec"]["replicas"].clone();
                        Ok(())
                    })?;
                }
                let scale = subresource::scale(&stored).to_string() + "\n";
                Ok(body::json(StatusCode::OK, body::full(scale)))
            }
            _ => Err(no_such_resource()),
        }
    }

    fn key(&self, path: &Path<'_>, name: &str) -> Result<ObjectKey, Box<Status>> {
        if path.subresource.is_some_and(|of| !matches!(of, "status" | "finalize")) {
            return Err(no_such_resource());
        }
        if self.kind.namespaced && path.namespace.is_none() {
            return Err(bad_request("Namespace parameter required."));
        }
        Ok(ObjectKey::new(path.namespace.unwrap_or_default(), name))
    }

    fn object(&self, code: StatusCode, stored: &Stored) -> Response<Body> {
        body::typed(code, self.shape.media_type(false), body::full(self.bytes(stored)))
    }

    fn bytes(&self, stored: &Stored) -> Bytes {
        let mut bytes = match self.shape {
            Shape::Protobuf => return encode::shaped(self.shape, stored),
            Shape::Table { objects } => {
                table::table(self.kind, stored.rv, &table::row(self.kind, stored, objects), true)
            }
            shape => encode::shaped(shape, stored).to_vec(),
        };
        bytes.push(b'\n');
        bytes.into()
    }
}

async fn read(request: http::Request<Incoming>) -> Result<Bytes, Box<Status>> {
    let collected = Limited::new(request.into_body(), BODY).collect().await;
    collected
        .map(http_body_util::Collected::to_bytes)
        .map_err(|error| bad_request(&format!("cannot read the body: {error}")))
}

fn decode(body: &[u8]) -> Result<Value, Box<Status>> {
    let decoded = serde_json::from_slice(body).ok().or_else(|| proto::decode(body));
    decoded.ok_or_else(|| {
        let message =
            "the body of the request was in an unknown format - accepted media types include: application/json";
        Box::new(Status::failure(415, "UnsupportedMediaType", message))
    })
}

// === impl Path ===

impl<'a> Path<'a> {
    /// Returns `None` for a path that does not name a resource, such as discovery or health.
    pub(super) fn parse(path: &'a str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/');
        let mut parsed = Self::default();
        match parts.next()? {
            "api" => parsed.version = parts.next()?,
            "apis" => (parsed.group, parsed.version) = (parts.next()?, parts.next()?),
            _ => return None,
        }
        let mut rest: Vec<&str> = parts.collect();
        if let ["namespaces", namespace, inner @ ..] = &rest[..]
            && !matches!(inner, [] | ["status" | "finalize"])
        {
            parsed.namespace = Some(*namespace);
            rest.drain(..2);
        }
        let mut rest = rest.into_iter();
        parsed.resource = rest.next()?;
        (parsed.name, parsed.subresource) = (rest.next(), rest.next());
        Some(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let parse = |path| Path::parse(path).map(|p| (p.group, p.resource, p.namespace, p.name, p.subresource));
        assert_eq!(parse("/api/v1/pods/"), Some(("", "pods", None, None, None)));
        assert_eq!(parse("/api/v1/namespaces/a"), Some(("", "namespaces", None, Some("a"), None)));
        assert_eq!(parse("/api/v1/namespaces/a/status"), Some(("", "namespaces", None, Some("a"), Some("status"))));
        assert_eq!(
            parse("/apis/apps/v1/namespaces/a/deployments/b/scale"),
            Some(("apps", "deployments", Some("a"), Some("b"), Some("scale")))
        );
        assert_eq!(parse("/apis/apps/v1"), None);
    }
}
