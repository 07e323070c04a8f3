//! The span of a request, by OpenTelemetry's conventions for HTTP and gRPC servers. It ends when the headers of the
//! answer are known: a watch may go on for hours, and the duration of a list depends on its client.

use http::request::Parts;
use http::{Request, Response, Version};
use tracing::Span;
use tracing::field::Empty;

use super::answer::{AUDIT_ID, is_grpc};
use super::door::{Connection, ListenAddr};
use super::record::Plan;
use crate::meta::RequestInfo;
use crate::telemetry::trace::{self, SPANS, cut};

/// The apiserver cuts an Audit-ID so in its spans, too.
const LONGEST_ID: usize = 64;

const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];

/// Begins the span, as a child of the span that the request names.
pub(super) fn begin<B>(request: Request<B>, connection: &Connection) -> (Request<B>, Span) {
    let span = tracing::info_span!(
        target: SPANS,
        "request",
        otel.name = Empty,
        otel.kind = "server",
        otel.status_code = Empty,
        "error.type" = Empty,
        http.request.method = Empty,
        http.response.status_code = Empty,
        http.route = Empty,
        rpc.system = Empty,
        rpc.service = Empty,
        rpc.method = Empty,
        rpc.grpc.status_code = Empty,
        url.scheme = Empty,
        url.path = Empty,
        server.address = Empty,
        server.port = Empty,
        client.address = Empty,
        user_agent.original = Empty,
        network.protocol.version = Empty,
        k8s.namespace.name = Empty,
        audit_id = Empty,
        informerd.verb = Empty,
        informerd.resource = Empty,
        informerd.plan = Empty,
        informerd.reason = Empty,
    );
    if span.is_disabled() {
        return (request, span);
    }
    trace::continue_from(&span, request.headers());
    let (head, body) = request.into_parts();
    describe(&span, &head, connection);
    (Request::from_parts(head, body), span)
}

/// Records how the request was answered.
pub(super) fn planned(span: &Span, plan: Plan) {
    let (plan, reason) = plan.words();
    span.record("informerd.plan", plan);
    if !reason.is_empty() {
        span.record("informerd.reason", reason);
    }
}

/// Records the answer.
pub(super) fn answered<B>(span: &Span, response: &Response<B>) {
    if span.is_disabled() {
        return;
    }
    let (status, headers) = (response.status(), response.headers());
    span.record("http.response.status_code", status.as_u16());
    if let Some(id) = headers.get(AUDIT_ID).and_then(|id| id.to_str().ok()) {
        span.record("audit_id", cut_id(id));
    }
    let code = headers.get(tonic::Status::GRPC_STATUS).and_then(|code| code.to_str().ok()?.parse::<i32>().ok());
    if let Some(code) = code {
        span.record("rpc.grpc.status_code", code);
    }
    // By the conventions, a client error is not an error of the server.
    let failed = match code {
        // UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS
        Some(code) => matches!(code, 2 | 4 | 12 | 13 | 14 | 15).then(|| code.to_string()),
        None => status.is_server_error().then(|| status.as_str().to_owned()),
    };
    if let Some(kind) = failed {
        span.record("otel.status_code", "ERROR");
        span.record("error.type", kind);
    }
}

fn cut_id(id: &str) -> &str {
    id.get(..LONGEST_ID).unwrap_or(id)
}

fn describe(span: &Span, head: &Parts, connection: &Connection) {
    let method = METHODS.into_iter().find(|method| *method == head.method.as_str()).unwrap_or("_OTHER");
    let version = match head.version {
        Version::HTTP_2 => "2",
        Version::HTTP_10 => "1.0",
        _ => "1.1",
    };
    span.record("http.request.method", method);
    span.record("network.protocol.version", version);
    span.record("url.scheme", if connection.listener.tls_ip().is_some() { "https" } else { "http" });
    if let ListenAddr::Http(address) | ListenAddr::Https(address) | ListenAddr::Delegated(address) =
        &connection.listener
    {
        span.record("server.address", address.ip().to_string());
        span.record("server.port", address.port());
    }
    if let Some(peer) = connection.peer {
        span.record("client.address", peer.ip().to_string());
    }
    if let Some(agent) = head.headers.get(http::header::USER_AGENT).and_then(|agent| agent.to_str().ok()) {
        span.record("user_agent.original", cut(agent));
    }
    let path = head.uri.path();
    if is_grpc(head.version, &head.headers) {
        let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
        span.record("otel.name", cut(&format!("{service}/{method}")));
        span.record("rpc.system", "grpc");
        span.record("rpc.service", cut(service));
        span.record("rpc.method", cut(method));
        return;
    }
    // The query is left out, because clients may put anything there.
    let info = RequestInfo::parse(head.method.as_str(), path, head.uri.query().unwrap_or_default());
    if !info.is_resource {
        span.record("otel.name", method);
        span.record("url.path", cut(path));
        return;
    }
    let route = route(&info);
    span.record("otel.name", cut(&format!("{method} {route}")));
    span.record("http.route", cut(&route));
    // Behind a proxy subresource the path belongs to another server. The names of secrets are not recorded either.
    let is_plain = info.plain && info.resource != "secrets";
    span.record("url.path", cut(if is_plain { path } else { &route }));
    if !info.namespace.is_empty() {
        span.record("k8s.namespace.name", cut(&info.namespace));
    }
    span.record("informerd.verb", info.verb.as_str());
    span.record("informerd.resource", cut(&info.gvr().group_resource()));
}

/// The path with placeholders for its names, so that there are few different values.
fn route(info: &RequestInfo) -> String {
    let mut route = if info.group.is_empty() {
        format!("/api/{}", info.version)
    } else {
        format!("/apis/{}/{}", info.group, info.version)
    };
    if info.legacy_watch {
        route.push_str("/watch");
    }
    if !info.namespace.is_empty() && info.resource != "namespaces" {
        route.push_str("/namespaces/{namespace}");
    }
    route = format!("{route}/{}", info.resource);
    if !info.name.is_empty() {
        route.push_str("/{name}");
    }
    if !info.subresource.is_empty() {
        route = format!("{route}/{}", info.subresource);
    }
    route
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_cut_as_in_the_apiserver() {
        assert_eq!([63, 64, 65].map(|bytes| cut_id(&"i".repeat(bytes)).len()), [63, 64, 64]);
    }

    #[test]
    fn routes_have_no_names() {
        for (method, target, expected) in [
            ("GET", "/api/v1/namespaces/a/pods/p", "/api/v1/namespaces/{namespace}/pods/{name}"),
            ("GET", "/api/v1/namespaces/a", "/api/v1/namespaces/{name}"),
            ("GET", "/api/v1/nodes", "/api/v1/nodes"),
            (
                "PUT",
                "/apis/apps/v1/namespaces/a/deployments/d/scale",
                "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale",
            ),
            ("GET", "/api/v1/watch/namespaces/a/pods", "/api/v1/watch/namespaces/{namespace}/pods"),
            (
                "GET",
                "/api/v1/namespaces/a/services/s/proxy/x/y",
                "/api/v1/namespaces/{namespace}/services/{name}/proxy",
            ),
        ] {
            assert_eq!(route(&RequestInfo::parse(method, target, "")), expected, "{target}");
        }
    }
}
