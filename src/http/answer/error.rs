//! The one place where errors become HTTP: it maps the errors of all modules to a Status that a client of the apiserver
//! understands.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};

use super::body::{Body, full};
use crate::codec::json::Indenter;
use crate::codec::negotiate::StatusForm;
use crate::codec::{Format, Slices, json, protobuf};
use crate::http::door::{GuardError, TooMuch};
use crate::meta::{Encoding, Status, errors};
use crate::passthrough::ForwardError;

pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// The `Cache-Control` header that the apiserver sends with every answer to an authenticated request.
pub(in crate::http) const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache, private");

/// The ID of a request in the audit logs: the one that the client sent, or a new one. It is copied: a header is a slice of
/// the buffer that the whole head was read into.
pub fn audit_id(headers: &HeaderMap) -> HeaderValue {
    let given = headers.get(AUDIT_ID).filter(|id| !id.is_empty());
    let given = given.and_then(|id| HeaderValue::from_bytes(id.as_bytes()).ok());
    given.unwrap_or_else(|| {
        let id = uuid::Uuid::new_v4().to_string();
        HeaderValue::from_str(&id).unwrap_or(HeaderValue::from_static("unknown"))
    })
}

/// The response for this Status.
pub(in crate::http) fn respond(status: &Status, form: StatusForm) -> Response<Body> {
    let mut body = match form.encoding {
        Encoding::Json | Encoding::Table => json::status_body(status),
        Encoding::Protobuf => protobuf::status_body(status),
    };
    if form.indent && form.encoding == Encoding::Json {
        body = Indenter::default().step(&mut body.into(), usize::MAX);
    }
    let mut response = Response::new(full(Slices::from(body)));
    *response.status_mut() = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(Format::media_type(form.encoding, false)));
    headers.insert(CACHE_CONTROL, NO_CACHE);
    if status.retry_after_seconds() > 0 {
        headers.insert(RETRY_AFTER, status.retry_after_seconds().into());
    }
    if status.code == 403 {
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    response
}

/// Whether an answer says that the client is not authenticated: by its HTTP status, or by the status of a gRPC call.
pub(in crate::http) fn is_unauthenticated(response: &Response<Body>) -> bool {
    let grpc = response.headers().get("grpc-status").is_some_and(|status| status == "16");
    response.status() == StatusCode::UNAUTHORIZED || grpc
}

/// The end of a watch whose resource may be of another server now: its client has to list again.
pub(super) fn another_server() -> Status {
    Status::failure(410, "Expired", "an aggregated API server may serve the resource now: list it again")
}

/// The answer to new watches while the process drains. Opening a watch and closing it within a second would make
/// clients start again with a list.
pub(in crate::http) fn draining() -> Status {
    Status::failure(429, "TooManyRequests", "informerd is shutting down, please try again later").with_retry_after(1)
}

/// The answer to lists and watches while memory is short.
pub(super) fn short() -> Status {
    errors::too_many_requests("informerd is short of memory, please try again later", 1)
}

/// The answer to requests over HTTP/2 while too many others wait until they are handled.
pub(in crate::http) fn too_many_waiting() -> Status {
    errors::too_many_requests("informerd has too many requests that wait, please try again later", 1)
}

/// The whole answer over HTTP/1.1 to a client that is not authenticated, and whose head is not read to its end.
pub(in crate::http) fn large_head() -> Bytes {
    let body = Status::from(TooMuch::Head).to_json();
    let head =
        "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\nconnection: close\r\n";
    format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into()
}

/// The answer to a request of informerd itself that is routed back to informerd.
pub(in crate::http) fn of_ourselves() -> Status {
    Status::failure(508, "", "informerd received its own request: its kubeconfig leads to informerd itself")
}

impl From<&GuardError> for Status {
    fn from(error: &GuardError) -> Self {
        match error {
            GuardError::NoHost => Self::failure(400, "BadRequest", error.to_string()),
            GuardError::Host(_) | GuardError::CrossOrigin => {
                Self::failure(403, "Forbidden", format!("informerd refuses the request: {error}"))
            }
        }
    }
}

impl From<TooMuch> for Status {
    fn from(why: TooMuch) -> Self {
        match why {
            TooMuch::Head => Self::failure(
                431,
                "",
                "informerd refuses the request: its headers are too large for a client that is not authenticated yet",
            ),
            TooMuch::Requests => errors::too_many_requests(
                "informerd refuses the request: too many requests of clients that are not authenticated yet",
                1,
            ),
        }
    }
}

impl From<&ForwardError> for Status {
    fn from(error: &ForwardError) -> Self {
        let message = error.to_string();
        match error {
            ForwardError::NoCredentials => Self::failure(401, "Unauthorized", message),
            ForwardError::NotLent(_) | ForwardError::NoSessions => Self::failure(403, "Forbidden", message),
            ForwardError::BadRequest(_) => Self::failure(400, "BadRequest", message),
            ForwardError::LargeHead => Self::failure(431, "", message),
            // Nothing was sent, so any request may be retried.
            ForwardError::Unreachable { .. } => Self::failure(503, "ServiceUnavailable", message).with_retry_after(1),
            ForwardError::Broken { .. } => Self::failure(503, "ServiceUnavailable", message),
            ForwardError::Busy { .. } | ForwardError::Memory { .. } => errors::too_many_requests(message, 1),
            ForwardError::Timeout { .. } => Self::failure(504, "Timeout", message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audit_id_keeps_no_head() {
        let head = bytes::Bytes::from(vec![b'x'; 700_000]);
        let mut headers = HeaderMap::new();
        headers.insert(AUDIT_ID, HeaderValue::from_maybe_shared(head.slice(..36)).unwrap());
        let id = audit_id(&headers);
        drop(headers);
        assert!(id.len() == 36 && head.is_unique());
        assert_eq!(audit_id(&HeaderMap::new()).len(), 36);
    }

    #[test]
    fn refusals_have_their_codes() {
        let at = "https://10.0.0.1:6443".to_owned();
        for (error, code, reason) in [
            (ForwardError::NoCredentials, 401, "Unauthorized"),
            (ForwardError::NotLent("writes"), 403, "Forbidden"),
            (ForwardError::Unreachable { authority: at.clone(), error: "refused".into() }, 503, "ServiceUnavailable"),
            (ForwardError::Broken { authority: at.clone(), error: "reset".into() }, 503, "ServiceUnavailable"),
            (ForwardError::Busy { authority: at.clone() }, 429, "TooManyRequests"),
            (ForwardError::Memory { authority: at.clone() }, 429, "TooManyRequests"),
            (ForwardError::Timeout { authority: at.clone() }, 504, "Timeout"),
        ] {
            let status = Status::from(&error);
            assert_eq!((status.code, status.reason.as_str()), (code, reason), "{error}");
        }
        let status = Status::from(&ForwardError::Timeout { authority: at });
        assert!(status.message.contains("informerd") && status.message.contains("10.0.0.1:6443"), "{}", status.message);
        assert_eq!(Status::from(&GuardError::CrossOrigin).code, 403);
        assert_eq!(
            draining().to_json(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"informerd is shutting down, please try again later","reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}"#
        );
    }
}
