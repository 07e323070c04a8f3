//! What the apiserver's HTTP library (Go's net/http) does by itself. It sends a `Content-Length` if the body fits into
//! its write buffer, and none for a longer body. It also refuses some requests before any handler sees them.

use http::header::{
    ACCEPT_RANGES, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, EXPECT, HeaderMap, LAST_MODIFIED, TRANSFER_ENCODING,
};
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body::Body as _;

use super::body::{self, Body};

/// The size of the write buffer for HTTP/1.1, and for HTTP/2.
const SHORT: usize = 2048;
const SHORT_HTTP2: usize = 4096;

/// Whether the content type is `application/grpc`, alone or with a subtype. gRPC needs HTTP/2, because it uses
/// trailers.
pub(in crate::http) fn is_grpc(version: Version, headers: &HeaderMap) -> bool {
    let of_grpc = |value: &HeaderValue| {
        let rest = value.as_bytes().strip_prefix(b"application/grpc");
        rest.is_some_and(|rest| rest.first().is_none_or(|next| matches!(next, b'+' | b';')))
    };
    version == Version::HTTP_2 && headers.get(CONTENT_TYPE).is_some_and(of_grpc)
}

/// The apiserver sends the length of bodies up to this size, and sends longer bodies in chunks.
pub(super) fn short(version: Version) -> usize {
    if version == Version::HTTP_2 { SHORT_HTTP2 } else { SHORT }
}

/// Removes the length if the apiserver would have left it out in the client's protocol. Forwarded answers come over
/// HTTP/2, so only lengths between the two buffer sizes are affected.
pub(in crate::http) fn for_version(mut response: Response<Body>, version: Version) -> Response<Body> {
    let headers = response.headers();
    let told = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let length = told.or_else(|| response.body().size_hint().exact()).unwrap_or(0);
    // For answers that are served like a file, the handler sets the length.
    let is_file = [ETAG, LAST_MODIFIED, ACCEPT_RANGES].iter().any(|name| headers.contains_key(name));
    if version == Version::HTTP_2 || is_file || !(SHORT as u64 + 1..=SHORT_HTTP2 as u64).contains(&length) {
        return response;
    }
    response.headers_mut().remove(CONTENT_LENGTH);
    response.map(body::without_length)
}

/// The answer to a request that net/http refuses before any handler sees it. Over HTTP/1, it ends the connection.
pub(in crate::http) fn refused<B>(request: &Request<B>) -> Option<Response<Body>> {
    let (headers, version) = (request.headers(), request.version());
    let (status, text) = if expects_too_much(headers, version) {
        (StatusCode::EXPECTATION_FAILED, "")
    } else if let Some(why) = unreadable(headers, version) {
        why
    } else if !is_path(request.uri().path()) {
        (StatusCode::BAD_REQUEST, "400 Bad Request")
    } else {
        return None;
    };
    let mut response = Response::new(body::full(bytes::Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    if !text.is_empty() {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    }
    if version != Version::HTTP_2 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Some(response)
}

/// Whether an HTTP/1 request has an expectation that cannot be met. net/http knows `100-continue` only.
fn expects_too_much(headers: &HeaderMap, version: Version) -> bool {
    let expected = headers.get(EXPECT).map_or(&b""[..], HeaderValue::as_bytes);
    let is_known = |token: &[u8]| token.trim_ascii().eq_ignore_ascii_case(b"100-continue");
    version != Version::HTTP_2 && !expected.is_empty() && !expected.split(|&byte| byte == b',').any(is_known)
}

/// How a body with transfer codings is refused that net/http does not support: it knows `chunked` only. Other servers
/// may decode such a body differently, and so disagree about where the next request begins.
fn unreadable(headers: &HeaderMap, version: Version) -> Option<(StatusCode, &'static str)> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let (first, second) = (codings.next()?, codings.next());
    if version == Version::HTTP_2 || second.is_none() && first.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return None;
    }
    Some(match second {
        Some(_) => (StatusCode::BAD_REQUEST, "400 Bad Request: too many transfer encodings"),
        None => (StatusCode::NOT_IMPLEMENTED, "Unsupported transfer encoding"),
    })
}

/// Whether every percent escape in a path is valid. Go's URL parser checks the path only: a query may contain anything.
fn is_path(path: &str) -> bool {
    let hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let bytes = path.as_bytes();
    bytes.iter().enumerate().all(|(at, byte)| *byte != b'%' || hex(bytes.get(at + 1)) && hex(bytes.get(at + 2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(length: usize, version: Version) -> Option<u64> {
        let body = body::full(bytes::Bytes::from(vec![b'x'; length]));
        for_version(Response::new(body), version).body().size_hint().exact()
    }

    #[test]
    fn a_length_is_told_up_to_the_buffer_of_the_protocol() {
        for (length, http1, http2) in [(0, true, true), (2048, true, true), (2049, false, true), (4096, false, true)] {
            assert_eq!(framed(length, Version::HTTP_11).is_some(), http1, "{length}");
            assert_eq!(framed(length, Version::HTTP_2).is_some(), http2, "{length}");
        }
    }

    #[test]
    fn the_length_of_a_file_is_told() {
        let mut response = Response::new(body::full(bytes::Bytes::from(vec![b'x'; 3000])));
        response.headers_mut().insert(ETAG, HeaderValue::from_static("\"x\""));
        assert_eq!(for_version(response, Version::HTTP_11).body().size_hint().exact(), Some(3000));
    }

    #[test]
    fn expectations() {
        for (expected, too_much) in
            [("", false), ("100-continue", false), ("x, 100-Continue", false), ("something", true), ("100", true)]
        {
            let mut headers = HeaderMap::new();
            headers.insert(EXPECT, HeaderValue::from_static(expected));
            assert_eq!(expects_too_much(&headers, Version::HTTP_11), too_much, "{expected}");
            assert!(!expects_too_much(&headers, Version::HTTP_2));
        }
        assert!(!expects_too_much(&HeaderMap::new(), Version::HTTP_11));
    }
}
