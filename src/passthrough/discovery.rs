//! Discovery and OpenAPI documents. They are large, every client requests them at its start, and they seldom change.
//! They are cached with their ETag and revalidated with the apiserver on every request, so an answer is never older
//! than the apiserver's own.

use std::sync::Arc;

use aws_lc_rs::digest;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_RANGES, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE,
    DATE, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE, LAST_MODIFIED, RANGE,
};
use http::request::Parts;
use http::{Method, Response, StatusCode, Uri};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::ForwardBody;
use super::away::warn;
use super::parts::answer;
use super::shared::{AUDIT_ID, Whole, has_repeated};
use crate::apiserver::client::{Identity, empty};
use crate::auth::impersonates;

/// Larger documents are passed on but not cached.
pub(super) const MAX_DOCUMENT: usize = 16 << 20;

/// The user and the form of a document. Discovery may depend on the user: requests with credentials of their own have a
/// cache entry per credential.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct DocumentKey {
    identity: Identity,
    /// The SHA-256 of the header: a document is cached for longer than a token should stay in memory.
    authorization: Option<[u8; 32]>,
    target: Box<str>,
    accept: Option<HeaderValue>,
    accept_encoding: Option<HeaderValue>,
}

/// A document as it was last validated.
#[derive(Debug)]
pub(super) struct Document {
    /// `None`: the document cannot be revalidated. It is cached for times when the apiserver does not answer.
    pub etag: Option<HeaderValue>,
    /// Shared with the answers. Its memory is reserved until the last byte of them is sent.
    pub whole: Arc<Whole>,
    /// When the apiserver last confirmed the document.
    confirmed: Mutex<Instant>,
}

// === impl DocumentKey ===

impl DocumentKey {
    /// `None` for requests whose answer must not be cached.
    pub(super) fn of(request: &Parts, identity: Identity) -> Option<Self> {
        let headers = &request.headers;
        let unusual = headers.contains_key(RANGE)
            || headers.contains_key(IF_MODIFIED_SINCE)
            // A proxy in front of the apiserver may identify a user by it.
            || headers.contains_key(COOKIE)
            || impersonates(headers)
            || has_repeated(headers);
        if request.method != Method::GET || unusual {
            return None;
        }
        // A copy: the header is a slice of the buffer that the whole head was read into, and the document is kept.
        let value = |name: HeaderName| HeaderValue::from_bytes(headers.get(name)?.as_bytes()).ok();
        Some(Self {
            identity,
            authorization: headers.get(AUTHORIZATION).map(hashed),
            target: target(&request.uri)?.into(),
            accept: value(ACCEPT),
            accept_encoding: value(ACCEPT_ENCODING),
        })
    }

    pub(super) fn size(&self) -> usize {
        let of = |value: &Option<HeaderValue>| value.as_ref().map_or(0, HeaderValue::len);
        size_of::<Self>() + self.target.len() + of(&self.accept) + of(&self.accept_encoding)
    }
}

fn hashed(credential: &HeaderValue) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, credential.as_bytes()).as_ref());
    hash
}

/// A document's target, as far as the answer depends on it. `None` if it may be of no document, or has more than a document
/// needs: whoever made something up could have a document kept again and again.
fn target(uri: &Uri) -> Option<String> {
    let path = uri.path().trim_end_matches('/');
    let mut target = path.to_owned();
    for parameter in uri.query().unwrap_or_default().split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter.split_once('=')? {
            // The apiserver's time for it.
            ("timeout", _) => {}
            // With a wrong one, the answer is no document.
            ("hash", _) if path.starts_with("/openapi/v3/") && target.len() == path.len() => {
                target.extend(["?", parameter]);
            }
            _ => return None,
        }
    }
    (is_document(path) && !target.contains('%')).then_some(target)
}

fn is_document(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match parts.as_slice() {
        ["api" | "apis" | "version"] | ["openapi", "v2"] | ["openapi", "v3", ..] => true,
        ["api", version] => !version.is_empty(),
        ["apis", group] => !group.is_empty(),
        ["apis", group, version] => !group.is_empty() && !version.is_empty(),
        _ => false,
    }
}

// === impl Document ===

impl Document {
    pub(super) fn new(etag: Option<HeaderValue>, whole: Whole) -> Self {
        Self { etag, whole: Arc::new(whole.joined()), confirmed: Mutex::new(Instant::now()) }
    }

    /// Records that the apiserver has just confirmed the document.
    pub(super) fn confirm(&self) {
        *self.confirmed.lock() = Instant::now();
    }

    /// An answer that was not revalidated.
    pub(super) fn old(&self, asked: Option<&HeaderValue>) -> Response<ForwardBody> {
        let mut response = self.answer(asked, &HeaderMap::new());
        let headers = response.headers_mut();
        headers.remove(DATE);
        headers.remove(AUDIT_ID);
        warn(headers, self.confirmed.lock().elapsed());
        response
    }

