//! Objects of the apiserver: reads them, lists them, creates them, and replaces them if they were not changed in
//! between.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{AuthorityError, ObjectName};
use crate::upstream::RequestVerb;
use crate::upstream::client::{CallOptions, Identity, Upstream, empty, full};

/// The most bytes of one answer. Any object fits: etcd accepts 1.5 MiB, and one byte of that is at most six bytes in
/// JSON.
const MOST: usize = 16 << 20;
/// The number of objects per page of a list, unless they are large.
const PAGE: usize = 20;
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long one watch lasts before it is opened again, in seconds.
const WATCHED: u64 = 240;

/// A collection, read page by page.
pub(super) struct Pages<'a> {
    upstream: &'a Upstream,
    kind: &'static str,
    collection: &'a str,
    selector: &'a str,
    /// The number of objects on the next page. It only decreases: if some objects are large, there may be more of them.
    limit: usize,
    /// The continue token of the next page; `None` after the last one.
    next: Option<String>,
}

/// One page of a list.
#[derive(Debug, Deserialize)]
pub(super) struct Page<T> {
    pub(super) metadata: PageMeta,
    pub(super) items: Vec<T>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PageMeta {
    pub(super) resource_version: String,
    #[serde(rename = "continue")]
    pub(super) next: String,
}

/// An object of the apiserver.
pub(super) struct Place {
    /// The resource in the counters.
    kind: &'static str,
    path: String,
}

// === impl Place ===

impl Place {
    pub(super) fn secret(name: &ObjectName) -> Self {
        Self::core("secrets", name)
    }

    pub(super) fn config_map(name: &ObjectName) -> Self {
        Self::core("configmaps", name)
    }

    pub(super) fn webhook(name: &str) -> Self {
        let kind = "mutatingwebhookconfigurations";
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}/{name}");
        Self { kind: "mutatingwebhookconfigurations.admissionregistration.k8s.io", path }
    }

    pub(super) fn deployment(name: &ObjectName) -> Self {
        let path = format!("/apis/apps/v1/namespaces/{}/deployments/{}", name.namespace, name.name);
        Self { kind: "deployments.apps", path }
    }

    fn core(kind: &'static str, name: &ObjectName) -> Self {
        Self { kind, path: format!("/api/v1/namespaces/{}/{kind}/{}", name.namespace, name.name) }
    }

    pub(super) async fn get(&self, upstream: &Upstream) -> Result<Value, AuthorityError> {
        at(upstream, Method::GET, self.kind, &self.path, None).await
    }

    /// Replaces the object by a changed copy of what was read. Refused if the object was changed in between.
    pub(super) async fn put(&self, upstream: &Upstream, object: &Value) -> Result<(), AuthorityError> {
        at::<Value>(upstream, Method::PUT, self.kind, &self.path, Some(object)).await.map(drop)
    }
}

// === impl Pages ===

impl<'a> Pages<'a> {
    pub(super) fn of(upstream: &'a Upstream, kind: &'static str, collection: &'a str, selector: &'a str) -> Self {
        Self { upstream, kind, collection, selector, limit: PAGE, next: Some(String::new()) }
    }

    /// The next page, or `None` after the last one. A page that is too long is requested again with half as many
    /// objects.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<Page<T>>, AuthorityError> {
        let Some(next) = &self.next else { return Ok(None) };
        loop {
            let (collection, limit, selector) = (self.collection, self.limit, self.selector);
            let path = format!("{collection}?limit={limit}&fieldSelector={selector}&continue={next}");
            match at::<Page<T>>(self.upstream, Method::GET, self.kind, &path, None).await {
                Err(AuthorityError::TooLong { .. }) if limit > 1 => self.limit = limit / 2,
                Err(error) => return Err(error),
                Ok(page) => {
                    self.next = Some(page.metadata.next.clone()).filter(|next| !next.is_empty());
                    return Ok(Some(page));
                }
            }
        }
    }
}

/// Waits until something changes in a collection after this revision, or until nothing has changed for some minutes.
pub(super) async fn changed(
    upstream: &Upstream,
    kind: &'static str,
    collection: &str,
    selector: &str,
    after: &str,
) -> Result<(), AuthorityError> {
    let path =
        format!("{collection}?watch=1&fieldSelector={selector}&resourceVersion={after}&timeoutSeconds={WATCHED}");
    let failed = |message: String| AuthorityError::Content { what: path.clone(), message };
    let mut request = Request::new(empty());
    *request.uri_mut() = path.parse().map_err(|error: http::uri::InvalidUri| failed(error.to_string()))?;
    let options = CallOptions::new(RequestVerb::Watch, kind).header_timeout(TIMEOUT);
    let response = upstream.send_with(Identity::Own, request, &options).await?;
    if !response.status().is_success() {
        let status = response.status().as_u16();
        return Err(AuthorityError::Refused { what: path, status, message: "no watch".to_owned() });
    }
    let mut body = response.into_body();
    let frame = tokio::time::timeout(Duration::from_secs(WATCHED) + TIMEOUT, body.frame()).await;
    match frame {
        Ok(Some(Err(error))) => Err(failed(error.to_string())),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Sends a request to the apiserver and decodes the answer.
pub(super) async fn at<T: DeserializeOwned>(
    upstream: &Upstream,
    method: Method,
    kind: &'static str,
    path: &str,
    body: Option<&Value>,
) -> Result<T, AuthorityError> {
    let what = path.split('?').next().unwrap_or_default().to_owned();
    let content = |message: String| AuthorityError::Content { what: what.clone(), message };
    let body = body.map(|body| full(body.to_string()));
    let mut request = Request::new(body.unwrap_or_else(empty));
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().map_err(|error: http::uri::InvalidUri| content(error.to_string()))?;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let options = CallOptions::new(RequestVerb::Get, kind).header_timeout(TIMEOUT);
    let response = upstream.send_with(Identity::Own, request, &options).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MOST).collect();
    let body = tokio::time::timeout(TIMEOUT, body).await.map_err(|_| content("no answer in time".to_owned()))?;
    let body = body.map_err(|error| match error.is::<LengthLimitError>() {
        true => AuthorityError::TooLong { what: what.clone() },
        false => content(error.to_string()),
    })?;
    let body = body.to_bytes();
    if status == StatusCode::CONFLICT {
        return Err(AuthorityError::Conflict { what });
    }
    if !status.is_success() {
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        let message = answer["message"].as_str().unwrap_or_default().to_owned();
        return Err(AuthorityError::Refused { what, status: status.as_u16(), message });
    }
    serde_json::from_slice(&body).map_err(|error| content(error.to_string()))
}
