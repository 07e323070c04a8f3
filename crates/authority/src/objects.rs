//! Objects of the apiserver: reads them, lists them, creates them, and replaces them if they were not changed in
//! between.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::members::Members;
use super::{AuthorityError, ObjectName};
use informerd_apiserver::client::{CallOptions, Identity, Upstream, empty, full};
use informerd_apiserver::reader::get_items;
use informerd_apiserver::{RequestVerb, UpstreamError};

/// The most bytes of one object. Any object fits: etcd accepts 1.5 MiB, and one byte of that is at most six bytes in
/// JSON.
const MOST: usize = 16 << 20;
/// The number of objects per page of a list.
pub(super) const PAGE: usize = 100;
/// Longer paths are not sent.
const LONGEST: usize = 16 << 10;
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long one watch lasts before it is opened again, in seconds.
const WATCHED: u64 = 240;
/// These stay as they are in a part of a path.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A collection, read page by page, and each page object by object.
pub(super) struct Pages<'a> {
    upstream: &'a Upstream,
    kind: &'static str,
    collection: &'a str,
    selector: &'a str,
    /// The continue token of the next page; `None` after the last one.
    next: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message {
    message: String,
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
        Self::of("/api/v1", "secrets", name)
    }

    pub(super) fn config_map(name: &ObjectName) -> Self {
        Self::of("/api/v1", "configmaps", name)
    }

    pub(super) fn webhook(name: &str) -> Self {
        let kind = "mutatingwebhookconfigurations";
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}/{}", segment(name));
        Self { kind: "mutatingwebhookconfigurations.admissionregistration.k8s.io", path }
    }

    pub(super) fn deployment(name: &ObjectName) -> Self {
        Self { kind: "deployments.apps", ..Self::of("/apis/apps/v1", "deployments", name) }
    }

    fn of(group: &str, kind: &'static str, name: &ObjectName) -> Self {
        let (namespace, name) = (segment(&name.namespace), segment(&name.name));
        Self { kind, path: format!("{group}/namespaces/{namespace}/{kind}/{name}") }
    }

    pub(super) async fn get(&self, upstream: &Upstream) -> Result<Members, AuthorityError> {
        at(upstream, Method::GET, self.kind, &self.path, None).await.map(Members::without_managed_fields)
    }

    /// Replaces the object by a changed copy of what was read. Refused if the object was changed in between.
    pub(super) async fn put(&self, upstream: &Upstream, object: &Members) -> Result<(), AuthorityError> {
        at::<Message>(upstream, Method::PUT, self.kind, &self.path, Some(object)).await.map(drop)
    }
}

// === impl Pages ===

impl<'a> Pages<'a> {
    pub(super) fn of(upstream: &'a Upstream, kind: &'static str, collection: &'a str, selector: &'a str) -> Self {
        Self { upstream, kind, collection, selector, next: Some(String::new()) }
    }

    /// Passes each object of the next page to `take`, as JSON, and returns the revision of the list. `None` after the last
    /// page. Only one object is in memory at a time.
    ///
    /// Where a token is too long, as it has the name of an object, the page is the whole list again.
    pub(super) async fn next(&mut self, take: impl FnMut(&[u8])) -> Result<Option<String>, AuthorityError> {
        let Some(next) = &self.next else { return Ok(None) };
        let (collection, selector) = (self.collection, self.selector);
        let whole = format!("{collection}?fieldSelector={selector}");
        let page = format!("{whole}&limit={PAGE}&continue={next}");
        let path = if page.len() <= LONGEST { page } else { whole };
        if path.len() > LONGEST {
            let (what, message) = (collection.to_owned(), "the name is too long".to_owned());
            return Err(AuthorityError::Content { what, message });
        }
        let options = CallOptions::new(RequestVerb::List, self.kind).header_timeout(TIMEOUT);
        let (revision, next) = get_items(self.upstream, &path, &options, MOST, take).await.map_err(|error| {
            let UpstreamError::Status(status) = error else { return AuthorityError::Upstream(error) };
            AuthorityError::Refused { what: collection.to_owned(), status: status.code, message: status.message }
        })?;
        self.next = Some(next).filter(|next| !next.is_empty());
        Ok(Some(revision))
    }
}

/// A name as a part of a path.
pub(super) fn segment(name: &str) -> impl std::fmt::Display {
    utf8_percent_encode(name, KEPT)
}

/// The value of `fieldSelector` that selects the object of a name, and what else is selected.
pub(super) fn only(name: &str, selector: &str) -> String {
    let escaped = name.replace('\\', r"\\").replace(',', r"\,").replace('=', r"\=");
    format!("metadata.name%3D{}%2C{selector}", segment(&escaped))
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
    body: Option<&Members>,
) -> Result<T, AuthorityError> {
    let what = path.split('?').next().unwrap_or_default().to_owned();
    let content = |message: String| AuthorityError::Content { what: what.clone(), message };
    let body = body.map(serde_json::to_vec).transpose().map_err(|error| content(error.to_string()))?.map(full);
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
    let body: Bytes = body.to_bytes();
    if status == StatusCode::CONFLICT {
        return Err(AuthorityError::Conflict { what });
    }
    if !status.is_success() {
        let Message { message } = serde_json::from_slice(&body).unwrap_or_default();
        return Err(AuthorityError::Refused { what, status: status.as_u16(), message });
    }
    serde_json::from_slice(&body).map_err(|error| content(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use informerd_apiserver::testing::{FakeServer, answer, padded};

    #[tokio::test]
    async fn an_object_has_a_bound() {
        for (bytes, fits) in [(MOST, true), (MOST + 1, false)] {
            let text = padded(r#"{"message":"it"}"#, bytes);
            let server = FakeServer::plain(move |_, _| std::future::ready(answer(200, text.clone()))).await;
            let upstream = Upstream::from_config(server.config()).await.unwrap();
            match at::<Message>(&upstream, Method::GET, "secrets", "/secret", None).await {
                Ok(read) => assert_eq!((read.message.as_str(), fits), ("it", true)),
                Err(error) => assert!(!fits && matches!(error, AuthorityError::TooLong { .. }), "{error}"),
            }
        }
    }
}