    /// The answer to a client with this `If-None-Match`. `confirmed` is the apiserver's own answer to this request.
    pub(super) fn answer(&self, asked: Option<&HeaderValue>, confirmed: &HeaderMap) -> Response<ForwardBody> {
        let mut headers = self.whole.headers.clone();
        if let Some(id) = confirmed.get(AUDIT_ID) {
            headers.insert(AUDIT_ID, id.clone());
        }
        if asked.zip(self.etag.as_ref()).is_some_and(|(asked, etag)| matches(asked, etag)) {
            // As Go's server does it.
            for name in [CONTENT_LENGTH, CONTENT_TYPE, CONTENT_ENCODING, LAST_MODIFIED, ACCEPT_RANGES] {
                headers.remove(name);
            }
            return answer(StatusCode::NOT_MODIFIED, headers, empty());
        }
        answer(StatusCode::OK, headers, self.whole.body())
    }

    pub(super) fn size(&self) -> usize {
        let headers = self.whole.headers.iter();
        let headers: usize = headers.map(|(name, value)| name.as_str().len() + value.len()).sum();
        size_of::<Self>() + self.whole.bytes() + headers
    }
}

/// Whether `If-None-Match` contains this tag. Weak and strong tags are compared as equal here (RFC 9110, 13.1.2).
fn matches(asked: &HeaderValue, etag: &HeaderValue) -> bool {
    fn opaque(tag: &str) -> &str {
        tag.trim().strip_prefix("W/").unwrap_or(tag.trim())
    }
    let (Ok(asked), Ok(etag)) = (asked.to_str(), etag.to_str()) else { return false };
    asked.split(',').any(|tag| tag.trim() == "*" || opaque(tag) == opaque(etag))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn key(method: &str, target: &str, headers: &[(&str, &str)]) -> Option<DocumentKey> {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        DocumentKey::of(&request.body(()).unwrap().into_parts().0, Identity::Own)
    }

    #[test]
    fn what_is_a_document() {
        for target in [
            "/api",
            "/api/",
            "/apis?timeout=32s",
            "/api/v1",
            "/apis/apps",
            "/apis/apps/v1",
            "/version",
            "/version/",
            "/openapi/v2",
            "/openapi/v3",
            "/openapi/v3/apis/apps/v1?hash=1",
            "/openapi/v3/apis/apps/v1?timeout=1s&hash=1&",
        ] {
            assert!(key("GET", target, &[]).is_some(), "{target}");
        }
        for target in ["/", "/healthz", "/metrics", "/api/v1/pods", "/apis/apps/v1/deployments", "/openapi", "//api"] {
            assert!(key("GET", target, &[]).is_none(), "{target}");
        }
        // Another name for a document.
        for target in [
            "/openapi/v2?x=1",
            "/openapi/v2?hash=1",
            "/openapi/v3?hash=1",
            "/apis?timeout",
            "/openapi/v3/apis/apps/v1?hash=1&hash=2",
            "/openapi/v3/apis/apps/v1?hash=%31",
            "/openapi/v3/apis/%61pps/v1",
        ] {
            assert!(key("GET", target, &[]).is_none(), "{target}");
        }
        for target in ["/api/", "/api//", "/api?", "/api?timeout=1s", "/api?timeout=1s&timeout=2s"] {
            assert_eq!(key("GET", target, &[]), key("GET", "/api", &[]), "{target}");
        }
        assert!(key("HEAD", "/api", &[]).is_none());
        assert!(key("GET", "/api", &[("impersonate-user", "x")]).is_none());
        assert!(key("GET", "/api", &[("range", "bytes=0-1")]).is_none());
        assert!(key("GET", "/api", &[("accept", "a"), ("accept", "b")]).is_none());
    }

    #[test]
    fn forms_and_users_are_kept_apart() {
        let keys = [
            key("GET", "/api", &[]),
            key("GET", "/openapi/v3/api/v1", &[]),
            key("GET", "/openapi/v3/api/v1?hash=1", &[]),
            key("GET", "/api", &[("accept", "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io")]),
            key("GET", "/api", &[("accept-encoding", "gzip")]),
            key("GET", "/api", &[("authorization", "Bearer a")]),
            key("GET", "/api", &[("authorization", "Bearer b")]),
        ];
        for (i, one) in keys.iter().enumerate() {
            for other in &keys[i + 1..] {
                assert_ne!(one, other);
            }
        }
    }

    #[test]
    fn tags() {
        let tag = HeaderValue::from_static("\"A1\"");
        for (asked, expected) in [
            ("\"A1\"", true),
            ("W/\"A1\"", true),
            ("\"B\", \"A1\"", true),
            ("*", true),
            ("\"B\"", false),
            ("A1", false),
        ] {
            assert_eq!(matches(&HeaderValue::from_static(asked), &tag), expected, "{asked}");
        }
    }
}
