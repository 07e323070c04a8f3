//! Secrets and ConfigMaps of the apiserver: read, and replaced if nobody else has.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use serde_json::Value;

use super::{AuthorityError, ObjectName};
use crate::upstream::RequestVerb;
use crate::upstream::client::{CallOptions, Identity, Upstream, empty, full};

const MOST: usize = 4 << 20;
const TIMEOUT: Duration = Duration::from_secs(10);

/// `secrets` or `configmaps`.
pub(super) async fn get(upstream: &Upstream, kind: &'static str, name: &ObjectName) -> Result<Value, AuthorityError> {
    send(upstream, Method::GET, kind, name, None).await
}

/// The object as it was read, changed; refused if somebody else has changed it since.
pub(super) async fn put(
    upstream: &Upstream,
    kind: &'static str,
    name: &ObjectName,
    object: &Value,
) -> Result<(), AuthorityError> {
    send(upstream, Method::PUT, kind, name, Some(object)).await.map(drop)
}

async fn send(
    upstream: &Upstream,
    method: Method,
    kind: &'static str,
    name: &ObjectName,
    body: Option<&Value>,
) -> Result<Value, AuthorityError> {
    let what = format!("{kind} {name}");
    let content = |message: String| AuthorityError::Content { what: what.clone(), message };
    let body = body.map(|body| full(body.to_string()));
    let mut request = Request::new(body.unwrap_or_else(empty));
    *request.method_mut() = method;
    *request.uri_mut() = format!("/api/v1/namespaces/{}/{kind}/{}", name.namespace, name.name)
        .parse()
        .map_err(|error: http::uri::InvalidUri| content(error.to_string()))?;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let options = CallOptions::new(RequestVerb::Get, kind).header_timeout(TIMEOUT);
    let response = upstream.send_with(Identity::Own, request, &options).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MOST).collect();
    let body = tokio::time::timeout(TIMEOUT, body).await.map_err(|_| content("no answer in time".to_owned()))?;
    let body = body.map_err(|error| content(error.to_string()))?.to_bytes();
    if status == StatusCode::CONFLICT {
        return Err(AuthorityError::Conflict { what });
    }
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    if !status.is_success() {
        let message = answer["message"].as_str().unwrap_or_default().to_owned();
        return Err(AuthorityError::Refused { what, status: status.as_u16(), message });
    }
    Ok(answer)
}
