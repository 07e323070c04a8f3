//! The span of a request to the apiserver, by OpenTelemetry's conventions for HTTP clients. It does not contain the
//! request target, because a selector or a forwarded query may contain private data. It ends with the head of the
//! answer.

use std::sync::Arc;

use http::{Method, Request, Response};
use tracing::Span;
use tracing::field::Empty;

use super::call::CallOptions;
use crate::error::UpstreamError;
use informerd_telemetry::trace::{self, SPANS, cut};

/// Begins the span of a request to this server, and passes it to the apiserver as the parent of its own spans.
pub(super) fn begin<B>(authority: impl FnOnce() -> Arc<str>, request: &mut Request<B>, options: &CallOptions) -> Span {
    let span = tracing::info_span!(
        target: SPANS,
        "upstream",
        otel.name = Empty,
        otel.kind = "client",
        otel.status_code = Empty,
        "error.type" = Empty,
        http.request.method = Empty,
        http.response.status_code = Empty,
        server.address = Empty,
        server.port = Empty,
        informerd.verb = options.verb.as_str(),
        informerd.resource = cut(&options.resource),
    );
    if span.is_disabled() {
        return span;
    }
    let method = method(request.method());
    let name = format!("{method} {}", cut(&options.resource));
    span.record("otel.name", name.trim_end());
    span.record("http.request.method", method);
    if let Ok(authority) = authority().parse::<http::uri::Authority>() {
        span.record("server.address", authority.host().trim_matches(['[', ']']));
        if let Some(port) = authority.port_u16() {
            span.record("server.port", port);
        }
    }
    trace::hand_on(&span, request.headers_mut());
    span
}

pub(super) fn end<B>(span: &Span, result: &Result<Response<B>, UpstreamError>) {
    if span.is_disabled() {
        return;
    }
    let kind = match result {
        Ok(response) => {
            let status = response.status();
            span.record("http.response.status_code", status.as_u16());
            // By the conventions for clients, 4xx responses are errors too.
            (status.is_client_error() || status.is_server_error()).then(|| status.as_str().to_owned())
        }
        Err(error) => Some(error.kind().to_owned()),
    };
    if let Some(kind) = kind {
        span.record("otel.status_code", "ERROR");
        span.record("error.type", kind);
    }
}

fn method(method: &Method) -> &'static str {
    let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
    known.into_iter().find(|known| *known == method.as_str()).unwrap_or("_OTHER")
}
